"""A .npy file that grows by rows: an array of any number of rows is written in constant memory."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from docemb_lib.errors import InputError

DTYPE = np.dtype("<f4")


@contextmanager
def growing_npy(path: Path, width: int) -> Iterator[Callable[[np.ndarray], None]]:
    """A function that appends rows (n, width) to a float32 array in `path`, which is there once the block has ended.

    Until then it is a hidden file beside, which an error or an interrupt removes. Raises InputError for another ending
    than .npy.
    """
    if path.suffix != ".npy":
        raise InputError(f"out: got {path}, give a file that ends in .npy")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.stem}.{os.getpid()}.npy")
    n = 0
    try:
        with partial.open("wb") as file:

            def append(rows: np.ndarray) -> None:
                nonlocal n
                file.write(np.ascontiguousarray(rows, dtype=DTYPE).data)
                n += len(rows)

            _write_header(file, (0, width))
            yield append
            file.seek(0)
            _write_header(file, (n, width))
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def _write_header(file: BinaryIO, shape: tuple[int, int]) -> None:
    """numpy leaves room for a first axis of any length: the header of 0 rows is as long as the last one."""
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(DTYPE), "fortran_order": False, "shape": shape}
    )

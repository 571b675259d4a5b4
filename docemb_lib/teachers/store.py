"""Teacher embeddings on disk: written once, block by block, and read as a memory map beside their corpus.

A store is a folder with `embeddings.npy` (float32, one row per document of one corpus split, in its order) and
`store.json`, which says what made it and is written last. Until then `rows_done.json` says how far it got.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.progress import progress

logger = logging.getLogger(__name__)
ARRAY, STORE, MARKER = "embeddings.npy", "store.json", "rows_done.json"


class Teacher(Protocol):
    """A frozen model that turns documents into embeddings."""

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Equal for two teachers only if they embed alike."""
        ...

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 (N, dim); a row depends on its own text alone."""
        ...


class Origin(NamedTuple):
    """What a store belongs to: rows, width, and the fingerprints of its corpus split and of its teacher."""

    rows: int
    dim: int
    corpus: str
    teacher: str


def write_embeddings(
    folder: Path | str,
    texts: Sequence[str],
    embed: Callable[[Sequence[str]], np.ndarray],
    dim: int,
    *,
    corpus: str,
    teacher: str,
    block: int = 256,
) -> None:
    """Embed `texts` into the store `folder`, `block` documents at a time; a finished store is left as it is.

    After a kill, calling again with the same arguments goes on at the first block that was not yet safe on disk and
    ends with the same bytes as an unbroken run. `texts` needs a length and slices (a list, a dataset's column).
    Raises InputError if the folder holds embeddings of something else.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    origin = Origin(len(texts), dim, corpus, teacher)
    if not origin.rows:
        raise InputError(f"{folder}: no documents to embed; the corpus split is empty")
    if (folder / STORE).exists():
        _check(folder, origin.corpus, origin.teacher)
        return
    done = _resume(folder, origin)
    if done == 0:
        array = np.lib.format.open_memmap(folder / ARRAY, "w+", np.float32, (origin.rows, dim))
    else:
        array = np.lib.format.open_memmap(folder / ARRAY, "r+")
        logger.info("%s: going on after %d of %d documents", folder, done, origin.rows)
    bar: tqdm[None]
    with progress(desc="Embedding", total=origin.rows, unit="documents") as bar:
        bar.update(done)
        for start in range(done, origin.rows, block):
            stop = min(start + block, origin.rows)
            rows = embed(texts[start:stop])
            if rows.shape != (stop - start, dim):
                raise ValueError(f"teacher {teacher}: {stop - start} documents gave {rows.shape}, expected width {dim}")
            if not np.isfinite(rows).all():
                raise ValueError(f"teacher {teacher}: an embedding of documents {start} to {stop - 1} is not finite")
            array[start:stop] = rows
            array.flush()  # the rows are on disk before the marker says so
            _write_json(folder / MARKER, origin._asdict() | {"done": stop})
            bar.update(stop - start)
    _write_json(folder / STORE, origin._asdict())
    (folder / MARKER).unlink()


def open_embeddings(folder: Path | str, *, corpus: str, teacher: str) -> np.ndarray:
    """The store's embeddings, float32 (N, dim), memory-mapped and read-only.

    Raises InputError for a store that is unfinished, or was made from another corpus or by another teacher.
    """
    folder = Path(folder)
    if not (folder / STORE).exists():
        raise InputError(f"{folder}: no finished embeddings here (no {STORE}); write them first, or go on writing")
    origin = _check(folder, corpus, teacher)
    array: np.ndarray = np.load(folder / ARRAY, mmap_mode="r")
    if array.shape != (origin.rows, origin.dim) or array.dtype != np.float32:
        raise InputError(
            f"{folder / ARRAY}: holds {array.dtype} {array.shape}, {STORE} says float32 {(origin.rows, origin.dim)}; "
            "delete the folder and embed again"
        )
    return array


def _check(folder: Path, corpus: str, teacher: str) -> Origin:
    origin = Origin(**json.loads((folder / STORE).read_text()))
    _refuse_other(folder, "corpus", origin.corpus, corpus)
    _refuse_other(folder, "teacher", origin.teacher, teacher)
    return origin


def _resume(folder: Path, origin: Origin) -> int:
    """How many rows of an earlier, interrupted call are safe on disk."""
    if not (folder / MARKER).exists():
        return 0
    marker = json.loads((folder / MARKER).read_text())
    done: int = marker.pop("done")
    for field, found in marker.items():
        _refuse_other(folder, field, found, getattr(origin, field))
    return done


def _refuse_other(folder: Path, field: str, found: object, wanted: object) -> None:
    if found != wanted:
        raise InputError(f"{folder}: embeddings of {field} {found}, wanted {field} {wanted}; use another folder")


def _write_json(path: Path, content: dict[str, object]) -> None:
    """Whole or not at all."""
    new = path.with_suffix(".new")
    with new.open("w") as file:
        json.dump(content, file)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)

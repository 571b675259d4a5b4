"""Teacher embeddings on disk: written once, block by block, and read as a memory map.

A folder holds them in `embeddings.npy` (float32, one row per document), and in `rows_done.json` how
many rows are there.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from docemb_lib.base.integrity import read_json
from docemb_lib.base.progress import progress
from docemb_lib.workspace import write_text

ARRAY = "embeddings.npy"
MARKER = "rows_done.json"
# Documents from which a teacher shows a progress bar; smaller calls are blocks of a longer loop.
BAR_FROM = 512


class Teacher(Protocol):
    """A frozen model that turns documents into embeddings."""

    @property
    def dim(self) -> int: ...

    @property
    def fingerprint(self) -> str:
        """Equal for two teachers only if their embeddings are."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 (N, dim); a row depends on its own text alone."""


def write_embeddings(
    folder: Path,
    texts: Sequence[str],
    embed: Callable[[Sequence[str]], np.ndarray],
    dim: int,
    *,
    block: int = 256,
) -> None:
    """Embed `texts` into `folder`, `block` documents at a time; row i belongs to text i.

    After an interruption the same call continues at the first block that was not on disk. The
    caller names the folder by the corpus and the teacher, as an artefact does.

    Raises InputError for damaged progress, and ValueError for embeddings that are not finite.

    Args:
        texts: a sequence that can be sliced.
    """
    folder.mkdir(parents=True, exist_ok=True)
    n = len(texts)
    marker = folder / MARKER
    done = 0
    if marker.exists():
        done = read_json(marker, f"remove {folder} and give the same command again")["done"]
    array = np.lib.format.open_memmap(folder / ARRAY, "r+" if done else "w+", np.float32, (n, dim))
    for start in progress(range(done, n, block), desc="Embedding", unit="blocks"):
        stop = min(start + block, n)
        rows = embed(texts[start:stop])
        if not np.isfinite(rows).all():
            raise ValueError(
                f"{folder}: an embedding of the documents {start} to {stop - 1} is not finite; "
                "check whether the model is damaged"
            )
        array[start:stop] = rows
        array.flush()  # the rows must be on disk before the marker counts them
        write_text(marker, json.dumps({"done": stop}))


def open_embeddings(folder: Path) -> np.ndarray:
    """Float32 (N, dim), memory-mapped and read-only, as `write_embeddings` has finished them."""
    return np.load(folder / ARRAY, mmap_mode="r")

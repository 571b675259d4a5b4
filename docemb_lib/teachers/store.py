"""Teacher embeddings on disk: written once, block by block, and read as a memory map with one row per document.

A store is a folder with `embeddings.npy` (float32) and `store.json`, which names the corpus and the teacher and is
written last. Until then `rows_done.json` holds the progress.
"""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.integrity import read_json
from docemb_lib.progress import progress
from docemb_lib.workspace import write_text

ARRAY, STORE, MARKER = "embeddings.npy", "store.json", "rows_done.json"
BAR_FROM = 512  # documents from which a teacher shows a progress bar; smaller calls are blocks of a longer loop


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
    folder: Path | str, texts: Sequence[str], embed: Callable[[Sequence[str]], np.ndarray], dim: int, *, corpus: str,
    teacher: str, block: int = 256,
) -> None:  # fmt: skip
    """Embed `texts` into the store `folder`, `block` documents at a time; a finished store is kept as it is.

    After an interruption the same call continues at the first block that was not on disk. texts: a sequence that can be
    sliced; corpus, teacher: fingerprints. Raises InputError if the folder has other fingerprints.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    origin = {"rows": (n := len(texts)), "dim": dim, "corpus": corpus, "teacher": teacher}
    if (folder / STORE).exists():
        _check(folder, STORE, corpus=corpus, teacher=teacher)
        return
    done: int = _check(folder, MARKER, **origin)["done"] if (folder / MARKER).exists() else 0
    array = np.lib.format.open_memmap(folder / ARRAY, "r+" if done else "w+", np.float32, (n, dim))
    for start in progress(range(done, n, block), desc="Embedding", unit="blocks"):
        stop = min(start + block, n)
        rows = embed(texts[start:stop])
        if not np.isfinite(rows).all():
            raise ValueError(f"teacher {teacher}: an embedding of documents {start} to {stop - 1} is not finite")
        array[start:stop] = rows
        array.flush()  # the rows must be on disk before the marker counts them
        write_text(folder / MARKER, json.dumps(origin | {"done": stop}))
    write_text(folder / STORE, json.dumps(origin))
    (folder / MARKER).unlink()


def open_embeddings(folder: Path | str, *, corpus: str, teacher: str) -> np.ndarray:
    """Float32 (N, dim), memory-mapped and read-only. InputError for an unfinished store, or one of other inputs."""
    folder = Path(folder)
    if not (folder / STORE).exists():
        raise InputError(f"{folder}: no finished embeddings here (no {STORE}); write them first, or continue writing")
    _check(folder, STORE, corpus=corpus, teacher=teacher)
    array: np.ndarray = np.load(folder / ARRAY, mmap_mode="r")
    return array


def _check(folder: Path, file: str, **expected: object) -> dict[str, Any]:
    """The content of a JSON file of the store, if its fields are the expected ones."""
    found: dict[str, Any] = read_json(folder / file, f"remove {folder} and give the same command again")
    for field, value in expected.items():
        if found[field] != value:
            both = f"embeddings of {field} {found[field]}, wanted {field} {value}"
            raise InputError(f"{folder}: {both}; use another folder")
    return found

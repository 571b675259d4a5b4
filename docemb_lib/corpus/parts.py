"""Documents on disk while a corpus is built: files of some thousand documents each, with their lengths.

Texts are never in memory all at once, and a build that was stopped goes on after the last whole file.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sized
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from docemb_lib.corpus.sources import BATCH, Counter, Document
from docemb_lib.progress import progress

if TYPE_CHECKING:
    from datasets import Dataset

SIZE = 10_000  # documents of a part: held in memory, and lost to a kill, at most
COMPLETE = "complete"  # an empty file beside the parts, once there is none to come


class Key(NamedTuple):
    """What is known of a document without its text."""

    id: str
    source: str
    digest: bytes
    see_also: tuple[str, ...]


def write_parts(
    folder: Path, documents: Iterable[Document], counters: Mapping[str, Counter], *, copy_words: int | None
) -> None:
    """Write the documents as `00000.arrow`, `00001.arrow`, … into a folder, each file whole or not at all.

    Parts that are there already stay; `documents` must begin with what they hold, and that much of it is passed over.
    counters: a column of lengths each; copy_words: see `digest`. A bar shows how far it is where the number of
    documents is known beforehand; otherwise that is the source's business.
    """
    if (folder / COMPLETE).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    done = len(part_files(folder))
    if isinstance(documents, Sized):
        documents = progress(documents, desc="counting tokens", unit="documents")
    rest = islice(documents, done * SIZE, None)
    while part := list(islice(rest, SIZE)):
        lengths: dict[str, list[int]] = {name: [] for name in counters}
        for start in range(0, len(part), BATCH):
            texts = [document.text for document in part[start : start + BATCH]]
            for name, counter in counters.items():
                lengths[name] += counter(texts)
        _write(folder / f"{done:05}.arrow", part, lengths, copy_words)
        done += 1
    (folder / COMPLETE).touch()


def part_files(folder: Path) -> list[Path]:
    """The whole parts in a folder, in their order."""
    return sorted(folder.glob("*.arrow"))


def read_keys(folder: Path) -> list[Key]:
    """A key per document, in their order; texts are not read."""
    import pyarrow as pa

    keys: list[Key] = []
    for file in part_files(folder):
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
            table = stream.read_all().select(list(Key._fields))
            columns = (column.to_pylist() for column in table.columns)
            keys += (Key(id, source, hashed, tuple(links)) for id, source, hashed, links in zip(*columns, strict=True))
    return keys


def open_parts(folder: Path, *, in_memory: bool = False) -> Dataset:
    """All parts as one data set, memory-mapped: id, text, source, n_words and the counters' columns."""
    from datasets import Dataset, concatenate_datasets

    parts = [Dataset.from_file(str(file), in_memory=in_memory) for file in part_files(folder)]
    return concatenate_datasets(parts).remove_columns(["digest", "see_also"])


def digest(text: str, words: int | None) -> bytes:
    """What equal texts have in common, case and white space aside: 16 bytes of a hash of their first `words` words."""
    return hashlib.sha256(" ".join(text.lower().split()[:words]).encode()).digest()[:16]


def _write(file: Path, part: list[Document], lengths: Mapping[str, list[int]], copy_words: int | None) -> None:
    import pyarrow as pa

    columns: dict[str, Any] = {
        "id": pa.array([document.id for document in part], pa.string()),
        "text": pa.array([document.text for document in part], pa.large_string()),  # a split may pass 2 GB
        "source": pa.array([document.source for document in part], pa.string()),
        "n_words": pa.array([len(document.text.split()) for document in part], pa.int64()),
        **{name: pa.array(counts, pa.int64()) for name, counts in lengths.items()},
        "digest": pa.array([digest(document.text, copy_words) for document in part], pa.binary()),
        "see_also": pa.array([document.see_also for document in part], pa.list_(pa.string())),
    }
    table = pa.table(columns)
    temporary = file.with_name(f"{file.name}.partial")
    with pa.OSFile(str(temporary), "wb") as out, pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table, max_chunksize=BATCH)
    os.replace(temporary, file)

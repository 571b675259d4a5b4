"""Documents on disk while a corpus is built: files of some thousand documents each, with their lengths.

Texts are never in memory all at once, and a build that was stopped goes on after the last whole file.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docemb_lib.corpus.sources import BATCH, CountTokens, Document, Key
from docemb_lib.progress import progress

if TYPE_CHECKING:
    import pyarrow as pa
    from datasets import Dataset

SIZE = 10_000  # documents of a part: held in memory, and lost to a kill, at most
# Batches in work at once. Tokenisers run on all cores and let go of Python meanwhile, so with one batch at a time the
# cores would wait while the next one is read, split into words and hashed.
THREADS = 4
COMPLETE = "complete"  # an empty file beside the parts, once there is none to come


def write_parts(
    folder: Path, documents: Iterable[Document], counters: Mapping[str, CountTokens], *, copy_words: int | None
) -> None:
    """Write the documents as `00000.arrow`, `00001.arrow`, … into a folder, each file whole or not at all.

    Parts that are there already stay; `documents` must begin with what they hold, and that much of it is passed over.
    Where reading on fails, what was read before is written as far as it fills parts.
    counters: a column of lengths each, called from several threads; copy_words: see `digest`. A bar shows how far it is
    where the number of documents is known beforehand; otherwise that is the source's business.
    """
    if (folder / COMPLETE).exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    done = len(part_files(folder))
    if isinstance(documents, Sized):
        documents = progress(documents, desc="counting tokens", unit="documents")
    rest = islice(documents, done * SIZE, None)
    for counter in counters.values():
        counter([""])  # a tokeniser is loaded at its first call: once, not by every thread
    measure = partial(_measured, counters=counters, copy_words=copy_words)
    measured = _ahead(measure, _batches(rest))
    while (batch := next(measured, None)) is not None:
        _write(folder / f"{done:05}.arrow", batch, measured)
        done += 1
    (folder / COMPLETE).touch()


def part_files(folder: Path) -> list[Path]:
    """The whole parts in a folder, in their order."""
    return sorted(folder.glob("*.arrow"))


def read_keys(folder: Path) -> Iterator[Key]:
    """A key per document, in their order; texts are not read."""
    import pyarrow as pa

    for file in part_files(folder):
        with pa.memory_map(str(file)) as mapped, pa.ipc.open_stream(mapped) as stream:
            for batch in stream:
                columns = (batch.column(name).to_pylist() for name in Key._fields)
                for id, source, hashed, links in zip(*columns, strict=True):
                    yield Key(id, source, hashed, tuple(links))


def open_parts(folder: Path, *, in_memory: bool = False) -> Dataset:
    """All parts as one data set, memory-mapped: id, text, source, n_words and the counters' columns."""
    from datasets import Dataset, concatenate_datasets

    parts = [Dataset.from_file(str(file), in_memory=in_memory) for file in part_files(folder)]
    return concatenate_datasets(parts).remove_columns(["digest", "see_also"])


def digest(text: str, words: int | None) -> bytes:
    """What equal texts have in common, case and white space aside: 16 bytes of a hash of their first `words` words."""
    return hashlib.sha256(" ".join(text.lower().split()[:words]).encode()).digest()[:16]


@contextmanager
def whole_stream(file: Path, schema: pa.Schema) -> Iterator[Any]:
    """A stream of Arrow batches into a file that appears once it is whole; where writing fails, nothing of it stays."""
    import pyarrow as pa

    temporary = file.with_name(f"{file.name}.partial")
    try:
        with pa.OSFile(str(temporary), "wb") as out, pa.ipc.new_stream(out, schema) as stream:
            yield stream
        os.replace(temporary, file)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _batches(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Some documents at a time, none beyond the end of its part."""
    while True:
        part, rows = islice(documents, SIZE), 0
        while batch := list(islice(part, BATCH)):
            rows += len(batch)
            yield batch
        if rows < SIZE:
            return


def _ahead(
    measure: Callable[[list[Document]], pa.RecordBatch], batches: Iterator[list[Document]]
) -> Iterator[pa.RecordBatch]:
    """Every batch measured, in order, while the next ones are read and measured in other threads.

    Where reading fails, the batches before are given first.
    """
    waiting: deque[Future[pa.RecordBatch]] = deque()
    failure: BaseException | None = None
    pool = ThreadPoolExecutor(THREADS)
    try:
        while True:
            try:
                batch = next(batches, None)
            except BaseException as error:
                batch, failure = None, error
            if batch is not None:
                waiting.append(pool.submit(measure, batch))
            while waiting and (batch is None or len(waiting) > THREADS):
                yield waiting.popleft().result()
            if batch is None:
                break
    finally:
        pool.shutdown(cancel_futures=True)
    if failure is not None:
        raise failure


def _measured(
    documents: Sequence[Document], *, counters: Mapping[str, CountTokens], copy_words: int | None
) -> pa.RecordBatch:
    import pyarrow as pa

    texts = [document.text for document in documents]
    columns: dict[str, Any] = {
        "id": pa.array([document.id for document in documents], pa.string()),
        "text": pa.array(texts, pa.large_string()),  # a split may pass 2 GB
        "source": pa.array([document.source for document in documents], pa.string()),
        "n_words": pa.array([len(text.split()) for text in texts], pa.int64()),
        **{name: pa.array(counter(texts), pa.int64()) for name, counter in counters.items()},
        "digest": pa.array([digest(text, copy_words) for text in texts], pa.binary()),
        "see_also": pa.array([document.see_also for document in documents], pa.list_(pa.string())),
    }
    return pa.RecordBatch.from_pydict(columns)


def _write(file: Path, first: pa.RecordBatch, following: Iterator[pa.RecordBatch]) -> None:
    """A part of `first` and of so many of the following batches as belong to it, as one: whoever opens the parts of
    millions of documents pays for every batch in them."""
    import pyarrow as pa

    batches, rows = [first], len(first)
    while rows < SIZE and (batch := next(following, None)) is not None:
        batches.append(batch)
        rows += len(batch)
    with whole_stream(file, first.schema) as stream:
        stream.write_table(pa.Table.from_batches(batches).combine_chunks())

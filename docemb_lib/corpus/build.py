"""Makes a corpus of documents: measures them, drops copies, holds out task documents, and splits.

The texts are never all in memory: they lie on disk in parts. A stopped build goes on after the last
whole part.
"""

from __future__ import annotations

import hashlib
import itertools
import logging
import os
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa

from docemb_lib.base.errors import InputError
from docemb_lib.base.tokenizing import batched
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.sources import CountTokens

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

logger = logging.getLogger(__name__)

Partition = Literal["train", "validation", "test"]
PARTITIONS: tuple[Partition, ...] = ("train", "validation", "test")
VALIDATION = 0.2  # share of the held-out documents
TEST = 0.3  # share of the held-out documents; train has the rest
LINKED = 0.7  # share of each partition for pages with their links; the rest balances the sources
MIN_LINKS = 2  # targets that a linked page needs in its partition
MAX_LINKS = 6  # targets that a linked page brings with it, the first ones
PART = 10_000  # documents of a part: the most that are in memory, and that a kill costs
BATCH = 256  # documents measured at once


def build_corpus(
    documents: Iterable[Document],
    *,
    counters: Mapping[str, CountTokens],
    validation: int,
    tasks: int,
    seed: int,
    folder: Path,
    copy_words: int | None = None,
) -> DatasetDict:
    """Return a corpus with the disjoint splits `train`, `validation` and, if `tasks` > 0, `tasks`.

    Columns: id, text, source, n_words, and one per counter. Rows of `tasks` have also `split`
    (train, validation or test) and `see_also`, the ids of other rows of `tasks` to which they
    refer. The order depends on `seed` and the ids alone.

    Raises InputError for too few documents, and for two documents with the same id.

    Args:
        counters: functions from texts to numbers of tokens, by column.
        validation, tasks: numbers of documents; train has the rest.
        folder: holds the parts until the caller removes it; it is also removed if InputError is
            raised.
        copy_words: of documents whose first `copy_words` words (None: all) agree except for case,
            the first id is kept.
    """
    try:
        write_parts(folder, documents, counters, copy_words=copy_words)
        return _splits(folder, validation=validation, tasks=tasks, seed=seed)
    except InputError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def hold_out(documents: Sequence[Document], *, size: int) -> dict[str, Partition]:
    """Partition of each held-out document, by id; `size` of `documents`, taken in the order given.

    First, pages and the targets of their links fill part of each partition, because citation tasks
    need both ends of a link in one. Then each is filled with documents of the source that it has
    least of; without links, in order.
    """
    room: dict[Partition, int] = {
        "validation": round(VALIDATION * size),
        "test": round(TEST * size),
    }
    room["train"] = size - sum(room.values())
    held = _hold_linked(documents, {name: int(LINKED * places) for name, places in room.items()})
    source_of = {document.id: document.source for document in documents}
    waiting: dict[str, deque[str]] = defaultdict(deque)  # ids by source, or by "" without links
    for id, source in source_of.items():
        if id not in held:
            waiting[source if held else ""].append(id)
    for name in PARTITIONS:
        count = Counter(source_of[id] for id, partition in held.items() if partition == name)
        for _ in range(room[name] - count.total()):
            sources = [source for source, ids in waiting.items() if ids]
            source = min(sources, key=lambda source: (count[source], source))
            held[waiting[source].popleft()] = name
            count[source] += 1
    return held


def _hold_linked(documents: Sequence[Document], room: dict[Partition, int]) -> dict[str, Partition]:
    """Pages with at least MIN_LINKS targets in their partition, as long as both fit into `room`."""
    known = {document.id for document in documents}
    held: dict[str, Partition] = {}
    used: Counter[Partition] = Counter()
    for page in documents:
        targets = [target for target in page.see_also if target in known][:MAX_LINKS]
        new = [id for id in (page.id, *targets) if id not in held]
        emptiest = sorted(PARTITIONS, key=lambda name: used[name] / max(room[name], 1))
        for home in [held[page.id]] if page.id in held else emptiest:
            links = sum(held.get(target, home) == home for target in targets)
            if links >= MIN_LINKS and used[home] + len(new) <= room[home]:
                held.update(dict.fromkeys(new, home))
                used[home] += len(new)
                break
    return held


def write_parts(
    folder: Path,
    documents: Iterable[Document],
    counters: Mapping[str, CountTokens],
    *,
    copy_words: int | None,
) -> None:
    """Measure the documents and write them as `00000.arrow`, `00001.arrow`, and so on.

    Each file is written whole or not at all. Parts that exist already stay, and as many of the
    documents are skipped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = len(list(folder.glob("*.arrow")))
    remaining = itertools.islice(documents, done * PART, None)
    for number in itertools.count(done):
        batches = batched(itertools.islice(remaining, PART), BATCH)
        part = [_measured(batch, counters, copy_words) for batch in batches]
        if not part:
            return
        _write(folder / f"{number:05}.arrow", part)


def open_parts(folder: Path) -> Dataset:
    """Return all parts as one data set, memory-mapped."""
    from datasets import Dataset, concatenate_datasets

    parts = [Dataset.from_file(str(file)) for file in sorted(folder.glob("*.arrow"))]
    return concatenate_datasets(parts) if parts else Dataset.from_dict({"id": [], "digest": []})


def digest(text: str, words: int | None) -> bytes:
    """Return 16 bytes of a hash of the first `words` words (None: all), equal for copies.

    Case and white space make no difference.
    """
    plain = " ".join(text.lower().split(None, -1 if words is None else words)[:words])
    return hashlib.sha256(plain.encode()).digest()[:16]


def _splits(folder: Path, *, validation: int, tasks: int, seed: int) -> DatasetDict:
    from datasets import Dataset, DatasetDict, Features, Value

    documents = open_parts(folder)
    rows = distinct_rows(documents, seed=seed)
    needed = validation + tasks + 1
    if len(rows) < needed:
        raise InputError(
            f"corpus: there are {len(rows)} distinct documents, but corpus.validation "
            f"({validation}) and corpus.tasks ({tasks}) need {needed} or more; "
            "lower one of the two, or add documents"
        )
    chunks = documents.data.column("see_also").iterchunks()
    linked = tasks > 0 and any(len(chunk.flatten()) for chunk in chunks)
    # Without links the first documents are held out.
    without_texts = documents.select_columns(["id", "source", "see_also"])
    chosen = without_texts.select(rows if linked else rows[:tasks])
    candidates = [Document(text="", **fields) for fields in chosen]
    held = hold_out(candidates, size=tasks)
    is_held = [document.id in held for document in candidates]
    task_rows = rows[: len(candidates)][np.array(is_held, dtype=bool)]
    rest = rows[~np.isin(rows, task_rows)]
    # Of small sources most of the first documents are held out. The last are an even sample to
    # learn from.
    if linked:
        rest = rest[::-1]
    columns = documents.remove_columns(["digest", "see_also"])
    corpus = DatasetDict(
        train=columns.select(rest[validation:]), validation=columns.select(rest[:validation])
    )
    if held:
        fields = columns.select(task_rows).to_dict()
        fields["split"] = [held[id] for id in fields["id"]]
        fields["see_also"] = []
        links = documents.select(task_rows)["see_also"]
        for targets in links:
            fields["see_also"].append([target for target in targets if target in held])
        types = {**columns.features, "split": Value("string"), "see_also": [Value("string")]}
        corpus["tasks"] = Dataset.from_dict(fields, features=Features(types))
    return corpus


def distinct_rows(documents: Dataset, *, seed: int) -> np.ndarray:
    """Return the rows of the documents, ordered by a hash of seed and id, without copies.

    Of each group of copies the row of the first id stays. Raises InputError for two different
    documents with the same id.
    """
    # A text of two splits of a hub's data set has the same id, the hash of the text.
    frame = documents.select_columns(["id", "digest"]).to_pandas().drop_duplicates()
    repeated = frame["id"][frame["id"].duplicated()]
    if len(repeated):
        raise InputError(
            f"corpus: two documents have the id {repeated.min()!r}; rename one of them"
        )
    frame["place"] = [hashlib.sha256(f"{seed}:{id}".encode()).digest() for id in frame["id"]]
    distinct = frame.sort_values("id").drop_duplicates("digest").sort_values("place")
    dropped = len(documents) - len(distinct)
    if dropped:
        message = "%d of %d documents repeat an earlier one and are left out"
        logger.warning(message, dropped, len(documents))
    return distinct.index.to_numpy()


def _measured(
    batch: Sequence[Document], counters: Mapping[str, CountTokens], copy_words: int | None
) -> pa.RecordBatch:
    """Return the columns of some documents; a finished corpus has no `digest` and `see_also`."""
    ids, texts, sources, links = map(list, zip(*batch, strict=True))
    # Texts are counted once where two columns share a counter.
    counts = {counter: counter(texts) for counter in set(counters.values())}
    columns = {
        "id": ids,
        "text": pa.array(texts, pa.large_string()),  # a split may exceed 2 GB
        "source": sources,
        "n_words": [len(text.split()) for text in texts],
    }
    columns |= {name: counts[counter] for name, counter in counters.items()}
    columns["digest"] = [digest(text, copy_words) for text in texts]
    columns["see_also"] = pa.array(links, pa.list_(pa.string()))  # all may be empty
    return pa.RecordBatch.from_pydict(columns)


def _write(file: Path, batches: list[pa.RecordBatch]) -> None:
    """Write a part as one batch, because opening a file takes time for each batch in it."""
    table = pa.Table.from_batches(batches).combine_chunks()
    temporary = file.with_name(f"{file.name}.partial")
    with pa.OSFile(str(temporary), "wb") as out, pa.ipc.new_stream(out, table.schema) as stream:
        stream.write_table(table)
    os.replace(temporary, file)

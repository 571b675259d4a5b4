"""From documents to a corpus: measured and written to parts, copies dropped, task documents held
out, and split.

The texts are never all in memory: they lie on disk in parts. A stopped build goes on after the last
whole part.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd
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
VALIDATION, TEST = 0.2, 0.3  # shares of the held-out documents; train has the rest
LINKED = 0.7  # share of each partition for pages with their links; the rest balances the sources
MIN_LINKS, MAX_LINKS = (
    2,
    6,
)  # a linked page brings its first MAX_LINKS targets and needs MIN_LINKS of them
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
    """A corpus with the disjoint splits `train`, `validation` and, if `tasks` > 0, `tasks`.

    Columns: id, text, source, n_words, and one per counter. Rows of `tasks` have also `split`
    (train, validation or test) and `see_also`, the ids they refer to in the same split. The order
    depends on `seed` and the ids alone.

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
    waiting: dict[str, deque[Document]] = defaultdict(deque)
    for document in documents:
        if document.id not in held:
            waiting[document.source if held else ""].append(document)
    source_of = {document.id: document.source for document in documents}
    for name in PARTITIONS:
        count = Counter(source_of[id] for id, partition in held.items() if partition == name)
        for _ in range(room[name] - count.total()):
            source = min(
                (source for source, queue in waiting.items() if queue),
                key=lambda one: (count[one], one),
            )
            held[waiting[source].popleft().id] = name
            count[source] += 1
    return held


def _hold_linked(documents: Sequence[Document], room: dict[Partition, int]) -> dict[str, Partition]:
    """Pages with at least MIN_LINKS targets in their partition, as long as a page and its targets
    fit into `room`.
    """
    known = {document.id for document in documents}
    held: dict[str, Partition] = {}
    used: Counter[Partition] = Counter()
    for page in documents:
        targets = [target for target in page.see_also if target in known][:MAX_LINKS]
        new = [id for id in (page.id, *targets) if id not in held]
        emptiest = sorted(PARTITIONS, key=lambda name: used[name] / max(room[name], 1))
        for home in [held[page.id]] if page.id in held else emptiest:
            beside = sum(held.get(target, home) == home for target in targets)
            if beside >= MIN_LINKS and used[home] + len(new) <= room[home]:
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
    """Measure the documents and write them as `00000.arrow`, `00001.arrow`, …, each file whole or
    not at all.

    Parts that exist already stay, and as many of the documents are skipped.
    """
    folder.mkdir(parents=True, exist_ok=True)
    done = len(list(folder.glob("*.arrow")))
    rest = islice(documents, done * PART, None)
    while part := [
        _measured(batch, counters, copy_words) for batch in batched(islice(rest, PART), BATCH)
    ]:
        _write(folder / f"{done:05}.arrow", part)
        done += 1


def open_parts(folder: Path) -> Dataset:
    """All parts as one data set, memory-mapped."""
    from datasets import Dataset, concatenate_datasets

    parts = [Dataset.from_file(str(file)) for file in sorted(folder.glob("*.arrow"))]
    return concatenate_datasets(parts) if parts else Dataset.from_dict({})


def digest(text: str, words: int | None) -> bytes:
    """16 bytes of a hash of the first `words` words (None: all), case and white space aside; equal
    for copies.
    """
    plain = " ".join(text.lower().split(None, -1 if words is None else words)[:words])
    return hashlib.sha256(plain.encode()).digest()[:16]


def _splits(folder: Path, *, validation: int, tasks: int, seed: int) -> DatasetDict:
    from datasets import Dataset, DatasetDict, Features, Value

    everything = open_parts(folder)
    rows = distinct_rows(everything, seed=seed) if everything else np.empty(0, np.int64)
    if len(rows) < (needed := validation + tasks + 1):
        both = f"corpus.validation ({validation}) and corpus.tasks ({tasks})"
        problem = f"there are {len(rows)} distinct documents, but {both} need {needed} or more"
        raise InputError(f"corpus: {problem}; lower one of the two, or add documents")
    linked = tasks and any(
        len(chunk.flatten()) for chunk in everything.data.column("see_also").iterchunks()
    )
    chosen = everything.select(
        rows if linked else rows[:tasks]
    )  # without links the first documents are held out
    columns = (chosen[name][:] for name in ("id", "source", "see_also"))
    candidates = [
        Document(id, "", source, tuple(cited)) for id, source, cited in zip(*columns, strict=True)
    ]
    held = hold_out(candidates, size=tasks)
    keys = {row: key for row, key in zip(rows.tolist(), candidates, strict=False) if key.id in held}
    everything = everything.remove_columns(["digest", "see_also"])
    rest = rows[~np.isin(rows, list(keys))]
    # of small sources most of the first documents are held out; the last are an even sample to
    # learn from
    if linked:
        rest = rest[::-1]
    corpus = DatasetDict(
        train=everything.select(rest[validation:]), validation=everything.select(rest[:validation])
    )
    if held:
        fields: dict[str, Any] = everything.select(list(keys)).to_dict()
        fields["split"] = [held[key.id] for key in keys.values()]
        fields["see_also"] = [
            [id for id in key.see_also if held.get(id) == held[key.id]] for key in keys.values()
        ]
        types = {**everything.features, "split": Value("string"), "see_also": [Value("string")]}
        corpus["tasks"] = Dataset.from_dict(fields, features=Features(types))
    return corpus


def distinct_rows(documents: Dataset, *, seed: int) -> np.ndarray:
    """The rows of the documents, ordered by a hash of seed and id; of each group of copies the row
    of the first id.
    """
    frame = pd.DataFrame(
        {name: documents.data.column(name).to_pylist() for name in ("id", "digest")}
    )
    frame = frame.drop_duplicates(
        ["id", "digest"]
    )  # a text of two splits of a hub's data set has the id of its hash
    if (repeated := frame["id"].duplicated()).any():
        raise InputError(
            f"corpus: two documents have the id {frame['id'][repeated].min()!r}; rename one of them"
        )
    place = [hashlib.sha256(f"{seed}:{id}".encode()).digest() for id in frame["id"]]
    distinct = (
        frame.assign(place=place).sort_values("id").drop_duplicates("digest").sort_values("place")
    )
    if dropped := len(documents) - len(distinct):
        logger.warning(
            "%d of %d documents repeat an earlier one and are left out", dropped, len(documents)
        )
    return distinct.index.to_numpy()


def _measured(
    batch: Sequence[Document], counters: Mapping[str, CountTokens], copy_words: int | None
) -> pa.RecordBatch:
    ids, texts, sources, links = map(list, zip(*batch, strict=True))
    counts = {
        counter: counter(texts) for counter in set(counters.values())
    }  # once where two columns share a tokenizer
    columns: dict[str, Any] = {
        "id": pa.array(ids, pa.string()),
        "text": pa.array(texts, pa.large_string()),  # a split may exceed 2 GB
        "source": pa.array(sources, pa.string()),
        "n_words": pa.array([len(text.split()) for text in texts], pa.int64()),
        **{name: pa.array(counts[counter], pa.int64()) for name, counter in counters.items()},
        "digest": pa.array([digest(text, copy_words) for text in texts], pa.binary()),
        "see_also": pa.array(links, pa.list_(pa.string())),
    }
    return pa.RecordBatch.from_pydict(columns)


def _write(file: Path, batches: list[pa.RecordBatch]) -> None:
    """Write a part as one batch, because opening a file takes time for each batch in it."""
    temporary = file.with_name(f"{file.name}.partial")
    with (
        pa.OSFile(str(temporary), "wb") as out,
        pa.ipc.new_stream(out, batches[0].schema) as stream,
    ):
        stream.write_table(pa.Table.from_batches(batches).combine_chunks())
    os.replace(temporary, file)

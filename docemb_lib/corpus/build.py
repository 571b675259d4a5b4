"""Choose the documents that are held out for the evaluation tasks, and share them out among the tasks' partitions."""

from __future__ import annotations

import logging
import shutil
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pandas as pd

from docemb_lib.corpus.parts import SIZE, open_parts, read_keys, whole_stream, write_parts
from docemb_lib.corpus.sources import CountTokens, Document, Key, Ledger
from docemb_lib.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict


# ---- choose the documents


Partition = Literal["train", "validation", "test"]
PARTITIONS: tuple[Partition, ...] = ("train", "validation", "test")
VALIDATION, TEST = 0.2, 0.3  # shares of the pool; train has the rest
LINKED = 0.7  # share of each partition for pages with their links; the rest balances the sources
MIN_LINKS, MAX_LINKS = 2, 6  # a linked page brings its first MAX_LINKS targets and needs MIN_LINKS of them


def hold_out(documents: Sequence[Document], *, size: int) -> dict[str, Partition]:
    """Partition of each held-out document, by id; `size` of `documents`, taken in the order given.

    Citation tasks need both ends of a link in one partition, so a page goes where its targets go: first pages with
    links fill part of each partition, a target staying where the first page pulled it; then the source that a
    partition has least of gives the next document, until the partition is full. Documents without any links are
    taken as they come.
    """
    validation, test = round(VALIDATION * size), round(TEST * size)
    room: dict[Partition, int] = {"train": size - validation - test, "validation": validation, "test": test}
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
                (source for source, queue in waiting.items() if queue), key=lambda source: (count[source], source)
            )
            held[waiting[source].popleft().id] = name
            count[source] += 1
    return held


def _hold_linked(documents: Sequence[Document], room: dict[Partition, int]) -> dict[str, Partition]:
    """Pages with at least MIN_LINKS targets beside them, while there is room for a page and all that it brings."""
    known = {document.id for document in documents}
    held: dict[str, Partition] = {}
    used: Counter[Partition] = Counter()
    for page in documents:
        targets = [target for target in page.see_also if target in known][:MAX_LINKS]
        new = [id for id in (page.id, *targets) if id not in held]
        homes = (
            [held[page.id]] if page.id in held else sorted(PARTITIONS, key=lambda name: used[name] / max(room[name], 1))
        )
        for home in homes:
            beside = sum(held.get(target, home) == home for target in targets)
            if beside >= MIN_LINKS and used[home] + len(new) <= room[home]:
                held.update(dict.fromkeys(new, home))
                used[home] += len(new)
                break
    return held


# ---- from documents to a corpus


logger = logging.getLogger(__name__)


def build_corpus(
    documents: Iterable[Document],
    *,
    counters: Mapping[str, CountTokens],
    validation: int,
    tasks: int,
    seed: int,
    copy_words: int | None = None,
    folder: Path | None = None,
) -> DatasetDict:
    """A corpus with the splits `train`, `validation` and, if `tasks` > 0, `tasks`, which are disjoint.

    Columns: id, text, source, n_words, and one per counter (`n_student_tokens`, `n_structural_tokens`). Rows of
    `tasks` have also `split` (train, validation or test) and `see_also`, the ids they refer to in the same split.
    `validation` and `tasks` are numbers of documents; train has the rest, in an order that depends on `seed` and the
    ids alone, so that a new document changes no other's place in it. Of documents that repeat each other (case and
    white space aside; `copy_words`: in their first so many words, for sources that give one page under several paths,
    small changes in its end) the one with the first id stays.

    folder: for the documents on their way, so that they need not fit into memory and a build that was stopped goes on,
    given the same documents; the caller removes it once the corpus is saved. None: in memory.
    Raises InputError for too few documents, and for two of one id; then the folder is removed.
    """
    with _parts_folder(folder) as parts:
        write_parts(parts, documents, counters, copy_words=copy_words)
        with Ledger(parts / "keys.sqlite", seed=seed) as ledger:
            ledger.add(read_keys(parts))
            leave_out_copies(ledger)
            if len(ledger) < (needed := validation + tasks + 1):
                raise InputError(
                    f"corpus: {len(ledger)} distinct documents, but validation={validation} and tasks={tasks} leave "
                    f"one for training only from {needed}; lower corpus.validation or corpus.tasks, or add documents"
                )
            held = hold_out(_candidates(ledger, tasks), size=tasks)
            return _splits(parts, ledger, held, validation=validation, in_memory=folder is None)


@contextmanager
def _parts_folder(folder: Path | None) -> Iterator[Path]:
    """The folder, removed again where what is in it cannot become a corpus; None: a temporary one."""
    if folder is None:
        with TemporaryDirectory() as temporary:
            yield Path(temporary)
        return
    try:
        yield folder
    except InputError:
        shutil.rmtree(folder, ignore_errors=True)
        raise


def leave_out_copies(ledger: Ledger) -> None:
    """Of documents with equal digests leave the one with the first id; logs how many were dropped.

    Raises InputError where two documents have one id.
    """
    if (id := ledger.repeated_id()) is not None:
        raise InputError(f"corpus: two documents have the id {id!r}; rename one of them")
    documents = len(ledger)
    if copies := ledger.drop_copies():
        logger.warning("%d of %d documents repeat an earlier one and are left out", copies, documents)


def _candidates(ledger: Ledger, size: int) -> list[Document]:
    """What `hold_out` chooses from: without any links between documents it takes the first ones."""
    keys = (key for _, key in ledger.ordered())
    chosen = keys if ledger.linked() else islice(keys, size)
    return [Document(key.id, "", key.source, key.see_also) for key in chosen]


def _splits(
    parts: Path, ledger: Ledger, held: Mapping[str, Partition], *, validation: int, in_memory: bool
) -> DatasetDict:
    """Each split maps rows of the parts; those of train, which may be millions, from a file."""
    import pyarrow as pa
    from datasets import Dataset, DatasetDict
    from datasets.table import InMemoryTable, MemoryMappedTable

    everything = open_parts(parts, in_memory=in_memory)
    validation_rows: list[int] = []
    task_rows: list[int] = []
    task_keys: list[Key] = []
    file, schema = parts / "train.indices", pa.schema([("indices", pa.uint64())])

    def train_rows() -> Iterator[int]:
        for row, key in ledger.ordered():
            if key.id in held:
                task_rows.append(row)
                task_keys.append(key)
            elif len(validation_rows) < validation:
                validation_rows.append(row)
            else:
                yield row

    rest = train_rows()
    with whole_stream(file, schema) as stream:
        while rows := list(islice(rest, SIZE)):
            stream.write_batch(pa.record_batch([pa.array(rows, pa.uint64())], schema))
    table = (InMemoryTable if in_memory else MemoryMappedTable).from_file(str(file))
    corpus = DatasetDict(
        train=Dataset(everything.data, info=everything.info, indices_table=table),
        validation=everything.select(validation_rows),
    )
    if held:
        corpus["tasks"] = _task_table(everything.select(task_rows), task_keys, held)
    return corpus


def _task_table(rows: Dataset, keys: Sequence[Key], held: Mapping[str, Partition]) -> Dataset:
    """The rows with the columns `split` and `see_also`."""
    from datasets import Dataset, Features, Value

    columns: dict[str, Any] = rows.to_dict()
    columns["split"] = [held[key.id] for key in keys]
    columns["see_also"] = [[id for id in key.see_also if held.get(id) == held[key.id]] for key in keys]
    types = {**rows.features, "split": Value("string"), "see_also": [Value("string")]}
    return Dataset.from_dict(columns, features=Features(types))


# ---- how many documents a corpus has and how long they are


LIMITS = (384, 512)  # structural tokens: how much SBERT sees in the thesis, and its tokenizer's own limit


def corpus_statistics(corpus: Mapping[str, Dataset], *, limit: int, student_limit: int = 4096) -> pd.DataFrame:
    """One row per split: its documents, and their lengths in tokens without special tokens.

    `limit` is the structural teacher's in its own tokens, `student_limit` the student's in the student's. Columns:
    split, documents, tokens, mean, std, median (student tokens; std over the split, not an estimate), and percent of
    documents that are longer: beyond_limit and beyond_student, over_384 and over_512 (structural tokens, as in Tables
    4.1 and 5.1). An empty split has zero tokens and NaN.
    """
    rows = []
    for split, table in corpus.items():
        student = np.asarray(table["n_student_tokens"], dtype=np.float64)
        structural = np.asarray(table["n_structural_tokens"], dtype=np.float64)
        row = {"split": str(split), "documents": len(student), "tokens": int(student.sum())}
        if len(student):
            row |= {
                "mean": student.mean(),
                "std": student.std(),
                "median": np.median(student),
                "beyond_limit": 100 * (structural > limit).mean(),
                "beyond_student": 100 * (student > student_limit).mean(),
                **{f"over_{tokens}": 100 * (structural > tokens).mean() for tokens in LIMITS},
            }
        rows.append(row)
    columns = ["split", "documents", "tokens", "mean", "std", "median", "beyond_limit", "beyond_student"]
    columns += [f"over_{tokens}" for tokens in LIMITS]
    return pd.DataFrame(rows, columns=columns)

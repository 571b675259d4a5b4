"""From documents to a corpus: copies dropped, order fixed, tasks held out, lengths counted (thesis, Section 4.2)."""

from __future__ import annotations

import hashlib
import logging
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from docemb_lib.corpus.held_out import Partition, hold_out
from docemb_lib.corpus.parts import Key, open_parts, read_keys, write_parts
from docemb_lib.corpus.sources import Counter, Document
from docemb_lib.errors import InputError

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

logger = logging.getLogger(__name__)


def build_corpus(
    documents: Iterable[Document],
    *,
    counters: Mapping[str, Counter],
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
    from datasets import DatasetDict  # not at the top: processes that read documentation import this package too

    with _parts_folder(folder) as parts:
        write_parts(parts, documents, counters, copy_words=copy_words)
        keys = read_keys(parts)
        order = sorted(without_copies(keys), key=lambda row: _place(keys[row].id, seed))
        needed = validation + tasks + 1
        if len(order) < needed:
            raise InputError(
                f"corpus: {len(order)} distinct documents, but validation={validation} and tasks={tasks} leave one "
                f"for training only from {needed}; lower corpus.validation or corpus.tasks, or add documents"
            )
        everything = open_parts(parts, in_memory=folder is None)
    held = hold_out(_candidates([keys[row] for row in order], tasks), size=tasks)
    rest = [row for row in order if keys[row].id not in held]
    corpus = DatasetDict(train=everything.select(rest[validation:]), validation=everything.select(rest[:validation]))
    if tasks:
        chosen = [row for row in order if keys[row].id in held]
        corpus["tasks"] = _task_table(everything.select(chosen), [keys[row] for row in chosen], held)
    return corpus


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


def without_copies(keys: Sequence[Key]) -> list[int]:
    """Rows in the order of their ids, without those whose text is that of an earlier id; logs how many were dropped.

    Raises InputError where two documents have one id.
    """
    rows = sorted(range(len(keys)), key=lambda row: keys[row].id)
    for row, following in pairwise(rows):
        if keys[row].id == keys[following].id:
            raise InputError(f"corpus: two documents have the id {keys[row].id!r}; rename one of them")
    first: dict[bytes, int] = {}
    for row in rows:
        first.setdefault(keys[row].digest, row)
    if copies := len(rows) - len(first):
        logger.warning("%d of %d documents repeat an earlier one and are left out", copies, len(rows))
    return list(first.values())


def _candidates(order: Sequence[Key], size: int) -> list[Document]:
    """What `hold_out` chooses from: without any links between documents it takes the first ones."""
    linked = any(key.see_also for key in order)
    return [Document(key.id, "", key.source, key.see_also) for key in (order if linked else order[:size])]


def _place(id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{id}".encode()).digest()


def _task_table(rows: Dataset, keys: Sequence[Key], held: Mapping[str, Partition]) -> Dataset:
    """The rows with the columns `split` and `see_also`."""
    from datasets import Dataset, Features, Value

    columns: dict[str, Any] = rows.to_dict()
    columns["split"] = [held[key.id] for key in keys]
    columns["see_also"] = [[id for id in key.see_also if held.get(id) == held[key.id]] for key in keys]
    types = {**rows.features, "split": Value("string"), "see_also": [Value("string")]}
    return Dataset.from_dict(columns, features=Features(types))

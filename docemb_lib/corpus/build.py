"""From documents to a corpus: copies dropped, order fixed, tasks held out, lengths counted (thesis, Section 4.2)."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from docemb_lib.corpus.held_out import Partition, hold_out
from docemb_lib.corpus.sources import Document
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

logger = logging.getLogger(__name__)

Counter = Callable[[list[str]], list[int]]  # texts -> tokens of each
BATCH = 256  # texts given to a counter at once


def build_corpus(
    documents: Iterable[Document],
    *,
    counters: Mapping[str, Counter],
    validation: int,
    tasks: int,
    seed: int,
    copy_words: int | None = None,
) -> DatasetDict:
    """A corpus with the splits `train`, `validation` and, if `tasks` > 0, `tasks`, which are disjoint.

    Columns: id, text, source, n_words, and one per counter (`n_student_tokens`, `n_structural_tokens`). Rows of
    `tasks` have also `split` (train, validation or test) and `see_also`, the ids they refer to in the same split.
    `validation` and `tasks` are numbers of documents; train has the rest, in an order that depends on `seed` and the
    ids alone, so that a new document changes no other's place in it. `copy_words`: see `drop_copies`. Raises
    InputError for too few documents.
    """
    from datasets import DatasetDict  # not at the top: processes that read documentation import this package too

    distinct = drop_copies(documents, words=copy_words)
    needed = validation + tasks + 1
    if len(distinct) < needed:
        raise InputError(
            f"corpus: {len(distinct)} distinct documents, but validation={validation} and tasks={tasks} leave one for "
            f"training only from {needed}; lower corpus.validation or corpus.tasks, or add documents"
        )
    order = sorted(distinct, key=lambda document: _place(document.id, seed))
    lengths = {name: _count(order, counter, name) for name, counter in counters.items()}
    held = hold_out(order, size=tasks)
    rest = [document for document in order if document.id not in held]
    splits = {"train": rest[validation:], "validation": rest[:validation]}
    corpus = DatasetDict({name: _table(split, lengths) for name, split in splits.items()})
    if tasks:
        corpus["tasks"] = _table([document for document in order if document.id in held], lengths, held)
    return corpus


def drop_copies(documents: Iterable[Document], *, words: int | None = None) -> list[Document]:
    """Documents sorted by id, without those whose text is an earlier one's, case and white space aside.

    `words`: compare the first so many words only, for sources that give one page under several paths, small changes
    in its end: it would otherwise stand on both sides of a split. Logs how many were dropped. Raises InputError where
    two documents have one id.
    """
    first: dict[str, Document] = {}
    ids: set[str] = set()
    for document in sorted(documents):
        if document.id in ids:
            raise InputError(f"corpus: two documents have the id {document.id!r}; rename one of them")
        ids.add(document.id)
        first.setdefault(" ".join(document.text.lower().split()[:words]), document)
    if copies := len(ids) - len(first):
        logger.warning("%d of %d documents repeat an earlier one and are left out", copies, len(ids))
    return list(first.values())


def _place(id: str, seed: int) -> bytes:
    return hashlib.sha256(f"{seed}:{id}".encode()).digest()


def _count(documents: Sequence[Document], counter: Counter, name: str) -> dict[str, int]:
    """The counter's answer for each document, by id."""
    counts: dict[str, int] = {}
    for start in progress(range(0, len(documents), BATCH), desc=f"counting {name}", unit="batches"):
        batch = documents[start : start + BATCH]
        answers = counter([document.text for document in batch])
        counts.update(zip((document.id for document in batch), answers, strict=True))
    return counts


def _table(
    documents: Sequence[Document],
    lengths: Mapping[str, Mapping[str, int]],
    held: Mapping[str, Partition] | None = None,
) -> Dataset:
    from datasets import Dataset, Features, Value

    columns: dict[str, list[Any]] = {
        "id": [document.id for document in documents],
        "text": [document.text for document in documents],
        "source": [document.source for document in documents],
        "n_words": [len(document.text.split()) for document in documents],
        **{name: [counts[document.id] for document in documents] for name, counts in lengths.items()},
    }
    types: dict[str, Any] = {name: Value("int64") for name in columns}
    types |= {"id": Value("string"), "text": Value("large_string"), "source": Value("string")}  # a split may pass 2 GB
    if held is not None:
        columns["split"] = [held[document.id] for document in documents]
        columns["see_also"] = [
            [target for target in document.see_also if held.get(target) == held[document.id]] for document in documents
        ]
        types |= {"split": Value("string"), "see_also": [Value("string")]}
    return Dataset.from_dict(columns, features=Features(types))

"""What the splits of a task hold: labelled documents, labelled pairs or a ranking; each checked when a task is made."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from docemb_lib.errors import InputError

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Labelled:
    """Documents and the class of each; a class is an int or a str."""

    texts: Sequence[str]
    labels: Sequence[Hashable]

    @property
    def documents(self) -> tuple[Sequence[str]]:
        """The texts of each example, as columns."""
        return (self.texts,)

    def take(self, rows: Sequence[int] | np.ndarray) -> Labelled:
        return Labelled([self.texts[row] for row in rows], [self.labels[row] for row in rows])

    def check(self, where: str) -> None:
        if not len(self.texts) == len(self.labels) > 0:
            raise InputError(
                f"{where}: {len(self.texts)} texts and {len(self.labels)} labels, "
                "expected equally many and at least one"
            )


@dataclass(frozen=True)
class LabelledPairs:
    """Pairs of documents, in their order, and the class of each pair."""

    first: Sequence[str]
    second: Sequence[str]
    labels: Sequence[Hashable]

    @property
    def texts(self) -> list[str]:
        return [*self.first, *self.second]

    @property
    def documents(self) -> tuple[Sequence[str], Sequence[str]]:
        """The texts of each example, as columns."""
        return (self.first, self.second)

    def take(self, rows: Sequence[int] | np.ndarray) -> LabelledPairs:
        first, second = ([column[row] for row in rows] for column in self.documents)
        return LabelledPairs(first, second, [self.labels[row] for row in rows])

    def check(self, where: str) -> None:
        if not len(self.first) == len(self.second) == len(self.labels) > 0:
            raise InputError(
                f"{where}: {len(self.first)} first texts, {len(self.second)} second texts and "
                f"{len(self.labels)} labels, expected equally many and at least one"
            )


@dataclass(frozen=True)
class Ranking:
    """A pool of documents, some of which are queries; `relevant` has the rows to be found for each query.

    candidates: None: any text may be found. A number: only the first so many; those after them are queries that stand
    in no pool.
    """

    texts: Sequence[str]
    queries: Sequence[int]
    relevant: Sequence[Sequence[int]]
    candidates: int | None = None

    def check(self, where: str) -> None:
        if not len(self.queries) == len(self.relevant) > 0:
            raise InputError(
                f"{where}: {len(self.queries)} queries and {len(self.relevant)} lists of relevant rows, "
                "expected equally many and at least one"
            )
        pool = len(self.texts) if self.candidates is None else self.candidates
        if not 1 <= pool <= len(self.texts):
            raise InputError(f"{where}: {pool} of {len(self.texts)} texts may be found, expected from 1 to all")
        for query, rows in zip(self.queries, self.relevant, strict=True):
            if not len(rows) or len(set(rows)) < len(rows) or query in rows:
                raise InputError(
                    f"{where}: query {query} has the relevant rows {list(rows)}, expected at least one, each once, "
                    "and never the query itself"
                )
            if not 0 <= query < len(self.texts) or not all(0 <= row < pool for row in rows):
                raise InputError(
                    f"{where}: query {query} with relevant rows {list(rows)} points outside the {len(self.texts)} "
                    f"texts, or the {pool} of them that may be found"
                )


Data = TypeVar("Data")


def pick(name: str, splits: Mapping[str, Data], split: str) -> Data:
    """The data of a split; an error that lists the others where there is none."""
    if split not in splits:
        raise InputError(f"task {name!r} has no split {split!r}, only {', '.join(splits)}")
    return splits[split]


def check_splits(name: str, splits: Mapping[str, Labelled | LabelledPairs | Ranking]) -> None:
    """Only known splits, and each of them sound."""
    if not splits or set(splits) - set(SPLITS):
        raise InputError(f"task {name!r}: splits must be some of {', '.join(SPLITS)}, got {list(splits)}")
    for split, data in splits.items():
        data.check(f"task {name!r}, split {split!r}")


def check_classes(name: str, splits: Mapping[str, Labelled | LabelledPairs]) -> None:
    """A head knows the classes of the train split only, so every other split must do with those."""
    if "train" not in splits:
        raise InputError(f"task {name!r} has no split 'train' to train heads on, only {', '.join(splits)}")
    known = set(splits["train"].labels)
    if len(known) < 2:
        raise InputError(f"task {name!r}, split 'train': all labels are {known.pop()!r}, expected two classes or more")
    for split, data in splits.items():
        if unknown := [label for label in data.labels if label not in known]:
            raise InputError(
                f"task {name!r}, split {split!r}: {len(unknown)} of {len(data.labels)} labels are none of the "
                f"{len(known)} classes of 'train', the first is {unknown[0]!r}; leave them out, or add some to train"
            )

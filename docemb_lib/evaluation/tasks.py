"""What the splits of a task hold: labelled documents, labelled pairs or a ranking; each checked when a task is made."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol, TypeVar

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.heads import pair_features, train_heads
from docemb_lib.evaluation.retrieval import accuracy, f1_macro, score_retrieval
from docemb_lib.settings import HeadSettings

# ---- what the splits of a task hold


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


# ---- from texts to rows of embeddings


Lookup = Callable[[Sequence[str]], np.ndarray]  # from N texts to their embeddings, (N, D)
BLOCK = 8192  # rows looked at together


def unique(*parts: Sequence[str]) -> list[str]:
    """Each text once, in the order of first appearance."""
    return list(dict.fromkeys(text for part in parts for text in part))


def rows_by_text(name: str, embeddings: np.ndarray, texts: list[str]) -> Lookup:
    """The look-up of embeddings, (N, D), which must be finite and as many as the texts.

    All texts in their order are looked up without a copy: a large pool may stay memory-mapped.
    """
    if embeddings.ndim != 2 or len(embeddings) != len(texts):
        raise InputError(
            f"task {name!r}: embeddings of shape {embeddings.shape} for {len(texts)} texts, "
            "expected one row per text, in the order of task.texts(split)"
        )
    blocks = range(0, len(texts), BLOCK)
    finite = np.concatenate([np.isfinite(embeddings[start : start + BLOCK]).all(axis=1) for start in blocks])
    if not finite.all():
        raise InputError(
            f"task {name!r}: {np.count_nonzero(~finite)} of {len(texts)} embeddings are not finite, "
            f"the first is row {int(np.argmin(finite))}; look for a diverged model"
        )
    row = {text: i for i, text in enumerate(texts)}

    def lookup(wanted: Sequence[str]) -> np.ndarray:
        return embeddings if list(wanted) == texts else embeddings[[row[text] for text in wanted]]

    return lookup


# ---- tasks


SEEDS = 5  # heads per task: how far a score moves with the seed alone


class Embedder(Protocol):
    """What a model must be able to do to be evaluated."""

    def embed(self, texts: list[str]) -> np.ndarray:
        """texts: N. Returns (N, D), in their order."""
        ...


@dataclass(frozen=True)
class Score:
    """A task's score: its metric once per seed (one value where nothing is trained), and further metrics by name.

    `per_example` has what intervals and tests need: for each metric that is a mean over test examples (accuracy; map,
    mrr) what every example or query got, float32 (seeds, N) or (1, Q). Two scores are equal whatever it holds.
    """

    metric: str
    values: tuple[float, ...]
    extra: Mapping[str, float] = field(default_factory=dict)
    per_example: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds; 0 for a single value."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0


class Examples(NamedTuple):
    """What heads see of a split. features: (N, D); labels: (N,) class numbers."""

    features: np.ndarray
    labels: np.ndarray
    classes: int


@dataclass(frozen=True)
class HeadTask:
    """What `Classification` and `Pairs` share: heads trained on the train split, judged by accuracy on another."""

    name: str
    splits: Mapping[str, Labelled | LabelledPairs]
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        check_splits(self.name, self.splits)
        check_classes(self.name, self.splits)

    def texts(self, split: str = "test") -> list[str]:
        """Every text that scoring on `split` needs, once: those of train and of the split."""
        return unique(self.splits["train"].texts, pick(self.name, self.splits, split).texts)

    def score(
        self, embeddings: np.ndarray, split: str = "test", *, head: HeadSettings | None = None, seeds: int = SEEDS
    ) -> Score:
        """One accuracy for each of the seeds 0, 1, ..., `seeds` - 1.

        embeddings: (N, D), row i of `texts(split)[i]`; head: None is the thesis'.
        """
        head = head or HeadSettings()
        train, scored = self.examples(embeddings, ("train", split), head)
        heads = train_heads(train.features, train.labels, classes=train.classes, settings=head, seeds=range(seeds))
        return score_answers(self.metric, heads.predict(scored.features), scored.labels)

    def examples(self, embeddings: np.ndarray, splits: tuple[str, ...], head: HeadSettings) -> list[Examples]:
        """What heads see of each of the splits: of train, and of one that is scored.

        embeddings: (N, D), row i of `texts(splits[-1])[i]`. Classes are numbered in the order of their names.
        """
        lookup = rows_by_text(self.name, embeddings, self.texts(splits[-1]))
        number = {label: i for i, label in enumerate(sorted(set(self.splits["train"].labels), key=str))}
        found = []
        for split in splits:
            data = pick(self.name, self.splits, split)
            labels = np.array([number[label] for label in data.labels])
            found.append(Examples(self.features(data, lookup, head), labels, len(number)))
        return found

    def example_lengths(self, lengths: Sequence[int] | np.ndarray, split: str = "test") -> np.ndarray:
        """The length of each example of a split, of a pair that of the longer document: (N,).

        lengths: of `texts(split)`, in whatever unit.
        """
        length_of = dict(zip(self.texts(split), lengths, strict=True))
        columns = pick(self.name, self.splits, split).documents
        return np.max([[length_of[text] for text in column] for column in columns], axis=0)

    def features(self, data: Labelled | LabelledPairs, lookup: Lookup, head: HeadSettings) -> np.ndarray:
        """What the head sees of each example: (N, D) of documents, (N, 2 D) of pairs."""
        if isinstance(data, LabelledPairs):
            return pair_features(lookup(data.first), lookup(data.second), head.pair_features)
        return lookup(data.texts)


@dataclass(frozen=True)
class Classification(HeadTask):
    """What class is a document of?"""

    splits: Mapping[str, Labelled]


@dataclass(frozen=True)
class Pairs(HeadTask):
    """What holds between two documents? They are embedded separately and meet in the head."""

    splits: Mapping[str, LabelledPairs]


@dataclass(frozen=True)
class Retrieval:
    """Which documents belong to this one? Ranking by cosine; nothing is trained."""

    name: str
    splits: Mapping[str, Ranking]
    top_k: int | None = None  # None: the whole ranking counts; 1000 is the cut of the author's code
    metric: ClassVar[str] = "map"

    def __post_init__(self) -> None:
        check_splits(self.name, self.splits)
        if self.top_k is not None and self.top_k < 1:
            raise InputError(f"task {self.name!r}: top_k must be at least 1 or None, got {self.top_k}")

    def texts(self, split: str = "test") -> list[str]:
        """The pool of `split`, each text once."""
        return unique(pick(self.name, self.splits, split).texts)

    def score(
        self, embeddings: np.ndarray, split: str = "test", *, head: HeadSettings | None = None, seeds: int = SEEDS
    ) -> Score:
        """One value of MAP, and further metrics as extras. embeddings: (N, D), row i of `texts(split)[i]`.

        `head` and `seeds` are taken so that all tasks are called alike; a ranking has no use for them.
        """
        ranking = pick(self.name, self.splits, split)
        pool = rows_by_text(self.name, embeddings, self.texts(split))(ranking.texts)
        scores = score_retrieval(
            pool, ranking.queries, ranking.relevant, top_k=self.top_k, candidates=ranking.candidates
        )
        extra = {name: float(getattr(scores, name).mean()) for name in scores._fields[2:]}
        per_query = {"map": scores.average_precision, "mrr": scores.reciprocal_rank}
        return Score(
            self.metric,
            (scores.map,),
            extra={"mrr": scores.mrr} | extra,
            per_example={name: values[None].astype(np.float32) for name, values in per_query.items()},
        )

    def example_lengths(self, lengths: Sequence[int] | np.ndarray, split: str = "test") -> np.ndarray:
        """The length of each query of a split: (Q,). lengths: of `texts(split)`, in whatever unit."""
        length_of = dict(zip(self.texts(split), lengths, strict=True))
        ranking = pick(self.name, self.splits, split)
        return np.array([length_of[ranking.texts[query]] for query in ranking.queries])


Task = Classification | Pairs | Retrieval


def evaluate(
    model: Embedder, task: Task, *, split: str = "test", head: HeadSettings | None = None, seeds: int = SEEDS
) -> Score:
    """Embed what `task` needs and score it. head: None is the thesis'. Warns of what is odd about the task's data."""
    from docemb_lib.evaluation.soundness import warn_of_problems  # which imports this module

    warn_of_problems(task)
    return task.score(np.asarray(model.embed(task.texts(split))), split, head=head, seeds=seeds)


def score_answers(metric: str, answers: np.ndarray, labels: np.ndarray) -> Score:
    """The score of S heads: accuracy, and macro-F1 as an extra. answers: (S, N), labels: (N,), both class numbers."""
    return Score(
        metric,
        tuple(accuracy(answers, labels).tolist()),
        extra={"f1_macro": float(f1_macro(answers, labels).mean())},
        per_example={metric: (answers == labels).astype(np.float32)},
    )

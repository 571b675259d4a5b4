"""Tasks: texts, splits and one metric, nothing else (thesis, Sections 4.3 and 5.2).

A task does not know the model: it names the texts it needs embedded, once each, and scores the embeddings.
`Classification` and `Pairs` train heads on their train split, `Retrieval` ranks. `evaluate` does both steps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.head_training import train_heads
from docemb_lib.evaluation.heads import pair_features
from docemb_lib.evaluation.lookup import Lookup, rows_by_text, unique
from docemb_lib.evaluation.metrics import accuracy, f1_macro
from docemb_lib.evaluation.retrieval import score_retrieval
from docemb_lib.evaluation.splits import Labelled, LabelledPairs, Ranking, check_classes, check_splits, pick
from docemb_lib.settings import HeadSettings

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

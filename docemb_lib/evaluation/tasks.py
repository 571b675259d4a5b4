"""Evaluation tasks: labelled documents, labelled pairs or rankings in splits, and their scores.

A task holds data in splits. Classification and pairs train heads on frozen embeddings;
retrieval and scored pairs rank by cosine. A task checks when it is constructed that its data can be
scored; `warn_of_problems` reports data that can be scored but is suspicious, and does not mend it,
because published scores include it.

Embeddings are (N, D), dense or sparse with rows of unit length.
"""

from __future__ import annotations

import logging
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import hash_of
from docemb_lib.evaluation.retrieval import (
    DECIMALS,
    Embeddings,
    Similarities,
    by_cosine,
    of_rows,
    rank_documents,
    score_queries,
    spearman,
)
from docemb_lib.settings.sections import HeadSettings

logger = logging.getLogger(__name__)
Integers: TypeAlias = "Sequence[int] | np.ndarray"

SPLITS = ("train", "validation", "test")
SEEDS = 5  # heads per task; the spread of a score is taken over them
FOLDS = 5  # of a cross-validation


class Column(NamedTuple):
    """Documents of a split: one for each example, or the pool of a ranking."""

    ids: Sequence[str]
    texts: Sequence[str]


def ids_of_texts(texts: Sequence[str]) -> list[str]:
    """Return ids of documents whose source gives none: equal texts are one document."""
    return [hash_of(text) for text in texts]


class Examples:
    """What all data share: columns of texts, whose documents get ids by their texts if need be."""

    ids_of: ClassVar[Mapping[str, str]] = {"texts": "ids"}  # the field of ids, by that of texts

    def __post_init__(self) -> None:
        for texts, ids in self.ids_of.items():
            if not getattr(self, ids):
                object.__setattr__(self, ids, ids_of_texts(getattr(self, texts)))

    @property
    def columns(self) -> list[Column]:
        fields = self.ids_of.items()
        return [Column(getattr(self, ids), getattr(self, texts)) for texts, ids in fields]

    def check(self, where: str) -> None:
        """Raise InputError where fields are empty or differ in length."""
        check_sizes(where, vars(self))

    def take(self, rows: Integers) -> Self:
        """Return the examples in these rows."""
        fields = [list(map(field.__getitem__, rows)) for field in vars(self).values()]
        return type(self)(*fields)


@dataclass(frozen=True)
class Labelled(Examples):
    """Documents and their classes; a class is an int or a str.

    ids: of the documents; without them, equal texts are one document.
    """

    texts: Sequence[str]
    labels: Sequence[Hashable]
    ids: Sequence[str] = ()


@dataclass(frozen=True)
class LabelledPairs(Examples):
    """Ordered pairs of documents and the class, or the score, of each pair.

    first_ids, second_ids: of the documents; without them, equal texts are one document.
    """

    ids_of: ClassVar[Mapping[str, str]] = {"first": "first_ids", "second": "second_ids"}

    first: Sequence[str]
    second: Sequence[str]
    labels: Sequence[Hashable]
    first_ids: Sequence[str] = ()
    second_ids: Sequence[str] = ()


@dataclass(frozen=True)
class Ranking(Examples):
    """A pool of documents, some of which are queries, and perhaps queries that are no documents.

    ids: of the texts; without them, equal texts are one document.
    """

    texts: Sequence[str]
    queries: Sequence[int]  # rows of texts
    relevant: Sequence[Sequence[int]]  # for each query the rows to retrieve
    ids: Sequence[str] = ()
    grades: Sequence[Sequence[float]] = ()  # of the relevant rows, from 1; empty: all are 1
    # For each query the grades of relevant documents that are in no row; empty: there are none
    missing: Sequence[Sequence[float]] = ()
    candidates: int | None = None  # the first so many texts can be retrieved; None: all

    @property
    def pool(self) -> Sequence[str]:
        """The ids of the documents that can be retrieved."""
        return self.ids[: self.candidates]

    def check(self, where: str) -> None:
        """Raise InputError where a query has no relevant rows, or rows that cannot be retrieved."""
        check_sizes(where, {"queries": self.queries, "lists of relevant rows": self.relevant})
        check_sizes(where, {"texts": self.texts, "ids": self.ids})
        size = len(self.pool)
        missing = self.missing or [()] * len(self.queries)
        examples = zip(
            self.queries, self.relevant, self.grades or self.relevant, missing, strict=True
        )
        for query, rows, grades, absent in examples:
            each_once = len(rows) == len({*rows} - {query}) == len(grades)
            in_pool = all(0 <= row < size for row in rows) and 0 <= query < len(self.texts)
            if not (each_once and in_pool and (len(rows) or len(absent))):
                raise InputError(
                    f"{where}: query {query} has the relevant rows {list(rows)}; give one or more "
                    f"of the {size} rows, each once, without the query"
                )


Split: TypeAlias = Labelled | LabelledPairs | Ranking  # the data of one


def check_sizes(where: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Raise InputError where columns are empty or differ in length. columns: by name."""
    sizes = {name: len(column) for name, column in columns.items()}
    if len({*sizes.values()}) > 1 or 0 in sizes.values():
        counts = " and ".join(f"{size} {name}" for name, size in sizes.items())
        raise InputError(f"{where}: it has {counts}; give equally many of each, and at least one")


def documents_of(task: str, *parts: Split) -> dict[str, str]:
    """Return the texts of the documents of all parts by id, in the order of their first places.

    Raises InputError, which names the task, where two texts have the same id.
    """
    documents: dict[str, str] = {}
    for part in parts:
        for column in part.columns:
            for id, text in zip(column.ids, column.texts, strict=True):
                if documents.setdefault(id, text) != text:
                    raise InputError(
                        f"task {task!r}: two texts have the id {id!r:.80}; give each document an "
                        "id of its own"
                    )
    return documents


class Embedder(Protocol):
    """A model that can be evaluated: `embed` gives (N, D) for N texts, in their order."""

    def embed(self, texts: list[str]) -> np.ndarray: ...


@dataclass(frozen=True, eq=False)
class Score:
    """The score of a model on a task: the results of its test examples or queries.

    per_example: for each metric that is a mean over examples (accuracy, those of retrieval, and
    Spearman's correlation, see `spearman`) the results (S, N), of S head seeds, or of one where
    nothing is trained; the first metric decides.
    extra: further metrics, of each seed.
    """

    per_example: Mapping[str, np.ndarray]
    extra: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The metric that decides."""
        return next(iter(self.per_example))

    @property
    def by_seed(self) -> dict[str, list[float]]:
        """The score of each seed, by metric."""
        scores = {}
        for metric, results in self.per_example.items():
            scores[metric] = results.mean(axis=1, dtype=np.float64).tolist()
        return {**scores, **self.extra}

    @property
    def mean(self) -> float:
        return float(np.mean(self.by_seed[self.metric]))

    def of_examples(self, metric: str | None = None) -> np.ndarray:
        """Return the result of each example, the mean over seeds: (N,)."""
        return self.per_example[metric or self.metric].mean(axis=0, dtype=np.float64)

    def decided_by(self, metric: str) -> Score:
        """Return the score with another metric that decides, if each example has a result of it."""
        if metric not in self.per_example:
            return self
        return replace(self, per_example={metric: self.per_example[metric], **self.per_example})


def downsample(labels: Sequence[Hashable], limit: int) -> np.ndarray:
    """Return the rows of `limit` examples with the class shares kept, by class; all if no more.

    Of each class the first floor(share * limit). Then the smallest cut class that has examples left
    gets one more, until there are `limit`. A class without any takes one from the largest, so that
    heads know all classes of the other splits. Classes of equal size, and groups, follow the order
    of the class names.
    """
    if len(labels) <= limit:
        return np.arange(len(labels))
    number = {label: i for i, label in enumerate(sorted(set(labels), key=str))}
    codes = np.array([number[label] for label in labels])
    sizes = np.bincount(codes)
    wanted = sizes * limit // len(labels)
    while wanted.sum() < limit:
        wanted[np.where(wanted < sizes, wanted, limit).argmin()] += 1
    if limit >= len(sizes):
        for code in np.flatnonzero(wanted == 0):
            wanted[wanted.argmax()] -= 1
            wanted[code] = 1
    by_class = np.split(np.argsort(codes, kind="stable"), sizes.cumsum()[:-1])
    return np.concatenate([rows[:count] for rows, count in zip(by_class, wanted, strict=True)])


class HeadInputs(NamedTuple):
    """The input of heads for one split."""

    features: Embeddings
    labels: np.ndarray  # (N,) class numbers, all of them in train


@dataclass(frozen=True)
class BaseTask:
    """Data in splits, with a name."""

    name: str
    splits: Mapping[str, Any]

    def __post_init__(self) -> None:
        """Raise InputError where splits are missing, have unknown names, or hold unsound data."""
        if not self.splits or set(self.splits) - set(SPLITS):
            raise InputError(
                f"task {self.name!r}: the splits are {list(self.splits)}; give some of "
                f"{', '.join(SPLITS)}"
            )
        for split, data in self.splits.items():
            data.check(f"task {self.name!r}, split {split!r}")
        documents_of(self.name, *self.splits.values())

    def documents(self, split: str = "test") -> dict[str, str]:
        """Return the texts that scoring on `split` reads, by id: those of train, too, for heads."""
        if split not in self.splits:
            raise InputError(
                f"task {self.name!r} has no split {split!r}, only {', '.join(self.splits)}; name "
                "one of these"
            )
        trained = [self.splits["train"]] if isinstance(self, HeadTask) else []
        return documents_of(self.name, *trained, self.splits[split])

    def texts(self, split: str = "test") -> list[str]:
        """Return the texts of `documents`."""
        return list(self.documents(split).values())

    def rows(self, split: str, embeddings: Embeddings | Similarities) -> dict[str, int]:
        """Return the row of each document of `documents(split)`.

        Raises InputError for embeddings of a wrong shape and for infinite ones.
        """
        rows = {id: row for row, id in enumerate(self.documents(split))}
        if callable(embeddings):
            return rows
        problem = ""
        if embeddings.ndim != 2 or embeddings.shape[0] != len(rows):
            problem = (
                f"have the shape {embeddings.shape}, for {len(rows)} texts; give one row for each "
                "of task.texts(split), in their order"
            )
        else:
            with np.errstate(invalid="ignore"):  # infinities of both signs
                total = embeddings.sum(dtype=np.float64)  # never copies a memory-mapped array
            if not np.isfinite(total):
                problem = "are not finite; check whether the model has diverged"
        if problem:
            raise InputError(f"task {self.name!r}: the embeddings {problem}")
        return rows


@dataclass(frozen=True)
class HeadTask(BaseTask):
    """Base of the tasks whose heads are trained on the train split and scored by their accuracy."""

    splits: Mapping[str, Labelled | LabelledPairs]

    def __post_init__(self) -> None:
        """Check the splits; a head can only predict the classes of train."""
        super().__post_init__()
        where = f"task {self.name!r}"
        if "train" not in self.splits:
            raise InputError(
                f"{where} has no split 'train' to train heads on, only {', '.join(self.splits)}; "
                "add one"
            )
        known = set(self.splits["train"].labels)
        if len(known) < 2:
            raise InputError(
                f"{where}, split 'train': all labels are {known.pop()!r}; give two classes or more"
            )
        for split, data in self.splits.items():
            unknown = sorted(set(data.labels) - known, key=str)
            if unknown:
                raise InputError(
                    f"{where}, split {split!r}: the labels {unknown[:3]} are none of the "
                    f"{len(known)} classes of 'train'; leave them out, or add them to 'train'"
                )

    def score(
        self,
        embeddings: Embeddings,
        split: str = "test",
        *,
        head: HeadSettings | None = None,
        seeds: int = SEEDS,
        examples: int | None = None,
        folds: int = FOLDS,
    ) -> Score:
        """Return the accuracy of a head per seed from 0.

        The train split is scored by cross-validation, in stratified folds without shuffling, and
        once over the predictions of all folds, so that examples count equally.

        embeddings: (N, D), row i belongs to document i of `documents(split)`; examples: of train to
        learn from, None: all.
        """
        from sklearn.model_selection import StratifiedKFold

        head = head or HeadSettings()
        train, scored = self.head_inputs(embeddings, split, head)
        labels = self.splits["train"].labels
        parts = [(downsample(labels, examples or len(labels)), np.arange(len(scored.labels)))]
        if split == "train":
            parts = list(StratifiedKFold(folds).split(train.features, train.labels))
        jobs = [(seen, seed) for seen, _ in parts for seed in range(seeds)]
        by_part = predict(train, scored, jobs, head).reshape(len(parts), seeds, -1)
        predictions = by_part[0]
        for of_part, (_, unseen) in zip(by_part, parts, strict=True):
            predictions[:, unseen] = of_part[:, unseen]
        return score_predictions(predictions, scored.labels)

    @property
    def validation_split(self) -> str:
        """The split that choices are made by: train, where there is no validation split."""
        return "validation" if "validation" in self.splits else "train"

    def head_inputs(
        self, embeddings: Embeddings, scored: str, head: HeadSettings
    ) -> tuple[HeadInputs, HeadInputs]:
        """Return the inputs of heads for train, and for the split that is scored.

        embeddings: (N, D), row i belongs to document i of `documents(scored)`. Class numbers follow
        the order of the names.
        """
        from docemb_lib.evaluation.heads import pair_features  # with torch

        row_of = self.rows(scored, embeddings)
        train = self.splits["train"]
        if head.hidden == 0 and isinstance(embeddings, np.ndarray):  # sparse rows have unit length
            rows = [row_of[id] for column in train.columns for id in column.ids]
            squares = np.square(embeddings[rows], dtype=np.float32).sum(axis=1)
            embeddings = 1 / max(float(np.sqrt(squares.mean())), 1e-12) * embeddings
        number = {label: i for i, label in enumerate(sorted(set(train.labels), key=str))}
        inputs = []
        for data in (train, self.splits[scored]):
            views = []
            for column in data.columns:
                views.append(embeddings[[row_of[id] for id in column.ids]])
            features = views[0]
            if len(views) == 2:
                features = pair_features(views[0], views[1], head.pair_features)
            labels = np.array([number[label] for label in data.labels])
            inputs.append(HeadInputs(features, labels))
        return inputs[0], inputs[1]


@dataclass(frozen=True)
class Classification(HeadTask):
    """Predict the class of a document.

    Example:
        >>> task = Classification("tone", {"train": Labelled(["good", "bad"], ["+", "-"])})
        >>> task.texts("train")
        ['good', 'bad']
    """

    splits: Mapping[str, Labelled]


@dataclass(frozen=True)
class Pairs(HeadTask):
    """Predict the relation of two documents, which the head reads as two embeddings.

    Example:
        >>> pairs = LabelledPairs(["a", "b"], ["c", "d"], [0, 1])
        >>> Pairs("cites", {"train": pairs}).texts("train")
        ['a', 'b', 'c', 'd']
    """

    splits: Mapping[str, LabelledPairs]


@dataclass(frozen=True)
class Retrieval(BaseTask):
    """Rank the documents of a pool by their cosine with a query; nothing is trained.

    Example:
        >>> ranking = Ranking(["a", "b", "c"], queries=[0], relevant=[[2]])
        >>> task = Retrieval("similar", {"test": ranking})
        >>> task.score(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])).mean
        1.0
    """

    splits: Mapping[str, Ranking]

    def score(
        self,
        embeddings: Embeddings | Similarities,
        split: str = "test",
        *,
        head: HeadSettings | None = None,
        seeds: int = SEEDS,
        top: int | None = None,
    ) -> Score:
        """Return MAP, with the other METRICS as extras. `head` and `seeds` have no effect.

        Equally similar documents are in the descending order of their ids, as in trec_eval, so that
        the order of the rows does not count.

        embeddings: (N, D), row i belongs to document i of `documents(split)`, or the `Similarities`
        of these documents. top: hits that count for MAP and MRR, or None for all.
        """
        row_of = self.rows(split, embeddings)
        ranking = self.splits[split]
        similarities = of_rows(
            embeddings if callable(embeddings) else by_cosine(embeddings),
            [row_of[id] for id in ranking.ids],
        )
        pool = ranking.pool
        candidates = np.array(sorted(range(len(pool)), key=pool.__getitem__, reverse=True))
        by_metric = score_queries(
            rank_documents(similarities, ranking.queries, candidates=candidates),
            ranking.relevant,
            grades=ranking.grades,
            missing=ranking.missing,
            top=top,
        )
        return Score({metric: values[None] for metric, values in by_metric.items()})


@dataclass(frozen=True)
class ScoredPairs(BaseTask):
    """Order pairs of documents by their cosine as a judge's scores do; nothing is trained.

    The scores are the labels of the pairs.

    Example:
        >>> pairs = LabelledPairs(["a", "a", "b"], ["b", "c", "c"], [0.2, 0.9, 0.4])
        >>> task = ScoredPairs("similar", {"test": pairs})
        >>> round(task.score(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])).mean, 3)
        1.0
    """

    splits: Mapping[str, LabelledPairs]

    def __post_init__(self) -> None:
        """Check the splits; scores of one or two values are classes."""
        super().__post_init__()
        for split, data in self.splits.items():
            if len({*data.labels}) < 3:
                raise InputError(
                    f"task {self.name!r}, split {split!r}: there are fewer than three different "
                    "scores; give more, or let them be the classes of pairs"
                )

    def score(
        self, embeddings: Embeddings | Similarities, split: str = "test", **_: object
    ) -> Score:
        """Return Spearman's correlation of cosines and scores. Options of other tasks do nothing.

        embeddings: see `Retrieval.score`.
        """
        row_of = self.rows(split, embeddings)
        similarities = embeddings if callable(embeddings) else by_cosine(embeddings)
        data = self.splits[split]
        ids = zip(data.first_ids, data.second_ids, strict=True)
        cosines = [similarities([row_of[first]])[0, row_of[second]] for first, second in ids]
        pairs = np.array([cosines, data.labels], dtype=np.float64).round(DECIMALS)
        return Score({"spearman": spearman(pairs)[None]})


Task = Classification | Pairs | Retrieval | ScoredPairs


def warn_of_problems(task: Task) -> None:
    """Log how many examples of a split have no text, or are in train too (leakage), and the first.

    A pair in train leaks in either order.
    """
    for split, data in task.splits.items():
        examples = texts_of_examples(data)
        problems = {"have no text": ["" in map(str.strip, texts) for texts in examples]}
        if isinstance(task, HeadTask):
            keys = [*map(frozenset, examples)]
            classes: dict[frozenset[str], set[object]] = {}
            for key, label in zip(keys, task.splits[split].labels, strict=True):
                classes.setdefault(key, set()).add(label)
            problems["are there with another class, too"] = [len(classes[key]) > 1 for key in keys]
            if split != "train":
                train = set(map(frozenset, texts_of_examples(task.splits["train"])))
                problems["are also in train (leakage)"] = [key in train for key in keys]
        for problem, has_it in problems.items():
            if any(has_it):
                message = "task %s, split %s: %d of %d examples %s, the first of which is %d"
                counts = sum(has_it), len(has_it)
                logger.warning(message, task.name, split, *counts, problem, has_it.index(True))


def texts_of_examples(data: Split) -> list[tuple[str, ...]]:
    """Return the text of each example, or of each document of a pool; of a pair both texts."""
    return list(zip(*(column.texts for column in data.columns), strict=True))


def predict(
    train: HeadInputs,
    scored: HeadInputs,
    jobs: Sequence[tuple[np.ndarray, int]],
    head: HeadSettings,
) -> np.ndarray:
    """Return the class numbers that heads predict: (K, N). jobs: rows of train and a seed each."""
    from docemb_lib.evaluation.heads import train_and_predict  # with torch

    return train_and_predict(*train, scored.features, jobs, head)


def score_predictions(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """Return the accuracy of K heads, with macro-F1. predictions: (K, N); labels: (N,).

    Macro-F1 is the mean over the classes that are labelled or predicted.
    """
    from sklearn.metrics import f1_score

    right = (predictions == labels).astype(np.float32)
    f1 = [f1_score(labels, row, average="macro", zero_division=0.0) for row in predictions]
    return Score({"accuracy": right}, {"f1_macro": f1})

"""Evaluation tasks: labelled documents, labelled pairs or rankings in splits, and their scores.

A task holds data, splits and a metric. Classification and pairs train heads on frozen embeddings;
retrieval ranks by cosine. A task checks when it is constructed that its data can be scored;
`warn_of_problems` reports data that can be scored but is suspicious, and does not mend it, because
published scores include it.

Embeddings are (N, D), dense or sparse with rows of unit length.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol, Self, TypeAlias, TypeVar

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import hash_of
from docemb_lib.evaluation.retrieval import by_cosine, of_rows, rank_documents, score_queries
from docemb_lib.settings.sections import HeadSettings

if TYPE_CHECKING:
    from docemb_lib.evaluation.retrieval import Embeddings, Similarities

logger = logging.getLogger(__name__)
Data = TypeVar("Data")
Integers: TypeAlias = "Sequence[int] | np.ndarray"

SPLITS = ("train", "validation", "test")
SEEDS = 5  # heads per task; the spread of a score is taken over them


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
    """Ordered pairs of documents and the class of each pair.

    first_ids, second_ids: of the documents; without them, equal texts are one document.
    """

    ids_of: ClassVar[Mapping[str, str]] = {"first": "first_ids", "second": "second_ids"}

    first: Sequence[str]
    second: Sequence[str]
    labels: Sequence[Hashable]
    first_ids: Sequence[str] = ()
    second_ids: Sequence[str] = ()

    @property
    def texts(self) -> list[str]:
        """All first texts, then all second ones."""
        return [*self.first, *self.second]


@dataclass(frozen=True)
class Ranking(Examples):
    """A pool of documents, some of which are queries, and perhaps queries that are no documents.

    ids: of the texts; without them, equal texts are one document.
    """

    texts: Sequence[str]
    queries: Sequence[int]  # rows of texts
    relevant: Sequence[Sequence[int]]  # for each query the rows to retrieve
    ids: Sequence[str] = ()
    grades: Sequence[Sequence[int]] = ()  # of the relevant rows, from 1; empty: all are 1
    # For each query the grades of relevant documents that are in no row; empty: there are none
    missing: Sequence[Sequence[int]] = ()
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


def pick(name: str, splits: Mapping[str, Data], split: str) -> Data:
    """Return the data of a split of the task `name`; raise InputError where there is none."""
    if split not in splits:
        raise InputError(
            f"task {name!r} has no split {split!r}, only {', '.join(splits)}; name one of these"
        )
    return splits[split]


def check_splits(name: str, splits: Mapping[str, Split]) -> None:
    """Raise InputError where splits are missing, have unknown names, or hold unsound data."""
    if not splits or set(splits) - set(SPLITS):
        raise InputError(
            f"task {name!r}: the splits are {list(splits)}; give some of {', '.join(SPLITS)}"
        )
    for split, data in splits.items():
        data.check(f"task {name!r}, split {split!r}")
    text_of = documents_of(*splits.values())
    for column in chain.from_iterable(data.columns for data in splits.values()):
        for id, text in zip(column.ids, column.texts, strict=True):
            if text_of[id] != text:
                raise InputError(
                    f"task {name!r}: two texts have the id {id!r:.80}; give each document an id "
                    "of its own"
                )


def documents_of(*parts: Split) -> dict[str, str]:
    """Return the texts of the documents of all parts by id, in the order of their first places."""
    documents: dict[str, str] = {}
    for part in parts:
        for column in part.columns:
            for id, text in zip(column.ids, column.texts, strict=True):
                documents.setdefault(id, text)
    return documents


def rows_by_id(
    name: str, embeddings: Embeddings, ids: list[str]
) -> Callable[[Sequence[str]], np.ndarray]:
    """Return a function from ids to embeddings. Row i of embeddings, (N, D), is that of `ids[i]`.

    All documents in their order are returned without a copy, so that a large pool may stay
    memory-mapped. Raises InputError for embeddings of a wrong shape and for infinite ones.
    """
    if embeddings.ndim != 2 or embeddings.shape[0] != len(ids):
        raise InputError(
            f"task {name!r}: the embeddings have the shape {embeddings.shape}, for {len(ids)} "
            "texts; give one row for each of task.texts(split), in their order"
        )
    with np.errstate(invalid="ignore"):  # infinities of both signs
        total = embeddings.sum(dtype=np.float64)  # a sum never copies a memory-mapped array
    if not np.isfinite(total):
        raise InputError(
            f"task {name!r}: the embeddings are not finite; check whether the model has diverged"
        )
    row = {id: i for i, id in enumerate(ids)}

    def lookup(wanted: Sequence[str]) -> np.ndarray:
        return embeddings if list(wanted) == ids else embeddings[[row[id] for id in wanted]]

    return lookup


class Embedder(Protocol):
    """A model that can be evaluated: `embed` gives (N, D) for N texts, in their order."""

    def embed(self, texts: list[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class Score:
    """The score of a model on a task.

    `per_example` holds what intervals and tests need: for each metric that is a mean over test
    examples (accuracy, those of retrieval) the values of the examples or queries, float32 (seeds,
    N) or (1, Q). Equality ignores it, and `per_relevant`.
    """

    metric: str
    values: tuple[float, ...]  # one per seed; a single value where nothing is trained
    extra: Mapping[str, float] = field(default_factory=dict)  # further metrics
    per_example: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)
    # Retrieval: see `QueryScores.precision`, float32 (R,)
    per_relevant: np.ndarray | None = field(default=None, compare=False, repr=False)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    def decided_by(self, metric: str) -> Score:
        """Return the same score with another main metric, one of `per_example`."""
        values = self.per_example[metric].mean(axis=1, dtype=np.float64)
        extra = {self.metric: self.mean, **self.extra}
        extra.pop(metric)
        return replace(self, metric=metric, values=tuple(values.tolist()), extra=extra)


class HeadInputs(NamedTuple):
    """The input of heads for one split."""

    features: np.ndarray  # (N, D)
    labels: np.ndarray  # (N,) class numbers, all of them in train


@dataclass(frozen=True)
class BaseTask:
    """Data in splits, with a name and a metric."""

    name: str
    splits: Mapping[str, Any]

    def __post_init__(self) -> None:
        check_splits(self.name, self.splits)

    def documents(self, split: str = "test") -> dict[str, str]:
        """Return the texts that scoring on `split` reads, by id: those of train, too, for heads."""
        trained = [self.splits["train"]] if isinstance(self, HeadTask) else []
        return documents_of(*trained, pick(self.name, self.splits, split))

    def texts(self, split: str = "test") -> list[str]:
        """Return the texts of `documents`."""
        return list(self.documents(split).values())


@dataclass(frozen=True)
class HeadTask(BaseTask):
    """Base of the tasks whose heads are trained on the train split and scored by their accuracy."""

    splits: Mapping[str, Labelled | LabelledPairs]
    metric: ClassVar[str] = "accuracy"

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
    ) -> Score:
        """Return the accuracy of a head per seed from 0.

        embeddings: (N, D), row i belongs to document i of `documents(split)`.
        """
        head = head or HeadSettings()
        train, scored = self.head_inputs(embeddings, split, head)
        jobs = [(np.arange(len(train.labels)), seed) for seed in range(seeds)]
        return score_predictions(predict(train, scored, jobs, head), scored.labels)

    def head_inputs(
        self, embeddings: Embeddings, scored: str, head: HeadSettings
    ) -> tuple[HeadInputs, HeadInputs]:
        """Return the inputs of heads for train, and for the split that is scored.

        embeddings: (N, D), row i belongs to document i of `documents(scored)`. Class numbers follow
        the order of the names.
        """
        from docemb_lib.evaluation.heads import pair_features  # with torch

        lookup = rows_by_id(self.name, embeddings, list(self.documents(scored)))
        train = self.splits["train"]
        factor = None
        if head.hidden == 0 and isinstance(embeddings, np.ndarray):  # sparse rows have unit length
            ids = [id for column in train.columns for id in column.ids]
            squares = np.square(lookup(ids), dtype=np.float32).sum(axis=1)
            factor = 1 / max(float(np.sqrt(squares.mean())), 1e-12)
        number = {label: i for i, label in enumerate(sorted(set(train.labels), key=str))}

        def inputs_of(data: Labelled | LabelledPairs) -> HeadInputs:
            views = [lookup(column.ids) for column in data.columns]
            if factor is not None:
                views = [factor * view for view in views]
            features = views[0]
            if len(views) == 2:
                features = pair_features(views[0], views[1], head.pair_features)
            return HeadInputs(features, np.array([number[label] for label in data.labels]))

        inputs = inputs_of(train)
        if scored == "train":
            return inputs, inputs
        return inputs, inputs_of(self.splits[scored])


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
    metric: ClassVar[str] = "map"

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
        ranking = pick(self.name, self.splits, split)
        ids = list(self.documents(split))
        if callable(embeddings):
            row = {id: i for i, id in enumerate(ids)}
            similarities = of_rows(embeddings, [row[id] for id in ranking.ids])
        else:
            similarities = by_cosine(rows_by_id(self.name, embeddings, ids)(ranking.ids))
        pool = ranking.pool
        candidates = np.array(sorted(range(len(pool)), key=pool.__getitem__, reverse=True))
        scores = score_queries(
            rank_documents(similarities, ranking.queries, candidates=candidates),
            ranking.relevant,
            grades=ranking.grades,
            missing=ranking.missing,
            top=top,
        )
        extra = {metric: float(values.mean()) for metric, values in scores.by_metric.items()}
        value = extra.pop(self.metric)
        examples = {}
        for metric, values in scores.by_metric.items():
            examples[metric] = values[None].astype(np.float32)
        return Score(self.metric, (value,), extra, examples, scores.precision.astype(np.float32))


Task = Classification | Pairs | Retrieval


def example_lengths(task: Task, lengths: Integers) -> np.ndarray:
    """Return the length of each test example (N,): of the longer document of a pair, or the query.

    lengths: of the documents of `task.documents("test")`.
    """
    length_of = dict(zip(task.documents("test"), lengths, strict=True))
    data = task.splits["test"]
    of_columns = []
    for column in data.columns:
        of_columns.append([length_of[id] for id in column.ids])
    longest = np.max(of_columns, axis=0)
    return longest[list(data.queries)] if isinstance(data, Ranking) else longest


def relevant_lengths(task: Task, lengths: Integers) -> np.ndarray:
    """Return the query and the length of each relevant document in the test split, (2, R).

    The order is that of `Score.per_relevant`; without retrieval there is none. lengths: see
    `example_lengths`.
    """
    length_of = dict(zip(task.documents("test"), lengths, strict=True))
    data = task.splits["test"]
    pairs = []
    if isinstance(data, Ranking):
        for number, rows in enumerate(data.relevant):
            pairs += [(number, length_of[data.ids[row]]) for row in rows]
    return np.array(pairs, dtype=int).reshape(-1, 2).T


def warn_of_problems(task: Task) -> None:
    """Log how many examples of a split have no text, or are in train too (leakage), and the first.

    A pair in train leaks in either order.
    """
    for split, data in task.splits.items():
        examples = texts_of_examples(data)
        problems = {"have no text": ["" in map(str.strip, texts) for texts in examples]}
        if isinstance(task, HeadTask) and split != "train":
            train = set(map(frozenset, texts_of_examples(task.splits["train"])))
            leaked = [frozenset(texts) in train for texts in examples]
            problems["are also in train (leakage)"] = leaked
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
    from docemb_lib.evaluation.heads import HeadJob, train_jobs  # with torch

    head_jobs = [HeadJob(*job) for job in jobs]
    classes = int(train.labels.max()) + 1
    heads = train_jobs(train.features, train.labels, head_jobs, head, classes=classes)
    return heads.predict(scored.features)


def score_predictions(predictions: np.ndarray, labels: np.ndarray) -> Score:
    """Return the accuracy of K heads, with macro-F1. predictions: (K, N); labels: (N,)."""
    correct = predictions == labels
    return Score(
        HeadTask.metric,
        values=tuple(correct.mean(axis=1).tolist()),
        extra={"f1_macro": float(f1_macro(predictions, labels).mean())},
        per_example={HeadTask.metric: correct.astype(np.float32)},
    )


def f1_macro(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return the F1 of K heads (K,), the mean over the classes that are labelled or predicted.

    predictions: (K, N); labels: (N,).
    """
    from sklearn.metrics import f1_score

    scores = [f1_score(labels, row, average="macro", zero_division=0.0) for row in predictions]
    return np.array(scores)

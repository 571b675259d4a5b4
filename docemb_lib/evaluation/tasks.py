"""Evaluation tasks: labelled documents, labelled pairs or rankings in splits, and the score of
embeddings on them.

A task holds data, splits and a metric. Classification and pairs train heads on frozen embeddings;
retrieval ranks by cosine. A task checks when it is constructed that its data can be scored;
`warn_of_problems` reports data that can be scored but is suspicious, and does not mend it, because
published scores include it.
"""

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.retrieval import by_cosine, precision_and_reciprocal_rank, rank_documents
from docemb_lib.settings.sections import HeadSettings

logger = logging.getLogger(__name__)
Data = TypeVar("Data")

SPLITS = ("train", "validation", "test")
SEEDS = 5  # heads per task; the spread of a score is taken over them


@dataclass(frozen=True)
class Examples:
    """Base of the labelled splits: columns of equal length, one or two `documents` and the labels."""

    def columns(self) -> dict[str, Sequence[Any]]:
        return {column.name: getattr(self, column.name) for column in fields(self)}

    @property
    def documents(self) -> tuple[Sequence[str], ...]:
        return tuple(self.columns().values())[:-1]

    def take(self, rows: Sequence[int] | np.ndarray) -> Self:
        return replace(
            self, **{name: [column[row] for row in rows] for name, column in self.columns().items()}
        )

    def check(self, where: str) -> None:
        sizes = {name: len(column) for name, column in self.columns().items()}
        if len({*sizes.values()}) > 1 or 0 in sizes.values():
            raise InputError(f"{where}: {_unequal(sizes)}")


@dataclass(frozen=True)
class Labelled(Examples):
    """Documents and their classes; a class is an int or a str."""

    texts: Sequence[str]
    labels: Sequence[Hashable]


@dataclass(frozen=True)
class LabelledPairs(Examples):
    """Ordered pairs of documents and the class of each pair."""

    first: Sequence[str]
    second: Sequence[str]
    labels: Sequence[Hashable]

    @property
    def texts(self) -> list[str]:
        return [*self.first, *self.second]


@dataclass(frozen=True)
class Ranking:
    """A pool of documents, some of which are queries."""

    texts: Sequence[str]
    queries: Sequence[int]  # rows of texts
    relevant: Sequence[Sequence[int]]  # for each query the rows to retrieve

    @property
    def documents(self) -> tuple[Sequence[str]]:
        return (self.texts,)

    def check(self, where: str) -> None:
        if not len(self.queries) == len(self.relevant) > 0:
            sizes = {"queries": len(self.queries), "lists of relevant rows": len(self.relevant)}
            raise InputError(f"{where}: {_unequal(sizes)}")
        for query, rows in zip(self.queries, self.relevant, strict=True):
            there = all(0 <= row < len(self.texts) for row in (query, *rows))
            if not (there and 0 < len(rows) == len({*rows} - {query})):
                pool = f"the {len(self.texts)} rows"
                needed = f"give one or more of {pool}, each once, without the query"
                problem = f"query {query} has the relevant rows {list(rows)}"
                raise InputError(f"{where}: {problem}; {needed}")


def _unequal(sizes: Mapping[str, int]) -> str:
    """The error about columns that differ in length or are empty, by name."""
    counts = " and ".join(f"{size} {name}" for name, size in sizes.items())
    return f"it has {counts}; give equally many of each, and at least one"


def pick(name: str, splits: Mapping[str, Data], split: str) -> Data:
    if split not in splits:
        mend = "name one of these"
        raise InputError(f"task {name!r} has no split {split!r}, only {', '.join(splits)}; {mend}")
    return splits[split]


def check_splits(name: str, splits: Mapping[str, Examples | Ranking]) -> None:
    if not splits or set(splits) - set(SPLITS):
        mend = f"give some of {', '.join(SPLITS)}"
        raise InputError(f"task {name!r}: the splits are {list(splits)}; {mend}")
    for split, data in splits.items():
        data.check(f"task {name!r}, split {split!r}")


def unique(*parts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(text for part in parts for text in part))


def rows_by_text(name: str, embeddings: Any, texts: list[str]) -> Callable[[Sequence[str]], Any]:
    """A function from texts to their embeddings. embeddings: (N, D), maybe sparse, row i belongs to
    `texts[i]`.

    All texts in their order are returned without a copy, so that a large pool may stay
    memory-mapped.
    """
    if embeddings.ndim != 2 or embeddings.shape[0] != len(texts):
        shapes = f"the embeddings have the shape {embeddings.shape}, for {len(texts)} texts"
        mend = "give one row for each of task.texts(split), in their order"
        raise InputError(f"task {name!r}: {shapes}; {mend}")
    with np.errstate(invalid="ignore"):  # infinities of both signs
        if not np.isfinite(
            embeddings.sum(dtype=np.float64)
        ):  # a sum: a memory-mapped array is never copied
            mend = "check whether the model has diverged"
            raise InputError(f"task {name!r}: the embeddings are not finite; {mend}")
    row = {text: i for i, text in enumerate(texts)}

    def lookup(wanted: Sequence[str]) -> np.ndarray:
        return embeddings if list(wanted) == texts else embeddings[[row[text] for text in wanted]]

    return lookup


class Embedder(Protocol):
    """A model that can be evaluated: `embed` gives (N, D) for N texts, in their order."""

    def embed(self, texts: list[str]) -> np.ndarray: ...


@dataclass(frozen=True)
class Score:
    """The score of a model on a task.

    `per_example` holds what intervals and tests need: for each metric that is a mean over test
    examples (accuracy, map, mrr) the values of the examples or queries, float32 (seeds, N) or (1,
    Q). Equality ignores it.
    """

    metric: str
    values: tuple[float, ...]  # one per seed; a single value where nothing is trained
    extra: Mapping[str, float] = field(default_factory=dict)  # further metrics
    per_example: Mapping[str, np.ndarray] = field(default_factory=dict, compare=False, repr=False)

    @property
    def mean(self) -> float:
        return float(np.mean(self.values))

    @property
    def std(self) -> float:
        """Sample standard deviation over seeds; 0 for a single value."""
        return float(np.std(self.values, ddof=1)) if len(self.values) > 1 else 0.0


class HeadInputs(NamedTuple):
    """The input of heads for one split."""

    features: np.ndarray  # (N, D)
    labels: np.ndarray  # (N,) class numbers
    classes: int


@dataclass(frozen=True)
class HeadTask:
    """Base of `Classification` and `Pairs`: heads are trained on the train split and scored by
    accuracy on another.
    """

    name: str
    splits: Mapping[str, Labelled | LabelledPairs]
    metric: ClassVar[str] = "accuracy"

    def __post_init__(self) -> None:
        """Check the splits; a head can only predict the classes of train."""
        check_splits(self.name, self.splits)
        where = f"task {self.name!r}"
        if "train" not in self.splits:
            there = ", ".join(self.splits)
            problem = f"{where} has no split 'train' to train heads on, only {there}"
            raise InputError(f"{problem}; add one")
        known = set(self.splits["train"].labels)
        if len(known) < 2:
            mend = "give two classes or more"
            raise InputError(f"{where}, split 'train': all labels are {known.pop()!r}; {mend}")
        for split, data in self.splits.items():
            if unknown := sorted(set(data.labels) - known, key=str):
                what = f"the labels {unknown[:3]} are none of the {len(known)} classes of 'train'"
                mend = "leave them out, or add them to 'train'"
                raise InputError(f"{where}, split {split!r}: {what}; {mend}")

    def texts(self, split: str = "test") -> list[str]:
        """The texts of train and of `split`, each once: what must be embedded to score on `split`."""
        return unique(self.splits["train"].texts, pick(self.name, self.splits, split).texts)

    def score(
        self,
        embeddings: np.ndarray,
        split: str = "test",
        *,
        head: HeadSettings | None = None,
        seeds: int = SEEDS,
    ) -> Score:
        """The accuracy of a head per seed from 0. embeddings: (N, D), row i belongs to
        `texts(split)[i]`.
        """
        head = head or HeadSettings()
        train, scored = self.head_inputs(embeddings, ("train", split), head)
        jobs = [(np.arange(len(train.labels)), seed) for seed in range(seeds)]
        return score_predictions(self.metric, predict(train, scored, jobs, head), scored.labels)

    def head_inputs(
        self, embeddings: np.ndarray, splits: tuple[str, ...], head: HeadSettings
    ) -> list[HeadInputs]:
        """The inputs of heads for each of the splits: train, and the split that is scored.

        embeddings: (N, D), row i belongs to `texts(splits[-1])[i]`. Class numbers follow the order
        of the names.
        """
        from docemb_lib.evaluation.heads import pair_features

        lookup = rows_by_text(self.name, embeddings, self.texts(splits[-1]))
        factor = None
        if head.hidden == 0 and isinstance(embeddings, np.ndarray):  # sparse ones have unit length
            seen = lookup(self.splits["train"].texts)
            factor = 1 / max(
                float(np.sqrt(np.square(seen, dtype=np.float32).sum(axis=1).mean())), 1e-12
            )
        number = {
            label: i for i, label in enumerate(sorted(set(self.splits["train"].labels), key=str))
        }
        inputs = []
        for split in splits:
            data = pick(self.name, self.splits, split)
            views = [
                lookup(column) if factor is None else factor * lookup(column)
                for column in data.documents
            ]
            features = (
                pair_features(views[0], views[1], head.pair_features)
                if len(views) == 2
                else views[0]
            )
            inputs.append(
                HeadInputs(
                    features, np.array([number[label] for label in data.labels]), len(number)
                )
            )
        return inputs


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
    """Predict the relation of two documents, which are embedded separately and combined in the
    head.

    Example:
        >>> pairs = LabelledPairs(["a", "b"], ["c", "d"], [0, 1])
        >>> Pairs("cites", {"train": pairs}).texts("train")
        ['a', 'b', 'c', 'd']
    """

    splits: Mapping[str, LabelledPairs]


@dataclass(frozen=True)
class Retrieval:
    """Rank the documents of a pool by their cosine with a query; nothing is trained.

    Example:
        >>> task = Retrieval("similar", {"test": Ranking(["a", "b", "c"], queries=[0], relevant=[[2]])})
        >>> task.score(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])).mean
        1.0
    """

    name: str
    splits: Mapping[str, Ranking]
    metric: ClassVar[str] = "map"

    def __post_init__(self) -> None:
        check_splits(self.name, self.splits)

    def texts(self, split: str = "test") -> list[str]:
        """The pool of `split`, each text once."""
        return unique(pick(self.name, self.splits, split).texts)

    def score(
        self,
        embeddings: Any,
        split: str = "test",
        *,
        head: HeadSettings | None = None,
        seeds: int = SEEDS,
        top: int | None = None,
    ) -> Score:
        """MAP, with MRR as an extra. `head` and `seeds`, arguments of `HeadTask.score`, are
        ignored.

        embeddings: (N, D), maybe sparse, or the `Similarities` of `texts(split)`. top: hits that
        count, None: all.
        """
        ranking, texts = pick(self.name, self.splits, split), self.texts(split)
        row = {text: i for i, text in enumerate(texts)}
        columns = [row[text] for text in ranking.texts]

        def given(block: list[int]) -> np.ndarray:
            return embeddings([columns[query] for query in block])[:, columns]

        known = callable(embeddings)
        similarities = (
            given if known else by_cosine(rows_by_text(self.name, embeddings, texts)(ranking.texts))
        )
        ranked = rank_documents(similarities, ranking.queries)
        found = precision_and_reciprocal_rank(ranked, ranking.relevant, top=top)
        mean, mrr = (float(values.mean()) for values in found)
        per_query = {
            name: values[None].astype(np.float32)
            for name, values in zip(("map", "mrr"), found, strict=True)
        }
        return Score(self.metric, (mean,), extra={"mrr": mrr}, per_example=per_query)


Task = Classification | Pairs | Retrieval


def example_lengths(task: Task, lengths: Sequence[int] | np.ndarray) -> np.ndarray:
    """The length of each test example: (N,). Of a pair it is that of the longer document, of a
    ranking of the query.

    lengths: of `task.texts("test")`.
    """
    length_of, data = dict(zip(task.texts("test"), lengths, strict=True)), task.splits["test"]
    columns = (
        [[data.texts[query] for query in data.queries]]
        if isinstance(data, Ranking)
        else data.documents
    )
    return np.max([[length_of[text] for text in column] for column in columns], axis=0)


def warn_of_problems(task: Task) -> None:
    """Log how many examples of a split have no text, or are in train too (leakage), and the row of
    the first.
    """
    for split, data in task.splits.items():
        examples = list(zip(*data.documents, strict=True))
        blank = [i for i, texts in enumerate(examples) if not all(text.strip() for text in texts)]
        found = {"have no text": blank}
        if isinstance(task, HeadTask) and split != "train":
            train = set(
                map(frozenset, zip(*task.splits["train"].documents, strict=True))
            )  # a swapped pair leaks, too
            leaked = [i for i, texts in enumerate(examples) if frozenset(texts) in train]
            found["are also in train (leakage)"] = leaked
        for problem, rows in found.items():
            if rows:
                message = "task %s, split %s: %d of %d examples %s, the first of which is %d"
                logger.warning(
                    message, task.name, split, len(rows), len(examples), problem, rows[0]
                )


def predict(
    train: HeadInputs,
    scored: HeadInputs,
    jobs: Sequence[tuple[np.ndarray, int]],
    head: HeadSettings,
) -> np.ndarray:
    """The class numbers that one head per job predicts: (K, N). jobs: rows of train and a seed, see
    `HeadJob`.
    """
    from docemb_lib.evaluation.heads import HeadJob, train_jobs  # with torch

    trained = train_jobs(
        train.features, train.labels, [HeadJob(*job) for job in jobs], head, classes=train.classes
    )
    return trained.predict(scored.features)


def score_predictions(metric: str, predictions: np.ndarray, labels: np.ndarray) -> Score:
    """The score of S heads: accuracy, with macro-F1 as an extra. predictions: (S, N), labels: (N,),
    class numbers.
    """
    correct, extra = (
        predictions == labels,
        {"f1_macro": float(f1_macro(predictions, labels).mean())},
    )
    return Score(
        metric, tuple(correct.mean(axis=1).tolist()), extra, {metric: correct.astype(np.float32)}
    )


def f1_macro(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """F1 of S heads, the mean over classes that are labelled or predicted: (S,). predictions: (S,
    N); labels: (N,).
    """
    from sklearn.metrics import f1_score

    return np.array(
        [f1_score(labels, row, average="macro", zero_division=0.0) for row in predictions]
    )

"""How the thesis evaluates on tasks with a head: which examples heads learn from and are scored on.

Validation (chapter 4): train and validation splits cut to 10,000 examples; a task without a validation split is
cross-validated on its cut train split. Final evaluation (chapter 5): rounds with heads on 1,000, 10,000 and all train
examples, always on the whole test split. Heads of all folds, rounds and seeds train in as few goes as there are
different numbers of steps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TypeGuard, TypeVar

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from docemb_lib.errors import InputError
from docemb_lib.evaluation.heads import HeadJob, train_jobs
from docemb_lib.evaluation.retrieval import accuracy, f1_macro, unit
from docemb_lib.evaluation.tasks import (
    SEEDS,
    HeadTask,
    Pairs,
    Retrieval,
    Score,
    Task,
    pick,
    rows_by_text,
    score_answers,
)
from docemb_lib.settings import HEADS, HeadSettings

# ---- how the thesis evaluates on tasks with a head


LIMIT = 10_000  # examples of each split in validation
FOLDS = 5
ROUNDS: Mapping[str, int | None] = {"1k": 1000, "10k": 10_000, "all": None}  # train examples; None: all there are

AnyHeadTask = TypeVar("AnyHeadTask", bound=HeadTask)


def round_name(limit: int | None) -> str:
    """What a round is called that trains heads on so many examples: 1k, 10k, all."""
    if limit is None:
        return "all"
    return f"{limit // 1000}k" if limit % 1000 == 0 else str(limit)


def downsample(labels: Sequence[Hashable], limit: int) -> np.ndarray:
    """The rows of `limit` examples with the shares of the classes kept, grouped by class; all rows if that is no cut.

    Of each class the first floor(share * limit); the smallest class that has examples left gets one more until they
    are `limit`. Classes of a size, and groups, are in the order of their names.
    """
    if limit < 1:
        raise InputError(f"downsample: limit must be at least 1, got {limit}")
    if len(labels) <= limit:
        return np.arange(len(labels))
    available = Counter(labels)
    classes = sorted(available, key=str)
    wanted = {label: available[label] * limit // len(labels) for label in classes}
    while sum(wanted.values()) < limit:
        wanted[min((c for c in classes if wanted[c] < available[c]), key=wanted.__getitem__)] += 1
    rows: dict[Hashable, list[int]] = {label: [] for label in classes}
    for row, label in enumerate(labels):
        if len(rows[label]) < wanted[label]:
            rows[label].append(row)
    return np.array([row for label in classes for row in rows[label]])


def for_validation(task: AnyHeadTask, limit: int = LIMIT) -> AnyHeadTask:
    """The task with its train and validation splits cut to `limit` examples, and no test split."""
    kept = {split: data for split, data in task.splits.items() if split != "test"}
    return replace(task, splits={split: data.take(downsample(data.labels, limit)) for split, data in kept.items()})


def validation_texts(task: HeadTask) -> list[str]:
    """What `validation_score` needs embedded of a task."""
    return task.texts("validation" if "validation" in task.splits else "train")


def validation_score(
    task: HeadTask,
    embeddings: np.ndarray,
    *,
    head: HeadSettings | None = None,
    seeds: int = SEEDS,
    folds: int = FOLDS,
) -> Score:
    """On the validation split; by stratified, unshuffled cross-validation of the train split where there is none.

    task: already cut, see `for_validation`; embeddings: (N, D), row i of `validation_texts(task)[i]`. The values of a
    cross-validation are means over folds, one per seed; every example is scored once per seed, by the heads that have
    not seen it.
    """
    from sklearn.model_selection import StratifiedKFold

    if "validation" in task.splits:
        return task.score(embeddings, "validation", head=head, seeds=seeds)
    head = head or HeadSettings()
    (train,) = task.examples(embeddings, ("train",), head)
    smallest = int(np.bincount(train.labels).min())
    if not 2 <= folds <= smallest:
        raise InputError(
            f"task {task.name!r}: {folds} folds, expected 2 to {smallest}, the examples of the smallest class in train"
        )
    split = list(StratifiedKFold(folds).split(train.features, train.labels))
    jobs = [HeadJob(seen, seed, head) for seen, _ in split for seed in range(seeds)]
    answers = train_jobs(train.features, train.labels, jobs, classes=train.classes).predict(train.features)
    by_fold = answers.reshape(folds, seeds, len(train.labels))
    scores = [
        score_answers(task.metric, own[:, unseen], train.labels[unseen])
        for own, (_, unseen) in zip(by_fold, split, strict=True)
    ]
    right = np.empty((seeds, len(train.labels)), dtype=np.float32)
    for score, (_, unseen) in zip(scores, split, strict=True):
        right[:, unseen] = score.per_example[task.metric]
    return Score(
        task.metric,
        tuple(np.mean([score.values for score in scores], axis=0).tolist()),
        extra={name: float(np.mean([score.extra[name] for score in scores])) for name in scores[0].extra},
        per_example={task.metric: right},
    )


def final_scores(
    task: HeadTask,
    embeddings: np.ndarray,
    *,
    rounds: Mapping[str, int | None] = ROUNDS,
    head: HeadSettings | None = None,
    seeds: int = SEEDS,
) -> dict[str, Score]:
    """One score per round, on the whole test split.

    embeddings: (N, D), row i of `task.texts("test")[i]`, the same for all rounds. A round that asks for more examples
    than the train split has is that of all.
    """
    head = head or HeadSettings()
    train, test = task.examples(embeddings, ("train", "test"), head)
    whole = len(train.labels)
    number_of = {name: whole if limit is None else min(limit, whole) for name, limit in rounds.items()}
    numbers = list(dict.fromkeys(number_of.values()))  # rounds of all examples share their heads
    labels = task.splits["train"].labels
    jobs = [HeadJob(downsample(labels, n), seed, head) for n in numbers for seed in range(seeds)]
    answers = train_jobs(train.features, train.labels, jobs, classes=train.classes).predict(test.features)
    by_number = dict(zip(numbers, answers.reshape(len(numbers), seeds, len(test.labels)), strict=True))
    return {name: score_answers(task.metric, by_number[n], test.labels) for name, n in number_of.items()}


# ---- heads


DRAWS = 10


def few_shot_scores(
    task: HeadTask,
    embeddings: np.ndarray,
    *,
    per_class: Sequence[int] = (5,),
    draws: int = DRAWS,
    head: HeadSettings | None = None,
    split: str = "test",
) -> pd.DataFrame:
    """A row per number of examples, draw and metric (accuracy, f1_macro): columns per_class, draw, metric, value.

    Each draw has its own examples of the train split and its own head, and is scored on the whole of `split`; heads of
    equally many steps train together. embeddings: (N, D), row i of `task.texts(split)[i]`; head: None is that of HEADS.
    """
    head = head or HEADS["few-shot"]
    train, scored = task.examples(embeddings, ("train", split), head)
    numbers = list(per_class)
    rows = [draw_per_class(train.labels, number, draw=draw) for number in numbers for draw in range(draws)]
    jobs = [HeadJob(own, draw, head) for own, draw in zip(rows, list(range(draws)) * len(numbers), strict=True)]
    answers = train_jobs(train.features, train.labels, jobs, classes=train.classes).predict(scored.features)
    found = {"accuracy": accuracy(answers, scored.labels), "f1_macro": f1_macro(answers, scored.labels)}
    frame = pd.DataFrame({"per_class": np.repeat(numbers, draws), "draw": list(range(draws)) * len(numbers), **found})
    return frame.melt(["per_class", "draw"], var_name="metric", value_name="value")


def draw_per_class(labels: np.ndarray, number: int, *, draw: int) -> np.ndarray:
    """The rows of `number` examples of each class, ascending. A larger number keeps the examples of a smaller one.

    labels: (N,) class numbers. Raises InputError where a class has fewer.
    """
    sizes = np.bincount(labels)
    if not 1 <= number <= sizes.min():
        raise InputError(
            f"few-shot: {number} examples of each class, expected 1 to {sizes.min()}, those of the smallest"
        )
    rng = np.random.default_rng(draw)
    kept = [rng.permutation(np.flatnonzero(labels == label))[:number] for label in range(len(sizes))]
    return np.sort(np.concatenate(kept))


# ---- what the cosines of embeddings say


APART_TOGETHER = ["0", "1"]  # the labels of pairs of which it is known which of the two says "belong together"


def spread(embeddings: np.ndarray) -> float:
    """Mean cosine distance of two different documents, 0 when all are one point. embeddings: (N, D), N from 2."""
    n, directions = len(embeddings), unit(embeddings)
    return 1 - (np.square(directions.sum(axis=0)).sum() - n) / (n * (n - 1))


def asks_what_belongs_together(task: Task) -> TypeGuard[Pairs | Retrieval]:
    """Whether cosines answer the task: retrieval, and pairs with the labels 0 (apart) and 1 (together)."""
    if isinstance(task, Pairs):
        return sorted({str(label) for data in task.splits.values() for label in data.labels}) == APART_TOGETHER
    return isinstance(task, Retrieval)


def score_cosines(task: Pairs | Retrieval, embeddings: np.ndarray, split: str = "test") -> float:
    """How well cosines alone solve a task that `asks_what_belongs_together`.

    embeddings: (N, D), row i of `task.texts(split)[i]`. Retrieval: its MAP. Pairs: the area under the ROC curve of
    the pairs' cosines, the chance that a pair of label 1 is nearer than one of label 0.
    """
    if isinstance(task, Retrieval):
        return task.score(embeddings, split).mean
    pairs = pick(task.name, task.splits, split)
    lookup = rows_by_text(task.name, embeddings, task.texts(split))
    cosines = (unit(lookup(pairs.first)) * unit(lookup(pairs.second))).sum(axis=1)
    return float(roc_auc_score([str(label) == APART_TOGETHER[1] for label in pairs.labels], cosines))

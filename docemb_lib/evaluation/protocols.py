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
from typing import TypeVar

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.head_training import HeadJob, train_jobs
from docemb_lib.evaluation.tasks import SEEDS, HeadTask, Score, score_answers
from docemb_lib.settings import HeadSettings

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

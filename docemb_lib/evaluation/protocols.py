"""How models are scored on a task: the thesis' two protocols, and few-shot heads.

Validation (chapter 4): train and validation splits are cut to 10,000 examples; a task without a
validation split is cross-validated on its cut train split. Final evaluation (chapter 5): rounds
with heads on 1,000, 10,000 and all train examples, always scored on the whole test split. The heads
of all folds, rounds and seeds train together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from docemb_lib.evaluation.tasks import (
    SEEDS,
    Embedder,
    HeadTask,
    Score,
    Task,
    f1_macro,
    predict,
    score_predictions,
    warn_of_problems,
)
from docemb_lib.settings.sections import HEADS, HeadSettings

if TYPE_CHECKING:
    from docemb_lib.evaluation.retrieval import Embeddings


def evaluate(
    model: Embedder,
    task: Task,
    *,
    split: str = "test",
    head: HeadSettings | None = None,
    seeds: int = SEEDS,
) -> Score:
    """Embed the texts of a task and score them; log the problems of the data.

    head: None is the thesis' settings.

    Example:
        >>> from docemb_lib.evaluation import Classification, Labelled
        >>> from docemb_lib.teachers import LSA
        >>> train = Labelled(["so good", "so bad"], ["+", "-"])
        >>> test = Labelled(["good", "bad"], ["+", "-"])
        >>> model = LSA(dim=2).fit(["so good", "so bad", "good", "bad"])
        >>> evaluate(model, Classification("tone", {"train": train, "test": test})).metric
        'accuracy'
    """
    warn_of_problems(task)
    return task.score(np.asarray(model.embed(task.texts(split))), split, head=head, seeds=seeds)


def round_name(limit: int | None) -> str:
    """Return the name of a round by its number of train examples: 1k, 10k, all."""
    if limit is None:
        return "all"
    return str(limit) if limit % 1000 else f"{limit // 1000}k"


def downsample(labels: Sequence[Hashable], limit: int) -> np.ndarray:
    """Return the rows of `limit` examples with the class shares kept, by class; all if no more.

    Of each class the first floor(share * limit). Then the smallest cut class that has examples left
    gets one more, until there are `limit`. A class without any takes one from the largest, so that
    heads know all classes of the other splits. Classes of equal size, and groups, follow the order
    of the class names.
    """
    if len(labels) <= limit:
        return np.arange(len(labels))
    available = Counter(labels)
    classes = sorted(available, key=str)
    wanted = {label: available[label] * limit // len(labels) for label in classes}
    while sum(wanted.values()) < limit:
        not_empty = [label for label in classes if wanted[label] < available[label]]
        wanted[min(not_empty, key=wanted.__getitem__)] += 1
    for label in classes:
        if not wanted[label] and limit >= len(classes):
            wanted[max(classes, key=wanted.__getitem__)] -= 1
            wanted[label] = 1
    rows: dict[Hashable, list[int]] = {label: [] for label in classes}
    for row, label in enumerate(labels):
        rows[label].append(row)
    return np.concatenate([rows[label][: wanted[label]] for label in classes]).astype(int)


def for_validation(task: HeadTask, limit: int) -> HeadTask:
    """Return the task with splits of at most `limit` examples, without a test split."""
    splits = {}
    for split, data in task.splits.items():
        if split != "test":
            splits[split] = data.take(downsample(data.labels, limit))
    return replace(task, splits=splits)


def validation_documents(task: HeadTask) -> dict[str, str]:
    """Return the texts that `validation_score` needs embedded, by the ids of their documents."""
    return task.documents("validation" if "validation" in task.splits else "train")


def validation_score(
    task: HeadTask, embeddings: Embeddings, *, head: HeadSettings, seeds: int, folds: int
) -> Score:
    """Return the score on the validation split, or by cross-validation on train if there is none.

    Folds are stratified and not shuffled. A cross-validation is scored once over the predictions of
    all folds, so that examples count equally, as in `per_example`.

    task: cut by `for_validation`; embeddings: (N, D), row i belongs to document i of
    `validation_documents(task)`.
    """
    from sklearn.model_selection import StratifiedKFold

    if "validation" in task.splits:
        return task.score(embeddings, "validation", head=head, seeds=seeds)
    train, _ = task.head_inputs(embeddings, "train", head)
    split = list(StratifiedKFold(folds).split(train.features, train.labels))
    jobs = [(seen, seed) for seen, _ in split for seed in range(seeds)]
    by_fold = predict(train, train, jobs, head).reshape(folds, seeds, -1)
    for of_fold, (_, unseen) in zip(by_fold, split, strict=True):
        by_fold[0][:, unseen] = of_fold[:, unseen]
    return score_predictions(by_fold[0], train.labels)


def final_scores(
    task: HeadTask,
    embeddings: Embeddings,
    *,
    rounds: Mapping[str, int | None],
    head: HeadSettings,
    seeds: int,
) -> dict[str, Score]:
    """Return a score for each round, on the whole test split.

    embeddings: (N, D), row i belongs to document i of `task.documents("test")`; rounds: number of
    train examples by name, None: all.
    """
    train, test = task.head_inputs(embeddings, "test", head)
    labels = task.splits["train"].labels
    jobs = []
    for limit in rounds.values():
        rows = downsample(labels, limit or len(labels))
        jobs += [(rows, seed) for seed in range(seeds)]
    predictions = predict(train, test, jobs, head).reshape(len(rounds), seeds, -1)
    scores = [score_predictions(of_round, test.labels) for of_round in predictions]
    return dict(zip(rounds, scores, strict=True))


def few_shot_scores(
    task: HeadTask,
    embeddings: Embeddings,
    *,
    per_class: Sequence[int] = (5,),
    draws: int = 10,
    head: HeadSettings = HEADS["few-shot"],
) -> pd.DataFrame:
    """Return the scores of a head per number of examples and draw.

    Columns: per_class, draw, metric (accuracy and f1_macro), value. embeddings: (N, D), row i
    belongs to document i of `task.documents("test")`.
    """
    train, test = task.head_inputs(embeddings, "test", head)
    runs = [(number, draw) for number in per_class for draw in range(draws)]
    jobs = [(draw_per_class(train.labels, number, draw=draw), draw) for number, draw in runs]
    predictions = predict(train, test, jobs, head)
    frame = pd.DataFrame(runs, columns=["per_class", "draw"]).assign(
        accuracy=(predictions == test.labels).mean(axis=1),
        f1_macro=f1_macro(predictions, test.labels),
    )
    return frame.melt(["per_class", "draw"], var_name="metric", value_name="value")


def draw_per_class(labels: np.ndarray, number: int, *, draw: int) -> np.ndarray:
    """Return the rows of `number` examples of each class, or all of a smaller class, ascending.

    A larger number keeps the examples of a smaller one.
    """
    rng = np.random.default_rng(draw)
    members = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return np.sort(np.concatenate([rng.permutation(rows)[:number] for rows in members]))

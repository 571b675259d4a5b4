"""How models are scored on a task: the thesis' two protocols.

Validation (chapter 4): train and validation splits are cut to 10,000 examples; a task without a
validation split is cross-validated on its cut train split. Final evaluation (chapter 5): rounds
with heads on 1,000, 10,000 and all train examples, always scored on the whole test split.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from docemb_lib.evaluation.tasks import (
    SEEDS,
    Embedder,
    HeadTask,
    Score,
    Task,
    downsample,
    warn_of_problems,
)
from docemb_lib.settings.sections import HeadSettings


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


def for_validation(task: HeadTask, limit: int) -> HeadTask:
    """Return the task with splits of at most `limit` examples, without a test split."""
    splits = {}
    for split, data in task.splits.items():
        if split != "test":
            splits[split] = data.take(downsample(data.labels, limit))
    return replace(task, splits=splits)

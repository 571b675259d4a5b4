"""Heads that learn from a few examples of each class: in the SimDE paper five or ten, and the mean of ten draws."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd

from docemb_lib.errors import InputError
from docemb_lib.evaluation.head_training import HeadJob, train_jobs
from docemb_lib.evaluation.metrics import accuracy, f1_macro
from docemb_lib.evaluation.tasks import HeadTask
from docemb_lib.settings import HEADS, HeadSettings

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

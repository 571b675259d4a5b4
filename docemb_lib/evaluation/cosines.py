"""What the cosines of embeddings say by themselves, with no head on top: how far documents are apart, and which of
them belong together."""

from __future__ import annotations

from typing import TypeGuard

import numpy as np
from sklearn.metrics import roc_auc_score

from docemb_lib.evaluation.lookup import rows_by_text
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.evaluation.splits import pick
from docemb_lib.evaluation.tasks import Pairs, Retrieval, Task

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

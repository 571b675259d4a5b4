"""What the cosines of embeddings say by themselves, with no head on top: how far documents are apart, and which of
them belong together."""

from __future__ import annotations

import numpy as np
from sklearn.metrics import roc_auc_score

from docemb_lib.evaluation.tasks import Pairs, Retrieval, pick, rows_by_text


def spread(embeddings: np.ndarray) -> float:
    """Mean cosine distance of two different documents, 0 when all are one point. embeddings: (N, D), N from 2."""
    n, directions = len(embeddings), _directions(embeddings)
    return 1 - (np.square(directions.sum(axis=0)).sum() - n) / (n * (n - 1))


def score_cosines(task: Pairs | Retrieval, embeddings: np.ndarray, split: str = "test") -> float:
    """How well cosines alone solve a task whose answer is "these two belong together".

    embeddings: (N, D), row i of `task.texts(split)[i]`. Retrieval: its MAP. Pairs: the area under the ROC curve of
    the pairs' cosines, the chance that a pair with the larger label is nearer than one with the smaller.
    """
    if isinstance(task, Retrieval):
        return task.score(embeddings, split).mean
    pairs = pick(task.name, task.splits, split)
    lookup = rows_by_text(task.name, embeddings, task.texts(split))
    cosines = (_directions(lookup(pairs.first)) * _directions(lookup(pairs.second))).sum(axis=1)
    return float(roc_auc_score(pairs.labels, cosines))


def _directions(embeddings: np.ndarray) -> np.ndarray:
    """Rows of norm 1; zeros stay zeros."""
    X = np.asarray(embeddings, dtype=np.float64)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)

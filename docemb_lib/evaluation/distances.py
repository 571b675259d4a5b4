"""Distances of student embeddings to teacher embeddings: of the same document, and of others (thesis, Figure 4.4)."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pandas as pd

from docemb_lib.errors import InputError


def teacher_distances(
    student: np.ndarray, teacher: np.ndarray, *, distance: Literal["cosine", "mse"], negatives: int = 20, seed: int = 0
) -> pd.DataFrame:
    """Every document's distance to its own teacher embedding and to those of `negatives` others, drawn with `seed`.

    student, teacher: (N, D), row i of both is document i. Returns columns document (row), other (row), kind
    ("positive" or "negative"), value, and auc: the share of all (positive, negative) couples in which the positive is
    nearer, ties counting half; the area under the ROC curve.
    """
    if student.shape != teacher.shape:
        raise InputError(f"student embeddings are {student.shape}, teacher embeddings {teacher.shape}; expected equal")
    n = len(student)
    if n < 2:
        raise InputError(f"distances to other documents need two documents or more, got {n}")
    negatives = min(negatives, n - 1)
    shifts = np.random.default_rng(seed).permuted(np.tile(np.arange(1, n), (n, 1)), axis=1)[:, :negatives]
    own = np.arange(n)
    others = (own[:, None] + shifts) % n  # never the document itself
    positive = _distance(student, teacher, distance)
    negative = _distance(np.repeat(student, negatives, axis=0), teacher[others.ravel()], distance)
    ranks = pd.Series(np.concatenate([positive, negative])).rank().to_numpy()
    auc = 1 - (ranks[:n].sum() - n * (n + 1) / 2) / (n * len(negative))  # Mann and Whitney's U
    return pd.DataFrame(
        {
            "document": np.concatenate([own, np.repeat(own, negatives)]),
            "other": np.concatenate([own, others.ravel()]),
            "kind": ["positive"] * n + ["negative"] * len(negative),
            "value": np.concatenate([positive, negative]),
            "auc": auc,
        }
    )


def _distance(a: np.ndarray, b: np.ndarray, distance: str) -> np.ndarray:
    """Row by row. a, b: (M, D). Returns (M,)."""
    if distance == "mse":
        return np.square(a - b).mean(axis=1)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return 1 - (a * b).sum(axis=1) / np.maximum(norms, 1e-16)

"""A linear probe: how much of a teacher's embedding can be read off a student's (the thesis' first open question).

A ridge regression from student to teacher embeddings is fitted on training documents and judged on others, so it
measures what the student's space holds, whatever loss or projection brought it there. Two measures, because they can
part: R² counts every direction of the teacher's space by its variance; the overlap asks only who is near whom.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score

from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import rank_documents

ALPHAS = np.logspace(-6, 6, 25)  # penalties tried, for student embeddings of total variance D
ALL = "all"


class Ridge(NamedTuple):
    """A fitted map from student embeddings to teacher embeddings."""

    model: RidgeCV
    scale: float  # what student embeddings are divided by first

    def predict(self, student: np.ndarray) -> np.ndarray:
        """Teacher embeddings (N, d) as read off student embeddings (N, D)."""
        return self.model.predict(np.asarray(student, dtype=np.float64) / self.scale)


def fit_ridge(student: np.ndarray, teacher: np.ndarray) -> Ridge:
    """Least squares with an intercept and the penalty of `ALPHAS` that leaving out one document at a time likes best.

    student: (N, D); teacher: (N, d), row i of both is document i. One number scales all student dimensions to variance
    1 in the mean, so that the penalties mean the same for embeddings of any norm. Raises InputError below 3 documents.
    """
    if len(student) != len(teacher) or len(student) < 3:
        raise InputError(f"probe: {len(student)} student and {len(teacher)} teacher embeddings; give 3 or more of both")
    X = np.asarray(student, dtype=np.float64)
    scale = float(np.sqrt(X.var(axis=0).mean())) or 1.0  # a collapsed student is left as it is
    return Ridge(RidgeCV(alphas=ALPHAS).fit(X / scale, np.asarray(teacher, dtype=np.float64)), scale)


def neighbour_overlap(predicted: np.ndarray, teacher: np.ndarray, *, k: int) -> np.ndarray:
    """For each document the share of its k nearest others by cosine that both spaces have in common: (N,).

    predicted, teacher: (N, d) each, of any widths. Two unrelated spaces share k / (N - 1) in the mean.
    """
    everyone = range(len(predicted))
    both = zip(rank_documents(predicted, everyone), rank_documents(teacher, everyone), strict=True)
    return np.array([len(np.intersect1d(a[:k], b[:k])) / k for a, b in both])


def probe(
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    buckets: Mapping[str, np.ndarray],
    *,
    k: int = 10,
) -> pd.DataFrame:
    """Fit on `train`, measure on `validation`: columns bucket, documents, r2, overlap; the first row is "all".

    train, validation: student (N, D) and teacher (N, d) embeddings of the same documents; buckets: masks (N,) over the
    validation documents. r2: variance-weighted over the teacher's dimensions, against the bucket's own mean; NaN below
    two documents. overlap: see `neighbour_overlap`, the neighbours being any validation documents; fewer than k of them
    where k would be more than a fifth of all, because most would be common by chance.
    """
    student, teacher = (np.asarray(side, dtype=np.float64) for side in validation)
    predicted = fit_ridge(*train).predict(student)
    shared = neighbour_overlap(predicted, teacher, k=max(1, min(k, (len(teacher) - 1) // 5)))
    rows = []
    for name, chosen in {ALL: np.ones(len(teacher), dtype=bool), **buckets}.items():
        n = int(chosen.sum())
        r2 = r2_score(teacher[chosen], predicted[chosen], multioutput="variance_weighted") if n > 1 else np.nan
        rows.append((name, n, r2, shared[chosen].mean() if n else np.nan))
    return pd.DataFrame(rows, columns=["bucket", "documents", "r2", "overlap"])

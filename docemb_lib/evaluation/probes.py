"""Measurements without a task: planes of spaces, what a student keeps of a teacher, and more."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import unit

ALPHAS = np.logspace(-6, 6, 25)  # ridge penalties, for student embeddings of mean variance 1
ALL = "all"  # the bucket of all documents

Distance = Literal["cosine", "mse"]


class Plane(NamedTuple):
    """The first two principal components of a space."""

    points: np.ndarray  # (N, 2)
    explained: float  # share of the variance on both axes; NaN where all documents are one point


def principal_plane(embeddings: np.ndarray) -> Plane:
    """Return the plane of (N, D) embeddings; the largest weight of each axis is positive."""
    from sklearn.decomposition import PCA

    pca = PCA(2, svd_solver="full")
    with np.errstate(invalid="ignore"):  # no variance at all
        points = pca.fit_transform(np.asarray(embeddings, dtype=np.float64))
    return Plane(points, float(pca.explained_variance_ratio_.sum()))


def predict_by_ridge(student: np.ndarray, teacher: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Predict teacher embeddings, (M, D), from a student's by a ridge regression with an intercept.

    Leave-one-out chooses the penalty from ALPHAS. A factor scales all student dimensions to a mean
    variance of 1, so that a penalty means the same for embeddings of any norm.

    student: (N, S); teacher: (N, D), both to fit on; unseen: (M, S).
    """
    from sklearn.linear_model import RidgeCV

    X = np.asarray(student, dtype=np.float64)
    scale = float(np.sqrt(X.var(axis=0).mean())) or 1.0  # a collapsed student is not scaled
    ridge = RidgeCV(alphas=ALPHAS).fit(X / scale, np.asarray(teacher, dtype=np.float64))
    return ridge.predict(unseen / scale)


def probe(
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    buckets: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Measure how much of a teacher a linear map reads: columns bucket, documents, r2.

    train, validation: student (N, S) and teacher (N, D) embeddings; buckets: masks (N,) over the
    validation documents, to which ALL is added. r2: variance-weighted over the teacher's
    dimensions, against the mean of the bucket.
    """
    from sklearn.metrics import r2_score

    student, teacher = (np.asarray(side, dtype=np.float64) for side in validation)
    predicted = predict_by_ridge(*train, student)
    rows = []
    for name, chosen in {ALL: np.ones(len(teacher), dtype=bool), **buckets}.items():
        n = int(chosen.sum())
        r2 = np.nan
        if n > 1:
            r2 = r2_score(teacher[chosen], predicted[chosen], multioutput="variance_weighted")
        rows.append((name, n, r2))
    return pd.DataFrame(rows, columns=["bucket", "documents", "r2"])


def measure_distances(
    student: np.ndarray, teacher: np.ndarray, *, distance: Distance, negatives: int = 20
) -> np.ndarray:
    """Measure how far documents are from their teacher embedding and from those of other documents.

    student, teacher: (N, D), row i of both is document i; distance: "mse" is the squared L2
    distance over D; negatives: the number K of other documents, drawn for each at random. Returns
    (N, 1 + K), the distance from its own embedding first.
    """
    n = len(student)
    shifts = np.tile(np.arange(1, n), (n, 1))
    drawn = np.random.default_rng(0).permuted(shifts, axis=1)[:, :negatives]
    # A shift from 1 to n - 1 never gives the document itself, which is the first one.
    rows = (np.arange(n)[:, None] + np.pad(drawn, ((0, 0), (1, 0)))) % n
    if distance == "mse":
        return np.square(student[:, None] - teacher[rows]).mean(axis=2)
    return 1 - np.einsum("nd,nkd->nk", unit(student), unit(teacher)[rows])


def tidy_distances(distances: np.ndarray) -> pd.DataFrame:
    """Return a row per distance: kind (positive or negative) and value."""
    frame = pd.DataFrame(distances).melt(var_name="kind")
    frame["kind"] = np.where(frame["kind"] == 0, "positive", "negative")
    return frame


def spread(embeddings: np.ndarray) -> float:
    """Return the mean cosine distance of every two of N documents, (N, D)."""
    X = unit(embeddings)
    n = len(X)
    # The squared norm of the sum holds the cosine of each pair twice, and n ones.
    cosines = (np.square(X.sum(axis=0)).sum() - n) / (n * (n - 1))
    return float(1 - cosines)

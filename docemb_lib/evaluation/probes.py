"""Documents in a plane: the two directions in which a space spreads them the most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score

from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import rank_documents

# ---- documents in a plane


class Plane(NamedTuple):
    """What is left of a space in two dimensions."""

    points: np.ndarray  # (N, 2)
    explained: float  # share of the variance that both axes hold; NaN where all documents are one point


def principal_plane(embeddings: np.ndarray) -> Plane:
    """The first two principal components of (N, D) embeddings, each axis pointing to where its largest weight is.

    Raises InputError below three documents, or for a space of one dimension.
    """
    n, d = embeddings.shape
    if n < 3 or d < 2:
        raise InputError(f"principal axes of {n} documents in {d} dimensions: 3 and 2 or more are needed")
    pca = PCA(2, svd_solver="full")
    with np.errstate(invalid="ignore"):  # no variance at all
        points = pca.fit_transform(np.asarray(embeddings, dtype=np.float64))
    return Plane(points, float(pca.explained_variance_ratio_.sum()))


# ---- a linear probe


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


# ---- distances of student embeddings to teacher embeddings


Distance = Literal["cosine", "mse"]


class Distances(NamedTuple):
    """How far student embeddings of N documents are from teacher embeddings: their own, and K others'."""

    documents: np.ndarray  # (N,) rows of the embeddings
    positive: np.ndarray  # (N,) to the teacher embedding of the same document
    others: np.ndarray  # (N, K) rows of other documents, in the order in which they were drawn
    negative: np.ndarray  # (N, K) to their teacher embeddings

    def part(self, chosen: np.ndarray, negatives: int) -> Self:
        """Those of some documents, mask (N,), to the first `negatives` of the others."""
        documents, positive, others, negative = self
        return type(self)(documents[chosen], positive[chosen], others[chosen, :negatives], negative[chosen, :negatives])


class Separation(NamedTuple):
    """How well positives and negatives are told apart, in numbers."""

    auc: float  # share of all (positive, negative) couples in which the positive is nearer, ties counting half
    overlap: float  # 1 minus Kolmogorov and Smirnov's distance: what densities that cross once have in common
    loss: float  # mean max-margin loss, positive - gamma * mean negative (Eq. 4.1)


def measure_distances(
    student: np.ndarray, teacher: np.ndarray, *, distance: Distance, negatives: int = 20, seed: int = 0
) -> Distances:
    """Every document's distance to its own teacher embedding and to those of `negatives` others, drawn with `seed`.

    student, teacher: (N, D), row i of both is document i. distance: "mse" is the squared L2 distance over D.
    """
    if student.shape != teacher.shape:
        raise InputError(f"student embeddings are {student.shape}, teacher embeddings {teacher.shape}; expected equal")
    n = len(student)
    if n < 2:
        raise InputError(f"distances to other documents need two documents or more, got {n}")
    shifts = np.random.default_rng(seed).permuted(np.tile(np.arange(1, n), (n, 1)), axis=1)[:, :negatives]
    own = np.arange(n)
    others = (own[:, None] + shifts) % n  # never the document itself
    negative = [_distance(student, teacher[column], distance) for column in others.T]
    return Distances(own, _distance(student, teacher, distance), others, np.stack(negative, axis=1))


def separation(distances: Distances, *, gamma: float = 1.0) -> Separation:
    """AUC and overlap of positives and negatives, and their max-margin loss. Needs one document and one negative."""
    positive, negative = np.sort(distances.positive), np.sort(distances.negative, axis=None)
    if not len(positive) or not len(negative):
        raise InputError("distances: no documents are chosen; widen the range of lengths")
    nearer = np.searchsorted(positive, negative, side="left") + np.searchsorted(positive, negative, side="right")
    values = np.concatenate([positive, negative])
    shares = [np.searchsorted(side, values, side="right") / len(side) for side in (positive, negative)]
    loss = distances.positive - gamma * distances.negative.mean(axis=1)
    return Separation(
        float(nearer.sum() / (2 * len(positive) * len(negative))),
        float(1 - np.abs(shares[0] - shares[1]).max()),
        float(loss.mean()),
    )


def mistaken(distances: Distances, *, k: int = 10) -> pd.DataFrame:
    """The k pairs of documents that the student takes for each other the most.

    Columns document, other (rows), own, to_other (distances) and ahead: how much nearer the student's embedding of the
    document is to the other's teacher embedding than to its own; most first, below 0 where it is not.
    """
    ahead = distances.positive[:, None] - distances.negative  # (N, K)
    most = np.argsort(-ahead, axis=None, kind="stable")[:k]
    rows, columns = np.unravel_index(most, ahead.shape)
    return pd.DataFrame(
        {
            "document": distances.documents[rows],
            "other": distances.others[rows, columns],
            "own": distances.positive[rows],
            "to_other": distances.negative[rows, columns],
            "ahead": ahead[rows, columns],
        }
    )


def tidy_distances(distances: Distances) -> pd.DataFrame:
    """A row per distance: document, other (rows), kind ("positive" or "negative"), value, and the AUC of all as auc."""
    n, k = distances.negative.shape
    return pd.DataFrame(
        {
            "document": np.concatenate([distances.documents, np.repeat(distances.documents, k)]),
            "other": np.concatenate([distances.documents, distances.others.ravel()]),
            "kind": np.repeat(["positive", "negative"], [n, n * k]),
            "value": np.concatenate([distances.positive, distances.negative.ravel()]),
            "auc": separation(distances).auc,
        }
    )


def _distance(a: np.ndarray, b: np.ndarray, distance: Distance) -> np.ndarray:
    """Row by row. a, b: (N, D). Returns (N,)."""
    if distance == "mse":
        return np.square(a - b).mean(axis=1)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return 1 - (a * b).sum(axis=1) / np.maximum(norms, 1e-16)

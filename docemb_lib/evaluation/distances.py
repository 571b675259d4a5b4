"""Distances of student embeddings to teacher embeddings: of the same document, and of others (thesis, Figure 4.4)."""

from __future__ import annotations

from typing import Literal, NamedTuple, Self

import numpy as np
import pandas as pd

from docemb_lib.errors import InputError

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

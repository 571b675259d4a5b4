"""The numbers a task is judged by (thesis, Sections 4.3 and 5.2; further ones of retrieval as in the author's code).

What is made from ranks takes those of one query's relevant documents: 1-based, ascending, among all other documents.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of right answers of K heads. predictions: (K, N), labels: (N,), both class numbers. Returns (K,)."""
    return (predictions == labels).mean(axis=1)


def f1_macro(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The unweighted mean over classes of the F1 of K heads. predictions: (K, N), labels: (N,). Returns (K,).

    A class that is neither among the labels nor the predictions does not count; one that is never right counts 0.
    """
    from sklearn.metrics import f1_score

    return np.array([f1_score(labels, row, average="macro", zero_division=0.0) for row in predictions])


def average_precision(ranks: Sequence[int] | np.ndarray, *, relevant: int) -> float:
    """Mean over all relevant documents of the precision at each one's rank.

    ranks: of those that were found; relevant: how many there are to find. A relevant document that was not found counts
    as precision 0; nothing to find gives 0.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    found = np.arange(1, len(ranks) + 1)
    return float((found / ranks).sum() / relevant) if relevant else 0.0


def reciprocal_rank(ranks: Sequence[int] | np.ndarray, *, missing: float = 0.0) -> float:
    """1 / rank of the first relevant document; `missing` where none was found."""
    return 1.0 / float(ranks[0]) if len(ranks) else missing


def hit_rate(ranks: Sequence[int] | np.ndarray, *, k: int) -> float:
    """1 if a relevant document is among the first k, else 0."""
    return float(len(ranks) > 0 and ranks[0] <= k)


def ndcg(ranks: Sequence[int] | np.ndarray, *, ideal: int) -> float:
    """Discounted cumulative gain, 1 / log2(1 + rank) for each document found, by that of the first `ideal` ranks."""
    gain = (1 / np.log2(1 + np.asarray(ranks, dtype=np.float64))).sum()
    return float(gain / (1 / np.log2(np.arange(2, ideal + 2))).sum())


def mean_percentile_rank(ranks: Sequence[int] | np.ndarray, *, candidates: int) -> float:
    """The share of the other candidates that stand before a relevant document, mean over these: 0 first, 1 last."""
    return float(np.mean((np.asarray(ranks, dtype=np.float64) - 1) / max(1, candidates - 1)))

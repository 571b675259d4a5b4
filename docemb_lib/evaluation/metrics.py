"""The numbers a task is judged by: accuracy, average precision, reciprocal rank (thesis, Sections 4.3 and 5.2)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def accuracy(predictions: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """The share of right answers of K heads. predictions: (K, N), labels: (N,), both class numbers. Returns (K,)."""
    return (predictions == labels).mean(axis=1)


def average_precision(ranks: Sequence[int] | np.ndarray, *, relevant: int) -> float:
    """Mean over all relevant documents of the precision at each one's rank.

    ranks: 1-based and ascending, of the relevant documents that were found; relevant: how many there are to find.
    A relevant document that was not found counts as precision 0; nothing to find gives 0.
    """
    ranks = np.asarray(ranks, dtype=np.float64)
    found = np.arange(1, len(ranks) + 1)
    return float((found / ranks).sum() / relevant) if relevant else 0.0


def reciprocal_rank(ranks: Sequence[int] | np.ndarray, *, missing: float = 0.0) -> float:
    """1 / rank of the first relevant document; `missing` where none was found. ranks: 1-based and ascending."""
    return 1.0 / float(ranks[0]) if len(ranks) else missing

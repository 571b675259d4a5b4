"""Retrieval by cosine over the whole pool: no training, no index, no cut-off unless asked (thesis, Section 5.2).

Every query is itself a document of the pool and never a hit of its own. Equal cosines are ordered by row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.metrics import average_precision, reciprocal_rank

BLOCK = 256  # queries whose similarities are held at a time
DECIMALS = 12  # equal rows can differ in the last bits of a float64 dot product: those are ties


class RetrievalScores(NamedTuple):
    """One value per query, (Q,) each."""

    average_precision: np.ndarray
    reciprocal_rank: np.ndarray

    @property
    def map(self) -> float:
        return float(self.average_precision.mean())

    @property
    def mrr(self) -> float:
        return float(self.reciprocal_rank.mean())


def rank_documents(embeddings: np.ndarray, queries: Sequence[int]) -> Iterator[np.ndarray]:
    """For each query the rows of all other documents, nearest first.

    embeddings: (N, D); queries: Q rows of it. Yields Q arrays of (N - 1,). A zero embedding has cosine 0 with all.
    """
    X = np.asarray(embeddings, dtype=np.float64)
    X = X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)
    for start in range(0, len(queries), BLOCK):
        block = np.asarray(queries[start : start + BLOCK], dtype=np.intp)
        similarities = np.round(X[block] @ X.T, DECIMALS)
        for query, row in zip(block, similarities, strict=True):
            nearest_first = np.argsort(-row, kind="stable")
            yield nearest_first[nearest_first != query]


def score_retrieval(
    embeddings: np.ndarray,
    queries: Sequence[int],
    relevant: Sequence[Sequence[int]],
    *,
    top_k: int | None = None,
) -> RetrievalScores:
    """Average precision and reciprocal rank of every query.

    embeddings: (N, D); queries: Q rows; relevant: for each query the rows to be found, never the query itself.
    top_k: None ranks everything. A number repeats the cut of the author's code: only the first top_k hits are looked
    at, relevant documents beyond them leave the denominator too, and a query without a hit has AP 0 and RR 1 / top_k.
    """
    precisions, reciprocals = [], []
    for order, wanted in zip(rank_documents(embeddings, queries), relevant, strict=True):
        ranks = np.flatnonzero(np.isin(order[:top_k], np.asarray(wanted))) + 1
        precisions.append(average_precision(ranks, relevant=len(wanted) if top_k is None else len(ranks)))
        reciprocals.append(reciprocal_rank(ranks, missing=0.0 if top_k is None else 1.0 / top_k))
    return RetrievalScores(np.array(precisions), np.array(reciprocals))


def neighbours(embeddings: np.ndarray, ids: Sequence[str], *, queries: Sequence[int], k: int = 3) -> pd.DataFrame:
    """The `k` nearest other documents of each query row by cosine: columns query, rank (from 1), neighbour.

    embeddings: (N, D); ids: N names; queries: rows.
    """
    rows = [
        (ids[query], rank, ids[row])
        for query, ranking in zip(queries, rank_documents(embeddings, queries), strict=True)
        for rank, row in enumerate(ranking[:k], 1)
    ]
    return pd.DataFrame(rows, columns=["query", "rank", "neighbour"])

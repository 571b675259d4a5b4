"""The numbers a task is judged by (thesis, Sections 4.3 and 5.2; further ones of retrieval as in the author's code).

What is made from ranks takes those of one query's relevant documents: 1-based, ascending, among all other documents.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

# ---- the numbers a task is judged


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


# ---- retrieval


BLOCK = 256  # queries whose similarities are held at a time
DOCUMENTS = 8192  # documents of which they are held, where nobody asks for the ranking itself
DECIMALS = 12  # equal rows can differ in the last bits of a float64 dot product: those are ties


class RetrievalScores(NamedTuple):
    """One value per query, (Q,) each. The means of the first two over queries are MAP and MRR."""

    average_precision: np.ndarray
    reciprocal_rank: np.ndarray
    ndcg: np.ndarray
    hit_rate_10: np.ndarray
    hit_rate_100: np.ndarray
    mean_percentile_rank: np.ndarray  # of the whole ranking, whatever the cut

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
    X = unit(embeddings)
    for start in range(0, len(queries), BLOCK):
        block = np.asarray(queries[start : start + BLOCK], dtype=np.intp)
        similarities = np.round(X[block] @ X.T, DECIMALS)
        for query, row in zip(block, similarities, strict=True):
            nearest_first = np.argsort(-row, kind="stable")
            yield nearest_first[nearest_first != query]


def relevant_ranks(
    embeddings: np.ndarray,
    queries: Sequence[int],
    relevant: Sequence[Sequence[int]],
    *,
    candidates: int | None = None,
) -> list[np.ndarray]:
    """For each query the ranks of its relevant rows among all other documents: from 1, ascending.

    embeddings: (N, D), may be memory-mapped; queries: Q rows; relevant: for each query the rows to be found;
    candidates: only the first so many rows can be found, None: all. Nothing is sorted: the rank of a document is the
    number of those before it, counted block by block, so what is held at a time is DOCUMENTS rows in float64 and
    BLOCK x DOCUMENTS similarities, however many documents there are.
    """
    pool = len(embeddings) if candidates is None else candidates
    rows = [np.asarray(wanted, dtype=np.intp) for wanted in relevant]
    pairs = zip(queries, rows, strict=True)
    levels = [unit(embeddings[wanted]) @ unit(embeddings[[query]])[0] for query, wanted in pairs]
    before = [np.zeros(len(wanted), dtype=np.int64) for wanted in rows]
    for first in range(0, pool, DOCUMENTS):
        X = unit(embeddings[first : min(first + DOCUMENTS, pool)])
        for start in range(0, len(queries), BLOCK):
            block = np.asarray(queries[start : start + BLOCK], dtype=np.intp)
            similarities = unit(embeddings[block]) @ X.T
            inside = np.flatnonzero((first <= block) & (block < first + len(X)))
            similarities[inside, block[inside] - first] = -np.inf  # a query is no hit of its own
            for q, row in enumerate(similarities, start):
                before[q] += count_before(row, levels[q], rows[q] - first)
    return [np.sort(counts) + 1 for counts in before]


def count_before(row: np.ndarray, levels: np.ndarray, places: np.ndarray) -> np.ndarray:
    """How many similarities of a row stand before each of R documents, equal ones in the order of their places: (R,).

    row: (N,); levels: (R,), the documents' own similarities; places: (R,), where they stand in the row, or would.
    """
    tie = 0.5 * 10.0**-DECIMALS
    near = np.flatnonzero(row >= levels.min(initial=np.inf) - tie)  # the others stand behind all of them
    row = row[near]
    counts = np.zeros(len(levels), dtype=np.int64)
    for r, (level, place) in enumerate(zip(levels, places, strict=True)):  # vectors: counting along an axis is slow
        counts[r] = np.count_nonzero(row > level + tie)
        reaching = row >= level - tie
        if np.count_nonzero(reaching) > counts[r]:
            tied = reaching & (row <= level + tie)
            counts[r] += np.count_nonzero(near[tied] < place)
    return counts


def unit(embeddings: np.ndarray) -> np.ndarray:
    """Rows of length 1 in float64; a zero row stays zero. embeddings: (N, D)."""
    X = np.asarray(embeddings, dtype=np.float64)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def score_retrieval(
    embeddings: np.ndarray,
    queries: Sequence[int],
    relevant: Sequence[Sequence[int]],
    *,
    top_k: int | None = None,
    candidates: int | None = None,
) -> RetrievalScores:
    """All metrics of every query.

    embeddings: (N, D); queries: Q rows; relevant: for each query the rows to be found, never the query itself.
    top_k: None ranks everything. A number repeats the cut of the author's code: only the first top_k hits are looked
    at, relevant documents beyond them leave the denominator too, and a query without a hit has AP 0 and RR 1 / top_k.
    NDCG is cut as well, against the best that top_k hits allow.
    candidates: only the first so many rows can be found, None: all.
    """
    pool = len(embeddings) if candidates is None else candidates
    cut = pool if top_k is None else top_k
    rows = []
    for query, ranks in zip(queries, relevant_ranks(embeddings, queries, relevant, candidates=pool), strict=True):
        found = ranks[ranks <= cut]
        rows.append(
            (
                average_precision(found, relevant=len(found)),
                reciprocal_rank(found, missing=1.0 / cut),
                ndcg(found, ideal=min(len(ranks), cut)),
                hit_rate(found, k=10),
                hit_rate(found, k=100),
                mean_percentile_rank(ranks, candidates=pool - (query < pool)),
            )
        )
    return RetrievalScores(*np.array(rows).T)


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

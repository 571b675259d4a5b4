"""Ranking by cosine, by words (TF-IDF, BM25) and by both fused; MAP and MRR (4.3 and 5.2).

Rankings by words are fitted on the unlabelled texts of a task, as a search engine fits its index.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.teachers.words import COUNTED, spaced, words_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

    # (N, D), dense, or sparse with rows of unit length
    Embeddings: TypeAlias = np.ndarray | csr_array

BLOCK = 256  # queries whose similarities are held at a time
# Equal rows may differ in the last bits of a float64 dot product: cosines are compared up to these.
DECIMALS = 12
K1 = 1.5  # of BM25, the usual value
B = 0.75  # of BM25, the usual value
QUERY_WORDS = 100  # a whole document as a query: its words of highest TF-IDF
FUSION = 60  # constant of reciprocal rank fusion (Cormack et al., 2009)

# How similar the N texts of a task are, where there are no embeddings: (Q, N) from Q rows of the
# texts. It is called with a few hundred rows at a time, which bounds the memory.
Similarities = Callable[[list[int]], np.ndarray]


def unit(embeddings: np.ndarray) -> np.ndarray:
    """Rows of length 1 in float64; a zero row stays zero. embeddings: (N, D)."""
    X = np.asarray(embeddings, dtype=np.float64)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def rank_documents(similarities: Similarities, queries: Sequence[int]) -> Iterator[np.ndarray]:
    """For each query the rows of all other documents (N - 1,), most similar first.

    Ties are in the order of the rows. Similarities are computed for BLOCK queries at a time.
    """
    for start in range(0, len(queries), BLOCK):
        block = list(queries[start : start + BLOCK])
        for query, row in zip(block, similarities(block), strict=True):
            nearest_first = np.argsort(-np.round(row.astype(np.float64), DECIMALS), kind="stable")
            yield nearest_first[nearest_first != query]


def neighbours(
    embeddings: np.ndarray, ids: Sequence[str], *, queries: Sequence[int], k: int = 3
) -> pd.DataFrame:
    """The `k` documents nearest to each query by cosine: columns query, rank (from 1), neighbour.

    ids: (N,); queries: rows of the embeddings.
    """
    rows = []
    ranked = rank_documents(by_cosine(embeddings), queries)
    for query, order in zip(queries, ranked, strict=True):
        for rank, row in enumerate(order[:k], start=1):
            rows.append((ids[query], rank, ids[row]))
    return pd.DataFrame(rows, columns=["query", "rank", "neighbour"])


def precision_and_reciprocal_rank(
    ranked: Iterable[np.ndarray], relevant: Sequence[Sequence[int]], *, top: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Average precision and reciprocal rank of every query, (Q,) each; their means are MAP and MRR.

    The average precision is the mean over the relevant documents of the precision at the rank of
    each. ranked: see `rank_documents`; relevant: for each query the rows to retrieve. top: None is
    the entire ordering (thesis, 5.3); a number counts only relevant documents among the first `top`
    hits, also in the mean, as the author's code does with 1,000; a query without any has 0 and 1 /
    top.
    """
    precision = []
    reciprocal = []
    for order, wanted in zip(ranked, relevant, strict=True):
        ranks = np.flatnonzero(np.isin(order[:top], wanted)) + 1  # ascending
        hits = np.arange(1, len(ranks) + 1)
        precision.append((hits / ranks).mean() if len(ranks) else 0.0)
        reciprocal.append(1 / min([*ranks, top or np.inf]))
    return np.array(precision), np.array(reciprocal)


def tfidf(texts: Sequence[str]) -> csr_array:
    """TF-IDF of all words of two documents or more: (N, words) float32, rows of unit length.

    Frequencies are logarithmic.
    """
    return _tfidf(list(map(spaced, texts)), min_df=2)[0]


def bm25(texts: Sequence[str]) -> Similarities:
    """BM25 as in Lucene; a text as a query is its QUERY_WORDS words of highest TF-IDF."""
    import bm25s

    weights, vocabulary = _tfidf(list(map(spaced, texts)), min_df=1)
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index([list(map(sys.intern, words_of(text))) for text in texts], show_progress=False)

    def similarities(row: int) -> np.ndarray:
        query = weights[[row]]
        heaviest = query.indices[np.argsort(-query.data, kind="stable")[:QUERY_WORDS]]
        if not len(heaviest):
            return np.zeros(len(texts), dtype=np.float32)
        return index.get_scores([vocabulary[column] for column in heaviest])

    return lambda rows: np.stack([similarities(row) for row in rows])


def by_cosine(embeddings: Embeddings) -> Similarities:
    """The cosines of embeddings (N, D); sparse rows must have unit length."""
    if not isinstance(embeddings, np.ndarray):
        return lambda rows: (embeddings[rows] @ embeddings.T).toarray()
    X = unit(embeddings)
    return lambda rows: X[rows] @ X.T


def of_rows(similarities: Similarities, rows: Sequence[int]) -> Similarities:
    """The similarities among the texts in these rows, which may repeat."""
    return lambda block: similarities([rows[query] for query in block])[:, rows]


def fused(*parts: Similarities) -> Similarities:
    """Reciprocal rank fusion: the sum over the rankings of 1 / (60 + rank) among all other texts.

    Ranks start from 1. Texts that are equally similar share the mean of their ranks.
    """
    from scipy.stats import rankdata

    def summed(rows: list[int]) -> np.ndarray:
        total = np.zeros(1)
        for part in parts:
            values = part(rows).astype(np.float64)
            # The query has rank 0, and shares it with documents of the same text.
            values[np.arange(len(rows)), rows] = np.inf
            total = total + 1 / (FUSION + rankdata(-values, axis=1) - 1)
        return total

    return summed


def _tfidf(texts: Sequence[str], *, min_df: int) -> tuple[csr_array, list[str]]:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(min_df=min_df, sublinear_tf=True, dtype=np.float32, **COUNTED)
    try:
        X = csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        raise InputError(
            f"no word occurs in {min_df} of the {len(texts)} texts; separate words by spaces or "
            "punctuation, or use more texts"
        ) from error
    return X, vectorizer.get_feature_names_out().tolist()

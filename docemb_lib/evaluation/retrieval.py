"""Ranking by cosine, by words (TF-IDF, BM25) and by both fused, and its metrics (5.2 and 5.3).

Rankings by words are fitted on the unlabelled documents that may be retrieved, as a search engine
fits its index.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.teachers.words import COUNTED, spaced, words_of

if TYPE_CHECKING:
    from scipy.sparse import csr_array

BLOCK = 256  # queries whose similarities are held at a time
# Equal rows may differ in the last bits of a float64 dot product: cosines are compared up to these.
DECIMALS = 12
K1 = 1.5  # of BM25, the usual value
B = 0.75  # of BM25, the usual value
QUERY_WORDS = 100  # a whole document as a query: its words of highest TF-IDF
FUSION = 60  # constant of reciprocal rank fusion (Cormack et al., 2009)
NDCG_AT = 10  # hits that nDCG counts
RECALL_AT = 100  # hits that recall counts
METRICS = ("map", "mrr", f"ndcg@{NDCG_AT}", f"recall@{RECALL_AT}")  # of retrieval

Embeddings: TypeAlias = "np.ndarray | csr_array"  # (N, D), dense, or sparse of unit length
# How similar the N texts of a task are, where there are no embeddings: (Q, N) from Q rows of the
# texts. It is called with a few hundred rows at a time, which bounds the memory.
Similarities = Callable[[list[int]], np.ndarray]


def unit(embeddings: np.ndarray) -> np.ndarray:
    """Return rows of length 1 in float64; a zero row stays zero. embeddings: (N, D)."""
    X = np.asarray(embeddings, dtype=np.float64)
    return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float64).tiny)


def rank_documents(
    similarities: Similarities, queries: Sequence[int], *, candidates: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield for each query the rows of all candidates but itself, most similar first.

    Similarities are computed for BLOCK queries at a time. candidates: rows, in the order of ties.
    """
    for start in range(0, len(queries), BLOCK):
        block = list(queries[start : start + BLOCK])
        for query, row in zip(block, similarities(block), strict=True):
            near = np.round(row[candidates].astype(np.float64), DECIMALS)
            nearest_first = candidates[np.argsort(-near, kind="stable")]
            yield nearest_first[nearest_first != query]


def score_queries(
    ranked: Iterable[np.ndarray],
    relevant: Sequence[Sequence[int]],
    *,
    grades: Sequence[Sequence[float]] = (),
    missing: Sequence[Sequence[float]] = (),
    top: int | None = None,
) -> dict[str, np.ndarray]:
    """Score Q queries as trec_eval does: (Q,) for each of METRICS, whose means are the scores.

    The average precision is the mean over the relevant documents of the precision at the rank of
    each; the gain of nDCG is the grade, divided by log2(1 + rank).

    Args:
        ranked: see `rank_documents`.
        relevant: for each query the rows to retrieve.
        grades: of these rows, from 1; empty: all are 1.
        missing: for each query the grades of relevant documents that are in no row and count as
            not retrieved; empty: there are none.
        top: None is the entire ordering (thesis, 5.3). A number counts for average precision and
            reciprocal rank only relevant documents among the first `top` hits, also in the mean, as
            the author's code does with 1,000; a query without any has 0 and 1 / top.
    """
    discounts = 1 / np.log2(np.arange(2, NDCG_AT + 2))
    scores = []
    for number, (order, wanted) in enumerate(zip(ranked, relevant, strict=True)):
        graded = grades[number] if grades else [1] * len(wanted)
        grade_of = dict(zip(wanted, graded, strict=True))
        absent = missing[number] if missing else ()
        places = np.flatnonzero(np.isin(order, wanted))  # ascending, from 0
        ranks = places + 1
        precision = np.arange(1, len(ranks) + 1) / ranks
        judged = len(wanted) + len(absent)
        average = precision.sum() / judged
        if top is not None:
            met = precision[ranks <= top]
            average = met.mean() if len(met) else 0.0
        reciprocal = 1 / min([*ranks, top or np.inf])

        early = places[places < NDCG_AT]
        gains = np.array([grade_of[row] for row in order[early].tolist()], dtype=np.float64)
        ideal = np.sort([*graded, *absent])[::-1][:NDCG_AT]
        ndcg = (gains @ discounts[early]) / (ideal @ discounts[: len(ideal)])
        recall = np.count_nonzero(ranks <= RECALL_AT) / judged
        scores.append((average, reciprocal, ndcg, recall))
    columns = np.array(scores, dtype=np.float64).reshape(-1, len(METRICS)).T
    return dict(zip(METRICS, columns, strict=True))


def spearman(pairs: np.ndarray) -> np.ndarray:
    """Return N values whose mean is Spearman's correlation of N >= 3 pairs; 0 of a constant.

    All pairs together have a correlation, and no pair has one. Value i is the jackknife's: what
    pair i contributes, by the correlation of the others (Efron and Tibshirani, 1993, chapter 11).
    So the mean over a resample of these values is, to first order, the correlation of the resample.

    pairs: (2, N).
    """
    import pandas as pd

    frame = pd.DataFrame(pairs.T)
    parts = chain([frame], map(frame.drop, frame.index))  # all pairs, and all but each
    whole, *others = np.nan_to_num([part.corr("spearman").iloc[0, 1] for part in parts])
    return whole + (len(others) - 1) * (np.mean(others) - others)


def tfidf(texts: Sequence[str], fitted: int | None = None) -> csr_array:
    """Return TF-IDF of all words of two documents or more: (N, words) float32, of unit length.

    Frequencies are logarithmic. fitted: the first so many texts are the documents that words are
    counted in; None: all.
    """
    return _tfidf(texts, fitted, min_df=2)[0]


def _tfidf(texts: Sequence[str], fitted: int | None, *, min_df: int) -> tuple[csr_array, list[str]]:
    """Return TF-IDF of the words of `min_df` fitted documents or more, and these words."""
    from scipy.sparse import csr_array, vstack
    from sklearn.feature_extraction.text import TfidfVectorizer

    words = list(map(spaced, texts))
    fitted = fitted or len(words)
    vectorizer = TfidfVectorizer(min_df=min_df, sublinear_tf=True, dtype=np.float32, **COUNTED)
    try:
        X = vectorizer.fit_transform(words[:fitted])
    except ValueError as error:
        raise InputError(
            f"no word occurs in {min_df} of the {fitted} texts; separate words by spaces or "
            "punctuation, or use more texts"
        ) from error
    if fitted < len(words):
        X = vstack([X, vectorizer.transform(words[fitted:])])
    return csr_array(X), vectorizer.get_feature_names_out().tolist()


def bm25(texts: Sequence[str], fitted: int | None = None) -> Similarities:
    """Return BM25 as in Lucene; a text as a query is its QUERY_WORDS words of highest TF-IDF.

    fitted: the first so many texts are the documents of the index, None: all; the similarity of any
    text to one of the others is 0.
    """
    import bm25s

    documents = [list(map(sys.intern, words_of(text))) for text in texts[:fitted]]
    weights, vocabulary = _tfidf(texts, fitted, min_df=1)
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index(documents, show_progress=False)

    def similarities(rows: list[int]) -> np.ndarray:
        scores = np.zeros((len(rows), len(texts)), dtype=np.float32)
        for of_query, row in zip(scores, rows, strict=True):
            query = weights[[row]]
            heaviest = query.indices[np.argsort(-query.data, kind="stable")[:QUERY_WORDS]]
            if len(heaviest):
                words = [vocabulary[column] for column in heaviest]
                of_query[: len(documents)] = index.get_scores(words)
        return scores

    return similarities


def by_cosine(embeddings: Embeddings) -> Similarities:
    """Return the cosines of embeddings (N, D); sparse rows must have unit length."""
    if not isinstance(embeddings, np.ndarray):
        return lambda rows: (embeddings[rows] @ embeddings.T).toarray()
    X = unit(embeddings)
    return lambda rows: X[rows] @ X.T


def of_rows(similarities: Similarities, rows: Sequence[int]) -> Similarities:
    """Return the similarities among the texts in these rows, which may repeat."""
    return lambda block: similarities([rows[query] for query in block])[:, rows]


def fused(*parts: Similarities, fitted: int | None = None) -> Similarities:
    """Fuse reciprocal ranks: sum 1 / (60 + rank) among all other texts over the rankings.

    Ranks start from 1. Texts that are equally similar share the mean of their ranks. fitted: the
    first so many texts are ranked, None: all; the similarity to the others is 0.
    """
    from scipy.stats import rankdata

    def summed(rows: list[int]) -> np.ndarray:
        total = np.zeros((1, 1))
        queries = np.array(rows)
        for part in parts:
            values = part(rows).astype(np.float64)
            ranked = values[:, :fitted]
            size = ranked.shape[1]
            # A query among the ranked texts has rank 0, and shares it with those of the same text.
            inside = np.flatnonzero(queries < size)
            ranked[inside, queries[inside]] = np.inf
            ranks = rankdata(-ranked, axis=1)
            ranks[inside] -= 1
            values[:, :size] = 1 / (FUSION + ranks)
            values[:, size:] = 0
            total = total + values
        return total

    return summed

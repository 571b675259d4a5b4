"""References without a neural model, fitted on the unlabelled texts of a task as a search engine fits its index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import unit

if TYPE_CHECKING:
    from scipy.sparse import csr_array

K1, B = 1.5, 0.75  # of BM25, the usual values
QUERY_WORDS = 100  # a whole document as a query: its words of highest TF-IDF
FUSION = 60  # constant of reciprocal rank fusion (Cormack et al., 2009)


class Similarities(NamedTuple):
    """How similar queries are to the texts of a task, where there are no embeddings: (Q, N), highest first."""

    values: np.ndarray


def tfidf(texts: Sequence[str]) -> csr_array:
    """(N, words) float32, rows of unit length: all words of two documents or more, with logarithmic frequencies."""
    return _tfidf(texts, min_df=2)[0]


def bm25(texts: Sequence[str], queries: Sequence[int]) -> Similarities:
    """BM25 as in Lucene of the texts, for Q of them as queries, each by its QUERY_WORDS words of highest TF-IDF."""
    import bm25s
    from sklearn.feature_extraction.text import CountVectorizer

    words = CountVectorizer().build_analyzer()
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index([words(text) for text in texts], show_progress=False)
    weights, vocabulary = _tfidf(texts, min_df=1)
    values = np.zeros((len(queries), len(texts)), dtype=np.float32)
    for row, query in zip(values, queries, strict=True):
        own = weights[[query]]
        heaviest = own.indices[np.argsort(-own.data, kind="stable")[:QUERY_WORDS]]
        if len(heaviest):
            row[:] = index.get_scores([vocabulary[column] for column in heaviest])
    return Similarities(values)


def by_cosine(embeddings: np.ndarray, queries: Sequence[int]) -> Similarities:
    """embeddings: (N, D), of the texts; queries: Q rows of it."""
    X = unit(embeddings)
    return Similarities(X[list(queries)] @ X.T)


def fused(parts: Sequence[Similarities], queries: Sequence[int]) -> Similarities:
    """Reciprocal rank fusion: the sum over the rankings of 1 / (60 + rank), ranks from 1 among all other texts."""
    total = np.zeros(parts[0].values.shape)
    for part in parts:
        values = part.values.astype(np.float64)
        values[np.arange(len(values)), list(queries)] = -np.inf  # a query does not retrieve itself
        order = np.argsort(-values, axis=1, kind="stable")
        ranks = np.empty_like(order)
        np.put_along_axis(ranks, order, np.arange(1, values.shape[1] + 1)[None], axis=1)
        total += 1 / (FUSION + ranks)
    return Similarities(total)


def _tfidf(texts: Sequence[str], *, min_df: int) -> tuple[csr_array, list[str]]:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(min_df=min_df, sublinear_tf=True, dtype=np.float32)
    try:
        X = csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        problem = f"no word occurs in {min_df} of the {len(texts)} texts"
        raise InputError(f"TF-IDF: {problem}; check whether words are separated by spaces") from error
    return X, vectorizer.get_feature_names_out().tolist()

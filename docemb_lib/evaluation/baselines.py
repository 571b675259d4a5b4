"""References without a neural model, fitted on the unlabelled texts of a task as a search engine fits its index."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.evaluation.retrieval import unit

if TYPE_CHECKING:
    from scipy.sparse import csr_array

K1, B = 1.5, 0.75  # of BM25, the usual values
QUERY_WORDS = 100  # a whole document as a query: its words of highest TF-IDF
FUSION = 60  # constant of reciprocal rank fusion (Cormack et al., 2009)

# How similar the N texts of a task are, where there are no embeddings: (Q, N) from Q rows of the texts. It is called
# with a few hundred rows at a time, which bounds the memory.
Similarities = Callable[[list[int]], np.ndarray]


def tfidf(texts: Sequence[str]) -> csr_array:
    """(N, words) float32, rows of unit length: all words of two documents or more, with logarithmic frequencies."""
    return _tfidf(texts, min_df=2)[0]


def bm25(texts: Sequence[str]) -> Similarities:
    """BM25 as in Lucene; a text as a query is its QUERY_WORDS words of highest TF-IDF."""
    import bm25s
    from sklearn.feature_extraction.text import CountVectorizer

    weights, vocabulary = _tfidf(texts, min_df=1)
    words = CountVectorizer().build_analyzer()
    index = bm25s.BM25(k1=K1, b=B, method="lucene")
    index.index([list(map(sys.intern, words(text))) for text in texts], show_progress=False)

    def similarities(row: int) -> np.ndarray:
        own = weights[[row]]
        heaviest = own.indices[np.argsort(-own.data, kind="stable")[:QUERY_WORDS]]
        if not len(heaviest):
            return np.zeros(len(texts), dtype=np.float32)
        return index.get_scores([vocabulary[column] for column in heaviest])

    return lambda rows: np.stack([similarities(row) for row in rows])


def by_cosine(embeddings: Any) -> Similarities:
    """embeddings: (N, D), or sparse with rows of unit length."""
    if not isinstance(embeddings, np.ndarray):
        return lambda rows: (embeddings[rows] @ embeddings.T).toarray()
    X = unit(embeddings)
    return lambda rows: X[rows] @ X.T


def fused(*parts: Similarities) -> Similarities:
    """Reciprocal rank fusion: the sum over the rankings of 1 / (60 + rank), ranks from 1 among all other texts.

    Texts that are equally similar share the mean of their ranks.
    """
    from scipy.stats import rankdata

    def summed(rows: list[int]) -> np.ndarray:
        total: Any = 0.0
        for part in parts:
            values = part(rows).astype(np.float64)
            values[np.arange(len(rows)), rows] = -np.inf  # a query does not retrieve itself
            total = total + 1 / (FUSION + rankdata(-values, axis=1))
        return total

    return summed


def _tfidf(texts: Sequence[str], *, min_df: int) -> tuple[csr_array, list[str]]:
    from scipy.sparse import csr_array
    from sklearn.feature_extraction.text import TfidfVectorizer

    vectorizer = TfidfVectorizer(min_df=min_df, sublinear_tf=True, dtype=np.float32)
    try:
        X = csr_array(vectorizer.fit_transform(texts))
    except ValueError as error:
        problem = f"no word occurs in {min_df} of the {len(texts)} texts"
        raise InputError(f"{problem}; words are separated by spaces or punctuation") from error
    return X, vectorizer.get_feature_names_out().tolist()

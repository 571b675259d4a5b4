"""Latent semantic analysis with partial whitening: a vector per word, summed over a document.

It is a contextual teacher, and it fits the half of words of a student.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import hash_of
from docemb_lib.teachers.words import COUNTED, spaced

if TYPE_CHECKING:
    from scipy.sparse import csr_matrix
    from sklearn.feature_extraction.text import CountVectorizer

VOCABULARY = "vocabulary.json"
VECTORS = "lsa.safetensors"
DOCUMENTS = 50_000  # documents at most that are fitted: bounds time and memory
# A word among the first 10 words of a document, where its title stands, counts ten times more,
# among the first 150 two times more. Chosen on eight collections (outputs/published/LOG.md).
LEADS = ((10, 10), (150, 2))
# Power of the entropy weights, chosen on eleven collections (outputs/published/LOG.md).
CONTRAST = 1.5
# Squared singular value of a direction that is halved; one document alone has 1. Chosen on
# validation splits.
NOISE = 3.0
# Up to so many documents or words, a dense solver is the faster one.
DENSE = 3000
MIN_DOCUMENTS = 2  # documents that hold a word of the vocabulary
MEND = (
    "use more documents, or fewer dimensions (--dim of docemb adapt; lsa_dim or words in a profile)"
)


def directions(documents: int, dim: int) -> int:
    """The number of directions to keep: `dim`, but at most a third as many as documents.

    Further directions belong to single documents: classifiers learn less from them, and rankings
    gain nothing.
    """
    return max(1, min(dim, documents // 3))


def entropy_weights(counts: csr_matrix) -> np.ndarray:
    """(words,), one minus the entropy of a word's counts over the N documents, divided by log N.

    A word of one document has 1, a word that all documents hold equally often 0 (Dumais 1991).

    Args:
        counts: (N, words), sparse, N of at least 2, each word in one document or more.
    """
    products = counts.astype(np.float64)
    totals = np.asarray(products.sum(axis=0)).ravel()
    products.data *= np.log(products.data)
    # With c the counts of a word and t their sum, the entropy of c / t is log t - sum(c log c) / t.
    entropies = np.log(totals) - np.asarray(products.sum(axis=0)).ravel() / totals
    weights = 1 - entropies / np.log(counts.shape[0])
    return np.clip(np.round(weights, 9), 0, 1)  # equal counts give 0, not 1e-16


def leading_directions(X: csr_matrix, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The k largest singular values of X, (k,), and the right singular vectors times them.

    They are exact up to rounding: they come from the eigenvectors of the products of documents,
    X Xᵀ, or of words, whichever are fewer. Of each direction, the largest entry is positive.

    Args:
        X: (documents, words), sparse, k at most as many as either.

    Returns the values, the largest first, and (words, k), of which a column is zero where its value
    is.
    """
    from scipy.linalg import eigh
    from scipy.sparse.linalg import LinearOperator, eigsh
    from threadpoolctl import threadpool_limits

    of_words = X.shape[1] < X.shape[0]
    A = X.T.tocsr() if of_words else X
    n = A.shape[0]
    if n <= max(DENSE, 2 * k):
        A = A.astype(np.float64)
        with threadpool_limits(1):  # the last digits would depend on their number
            squares, vectors = eigh((A @ A.T).toarray(), subset_by_index=[n - k, n - 1])
    elif not A.count_nonzero():  # ARPACK refuses it
        squares = np.zeros(k)
        vectors = np.zeros((n, k))
    else:
        transposed = A.T.tocsr()
        products = LinearOperator((n, n), lambda x: A @ (transposed @ x), dtype=A.dtype)
        # It starts at a given vector, so that it gives the same each time. Its steps are so short
        # that a second thread costs more than it gives.
        with threadpool_limits(1):
            squares, vectors = eigsh(products, k, v0=np.ones(n, dtype=A.dtype))
    s = np.sqrt(np.maximum(squares[::-1], 0))
    vectors = vectors[:, ::-1]  # (n, k)
    scaled = vectors * s if of_words else A.T @ vectors  # (words, k)
    largest = np.abs(scaled).argmax(axis=0)
    return s, scaled * np.where(scaled[largest, np.arange(k)] < 0, -1, 1)


class LSA:
    """Words weighted by entropy, on the leading right singular vectors of the corpus.

    In the count of a word the beginning of a document counts more. A term frequency is the square
    root of the count, multiplied by the word's entropy weight to the power CONTRAST. A direction is
    divided by the square root of its singular value s, so that the first directions, which hold
    what all documents share, do not dominate the cosines, and multiplied by s^2 / (s^2 + NOISE), so
    that those of few documents fade. An embedding has unit length; without a known word it is zero.
    Words are those of `words_of`: lower case, at least two characters; pairs of characters in
    scripts without spaces.

    Args:
        dim: width of an embedding. Few documents fill fewer directions, see `directions`; the
            others are zero.
        words: size of the vocabulary at most, the most frequent words; each occurs in at least two
            documents.
    """

    def __init__(self, dim: int = 100, *, words: int = 50_000) -> None:
        self.dim = dim
        self.words = words
        self.vocabulary: list[str] = []
        # (words, dim) float16: entropy weight times direction times its weight, the largest entry 1
        self.vectors = np.zeros((0, dim), dtype=np.float16)

    @property
    def label(self) -> str:
        return f"LSA;{self.dim}"

    @property
    def fingerprint(self) -> str:
        """Identifies the vocabulary and the vectors."""
        content = json.dumps(self.vocabulary).encode() + self.vectors.tobytes()
        return f"lsa:{self.dim}:{hash_of(content)[:16]}"

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn the vocabulary and its vectors.

        Raises InputError for fewer documents or words than `dim`.
        """
        from scipy import sparse
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.preprocessing import normalize

        documents = len(texts)
        if documents < max(self.dim, MIN_DOCUMENTS):
            raise InputError(f"{self.label}: {documents} documents are too few; {MEND}")
        texts = sorted(texts, key=hash_of)[:DOCUMENTS]  # the order of a collection decides nothing
        counter = CountVectorizer(
            min_df=MIN_DOCUMENTS, max_features=self.words, dtype=np.float32, **COUNTED
        )
        try:
            counts = counter.fit_transform(map(spaced, texts))  # (N, words)
            self.vocabulary = counter.get_feature_names_out().tolist()
        except ValueError:  # raised for an empty vocabulary
            self.vocabulary = []
        words = len(self.vocabulary)
        if words < max(self.dim, 2):  # one word tells no documents apart
            raise InputError(
                f"{self.label}: only {words} words, separated by spaces or punctuation, "
                f"occur in {MIN_DOCUMENTS} documents; {MEND}"
            )
        self._counter = counter
        counts = self._with_leads(map(spaced, texts), counts)
        weights = entropy_weights(counts) ** CONTRAST
        weights = weights.astype(counts.dtype)  # float32, which halves the memory
        X = normalize(counts.sqrt() @ sparse.diags(weights), copy=False)
        s, scaled = leading_directions(X, directions(len(texts), self.dim))
        # Divided by s, the columns of `scaled` are the K directions. Each is divided by the root of
        # s once more, and the factor s^2 / (s^2 + NOISE) fades the weak ones. Embedding multiplies
        # term frequencies by `vectors`: weights are folded in.
        vectors = np.zeros((words, self.dim))
        vectors[:, : len(s)] = weights[:, None] * scaled * (s**0.5 / (s**2 + NOISE))
        self.vectors = (vectors / (np.abs(vectors).max() or 1)).astype(np.float16)
        return self

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 (N, dim), rows of unit length or zero."""
        texts = list(map(spaced, texts))
        counts = self._with_leads(texts, self._counter.transform(texts))  # (N, words)
        X = counts.sqrt() @ self.vectors.astype(np.float32)  # (N, dim)
        return X / np.maximum(np.linalg.norm(X, axis=1, keepdims=True), np.finfo(np.float32).tiny)

    def save(self, folder: Path | str) -> None:
        """Write the vocabulary and the vectors to `folder`, without pickles."""
        from safetensors.numpy import save_file

        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / VOCABULARY).write_text(json.dumps(self.vocabulary) + "\n")
        save_file({"vectors": self.vectors}, folder / VECTORS)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        """The model that `save` has written to `folder`."""
        from safetensors.numpy import load_file

        vectors = load_file(Path(folder, VECTORS))["vectors"]
        model = cls(vectors.shape[1])
        model.vocabulary = json.loads(Path(folder, VOCABULARY).read_text())
        model.vectors = vectors
        return model

    def _with_leads(self, texts: Iterable[str], counts: csr_matrix) -> csr_matrix:
        """The counts of words, (N, words), in which the beginnings of texts count more."""
        longest = max(size for size, _ in LEADS)
        beginnings = [text.split(maxsplit=longest)[:longest] for text in texts]
        for size, more in LEADS:
            leads = (" ".join(words[:size]) for words in beginnings)
            counts = counts + more * self._counter.transform(leads)
        return counts

    @cached_property
    def _counter(self) -> CountVectorizer:
        """Counts the words of the vocabulary; `fit` puts its own in this place."""
        from sklearn.feature_extraction.text import CountVectorizer

        return CountVectorizer(vocabulary=self.vocabulary, dtype=np.float32, **COUNTED)

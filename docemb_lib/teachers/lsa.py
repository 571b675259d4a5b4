"""Latent semantic analysis, a contextual teacher without training noise: TF-IDF and a truncated SVD."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self

import numpy as np

from docemb_lib.errors import InputError

if TYPE_CHECKING:
    from sklearn.feature_extraction.text import TfidfVectorizer

DESCRIPTION, VOCABULARY, WEIGHTS = "lsa.json", "vocabulary.json", "lsa.safetensors"


class LSA:
    """Project the TF-IDF vector of a document on the `dim` leading right singular vectors of the corpus.

    Words are scikit-learn's default tokens (lower case, at least two characters) that occur in at least `min_documents`
    documents. A text without such words becomes the zero vector.
    """

    def __init__(self, dim: int = 100, *, min_documents: int = 2, seed: int = 0) -> None:
        if dim < 1:
            raise InputError(f"dim: got {dim}, use 1 or more")
        self.dim, self.min_documents, self.seed = dim, min_documents, seed
        self._words: list[str] = []
        self._idf = np.zeros(0, dtype=np.float32)  # (words,)
        self._components = np.zeros((dim, 0), dtype=np.float32)  # (dim, words)
        self._vectorizer: TfidfVectorizer | None = None  # None: not fitted

    @property
    def label(self) -> str:
        return f"LSA;{self.dim}"

    @property
    def fingerprint(self) -> str:
        """Identifies the vocabulary and the weights."""
        content = json.dumps(self._words).encode() + self._idf.tobytes() + self._components.tobytes()
        return f"lsa:{self.dim}:{hashlib.sha256(content).hexdigest()[:16]}"

    def fit(self, texts: Sequence[str]) -> Self:
        """Learn vocabulary, weights and directions. Raises InputError if `texts` has fewer than `dim` directions."""
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        if len(texts) < max(self.dim, self.min_documents):
            raise InputError(f"{self.label}: got {len(texts)} documents; use at least as many as dim, or a smaller dim")
        vectorizer = TfidfVectorizer(min_df=self.min_documents, dtype=np.float32)
        try:
            X = vectorizer.fit_transform(texts)  # (N, words)
        except ValueError as error:  # raised for an empty vocabulary
            problem = f"no word occurs in {self.min_documents} documents"
            raise InputError(f"{self.label}: {problem}; use a smaller min_documents") from error
        if X.shape[1] < self.dim:
            raise InputError(f"{self.label}: the corpus has only {X.shape[1]} words; use a smaller dim")
        svd = TruncatedSVD(self.dim, random_state=self.seed).fit(X)
        self._set(vectorizer.get_feature_names_out().tolist(), vectorizer.idf_, svd.components_)
        return self

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Float32 (N, dim)."""
        return np.asarray(self._fitted().transform(texts) @ self._components.T)

    def save(self, folder: Path | str) -> None:
        """Write a description, the vocabulary and the weights to `folder`, without pickles."""
        from safetensors.numpy import save_file

        self._fitted()
        folder = Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        description = {"dim": self.dim, "min_documents": self.min_documents, "seed": self.seed}
        (folder / DESCRIPTION).write_text(json.dumps(description) + "\n")
        (folder / VOCABULARY).write_text(json.dumps(self._words) + "\n")
        save_file({"idf": self._idf, "components": self._components}, folder / WEIGHTS)

    @classmethod
    def load(cls, folder: Path | str) -> Self:
        from safetensors.numpy import load_file

        folder = Path(folder)
        if not (folder / DESCRIPTION).is_file():
            raise InputError(f"{folder / DESCRIPTION}: no such file; name a folder written by LSA.save")
        model = cls(**json.loads((folder / DESCRIPTION).read_text()))
        weights = load_file(folder / WEIGHTS)
        model._set(json.loads((folder / VOCABULARY).read_text()), weights["idf"], weights["components"])
        return model

    def _fitted(self) -> TfidfVectorizer:
        if self._vectorizer is None:
            raise InputError(f"{self.label}: not trained; call fit(texts) or LSA.load(folder) first")
        return self._vectorizer

    def _set(self, words: list[str], idf: np.ndarray, components: np.ndarray) -> None:
        from sklearn.feature_extraction.text import TfidfVectorizer

        self._words = words
        self._idf = np.ascontiguousarray(idf, dtype=np.float32)
        self._components = np.ascontiguousarray(components, dtype=np.float32)
        self._vectorizer = TfidfVectorizer(vocabulary=words, dtype=np.float32)
        self._vectorizer.idf_ = self._idf

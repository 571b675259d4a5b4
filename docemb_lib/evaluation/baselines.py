"""The floor of every table: word counts, no training beyond counting, no neural network."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence

import numpy as np

from docemb_lib.errors import InputError


class TfIdf:
    """TF-IDF of the most frequent words of a corpus, as a model like the others: `fit`, then `embed`.

    fit learns vocabulary and document frequencies on the texts the student is distilled on, never on a task's.
    """

    def __init__(self, max_features: int = 4096) -> None:
        self.max_features = max_features

    def fit(self, texts: Sequence[str]) -> TfIdf:
        from sklearn.feature_extraction.text import TfidfVectorizer

        vectorizer = TfidfVectorizer(max_features=self.max_features, dtype=np.float32)
        try:
            self.vectorizer_ = vectorizer.fit(texts)
        except ValueError as error:
            raise InputError(f"TfIdf: {len(texts)} texts hold no word to count; give it a corpus with words") from error
        return self

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """texts: N. Returns float32 (N, dim), rows of norm 1; zero where a text has none of the words."""
        return self._fitted().transform(texts).toarray()

    @property
    def dim(self) -> int:
        return len(self._fitted().vocabulary_)

    @property
    def fingerprint(self) -> str:
        """Hash of all that the embeddings depend on: the words, their columns and their weights."""
        fitted = self._fitted()
        words = json.dumps(sorted((word, int(column)) for word, column in fitted.vocabulary_.items()))
        return hashlib.sha256(words.encode() + fitted.idf_.astype(np.float32).tobytes()).hexdigest()

    def _fitted(self):  # type: ignore[no-untyped-def]  # scikit-learn has no types
        if not hasattr(self, "vectorizer_"):
            raise InputError("TfIdf has not been fitted; call fit(texts) with the distillation corpus first")
        return self.vectorizer_

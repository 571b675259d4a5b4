"""TF-IDF against its definition, on real text."""

from pathlib import Path

import networkx
import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import TfIdf


@pytest.fixture(scope="module")
def texts() -> list[str]:
    folder = Path(networkx.__file__).parent / "algorithms"
    return [path.read_text(encoding="utf-8")[:3000] for path in sorted(folder.glob("*.py"))[:30]]


def test_embeddings_are_term_counts_times_smoothed_idf_at_norm_one() -> None:
    corpus = ["graph node graph", "node edge", "path of graph"]
    model = TfIdf().fit(corpus)
    words = ["edge", "graph", "node", "of", "path"]
    documents = [text.split() for text in corpus]
    idf = [np.log((1 + 3) / (1 + sum(word in document for document in documents))) + 1 for word in words]
    expected = np.array([[document.count(word) for word in words] for document in documents]) * idf
    np.testing.assert_allclose(
        model.embed(corpus), expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-6
    )


def test_rows_are_float32_of_norm_one_and_as_wide_as_asked(texts: list[str]) -> None:
    model = TfIdf(max_features=50).fit(texts)
    embeddings = model.embed(texts)
    assert embeddings.dtype == np.float32
    assert embeddings.shape == (30, 50) == (30, model.dim)
    np.testing.assert_allclose(np.linalg.norm(embeddings, axis=1), 1.0, rtol=1e-5)
    assert not model.embed(["zzzz"]).any()


def test_the_fingerprint_follows_what_was_fitted(texts: list[str]) -> None:
    model = TfIdf(max_features=50).fit(texts)
    assert model.fingerprint == TfIdf(max_features=50).fit(list(reversed(texts))).fingerprint
    assert model.fingerprint != TfIdf(max_features=51).fit(texts).fingerprint
    assert model.fingerprint != TfIdf(max_features=50).fit(texts[:-1]).fingerprint


def test_a_corpus_without_words_and_a_model_without_a_corpus_are_refused() -> None:
    with pytest.raises(InputError, match="2 texts hold no word"):
        TfIdf().fit(["", "?"])
    with pytest.raises(InputError, match="not been fitted"):
        TfIdf().embed(["a"])

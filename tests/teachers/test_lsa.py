import hashlib

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.stats import entropy
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.preprocessing import normalize

from docemb_lib.teachers import LSA, lsa


# Of 60 documents at most a third is kept.
@pytest.mark.parametrize(("dim", "kept"), [(10, 10), (30, 20), (60, 20)])
def test_it_is_numpys_svd_of_weighted_words_half_whitened_and_shrunk(pages, dim, kept):
    words = TfidfVectorizer(min_df=2, use_idf=False, norm=None).fit(pages[:60])
    repeated = [
        " ".join([text, *10 * text.split()[:10], *2 * text.split()[:150]]) for text in pages
    ]
    counts = words.transform(repeated).toarray()
    X = np.sqrt(counts) * (1 - entropy(counts[:60], base=60, axis=0)) ** 1.5
    _, s, directions = np.linalg.svd(normalize(X[:60]))
    s, directions = s[:kept], directions[:kept]
    expected = normalize(X @ directions.T / np.sqrt(s) / (1 + 3 / s**2))
    ours = LSA(dim).fit(pages[:60]).embed(pages)
    assert not ours[:, kept:].any()
    # Vectors are stored in half precision.
    np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=5e-3)


def words_of_topics(documents, words, topics):
    """Sparse rows of unit length: each document has words of two topics, frequent ones more often.

    Its singular values fall slowly, as those of real texts do.
    """
    rng = np.random.default_rng(0)
    frequent = 1 / np.arange(1, words + 1)
    mixed = np.zeros((documents, words))
    for row in mixed:
        for topic in rng.integers(topics, size=2):
            shuffled = np.random.default_rng(topic).permutation(frequent)
            row += rng.poisson(60 * shuffled / shuffled.sum())
    return csr_array(normalize(np.sqrt(mixed)).astype(np.float32))


@pytest.mark.parametrize(("documents", "words"), [(90, 200), (200, 90)])
@pytest.mark.parametrize("dense", [3000, 0])
def test_leading_directions_are_those_of_numpys_svd(documents, words, dense, monkeypatch):
    monkeypatch.setattr(lsa, "DENSE", dense)
    X = words_of_topics(documents, words, 30)
    _, s, directions = np.linalg.svd(X.toarray().astype(np.float64))
    ours, scaled = lsa.leading_directions(X, 20)
    np.testing.assert_allclose(ours, s[:20], rtol=1e-5)
    cosines = np.abs((directions[:20] * scaled.T).sum(axis=1)) / s[:20]
    np.testing.assert_allclose(cosines, 1, atol=1e-4)


@pytest.mark.parametrize("dense", [3000, 0])
def test_the_largest_entry_of_each_direction_is_positive_each_time(dense, monkeypatch):
    monkeypatch.setattr(lsa, "DENSE", dense)
    X = words_of_topics(200, 90, 30)
    _, scaled = lsa.leading_directions(X, 20)
    assert (scaled.max(axis=0) == np.abs(scaled).max(axis=0)).all()
    np.testing.assert_array_equal(lsa.leading_directions(X, 20)[1], scaled)


@pytest.mark.parametrize("dense", [3000, 0])
def test_documents_without_weighted_words_have_no_directions(dense, monkeypatch):
    monkeypatch.setattr(lsa, "DENSE", dense)
    s, scaled = lsa.leading_directions(csr_array((40, 90), dtype=np.float32), 10)
    assert (s.shape, scaled.shape) == ((10,), (90, 10))
    assert not s.any()
    assert not scaled.any()


def test_a_text_of_words_that_all_documents_hold_equally_often_has_no_embedding():
    texts = [
        f"everywhere {word} {word}"
        for word in ("one", "one", "one", "two", "two", "two", "two", "")
    ]
    embeddings = LSA(2).fit(texts).embed(texts)
    assert not embeddings[-1].any()
    np.testing.assert_allclose(np.linalg.norm(embeddings[:-1], axis=1), 1, atol=1e-5)
    assert not LSA(2).fit(["the same words"] * 7).embed(["the same words"]).any()


def test_a_large_collection_is_fitted_on_documents_drawn_by_their_texts(pages, monkeypatch):
    monkeypatch.setattr(lsa, "DOCUMENTS", 20)
    drawn = sorted(pages, key=lambda page: hashlib.sha256(page.encode()).hexdigest())[:20]
    assert LSA(5).fit(pages[::-1]).fingerprint == LSA(5).fit(drawn).fingerprint


def test_a_saved_model_is_the_same_model(pages, tmp_path):
    model = LSA(10, words=300).fit(pages)
    model.save(tmp_path)
    loaded = LSA.load(tmp_path)
    np.testing.assert_array_equal(loaded.embed(pages), model.embed(pages))
    assert loaded.fingerprint == model.fingerprint
    assert (loaded.label, len(loaded.vocabulary)) == ("LSA;10", 300)


def test_embeddings_are_float32_and_zero_without_a_known_word(pages):
    model = LSA(10).fit(pages)
    assert not model.embed(["", "qwxz"]).any()
    assert model.embed(pages).dtype == np.float32


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: LSA(10).fit(["one two", "two three", "three one"]), "3 documents are too few"),
        (
            lambda: LSA(2).fit(["我们今天去公园散步", "他们昨天在图书馆看书", "你明天来吗"]),
            "separated by spaces or punctuation",
        ),
    ],
)
def test_small_corpora_are_refused(call, message, refused):
    refused(message, call)

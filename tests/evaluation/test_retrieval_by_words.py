"""TF-IDF, BM25 and fused rankings against their definitions, written out as loops."""

from collections import Counter
from math import log

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from docemb_lib.evaluation import LabelledPairs, Pairs, Ranking, Retrieval, retrieval
from docemb_lib.evaluation.retrieval import bm25, by_cosine, fused, tfidf
from docemb_lib.settings.sections import HeadSettings

TEXTS = ["graph node graph", "node edge", "path of graph", "edge of path of path"]
DOCUMENTS = [text.split() for text in TEXTS]
N_WITH = Counter(word for document in DOCUMENTS for word in set(document))
WORDS = sorted(N_WITH)


def weights(words: list[str], document: list[str]) -> np.ndarray:
    row = np.zeros(len(words))
    for i, word in enumerate(words):
        if word in document:
            idf = log((1 + len(TEXTS)) / (1 + N_WITH[word])) + 1
            row[i] = (1 + log(Counter(document)[word])) * idf
    return row / np.linalg.norm(row)


def test_tfidf_is_damped_counts_times_smoothed_idf_of_words_in_two_documents(refused):
    shared = [word for word in WORDS if N_WITH[word] >= 2]
    expected = [weights(shared, document) for document in DOCUMENTS]
    np.testing.assert_allclose(tfidf(TEXTS).toarray(), expected, rtol=1e-6)
    refused("no word occurs in 2 of the 2 texts", tfidf, ["one", "two"])


@pytest.mark.parametrize("query_words", [100, 2])
def test_bm25_is_its_formula_for_the_heaviest_words_of_the_query(query_words, monkeypatch, refused):
    monkeypatch.setattr(retrieval, "QUERY_WORDS", query_words)
    mean = np.mean([len(document) for document in DOCUMENTS])

    def similarity(query: list[str], document: list[str]) -> float:
        heavy = weights(WORDS, query)
        total = 0.0
        for i in np.argsort(-heavy, kind="stable")[:query_words]:
            n = N_WITH[WORDS[i]]
            tf = document.count(WORDS[i]) * (heavy[i] > 0)
            idf = log(1 + (len(TEXTS) - n + 0.5) / (n + 0.5))
            total += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean))
        return total

    for query in (3, 0):
        expected = [similarity(DOCUMENTS[query], document) for document in DOCUMENTS]
        np.testing.assert_allclose(bm25(TEXTS)([query])[0], expected, rtol=1e-5)
    assert not bm25([*TEXTS, "?"])([4]).any()  # a query without words
    refused("no word occurs in 1 of the 2 texts", bm25, ["", "?"])


def test_fusion_adds_reciprocal_ranks_without_the_query_and_ties_share_theirs():
    rng = np.random.default_rng(0)
    tables = [rng.integers(0, 4, size=(7, 7)).astype(float) for _ in range(2)]
    similarities = fused(*(table.__getitem__ for table in tables))([2, 0, 6])
    for row, query in zip(similarities, [2, 0, 6], strict=True):
        others = np.delete(np.arange(7), query)
        for i in others:
            expected = 0.0
            for table in tables:
                near = table[query, others]
                ahead = np.sum(near > table[query, i])
                equal = np.sum(near == table[query, i])
                expected += 1 / (60 + ahead + (equal + 1) / 2)
            assert row[i] == pytest.approx(expected)


def test_retrieval_scores_similarities_and_sparse_rows_as_embeddings(monkeypatch):
    # The last text is twice in the pool, and once among the texts.
    texts = [*(f"document {i}" for i in range(9)), "document 3"]
    task = Retrieval("r", {"test": Ranking(texts, [4, 9, 0], [[1, 3], [2], [5, 6]])})
    X = np.random.default_rng(1).random((9, 5)).astype(np.float32)
    monkeypatch.setattr(retrieval, "BLOCK", 2)
    asked = []

    def similarities(rows: list[int]) -> np.ndarray:
        asked.append(rows)
        return by_cosine(X)(rows)

    assert task.score(similarities).by_seed == task.score(X).by_seed
    assert asked == [[4, 3], [0]]
    twin = Retrieval("r", {"test": Ranking(texts, [3], [[9]])})
    assert twin.score(fused(by_cosine(X), by_cosine(X[::-1]))).mean == 1
    words = ["aa bb cc", "aa bb", "cc bb", "bb bb aa", "cc aa", "aa", "bb cc cc", "cc", "bb"]
    counted = tfidf(words)
    assert task.score(counted).mean == pytest.approx(task.score(counted.toarray()).mean)


@pytest.mark.parametrize("how", ["concat", "interaction"])
def test_heads_of_sparse_features_are_logistic_regressions(how):
    rng = np.random.default_rng(2)
    texts = [" ".join(rng.choice([f"word{i}" for i in range(30)], size=12)) for _ in range(60)]
    pairs = LabelledPairs(texts[:20], texts[20:40], [0, 1] * 10)
    unseen = LabelledPairs(texts[40:50], texts[50:], [0, 1] * 5)
    X = tfidf(texts)
    score = Pairs("p", {"train": pairs, "test": unseen}).score(
        X, head=HeadSettings(pair_features=how), seeds=2
    )
    first, second, third, fourth = np.split(X.toarray(), [20, 40, 50])
    features = []
    for a, b in ((first, second), (third, fourth)):
        features.append(np.hstack([a, b] if how == "concat" else [abs(a - b), a * b]))
    model = LogisticRegression(C=10, max_iter=1000).fit(features[0], pairs.labels)
    expected = model.score(features[1], unseen.labels)
    assert score.by_seed["accuracy"] == [expected, expected]

"""TF-IDF, BM25 and fused rankings against their definitions, written out as loops."""

from collections import Counter
from math import log

import numpy as np
import pytest

from docemb_lib.evaluation import (
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    retrieval,
)
from docemb_lib.evaluation.retrieval import bm25, by_cosine, fused, tfidf
from docemb_lib.settings.sections import HeadSettings

TEXTS = ["graph node graph", "node edge", "path of graph", "edge of path of path"]
DOCUMENTS = [text.split() for text in TEXTS]
WORDS = sorted({word for document in DOCUMENTS for word in document})
N_WITH = {word: sum(word in document for document in DOCUMENTS) for word in WORDS}


def weights(words: list[str], document: list[str]) -> np.ndarray:
    counts = Counter(document)
    idf = {word: log((1 + len(TEXTS)) / (1 + N_WITH[word])) + 1 for word in words}
    row = np.array([(1 + log(counts[word])) * idf[word] if counts[word] else 0.0 for word in words])
    return row / np.linalg.norm(row)


def test_tfidf_is_damped_counts_times_smoothed_idf_of_words_in_two_documents(refused) -> None:
    shared = [word for word in WORDS if N_WITH[word] >= 2]
    np.testing.assert_allclose(
        tfidf(TEXTS).toarray(), [weights(shared, document) for document in DOCUMENTS], rtol=1e-6
    )
    refused("no word occurs in 2 of the 2 texts", tfidf, ["one", "two"])


@pytest.mark.parametrize("query_words", [100, 2])
def test_bm25_is_its_formula_for_the_heaviest_words_of_the_query(query_words, monkeypatch, refused):
    monkeypatch.setattr(retrieval, "QUERY_WORDS", query_words)
    mean = np.mean([len(document) for document in DOCUMENTS])

    def similarity(query: list[str], document: list[str]) -> float:
        heavy = weights(WORDS, query)
        words = [WORDS[i] for i in np.argsort(-heavy, kind="stable")[:query_words] if heavy[i] > 0]
        total = 0.0
        for word in words:
            idf = log(1 + (len(TEXTS) - N_WITH[word] + 0.5) / (N_WITH[word] + 0.5))
            tf = document.count(word)
            total += idf * tf / (tf + 1.5 * (1 - 0.75 + 0.75 * len(document) / mean))
        return total

    expected = [
        [similarity(DOCUMENTS[query], document) for document in DOCUMENTS] for query in (3, 0)
    ]
    np.testing.assert_allclose(bm25(TEXTS)([3, 0]), expected, rtol=1e-5)
    assert not bm25([*TEXTS, "?"])([4]).any()  # a query without words
    refused("no word occurs in 1 of the 2 texts", bm25, ["", "?"])


def test_fusion_adds_reciprocal_ranks_without_the_query_and_ties_share_theirs() -> None:
    rng = np.random.default_rng(0)
    tables, queries = [rng.integers(0, 4, size=(7, 7)).astype(float) for _ in range(2)], [2, 0, 6]
    expected = np.zeros((3, 7))
    for table in tables:
        for row, query in enumerate(queries):
            others = [i for i in range(7) if i != query]
            for i in others:
                before = sum(table[query, other] > table[query, i] for other in others)
                equal = sum(table[query, other] == table[query, i] for other in others)
                expected[row, i] += 1 / (60 + before + (equal + 1) / 2)
    found = fused(*(table.__getitem__ for table in tables))(queries)
    others = np.array([[i for i in range(7) if i != query] for query in queries])
    np.testing.assert_allclose(
        np.take_along_axis(found, others, 1), np.take_along_axis(expected, others, 1)
    )


def test_retrieval_scores_similarities_and_sparse_rows_as_embeddings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    texts = [f"document {i}" for i in range(9)] + [
        "document 3"
    ]  # twice in the pool, once among the texts
    task = Retrieval("r", {"test": Ranking(texts, [4, 9, 0], [[1, 3], [2], [5, 6]])})
    X = np.random.default_rng(1).random((9, 5)).astype(np.float32)
    by_embeddings = task.score(X)
    assert task.score(by_cosine(X)) == by_embeddings
    monkeypatch.setattr(retrieval, "BLOCK", 2)
    asked = []
    assert task.score(lambda rows: asked.append(rows) or by_cosine(X)(rows)) == by_embeddings
    assert asked == [[4, 3], [0]]
    assert (
        Retrieval("r", {"test": Ranking(texts, [3], [[9]])})
        .score(fused(by_cosine(X), by_cosine(X[::-1])))
        .mean
        == 1
    )
    counted = tfidf(
        ["aa bb cc", "aa bb", "cc bb", "bb bb aa", "cc aa", "aa", "bb cc cc", "cc", "bb"]
    )
    sparse, dense = task.score(counted), task.score(counted.toarray())
    assert sparse.mean == pytest.approx(dense.mean)


@pytest.mark.parametrize("how", ["concat", "interaction"])
def test_heads_of_sparse_features_are_logistic_regressions(how: str) -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(2)
    texts = [" ".join(rng.choice([f"word{i}" for i in range(30)], size=12)) for _ in range(60)]
    X = tfidf(texts)
    labels = [int(text.count("word1") > 4) for text in texts]
    task = Classification(
        "c", {"train": Labelled(texts[:40], labels[:40]), "test": Labelled(texts[40:], labels[40:])}
    )
    expected = (
        LogisticRegression(C=10, max_iter=1000).fit(X[:40], labels[:40]).score(X[40:], labels[40:])
    )
    assert task.score(X, seeds=2).values == (expected, expected)
    pairs = LabelledPairs(texts[:20], texts[20:40], [0, 1] * 10)
    other = LabelledPairs(texts[40:50], texts[50:], [0, 1] * 5)
    head = HeadSettings(pair_features=how)
    dense, first, second = X.toarray(), slice(0, 20), slice(20, 40)
    features = np.hstack(
        [dense[first], dense[second]]
        if how == "concat"
        else [abs(dense[first] - dense[second]), dense[first] * dense[second]]
    )
    model = LogisticRegression(C=10, max_iter=1000).fit(features, pairs.labels)
    a, b = dense[40:50], dense[50:]
    tested = np.hstack([a, b] if how == "concat" else [abs(a - b), a * b])
    found = Pairs("p", {"train": pairs, "test": other}).score(X, head=head, seeds=1)
    assert found.values == (model.score(tested, other.labels),)

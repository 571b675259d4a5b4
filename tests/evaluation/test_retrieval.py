"""Ranking by cosine and its metrics against plain loops and scikit-learn."""

from typing import Any

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from docemb_lib.evaluation import retrieval


def ranks_of(embeddings: np.ndarray, *args: Any, **kwargs: Any) -> list[np.ndarray]:
    return retrieval.ranks_by_similarity(retrieval.by_cosine(embeddings), *args, **kwargs)


def score_retrieval(*args: Any, **kwargs: Any) -> tuple[np.ndarray, np.ndarray]:
    return retrieval.precision_and_reciprocal_rank(ranks_of(*args, **kwargs))


def random_case(seed: int, documents: int = 60, queries: int = 12) -> tuple[np.ndarray, list[int], list[list[int]]]:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(documents, 5)).astype(np.float32)
    rows = rng.permutation(documents)[:queries].tolist()
    relevant = [rng.permutation(np.delete(np.arange(documents), row))[: rng.integers(1, 7)].tolist() for row in rows]
    return embeddings, rows, relevant


@pytest.mark.parametrize(("seed", "candidates"), [(0, 60), (1, 60), (2, 60), (3, 60), (11, 54)])
def test_scores_are_those_of_a_plain_loop_and_scikit_learn(seed: int, candidates: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(retrieval, "BLOCK", 5)
    embeddings, queries, relevant = random_case(seed)
    if candidates < 60:
        queries = [*queries[:6], *range(54, 60)]  # some in the pool, some behind it
        relevant = [sorted({row % 54 for row in rows} - {query}) for query, rows in zip(queries, relevant, strict=True)]
    similarities = cosine_similarity(embeddings.astype(np.float64))
    expected, of_seven = [], []
    for query, wanted in zip(queries, relevant, strict=True):
        others = [row for row in range(candidates) if row != query]
        ranked = sorted(others, key=lambda row, near=similarities[query]: -near[row])
        truth = [row in wanted for row in others]
        first = next(rank for rank, row in enumerate(ranked, start=1) if row in wanted)
        expected.append((average_precision_score(truth, similarities[query, others]), 1 / first))
        hits = [row in wanted for row in ranked[:7]]
        of_seven.append((average_precision_score(hits, range(7, 0, -1)) if any(hits) else 0, 1 / min(first, 7)))
    scores = score_retrieval(embeddings, queries, relevant, candidates=candidates)
    np.testing.assert_allclose(np.transpose(scores), expected, atol=1e-12)
    # without embeddings, the same ranks come from similarities
    ranked = retrieval.ranks_by_similarity(similarities.__getitem__, queries, relevant, candidates=candidates)
    np.testing.assert_allclose(retrieval.precision_and_reciprocal_rank(ranked), scores, atol=1e-12)
    found = retrieval.precision_and_reciprocal_rank(ranked, top=7)
    np.testing.assert_allclose(np.transpose(found), of_seven, atol=1e-12)


def test_equal_cosines_are_ordered_by_row_around_the_query_and_a_zero_embedding_is_as_far_from_all():
    same = np.tile(np.random.default_rng(0).normal(size=7).astype(np.float32), (37, 1))
    assert next(retrieval.rank_documents(same, [20])).tolist() == [row for row in range(37) if row != 20]
    embeddings = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    assert next(retrieval.rank_documents(embeddings, [0])).tolist() == [3, 1, 2]
    assert next(retrieval.rank_documents(embeddings, [1])).tolist() == [0, 2, 3]
    same = np.tile(np.random.default_rng(0).normal(size=7).astype(np.float32), (10, 1))
    (ranks,) = ranks_of(same, [5], [[9, 0, 6]])
    assert ranks.tolist() == [1, 6, 9]
    np.testing.assert_array_equal(score_retrieval(np.eye(2), [0, 1], [[1], [0]]), np.ones((2, 2)))


@pytest.mark.parametrize("seed", range(3))
def test_ranks_are_the_places_in_the_whole_ranking_whatever_the_blocks(seed: int, monkeypatch: Any) -> None:
    embeddings, queries, relevant = random_case(seed, documents=80)
    embeddings[40:60] = embeddings[:20]  # twins: ties to be broken by row
    embeddings[70] = 0
    orders = zip(retrieval.rank_documents(embeddings, queries), relevant, strict=True)
    expected = [[1 + order.tolist().index(row) for row in wanted] for order, wanted in orders]
    one_block = ranks_of(embeddings, queries, relevant)
    for ranks, places in zip(one_block, expected, strict=True):
        assert ranks.tolist() == sorted(places)
    for block in (5, 1, 12):
        monkeypatch.setattr(retrieval, "BLOCK", block)
        for ranks, whole in zip(ranks_of(embeddings, queries, relevant), one_block, strict=True):
            np.testing.assert_array_equal(ranks, whole)

"""Ranking by cosine against plain loops and scikit-learn, and the cut of the author's code."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from docemb_lib.evaluation import retrieval
from docemb_lib.evaluation.retrieval import rank_documents, score_retrieval


def random_case(seed: int, documents: int = 60, queries: int = 12) -> tuple[np.ndarray, list[int], list[list[int]]]:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(documents, 5)).astype(np.float32)
    rows = rng.permutation(documents)[:queries].tolist()
    relevant = [rng.permutation(np.delete(np.arange(documents), row))[: rng.integers(1, 7)].tolist() for row in rows]
    return embeddings, rows, relevant


@pytest.mark.parametrize("seed", range(4))
def test_map_and_mrr_are_those_of_scikit_learn_and_of_a_plain_loop(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retrieval, "BLOCK", 5)
    embeddings, queries, relevant = random_case(seed)
    similarities = cosine_similarity(embeddings)
    precisions, reciprocals = [], []
    for query, wanted in zip(queries, relevant, strict=True):
        others = [row for row in range(len(embeddings)) if row != query]
        truth = [row in wanted for row in others]
        precisions.append(average_precision_score(truth, similarities[query, others]))
        ranked = sorted(others, key=lambda row, query=query: -similarities[query, row])
        reciprocals.append(1 / (1 + min(ranked.index(row) for row in wanted)))
    scores = score_retrieval(embeddings, queries, relevant)
    np.testing.assert_allclose(scores.average_precision, precisions, atol=1e-12)
    np.testing.assert_allclose(scores.reciprocal_rank, reciprocals, atol=1e-12)
    assert scores.map == pytest.approx(np.mean(precisions))
    assert scores.mrr == pytest.approx(np.mean(reciprocals))


@pytest.mark.parametrize("top_k", [3, 10])
def test_a_cut_takes_what_lies_beyond_it_out_of_the_denominator_as_well(top_k: int) -> None:
    embeddings, queries, relevant = random_case(7)
    similarities = cosine_similarity(embeddings.astype(np.float64))
    expected_precision, expected_reciprocal = [], []
    for query, wanted in zip(queries, relevant, strict=True):
        ranked = sorted(
            (row for row in range(60) if row != query), key=lambda row, query=query: -similarities[query, row]
        )
        hits, precisions = 0, []
        for rank, row in enumerate(ranked[:top_k], start=1):
            if row in wanted:
                hits += 1
                precisions.append(hits / rank)
        first = [rank for rank, row in enumerate(ranked[:top_k], start=1) if row in wanted]
        expected_precision.append(sum(precisions) / hits if hits else 0.0)
        expected_reciprocal.append(1 / (first[0] if first else top_k))
    scores = score_retrieval(embeddings, queries, relevant, top_k=top_k)
    np.testing.assert_allclose(scores.average_precision, expected_precision)
    np.testing.assert_allclose(scores.reciprocal_rank, expected_reciprocal)
    assert 0.0 in expected_precision  # the case of a query without any hit is among them


def test_equal_cosines_are_ordered_by_row_and_the_query_is_no_hit() -> None:
    same = np.tile(np.random.default_rng(0).normal(size=7).astype(np.float32), (37, 1))
    assert next(rank_documents(same, [20])).tolist() == [row for row in range(37) if row != 20]


def test_a_zero_embedding_is_as_far_from_all() -> None:
    embeddings = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    assert next(rank_documents(embeddings, [0])).tolist() == [3, 1, 2]
    assert next(rank_documents(embeddings, [1])).tolist() == [0, 2, 3]


def test_the_length_of_an_embedding_and_the_order_of_the_pool_do_not_matter() -> None:
    embeddings, queries, relevant = random_case(3)
    rng = np.random.default_rng(3)
    before = score_retrieval(embeddings, queries, relevant)
    place = rng.permutation(len(embeddings))  # document i moves to row place[i]
    moved = np.empty_like(embeddings)
    moved[place] = embeddings * rng.uniform(0.1, 10, size=(len(embeddings), 1)).astype(np.float32)
    after = score_retrieval(moved, place[queries].tolist(), [place[rows].tolist() for rows in relevant])
    np.testing.assert_allclose(after.average_precision, before.average_precision, atol=1e-12)
    np.testing.assert_allclose(after.reciprocal_rank, before.reciprocal_rank, atol=1e-12)

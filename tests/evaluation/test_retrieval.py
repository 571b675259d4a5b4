"""Ranking by cosine and its metrics against plain loops and scikit-learn."""

import numpy as np
import pytest
from sklearn.metrics import average_precision_score
from sklearn.metrics.pairwise import cosine_similarity

from docemb_lib.evaluation import retrieval
from docemb_lib.evaluation.retrieval import by_cosine, precision_and_reciprocal_rank, rank_documents


def random_case(
    seed: int, documents: int = 60, queries: int = 12
) -> tuple[np.ndarray, list[int], list[list[int]]]:
    rng = np.random.default_rng(seed)
    embeddings = rng.normal(size=(documents, 5)).astype(np.float32)
    rows = rng.permutation(documents)[:queries].tolist()
    relevant = [
        rng.permutation(np.delete(np.arange(documents), row))[: rng.integers(1, 7)].tolist()
        for row in rows
    ]
    return embeddings, rows, relevant


@pytest.mark.parametrize("seed", range(4))
def test_scores_are_those_of_a_plain_loop_and_scikit_learn(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrieval, "BLOCK", 5)
    embeddings, queries, relevant = random_case(seed)
    similarities = cosine_similarity(embeddings.astype(np.float64))
    expected, of_seven = [], []
    for query, wanted in zip(queries, relevant, strict=True):
        others = [row for row in range(60) if row != query]
        ranked = sorted(others, key=lambda row, near=similarities[query]: -near[row])
        truth = [row in wanted for row in others]
        first = next(rank for rank, row in enumerate(ranked, start=1) if row in wanted)
        expected.append((average_precision_score(truth, similarities[query, others]), 1 / first))
        hits = [row in wanted for row in ranked[:7]]
        of_seven.append(
            (average_precision_score(hits, range(7, 0, -1)) if any(hits) else 0, 1 / min(first, 7))
        )
    for given in (
        by_cosine(embeddings),
        similarities.__getitem__,
    ):  # the same from similarities, without embeddings
        scores = precision_and_reciprocal_rank(rank_documents(given, queries), relevant)
        np.testing.assert_allclose(np.transpose(scores), expected, atol=1e-12)
        found = precision_and_reciprocal_rank(rank_documents(given, queries), relevant, top=7)
        np.testing.assert_allclose(np.transpose(found), of_seven, atol=1e-12)


def test_equal_cosines_are_ordered_by_row_and_a_zero_embedding_is_as_far_from_all():
    same = np.tile(np.random.default_rng(0).normal(size=7).astype(np.float32), (37, 1))
    assert next(rank_documents(by_cosine(same), [20])).tolist() == [
        row for row in range(37) if row != 20
    ]
    embeddings = np.array([[1.0, 0.0], [0.0, 0.0], [-1.0, 0.0], [1.0, 1.0]])
    assert [order.tolist() for order in rank_documents(by_cosine(embeddings), [0, 1])] == [
        [3, 1, 2],
        [0, 2, 3],
    ]
    scores = precision_and_reciprocal_rank(rank_documents(by_cosine(np.eye(2)), [0, 1]), [[1], [0]])
    np.testing.assert_array_equal(scores, np.ones((2, 2)))

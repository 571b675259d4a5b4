"""Metrics against scikit-learn and hand-counted cases."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score, ndcg_score

from docemb_lib.evaluation.retrieval import (
    accuracy,
    average_precision,
    f1_macro,
    hit_rate,
    mean_percentile_rank,
    ndcg,
    reciprocal_rank,
)


@pytest.mark.parametrize("seed", range(5))
def test_average_precision_is_that_of_scikit_learn(seed: int) -> None:
    rng = np.random.default_rng(seed)
    hit = rng.random(40) < 0.2
    hit[rng.integers(40)] = True
    ranks = np.flatnonzero(hit) + 1
    expected = average_precision_score(hit, -np.arange(40))
    assert average_precision(ranks, relevant=len(ranks)) == pytest.approx(expected, abs=1e-12)


def test_a_relevant_document_that_was_not_found_counts_as_zero() -> None:
    assert average_precision([1, 4], relevant=4) == pytest.approx((1 / 1 + 2 / 4) / 4)


def test_the_reciprocal_rank_looks_at_the_first_hit_only() -> None:
    assert reciprocal_rank([4, 5, 6]) == 0.25
    assert reciprocal_rank([], missing=0.001) == 0.001


def test_accuracy_is_counted_for_each_head() -> None:
    rng = np.random.default_rng(0)
    predictions, labels = rng.integers(3, size=(4, 50)), rng.integers(3, size=50)
    np.testing.assert_allclose(accuracy(predictions, labels), [accuracy_score(labels, row) for row in predictions])


def test_macro_f1_is_the_mean_over_classes_of_what_a_table_of_counts_gives() -> None:
    rng = np.random.default_rng(0)
    predictions, labels = rng.integers(3, size=(4, 50)), rng.integers(3, size=50)
    expected = []
    for row in predictions:
        of_classes = []
        for c in range(3):
            both, either = ((row == c) & (labels == c)).sum(), (row == c).sum() + (labels == c).sum()
            of_classes.append(2 * both / either)
        expected.append(np.mean(of_classes))
    np.testing.assert_allclose(f1_macro(predictions, labels), expected)


def test_macro_f1_leaves_out_a_class_that_nobody_names_and_counts_one_that_is_never_right() -> None:
    labels = np.array([0, 0, 2, 2])
    assert f1_macro(np.array([[0, 0, 2, 2]]), labels)[0] == 1.0  # class 1 is nowhere
    assert f1_macro(np.array([[0, 0, 0, 0]]), labels)[0] == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("k", [None, 5, 12])
@pytest.mark.parametrize("seed", range(3))
def test_ndcg_is_that_of_scikit_learn(seed: int, k: int | None) -> None:
    rng = np.random.default_rng(seed)
    hit = rng.random(40) < 0.2
    hit[rng.integers(40)] = True
    ranks = np.flatnonzero(hit) + 1
    cut = 40 if k is None else k
    expected = ndcg_score([hit.astype(int)], [-np.arange(40.0)], k=k, ignore_ties=True)
    assert ndcg(ranks[ranks <= cut], ideal=min(len(ranks), cut)) == pytest.approx(expected, abs=1e-12)


def test_a_hit_counts_up_to_its_rank() -> None:
    assert [hit_rate([4, 9], k=k) for k in (3, 4, 100)] == [0, 1, 1]
    assert hit_rate([], k=10) == 0


def test_percentile_ranks_run_from_0_for_the_first_to_1_for_the_last_and_are_half_at_chance() -> None:
    assert mean_percentile_rank([1], candidates=50) == 0
    assert mean_percentile_rank([50], candidates=50) == 1
    assert mean_percentile_rank([1, 2, 3, 4, 5], candidates=5) == 0.5
    assert mean_percentile_rank([1], candidates=1) == 0

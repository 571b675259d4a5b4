"""Metrics against scikit-learn and hand-counted cases."""

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, average_precision_score

from docemb_lib.evaluation.metrics import accuracy, average_precision, reciprocal_rank


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

"""What 06_evaluation defines in its cells and the library lacks, beside every order."""

from itertools import pairwise, permutations

import numpy as np
import pandas as pd
import pytest

from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks

NOTEBOOK = "06_evaluation.py"


LENGTHS = np.array([100, 200, 400, 500, 1600, 3000])
GAINS = [np.array([0.1, 0.0, 0.4, 0.2, 0.6, 0.5]), np.array([0.3, 0.1, 0.2, 0.0, 0.3, 0.2])]


def slope_of(differences, doublings):
    return np.polyfit(doublings, differences, 1)[0]


@pytest.mark.parametrize("gains", GAINS)
def test_the_trend_is_the_slope_by_doublings_beside_all_orders_of_the_lengths(defined, gains):
    slope, p = defined.trend_test([(gains, LENGTHS)])
    assert slope == pytest.approx(slope_of(gains, np.log2(LENGTHS)))
    slopes = [slope_of(gains, order) for order in permutations(np.log2(LENGTHS))]
    exact = np.mean(np.abs(slopes) >= abs(slope) - 1e-9)
    assert p == pytest.approx(exact, abs=0.02)


def test_the_trend_of_two_tasks_is_the_mean_of_their_slopes(defined):
    tasks = [(GAINS[0], LENGTHS), (GAINS[0], LENGTHS)]
    slope, p = defined.trend_test(tasks)
    alone, p_alone = defined.trend_test(tasks[:1])
    assert slope == pytest.approx(alone)
    assert p < p_alone / 2
    against = [tasks[0], (-GAINS[0], LENGTHS)]
    assert defined.trend_test(against) == (pytest.approx(0, abs=1e-12), 1)


@pytest.mark.parametrize(
    ("lengths", "buckets"),
    [
        (
            [*[100] * 9, 256, *[257] * 7, *[400] * 4, *[9000] * 12],
            {"1-256": range(10), "257-512": range(10, 21), "> 512": range(21, 33)},
        ),
        ([*[100] * 30, *[300] * 9], {"> 0": range(39)}),  # too few on the longer side of each edge
        ([*[300] * 9, *[500] * 1, *[3000] * 10], {"1-512": range(10), "> 512": range(10, 20)}),
    ],
)
def test_every_example_is_in_a_bucket_of_ten_or_more_that_ends_with_its_edge(
    defined, lengths, buckets
):
    called = {"pd": pd, "pairwise": pairwise, "bootstrap_over_tasks": bootstrap_over_tasks}
    defined.by_length.__globals__.update(called)
    results = np.random.default_rng(0).random(len(lengths))
    frame = defined.by_length(results, np.array(lengths)).set_index("bucket")
    assert frame["examples"].to_dict() == {name: len(rows) for name, rows in buckets.items()}
    means = {name: results[list(rows)].mean() for name, rows in buckets.items()}
    assert frame["value"].to_dict() == pytest.approx(means)

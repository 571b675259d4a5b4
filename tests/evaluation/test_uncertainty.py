"""Intervals, tests and corrections against scipy, by hand, and on simulated models."""

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from docemb_lib.evaluation import Score, uncertainty
from docemb_lib.evaluation.uncertainty import OVERALL


def test_intervals_are_scipys_percentile_bootstrap():
    examples = np.random.default_rng(0).exponential(size=(2, 60))
    mean, low, high = uncertainty.bootstrap_over_tasks([examples])
    by_scipy = stats.bootstrap(
        (examples,), np.mean, n_resamples=50_000, axis=1, method="percentile", rng=0
    )
    np.testing.assert_allclose(mean, examples.mean(axis=1))
    deviation = by_scipy.standard_error
    expected = by_scipy.confidence_interval
    np.testing.assert_allclose((low - expected.low) / deviation, 0, atol=0.2)
    np.testing.assert_allclose((high - expected.high) / deviation, 0, atol=0.2)


def test_an_interval_of_equal_examples_is_a_point_and_one_less_makes_it_wider():
    examples = np.stack([np.full(40, 0.2), np.arange(40) > 0])
    bounds = uncertainty.bootstrap_over_tasks([examples])
    assert bounds[:, 0].tolist() == [0.2, 0.2, 0.2]
    assert bounds[1, 1] < 39 / 40 <= bounds[2, 1] <= 1


def test_intervals_cover_the_mean_over_tasks_about_as_often_as_they_say():
    rng = np.random.default_rng(2)
    accuracy = (rng.random((400, 150)) < 0.85).astype(float)
    rank = 1 / rng.geometric(0.3, size=(400, 60))
    of_ranks = sum(0.3 * 0.7 ** (k - 1) / k for k in range(1, 200))
    truth = (0.85 + of_ranks) / 2
    _, low, high = uncertainty.bootstrap_over_tasks([accuracy, rank])
    assert 0.91 <= ((low <= truth) & (truth <= high)).mean() <= 0.98


def test_the_p_value_of_a_mean_over_tasks_is_that_of_all_permutations():
    rng = np.random.default_rng(8)
    first, second = (np.round(rng.normal(0.3, 1, size=(1, n)), 1) for n in (3, 8))
    side_by_side = uncertainty.side_by_side([first, second])
    assert side_by_side.mean() == pytest.approx((first.mean() + second.mean()) / 2)
    exact = stats.permutation_test(
        side_by_side, np.sum, permutation_type="samples", n_resamples=np.inf
    )
    (p,) = uncertainty.paired_p_values(side_by_side)
    assert p == pytest.approx(exact.pvalue, abs=0.02)


def test_the_p_values_of_right_or_wrong_answers_are_mcnemars():
    cases = [(30, 14), (9, 8), (12, 0), (0, 0), (1060, 990)]
    differences = [[1] * won + [-1] * lost + [0] * (2100 - won - lost) for won, lost in cases]
    exact = [stats.binomtest(won, won + lost).pvalue for won, lost in cases if won] + [1.0]
    found = uncertainty.paired_p_values(np.array(differences))[[0, 1, 2, 4, 3]]
    np.testing.assert_allclose(found, exact, atol=0.02)


def test_the_smallest_p_value_counts_the_observed_results_as_a_swap():
    assert uncertainty.paired_p_values(np.ones((1, 500))).tolist() == [1 / 10_001]


def test_p_values_do_not_depend_on_the_rounding_of_differences():
    fifths = np.array([1 / 5 + 2 / 5 - 3 / 5] * 50 + [4 / 5 - 3 / 5] * 20 + [3 / 5 - 4 / 5] * 4)
    (p,) = uncertainty.paired_p_values(fifths[None])
    assert p == pytest.approx(stats.binomtest(20, 24).pvalue, abs=0.003)


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        # sorted and times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.5
        ([0.5, 0.01, 0.03, 0.02], [0.5, 0.04, 0.06, 0.06]),
        ([0.6, 0.7, 0.9], [1, 1, 1]),  # never below an earlier one, never above 1
    ],
)
def test_holms_correction_is_the_one_by_hand(p_values, corrected):
    np.testing.assert_allclose(uncertainty.holm(np.array(p_values)), corrected)


def compare(scores: uncertainty.Scores, reference: str) -> pd.DataFrame:
    return uncertainty.verdicts(uncertainty.differences(scores, reference))


def score_of(metric: str, *answers: np.ndarray) -> Score:
    """answers: (N,) of each seed."""
    return Score({metric: np.stack(answers).astype(np.float32)})


def some_scores() -> dict[str, dict[str, Score]]:
    """Four models on 400 pairs and 60 queries; `good` and `bad` differ from `base`."""
    rng = np.random.default_rng(0)
    hard = rng.random(400)
    precision = rng.random(60)
    noisy = precision + 0.01 * rng.normal(size=60)
    skills = {"base": 0.6, "good": 0.8, "same": 0.6, "bad": 0.4}
    found = {"base": precision, "good": precision**0.5, "same": noisy, "bad": precision**2}
    scores = {}
    for model, skill in skills.items():
        answers = [hard + 0.2 * rng.normal(size=400) < skill for _ in range(3)]
        pairs = score_of("accuracy", *answers)
        scores[model] = {"pairs": pairs, "find": score_of("map", found[model])}
    return scores


def test_models_are_better_worse_or_neither_on_tasks_and_in_the_mean():
    scores = some_scores()
    frame = compare(scores, "base").set_index(["model", "task"])
    verdict = {"good": "better", "same": "no difference shown", "bad": "worse"}
    for model, expected in verdict.items():
        rows = frame.loc[model]
        assert rows["verdict"].to_dict() == dict.fromkeys(["pairs", "find", OVERALL], expected)
        ahead = [scores[model][task].mean - base.mean for task, base in scores["base"].items()]
        assert rows["difference"].tolist() == pytest.approx([*ahead, np.mean(ahead)], abs=1e-6)
        assert rows["low"].le(rows["difference"]).all()
        assert rows["high"].ge(rows["difference"]).all()
    means = frame.index.isin([OVERALL], level="task")
    for family in (means, ~means):
        of_family = frame[family]
        corrected = uncertainty.holm(of_family["p"].to_numpy())
        np.testing.assert_allclose(of_family["p_holm"], corrected)


def test_intervals_of_all_metrics_are_in_the_frame():
    frame = uncertainty.score_intervals(some_scores())
    sizes = {("find", "map"): 60, ("pairs", "accuracy"): 400, (OVERALL, "mean"): 460}
    assert frame.groupby(["task", "metric"])["examples"].first().to_dict() == sizes
    assert len(frame) == 12
    wide = frame.pivot(index="model", columns="task", values="value")
    np.testing.assert_allclose(wide[OVERALL], (wide["find"] + wide["pairs"]) / 2)
    assert ((frame["low"] < frame["value"]) & (frame["value"] < frame["high"])).all()


@pytest.mark.parametrize("share", [0.4, 0.1])
@pytest.mark.parametrize("ahead", [0.9, 0.65])
def test_the_number_of_right_or_wrong_answers_gives_mcnemars_test_its_power(share, ahead):
    """Against the exact power of McNemar's test, summed over the numbers of differing answers."""
    won = ahead * share
    lost = (1 - ahead) * share
    frame = {"task": "t", "p": [1.0], "difference": won - lost, "examples": 100}
    takes = uncertainty.verdicts(pd.DataFrame(frame).assign(error=np.sqrt(share / 100)))
    n = round(takes["needed"].item())
    power = 0.0
    for differing in range(n + 1):
        wins = np.arange(differing + 1)
        tails = stats.binom.sf(np.maximum(wins, differing - wins) - 1, differing, 0.5)
        p = np.minimum(1, 2 * tails)
        shown = stats.binom.pmf(wins, differing, won / share)[p < 0.05].sum()
        power += stats.binom.pmf(differing, n, share) * shown
    assert power == pytest.approx(0.8, abs=0.03)


def test_the_error_is_the_deviation_of_equal_models():
    frame = uncertainty.differences(some_scores(), "base")
    by_normal = 2 * stats.norm.sf(frame["difference"].abs() / frame["error"])
    np.testing.assert_allclose(frame["p"], by_normal, atol=0.06)


def test_what_can_be_shown_is_at_the_level_of_the_next_test():
    frame = compare(some_scores(), "base").set_index(["model", "task"])
    single = frame.loc["same", "pairs"]
    # Of six tests of single tasks, those of `same` show nothing.
    quantiles = stats.norm.ppf(1 - 0.05 / 2 / 2) + stats.norm.ppf(0.8)
    assert single["detectable"] == pytest.approx(quantiles * single["error"])
    ratio = single["detectable"] / single["difference"]
    assert single["needed"] == pytest.approx(400 * ratio**2)


@pytest.mark.parametrize("of_seed", [0.0, 0.03, 0.1])
def test_intervals_over_five_seeds_cover_the_truth_about_as_often_as_they_say(of_seed):
    """of_seed: the deviation of seeds, beside those of examples and of the rest."""
    rng = np.random.default_rng(0)
    covered = 0
    significant = 0
    for _ in range(1500):
        tasks = []
        for n in (60, 200):
            noise = of_seed * rng.normal(size=(5, 1)) + 0.3 * rng.normal(size=(1, n))
            tasks.append(noise + 0.3 * rng.normal(size=(5, n)))
        _, low, high, p = uncertainty.over_seeds(tasks)
        covered += low <= 0 <= high
        significant += p < 0.05
    assert 0.93 <= covered / 1500 <= 0.97
    assert covered + significant == 1500


def test_over_seeds_alone_it_is_the_t_test_of_their_means():
    """Where all examples are alike, only the seeds vary."""
    means = np.array([0.02, 0.05, -0.01, 0.03])
    _, *bounds, p = uncertainty.over_seeds([np.tile(means[:, None], (1, 30))])
    expected = stats.ttest_1samp(means, 0)
    assert p == pytest.approx(expected.pvalue)
    assert bounds == pytest.approx(list(expected.confidence_interval()))


def test_over_examples_alone_it_is_the_normal_test_of_their_mean():
    """Where all seeds agree, only the examples vary."""
    examples = np.random.default_rng(0).normal(0.1, 1, size=300)
    *_, p = uncertainty.over_seeds([np.tile(examples, (3, 1))])
    z = examples.mean() / (examples.std() / 300**0.5)
    assert p == pytest.approx(2 * stats.norm.sf(z), rel=1e-4)


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.1, 0.0)])
def test_seeds_that_agree_on_examples_that_are_alike_leave_no_doubt(value, p):
    result = uncertainty.over_seeds([np.full((3, 20), value)])
    assert tuple(result) == pytest.approx((value, value, value, p))

"""Intervals, tests and corrections against scipy, by hand, and on simulated models."""

from itertools import product
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from docemb_lib.evaluation import Score, uncertainty
from docemb_lib.evaluation.uncertainty import OVERALL


def rounded_mean(x: np.ndarray, axis: int) -> np.ndarray:
    """The mean as it is compared with resampled means; otherwise ties are missed."""
    return np.mean(x, axis=axis).round(uncertainty.DECIMALS)


def test_intervals_are_scipys_bca_of_the_same_resamples():
    rng = np.random.default_rng(0)
    rows = [rng.random(60) < 0.9, rng.beta(0.5, 2, size=60), rng.exponential(size=60)]
    examples = np.stack(rows).astype(float)
    mean, low, high = uncertainty.bootstrap_over_tasks([examples])
    drawn = uncertainty.resampled_means(examples, seed=0)
    for m, row in enumerate(examples):
        expected = stats.bootstrap(
            (row,),
            rounded_mean,
            n_resamples=0,
            bootstrap_result=SimpleNamespace(bootstrap_distribution=drawn[:, m]),
            confidence_level=uncertainty.LEVEL,
            method="BCa",
        ).confidence_interval
        np.testing.assert_allclose((low[m], high[m]), expected, atol=1e-9)
        assert mean[m] == pytest.approx(row.mean())


def test_resampled_means_are_those_of_draws_with_replacement(monkeypatch):
    examples = np.random.default_rng(1).normal(size=(2, 30))
    drawn = np.random.default_rng(0).integers(30, size=(uncertainty.RESAMPLES, 30))
    for cells in (uncertainty.CELLS, 100):  # three resamples at a time draw the same
        monkeypatch.setattr(uncertainty, "CELLS", cells)
        means = uncertainty.resampled_means(examples, seed=0)
        np.testing.assert_allclose(means, examples[:, drawn].mean(axis=2).T)


def test_an_interval_of_equal_examples_is_a_point_and_one_less_makes_it_wider():
    examples = np.stack([np.ones(40), np.arange(40) > 0, np.zeros(40)])
    _, low, high = uncertainty.bootstrap_over_tasks([examples])
    assert ((low[0], high[0]), (low[2], high[2])) == ((1, 1), (0, 0))
    assert low[1] < 39 / 40 <= high[1] <= 1


def test_intervals_cover_the_mean_over_tasks_about_as_often_as_they_say():
    rng = np.random.default_rng(2)
    accuracy = (rng.random((400, 150)) < 0.85).astype(float)
    rank = 1 / rng.geometric(0.3, size=(400, 60))
    of_ranks = sum(0.3 * 0.7 ** (k - 1) / k for k in range(1, 200))
    truth = (0.85 + of_ranks) / 2
    _, low, high = uncertainty.bootstrap_over_tasks([accuracy, rank])
    assert 0.91 <= ((low <= truth) & (truth <= high)).mean() <= 0.98


def test_a_mean_over_tasks_draws_each_task_by_itself():
    rng = np.random.default_rng(6)
    tasks = [rng.normal(1, 0.3, size=(1, 40)), rng.normal(3, 1, size=(1, 200))]
    mean, low, high = uncertainty.bootstrap_over_tasks(tasks)[:, 0]
    assert mean == pytest.approx((tasks[0].mean() + tasks[1].mean()) / 2)
    deviation = np.sqrt(tasks[0].var() / 40 + tasks[1].var() / 200) / 2
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.05)


def test_the_p_value_of_a_mean_over_tasks_is_that_of_all_permutations():
    rng = np.random.default_rng(8)
    first = np.round(rng.normal(0.3, 1, size=(1, 3)), 1)
    second = np.round(rng.normal(0.3, 1, size=(1, 8)), 1)  # some differences are equally large
    observed = abs(first.mean() + second.mean())
    swaps = np.array(list(product([-1, 1], repeat=11)))
    means = (swaps[:, :3] * first).mean(axis=1) + (swaps[:, 3:] * second).mean(axis=1)
    exact = np.mean(np.abs(means) >= observed - 1e-12)
    by_example = uncertainty.side_by_side([first, second])[0]
    p = uncertainty.paired_p_value(by_example, permutations=50_000)
    assert p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(("won", "lost"), [(30, 14), (9, 8), (12, 0), (0, 0), (1060, 990)])
def test_the_p_value_of_right_or_wrong_answers_is_mcnemars(won, lost):
    differences = np.concatenate([np.ones(won), -np.ones(lost), np.zeros(200)])
    exact = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    p = uncertainty.paired_p_value(differences, permutations=50_000)
    assert p == pytest.approx(exact, abs=0.01)


def test_the_smallest_p_value_counts_the_observed_results_as_a_permutation():
    assert uncertainty.paired_p_value(np.ones(500), permutations=999) == 1 / 1000


def test_p_values_do_not_depend_on_the_rounding_of_differences():
    fifths = np.array([1 / 5 + 2 / 5 - 3 / 5] * 50 + [4 / 5 - 3 / 5] * 20 + [3 / 5 - 4 / 5] * 4)
    p = uncertainty.paired_p_value(fifths, permutations=50_000)
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
    stacked = np.stack(answers).astype(np.float32)
    return Score(metric, tuple(stacked.mean(axis=1).tolist()), per_example={metric: stacked})


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
    base = {task: score.mean for task, score in scores["base"].items()}
    for model, expected in verdict.items():
        rows = frame.loc[model]
        assert rows["verdict"].to_dict() == dict.fromkeys(["pairs", "find", OVERALL], expected)
        ahead = [scores[model][task].mean - base[task] for task in base]
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
    of_base = frame[frame["model"] == "base"].set_index("task")["value"]
    assert of_base[OVERALL] == pytest.approx((of_base["find"] + of_base["pairs"]) / 2)
    assert ((frame["low"] < frame["value"]) & (frame["value"] < frame["high"])).all()


def test_a_model_without_some_task_is_compared_on_the_others_and_has_no_mean():
    scores = {model: some_scores()[model] for model in ("base", "good")}
    new = {"new": {"pairs": scores["good"]["pairs"]}}
    tests = compare(scores | new, "base")
    assert tests.query("model == 'new'")["task"].tolist() == ["pairs"]
    columns = ["task", "difference", "p"]
    of_good = tests.query("model == 'good'")[columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(of_good, compare(scores, "base")[columns])
    assert set(compare(new | scores, "new")["task"]) == {"pairs"}


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
def test_every_example_is_in_a_bucket_of_ten_or_more_that_ends_with_its_edge(lengths, buckets):
    right = np.random.default_rng(0).integers(2, size=(2, len(lengths))).astype(np.float32)
    frame = uncertainty.by_length(right, lengths)
    sizes = dict(zip(frame["bucket"], frame["examples"], strict=True))
    assert sizes == {name: len(rows) for name, rows in buckets.items()}
    for row, chosen in zip(frame.itertuples(), buckets.values(), strict=True):
        alone = uncertainty.bootstrap_over_tasks([right[:, list(chosen)].mean(axis=0)[None]])
        assert (row.value, row.low, row.high) == tuple(alone[:, 0])


def test_another_metric_decides_where_a_task_has_it():
    draw = np.random.default_rng(0).random((2, 1, 40)).astype(np.float32)
    answers = {"map": draw[0], "mrr": draw[1]}
    find = Score("map", (float(draw[0].mean()),), {"mrr": float(draw[1].mean())}, answers)
    pairs = some_scores()["base"]["pairs"]
    scores = {"a": {"find": find, "pairs": pairs}, "b": {"pairs": pairs}}
    decided = uncertainty.decided_by(scores, "mrr")["a"]
    assert decided["find"].metric == "mrr"
    assert decided["find"].mean == pytest.approx(find.extra["mrr"])
    assert decided["find"].extra == {"map": pytest.approx(find.mean)}
    assert decided["pairs"] is pairs
    alone = uncertainty.decided_by(scores, "mrr", alone=True)
    assert alone == {"a": {"find": decided["find"]}}


@pytest.mark.parametrize("share", [0.4, 0.1])
@pytest.mark.parametrize("ahead", [0.9, 0.65])
def test_the_number_of_right_or_wrong_answers_gives_mcnemars_test_its_power(share, ahead):
    """Against the exact power of McNemar's test, summed over the numbers of differing answers."""
    won = ahead * share
    lost = (1 - ahead) * share
    takes = uncertainty.needed(won - lost, np.sqrt(share / 100), 1.0, 100)
    n = round(takes.examples)
    power = 0.0
    for differing in range(n + 1):
        wins = np.arange(differing + 1)
        tails = stats.binom.sf(np.maximum(wins, differing - wins) - 1, differing, 0.5)
        p = np.minimum(1, 2 * tails)
        shown = stats.binom.pmf(wins, differing, won / share)[p < 0.05].sum()
        power += stats.binom.pmf(differing, n, share) * shown
    assert power == pytest.approx(0.8, abs=0.035)


def test_the_error_is_the_deviation_of_the_mean_under_random_swaps():
    rng = np.random.default_rng(3)
    tasks = [rng.normal(0.2, 1, size=30), rng.normal(size=80)]
    swapped = [rng.choice([-1, 1], size=(20_000, len(d))) @ d / len(d) for d in tasks]
    paired = uncertainty.paired_error(tasks)
    assert paired.error == pytest.approx(np.std(np.mean(swapped, axis=0)), rel=0.02)
    assert paired.examples == 110


def test_equal_models_take_more_examples_than_there_are():
    takes = uncertainty.needed(0.0, 0.01, 1.0, 100)
    assert takes.examples == np.inf
    # (1.96 + 0.84) / 100, and half of 1 / 100
    assert takes.detectable == pytest.approx(0.028 + 0.005, abs=1e-4)


def test_what_is_needed_is_corrected_for_the_tests_that_show_nothing():
    frame = compare(some_scores(), "base").set_index(["model", "task"])
    single = frame.loc["same", "pairs"]
    inputs = single[["difference", "error", "step", "examples"]]
    # Of six tests of single tasks, those of `same` show nothing.
    expected = uncertainty.needed(*inputs, alpha=0.05 / 2)
    assert (single["detectable"], single["needed"]) == pytest.approx(tuple(expected))


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
        result = uncertainty.over_seeds(tasks)
        covered += result.low <= 0 <= result.high
        significant += result.p < 0.05
    assert 0.93 <= covered / 1500 <= 0.97
    assert covered + significant == 1500


def test_over_seeds_alone_it_is_the_t_test_of_their_means():
    """Where all examples are alike, only the seeds vary."""
    means = np.array([0.02, 0.05, -0.01, 0.03])
    result = uncertainty.over_seeds([np.tile(means[:, None], (1, 30))])
    expected = stats.ttest_1samp(means, 0)
    assert result.p == pytest.approx(expected.pvalue)
    assert result[1:3] == pytest.approx(tuple(expected.confidence_interval()))


def test_over_examples_alone_it_is_the_normal_test_of_their_mean():
    """Where all seeds agree, only the examples vary."""
    examples = np.random.default_rng(0).normal(0.1, 1, size=300)
    result = uncertainty.over_seeds([np.tile(examples, (3, 1))])
    z = examples.mean() / (examples.std(ddof=1) / 300**0.5)
    assert result.p == pytest.approx(2 * stats.norm.sf(z), rel=1e-4)


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.1, 0.0)])
def test_seeds_that_agree_on_examples_that_are_alike_leave_no_doubt(value, p):
    result = uncertainty.over_seeds([np.full((3, 20), value)])
    assert tuple(result) == pytest.approx((value, value, value, p))


def test_differences_without_tests_have_the_same_intervals_and_no_p():
    scores = some_scores()
    tested = uncertainty.differences(scores, "base")
    untested = uncertainty.differences(scores, "base", tested=False)
    pd.testing.assert_frame_equal(untested.drop(columns="p"), tested.drop(columns="p"))
    assert untested["p"].isna().all()

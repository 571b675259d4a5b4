"""Intervals, tests and corrections against scipy, by hand, and on simulated models."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from docemb_lib.evaluation import Score, uncertainty


@pytest.mark.parametrize("level", [0.95, 0.8])
def test_intervals_are_scipys_bca_of_the_same_resamples(level: float) -> None:
    rng = np.random.default_rng(0)
    examples = np.stack(
        [rng.random(60) < 0.9, rng.beta(0.5, 2, size=60), rng.exponential(size=60)]
    ).astype(float)
    mean, low, high = uncertainty.bootstrap_over_tasks([examples], level=level)
    drawn = uncertainty.resampled_means(examples, resamples=uncertainty.RESAMPLES, seed=0)
    for m, row in enumerate(examples):
        resampled = SimpleNamespace(bootstrap_distribution=drawn[:, m])
        expected = stats.bootstrap(
            (row,),
            lambda x, axis: np.mean(x, axis=axis).round(
                uncertainty.DECIMALS
            ),  # or ties with the mean are missed
            n_resamples=0,
            bootstrap_result=resampled,
            confidence_level=level,
            method="BCa",
        ).confidence_interval
        np.testing.assert_allclose((low[m], high[m]), expected, atol=1e-9)
        assert mean[m] == pytest.approx(row.mean())


def test_resampled_means_are_those_of_draws_with_replacement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    examples = np.random.default_rng(1).normal(size=(2, 30))
    drawn = np.random.default_rng(0).integers(30, size=(4000, 30))
    for cells in (uncertainty.CELLS, 100):  # three resamples at a time draw the same
        monkeypatch.setattr(uncertainty, "CELLS", cells)
        means = uncertainty.resampled_means(examples, resamples=4000, seed=0)
        np.testing.assert_allclose(means, examples[:, drawn].mean(axis=2).T)


@pytest.mark.parametrize("tasks", [[0], [1], [0, 1]])
def test_intervals_cover_the_true_mean_over_tasks_about_as_often_as_they_say(
    tasks: list[int],
) -> None:
    rng = np.random.default_rng(2)
    n = 150 if tasks == [1] else 60
    accuracy, rank = (
        (rng.random((400, 150)) < 0.85).astype(float),
        1 / rng.geometric(0.3, size=(400, n)),
    )
    truth = np.mean(
        [[0.85, sum(0.3 * 0.7 ** (k - 1) / k for k in range(1, 200))][task] for task in tasks]
    )
    _, low, high = uncertainty.bootstrap_over_tasks(
        [(accuracy, rank)[task] for task in tasks], resamples=1000
    )
    assert 0.91 <= ((low <= truth) & (truth <= high)).mean() <= 0.98


def test_an_interval_of_equal_examples_is_a_point_and_one_less_makes_it_wider() -> None:
    _, low, high = uncertainty.bootstrap_over_tasks(
        [np.stack([np.ones(40), np.arange(40) > 0, np.zeros(40)])]
    )
    assert ((low[0], high[0]), (low[2], high[2])) == ((1, 1), (0, 0))
    assert low[1] < 39 / 40 <= high[1] <= 1


def test_a_mean_over_tasks_draws_each_task_by_itself() -> None:
    rng = np.random.default_rng(6)
    tasks = [(rng.random((1, 40)) < 0.9).astype(float), rng.exponential(size=(1, 200))]
    mean, low, high = uncertainty.bootstrap_over_tasks(tasks)[:, 0]
    assert mean == pytest.approx((tasks[0].mean() + tasks[1].mean()) / 2)
    deviation = np.std(
        [np.mean([rng.choice(X[0], size=X.shape[1]).mean() for X in tasks]) for _ in range(4000)]
    )
    assert deviation == pytest.approx(
        np.sqrt(tasks[0].var() / 40 + tasks[1].var() / 200) / 2, rel=0.05
    )
    assert high - low == pytest.approx(2 * 1.96 * deviation, rel=0.06)
    # side by side, as if the shares of the tasks were a matter of chance
    together = uncertainty.bootstrap_over_tasks([uncertainty.side_by_side(tasks)])[:, 0]
    assert together[0] == pytest.approx(mean)
    assert together[2] - together[1] > 1.5 * (high - low)


def test_the_p_value_of_a_mean_over_tasks_is_that_of_all_permutations() -> None:
    rng = np.random.default_rng(8)
    tasks = [rng.normal(0.3, 1, size=(1, n)) for n in (3, 8)]
    both = np.concatenate(tasks, axis=1)[0]

    def mean_over_tasks(signs: np.ndarray) -> float:
        return abs(np.mean(signs[:3] * both[:3]) + np.mean(signs[3:] * both[3:]))

    signs = np.array(np.meshgrid(*[[-1, 1]] * 11)).reshape(11, -1).T
    exact = np.mean([mean_over_tasks(s) >= mean_over_tasks(np.ones(11)) - 1e-12 for s in signs])
    p = uncertainty.paired_p_value(uncertainty.side_by_side(tasks)[0], permutations=50_000)
    assert p == pytest.approx(exact, abs=0.01)


@pytest.mark.parametrize(("won", "lost"), [(30, 14), (9, 8), (12, 0), (0, 0), (1060, 990)])
def test_the_p_value_of_right_or_wrong_answers_is_mcnemars(won: int, lost: int) -> None:
    differences = np.concatenate([np.ones(won), -np.ones(lost), np.zeros(200)])
    exact = stats.binomtest(won, won + lost).pvalue if won + lost else 1.0
    assert uncertainty.paired_p_value(differences, permutations=50_000) == pytest.approx(
        exact, abs=0.01
    )
    assert uncertainty.paired_p_value(-differences) == uncertainty.paired_p_value(differences)


def test_the_smallest_p_value_counts_the_observed_results_as_a_permutation():
    assert uncertainty.paired_p_value(np.ones(500), permutations=999) == 1 / 1000


def test_p_values_do_not_depend_on_the_rounding_of_differences():
    fifths = np.array([1 / 5 + 2 / 5 - 3 / 5] * 50 + [4 / 5 - 3 / 5] * 20 + [3 / 5 - 4 / 5] * 4)
    exact = stats.binomtest(20, 24).pvalue
    p = uncertainty.paired_p_value(fifths, permutations=50_000)
    assert p == pytest.approx(exact, abs=0.003)


@pytest.mark.parametrize(
    ("p_values", "corrected"),
    [
        (
            [0.5, 0.01, 0.03, 0.02],
            [0.5, 0.04, 0.06, 0.06],
        ),  # sorted and times 4, 3, 2, 1: 0.04, 0.06, 0.06, 0.5
        ([0.02, 0.021], [0.04, 0.04]),
        ([0.6, 0.7, 0.9], [1, 1, 1]),  # never below an earlier one, never above 1
    ],
)
def test_holms_correction_is_the_one_by_hand(p_values: list[float], corrected: list[float]) -> None:
    np.testing.assert_allclose(uncertainty.holm(np.array(p_values)), corrected)


def compare(scores: uncertainty.Scores, reference: str) -> pd.DataFrame:
    return uncertainty.verdicts(uncertainty.differences(scores, reference))


def made(metric: str, *rows: np.ndarray) -> Score:
    answers = np.stack(rows).astype(np.float32)
    return Score(metric, tuple(answers.mean(axis=1).tolist()), per_example={metric: answers})


def some_scores(seed: int = 0, n: int = 400) -> dict[str, dict[str, Score]]:
    rng = np.random.default_rng(seed)
    hard = rng.random(n)

    def heads(skill: float) -> list[np.ndarray]:
        return [hard + 0.2 * rng.normal(size=n) < skill for _ in range(3)]

    precision = rng.random(60)
    return {
        "base": {"pairs": made("accuracy", *heads(0.6)), "find": made("map", precision)},
        "good": {"pairs": made("accuracy", *heads(0.8)), "find": made("map", precision**0.5)},
        "same": {
            "pairs": made("accuracy", *heads(0.6)),
            "find": made("map", precision + 0.01 * rng.normal(size=60)),
        },
        "bad": {"pairs": made("accuracy", *heads(0.4)), "find": made("map", precision**2)},
    }


def test_models_are_found_better_worse_or_neither() -> None:
    scores = some_scores()
    frame = compare(scores, "base").set_index(["model", "task"])
    expected = {"good": "better", "same": "no difference shown", "bad": "worse"}
    tasks = ("pairs", "find", uncertainty.OVERALL)
    assert frame["verdict"].to_dict() == {
        (m, task): verdict for m, verdict in expected.items() for task in tasks
    }
    mean = {
        m: {
            **{t: s.mean for t, s in own.items()},
            uncertainty.OVERALL: np.mean([s.mean for s in own.values()]),
        }
        for m, own in scores.items()
    }
    for (model, task), row in frame.iterrows():
        assert row["difference"] == pytest.approx(mean[model][task] - mean["base"][task], abs=1e-6)
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["p"] <= row["p_holm"]
    for own in (
        frame.index.isin([uncertainty.OVERALL], level="task"),
        frame.index.isin(tasks[:2], level="task"),
    ):
        np.testing.assert_allclose(
            frame["p_holm"][own], uncertainty.holm(frame["p"][own].to_numpy())
        )


def test_intervals_of_all_metrics_are_in_the_frame() -> None:
    frame = uncertainty.score_intervals(some_scores())
    sizes = {("find", "map"): 60, ("pairs", "accuracy"): 400, (uncertainty.OVERALL, "mean"): 460}
    assert frame.groupby(["task", "metric"])["examples"].first().to_dict() == sizes
    assert len(frame) == 12
    of_base = frame[frame["model"] == "base"].set_index("task")["value"]
    assert of_base[uncertainty.OVERALL] == pytest.approx((of_base["find"] + of_base["pairs"]) / 2)
    assert ((frame["low"] < frame["value"]) & (frame["value"] < frame["high"])).all()


def test_a_model_without_some_task_is_compared_on_the_others_and_has_no_mean() -> None:
    scores = {
        model: by_task for model, by_task in some_scores().items() if model in ("base", "good")
    }
    found = compare(scores | {"new": {"pairs": scores["good"]["pairs"]}}, "base")
    without = compare(scores, "base")
    assert found.query("model == 'new'")["task"].tolist() == ["pairs"]
    good = [
        frame.query("model == 'good'")[["task", "difference", "p"]] for frame in (found, without)
    ]
    pd.testing.assert_frame_equal(*(rows.reset_index(drop=True) for rows in good))
    assert set(compare({"new": {"pairs": scores["good"]["pairs"]}} | scores, "new")["task"]) == {
        "pairs"
    }


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
    lengths, buckets
) -> None:
    right = np.random.default_rng(0).integers(2, size=(2, len(lengths))).astype(np.float32)
    frame = uncertainty.by_length(right, lengths)
    assert frame.set_index("bucket")["examples"].to_dict() == {
        name: len(rows) for name, rows in buckets.items()
    }
    for row, chosen in zip(frame.itertuples(), buckets.values(), strict=True):
        alone = uncertainty.bootstrap_over_tasks([right[:, list(chosen)].mean(axis=0)[None]])
        assert (row.value, row.low, row.high) == tuple(alone[:, 0])


def ranked(seed: int) -> Score:
    draw = np.random.default_rng(seed).random((2, 1, 40)).astype(np.float32)
    answers = {"map": draw[0], "mrr": draw[1]}
    return Score("map", (float(draw[0].mean()),), {"mrr": float(draw[1].mean())}, answers)


def test_another_metric_decides_where_a_task_has_it() -> None:
    pairs = some_scores()["base"]["pairs"]
    scores = {"a": {"find": ranked(0), "pairs": pairs}, "b": {"pairs": pairs}}
    decided = uncertainty.decided_by(scores, "mrr")
    assert decided["a"]["find"].metric == "mrr"
    assert decided["a"]["find"].mean == pytest.approx(scores["a"]["find"].extra["mrr"])
    assert decided["a"]["find"].extra == {"map": pytest.approx(scores["a"]["find"].mean)}
    assert decided["a"]["pairs"] is pairs
    assert list(uncertainty.decided_by(scores, "mrr", alone=True)) == ["a"]
    assert list(uncertainty.decided_by(scores, "mrr", alone=True)["a"]) == ["find"]


def paired(rng: np.random.Generator, kind: str, n: int) -> np.ndarray:
    """Differences of two models on n examples, as right answers or precisions differ."""
    if kind == "accuracy":
        return rng.choice([-1.0, 0.0, 1.0], p=[0.09, 0.77, 0.14], size=n)
    return np.round(rng.beta(0.6, 0.5, size=n) - rng.beta(0.6, 0.58, size=n), 1)


def test_the_needed_number_over_tasks_keeps_the_shares_of_the_tasks() -> None:
    rng = np.random.default_rng(2)
    populations = [paired(rng, kind, 50_000) for kind in ("accuracy", "precision")]
    difference = np.mean([d.mean() for d in populations])
    sizes = (120, 40)
    first = [d[:n] for d, n in zip(populations, sizes, strict=True)]
    error = np.sqrt(sum(np.mean(d**2) / n for d, n in zip(populations, sizes, strict=True))) / 2
    assert uncertainty.paired_error(first).error == pytest.approx(error, rel=0.15)
    factor = uncertainty.needed(difference, error, 0.0, 160).examples / 160
    shown = 0
    for _ in range(400):
        drawn = []
        for d, n in zip(populations, sizes, strict=True):
            drawn.append(rng.choice(d, size=(1, round(n * factor))))
        together = uncertainty.side_by_side(drawn)[0]
        shown += uncertainty.paired_p_value(together, permutations=999) < 0.05
    assert 0.74 <= shown / 400 <= 0.86


@pytest.mark.parametrize("share", [0.4, 0.1])
@pytest.mark.parametrize("ahead", [0.9, 0.75, 0.65])
def test_the_number_of_right_or_wrong_answers_gives_mcnemars_test_its_power(share, ahead) -> None:
    """Against the exact power of McNemar's test, summed over the numbers of differing answers."""
    won, lost = ahead * share, (1 - ahead) * share
    error = np.sqrt(share / 100)
    takes = uncertainty.needed(won - lost, error, 1.0, 100)
    n = round(takes.examples)
    power = 0.0
    for differing in range(n + 1):
        wins = np.arange(differing + 1)
        tails = stats.binom.sf(np.maximum(wins, differing - wins) - 1, differing, 0.5)
        p = np.minimum(1, 2 * tails)
        shown = stats.binom.pmf(wins, differing, won / share)[p < 0.05].sum()
        power += stats.binom.pmf(differing, n, share) * shown
    assert power == pytest.approx(0.8, abs=0.035)


def test_the_error_is_the_deviation_of_the_mean_under_random_swaps() -> None:
    rng = np.random.default_rng(3)
    tasks = [rng.normal(0.2, 1, size=30), rng.normal(size=80)]
    means = []
    for _ in range(20_000):
        swapped = [(rng.choice([-1, 1], size=len(d)) * d).mean() for d in tasks]
        means.append(np.mean(swapped))
    found = uncertainty.paired_error(tasks)
    assert found.error == pytest.approx(np.std(means), rel=0.02)
    assert found.examples == 110


def test_equal_models_take_more_examples_than_there_are() -> None:
    takes = uncertainty.needed(0.0, 0.01, 1.0, 100)
    assert takes.examples == np.inf
    # (1.96 + 0.84) / 100, and half of 1 / 100
    assert takes.detectable == pytest.approx(0.028 + 0.005, abs=1e-4)


def test_what_is_needed_is_corrected_for_the_tests_that_show_nothing() -> None:
    frame = compare(some_scores(), "base").query("model == 'same'").set_index("task")
    single = frame.loc["pairs"]
    # Of six tests of single tasks, those of `same` show nothing.
    expected = uncertainty.needed(
        *single[["difference", "error", "step", "examples"]], alpha=0.05 / 2
    )
    assert (single["detectable"], single["needed"]) == pytest.approx(tuple(expected))


def crossed(rng: np.random.Generator, spreads: tuple[float, float, float], n: int) -> np.ndarray:
    """Differences of mean 0 in five seeds on n examples: those of seeds, of examples, the rest."""
    of_seed, of_example, rest = spreads
    noise = of_seed * rng.normal(size=(5, 1)) + of_example * rng.normal(size=(1, n))
    return noise + rest * rng.normal(size=(5, n))


@pytest.mark.parametrize(
    "spreads",
    [(0.0, 0.3, 0.3), (0.01, 0.3, 0.3), (0.03, 0.3, 0.3), (0.1, 0.3, 0.3), (0.03, 0.0, 0.4)],
)
@pytest.mark.parametrize("tasks", [(200,), (60, 200)])
def test_intervals_over_five_seeds_cover_the_truth_about_as_often_as_they_say(spreads, tasks):
    rng = np.random.default_rng(0)
    covered = p_small = 0
    for _ in range(1500):
        found = uncertainty.over_seeds([crossed(rng, spreads, n) for n in tasks])
        covered += found.low <= 0 <= found.high
        p_small += found.p < 0.05
    assert 0.93 <= covered / 1500 <= 0.97
    assert covered + p_small == 1500


def test_over_seeds_alone_it_is_the_t_test_of_their_means() -> None:
    """Where all examples are alike, only the seeds vary."""
    means = np.array([0.02, 0.05, -0.01, 0.03])
    found = uncertainty.over_seeds([np.tile(means[:, None], (1, 30))])
    expected = stats.ttest_1samp(means, 0)
    assert found.p == pytest.approx(expected.pvalue)
    assert found[1:3] == pytest.approx(tuple(expected.confidence_interval()))


def test_over_examples_alone_it_is_the_normal_test_of_their_mean() -> None:
    """Where all seeds agree, only the examples vary."""
    examples = np.random.default_rng(0).normal(0.1, 1, size=300)
    found = uncertainty.over_seeds([np.tile(examples, (3, 1))])
    z = examples.mean() / (examples.std(ddof=1) / 300**0.5)
    assert found.p == pytest.approx(2 * stats.norm.sf(z), rel=1e-4)


@pytest.mark.parametrize(("value", "p"), [(0.0, 1.0), (0.1, 0.0)])
def test_seeds_that_agree_on_examples_that_are_alike_leave_no_doubt(value, p) -> None:
    found = uncertainty.over_seeds([np.full((3, 20), value)])
    assert tuple(found) == pytest.approx((value, value, value, p))


def test_differences_without_tests_have_the_same_intervals_and_no_p() -> None:
    answers = np.random.default_rng(0).random((2, 1, 30)).astype(np.float32)
    scores = {}
    for name, values in zip("ab", answers, strict=True):
        scores[name] = {"sort": Score("accuracy", (0.5,), per_example={"accuracy": values})}
    tested = uncertainty.differences(scores, "a")
    untested = uncertainty.differences(scores, "a", tested=False)
    pd.testing.assert_frame_equal(untested.drop(columns="p"), tested.drop(columns="p"))
    assert untested["p"].isna().all()

"""The thesis' claims: true of its own table, judged by tests where answers are known, not tested where a thing lacks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from docemb_lib.evaluation.tasks import Score
from docemb_lib.thesis.claims import (
    FAILS,
    HOLDS,
    UNDECIDED,
    UNSURE,
    UNTESTED,
    Mean,
    best_share,
    check_claims,
    check_order,
    claims,
    comparisons,
    normalised_means,
    scores_of_rows,
    thesis_scores,
    thesis_tasks,
)
from docemb_lib.thesis.values import published

STUDENTS = ["only-MSE", "MSE-contextual", "cosine-masked"]
BASELINES = ["Longformer", "DM", "PV", "SBERT"]
TASKS = {"accuracy": ["sort", "match"], "map": ["find"], "mrr": ["find"]}


def right(examples, right):
    """An accuracy whose first `right` examples of so many are answered well."""
    answers = np.zeros((1, examples), dtype=np.float32)
    answers[:, :right] = 1
    return Score("accuracy", (right / examples,), per_example={"accuracy": answers})


def world(levels, *, rounds=("1k", "10k", "all"), examples=400):
    """Every model as good on both tasks as its level says, in all rounds; rankings too."""

    def ranked(level):
        answers = np.full((1, 60), level, dtype=np.float32)
        return Score("map", (level,), {"mrr": level}, {"map": answers, "mrr": answers})

    return {
        name: {
            model: {task: right(examples, round(level * examples)) for task in TASKS["accuracy"]}
            | {"find": ranked(level)}
            for model, level in levels.items()
        }
        for name in rounds
    }


def verdicts(rounds, tasks=TASKS, counts=None):
    return check_claims(rounds, tasks, counts or {}).set_index("id")["verdict"].to_dict()


LEVELS = dict(zip([*BASELINES, *STUDENTS[::-1]], [0.5, 0.45, 0.55, 0.6, 0.7, 0.8, 0.9], strict=True))


def test_every_claim_is_true_of_the_thesis_own_table_which_knows_no_intervals():
    ratios = published_ratios()
    found = verdicts(thesis_scores(), thesis_tasks(), ratios)
    assert found.pop("c5") == UNTESTED
    assert found.pop("c6") == HOLDS
    assert set(found.values()) == {HOLDS + UNSURE}
    because = check_claims(thesis_scores(), thesis_tasks(), {}).set_index("id")["because"]
    assert because["c4"] == "only-MSE: 0.7878"
    assert because["c1"].startswith("48 of 48 ")  # 3 students, 4 baselines, 2 rounds, raw and normalised


def published_ratios():
    names = next(claim for claim in claims() if claim["id"] == "c6")["counts"]
    return dict(zip(names, (17.968, 240.0), strict=True))


def test_a_single_printed_number_can_break_a_claim():
    table = thesis_scores()
    changed = {**table, "1k": {**table["1k"], "PV": {task: score_of({"accuracy": 0.9}) for task in table["1k"]["PV"]}}}
    found = verdicts(changed, thesis_tasks())
    assert found["c1"] == FAILS + UNSURE
    assert found["c3"] == HOLDS + UNSURE  # not about PV


def test_an_order_holds_where_tests_show_all_of_it_and_fails_where_one_shows_the_contrary():
    assert verdicts(world(LEVELS))["c1"] == HOLDS
    assert verdicts(world(LEVELS))["c3"] == HOLDS
    assert verdicts(world(LEVELS))["c2"] == FAILS  # SBERT is behind here
    ahead = LEVELS | {"SBERT": 0.95}
    assert verdicts(world(ahead))["c1"] == FAILS
    assert verdicts(world(ahead))["c2"] == HOLDS


def test_what_few_examples_cannot_tell_is_undecided():
    close = LEVELS | {"SBERT": 0.6975}  # one example of a task less than cosine-masked
    assert verdicts(world(close))["c1"] == UNDECIDED
    assert verdicts(world(LEVELS, examples=10))["c3"] == UNDECIDED


def test_the_test_of_one_comparison_is_mcnemars():
    ahead, behind = np.r_[np.ones(60), np.zeros(40)], np.r_[np.zeros(4), np.ones(48), np.zeros(48)]
    means = {
        name: Mean(np.array([answers.mean()]), [answers]) for name, answers in (("ahead", ahead), ("behind", behind))
    }
    (found,) = comparisons([["ahead"], ["behind"]], means, "all")
    only_ahead, only_behind = int(((ahead == 1) & (behind == 0)).sum()), int(((ahead == 0) & (behind == 1)).sum())
    expected = binomtest(only_ahead, only_ahead + only_behind).pvalue
    assert (found.difference, found.p) == (pytest.approx(0.12), pytest.approx(expected, abs=0.003))


def test_comparisons_are_those_of_each_group_with_all_behind_it():
    means = {name: Mean(np.array([value]), None) for name, value in (("a", 3.0), ("b", 2.0), ("c", 1.0), ("d", 0.5))}
    found = comparisons([["a"], ["b", "c"], ["d"]], means, "all")
    assert [(one.ahead, one.behind) for one in found] == [("a", "b"), ("a", "c"), ("a", "d"), ("b", "d"), ("c", "d")]
    assert check_order(found).verdict == HOLDS + UNSURE


def test_many_comparisons_are_corrected_for_their_number():
    """A p-value of .03 is enough by itself, and not among ten."""
    means = {name: Mean(np.array([value]), None) for name, value in (("a", 2.0), ("b", 1.0))}
    (one,) = comparisons([["a"], ["b"]], means, "all")
    assert check_order([one._replace(p=0.03)]).verdict == HOLDS
    assert check_order([one._replace(p=0.03)] * 10).verdict == UNDECIDED


def test_normalised_means_divide_each_task_and_its_answers_by_the_best():
    a, b = np.array([1.0, 0.0]), np.array([1.0, 1.0])
    means = {"a": Mean(np.array([0.5, 0.8]), [a, b]), "b": Mean(np.array([1.0, 0.4]), None)}
    found = normalised_means(means)
    np.testing.assert_allclose(found["a"].values, [0.5, 1.0])
    np.testing.assert_allclose(found["b"].values, [1.0, 0.5])
    np.testing.assert_allclose(found["a"].answers, [[1, 0], [1.25, 1.25]])
    assert found["b"].answers is None


def test_the_best_share_is_of_the_best_of_each_task_over_all_rounds():
    rng = np.random.default_rng(0)

    def mean(level):
        answers = (rng.random(2000) < level).astype(float)
        return Mean(np.array([answers.mean()]), [answers])

    claim = {"best_of": ["a", "b"], "round": "1k", "between": [0.7, 0.9]}
    by_round = {"1k": {"a": mean(0.4), "b": mean(0.5)}, "all": {"a": mean(0.625), "b": mean(0.6)}}
    found = best_share(claim, by_round)
    share = by_round["1k"]["b"].values[0] / by_round["all"]["a"].values[0]
    deviation = by_round["1k"]["b"].answers[0].std() / np.sqrt(2000) / by_round["all"]["a"].values[0]
    name, value, low, high = found.because.replace(":", "").replace("[", "").replace("]", "").replace(",", "").split()
    assert (name, float(value)) == ("b", pytest.approx(share, abs=5e-5))
    assert float(low) == pytest.approx(share - 1.96 * deviation, abs=0.004)  # the normal interval
    assert float(high) == pytest.approx(share + 1.96 * deviation, abs=0.004)
    assert found.verdict == HOLDS
    assert best_share(claim | {"between": [0.2, 0.3]}, by_round).verdict == FAILS
    assert best_share(claim | {"between": [0.2, share]}, by_round).verdict == UNDECIDED
    unknown = {name: {m: mean._replace(answers=None) for m, mean in own.items()} for name, own in by_round.items()}
    assert best_share(claim, unknown).verdict == HOLDS + UNSURE


@pytest.mark.parametrize(
    ("rounds", "tasks", "because"),
    [
        (world(LEVELS, rounds=("all",)), TASKS, {"c1": "no round 1k", "c4": "no round 1k"}),
        (world({m: v for m, v in LEVELS.items() if m not in {"only-MSE", "DM"}}), TASKS,
         {"c1": "no run of only-MSE, DM", "c2": "no run of only-MSE, DM", "c7-mrr": "no run of only-MSE, DM"}),
        (world(LEVELS), {"accuracy": ["sort", "oc", "aan"]}, {"c3": "no scores on aan, oc", "c7-map": "no tasks with map"}),
        ({"all": {**world(LEVELS)["all"], "PV": {"sort": right(10, 5)}}}, TASKS, {"c2": "no scores of PV on match"}),
        ({}, TASKS, {"c2": "no scores on match, sort", "c4": "no scores on match, sort"}),
    ],
)  # fmt: skip
def test_what_lacks_is_named_in_a_claim_that_is_not_tested(rounds, tasks, because):
    found = check_claims(rounds, tasks, {}).set_index("id")
    for claim, why in because.items():
        assert found.loc[claim].tolist() == [UNTESTED, why]


def test_counts_have_no_interval():
    names = next(claim for claim in claims() if claim["id"] == "c5")["counts"]
    (name,) = names
    assert verdicts({}, counts={name: 3.26})["c5"] == HOLDS
    assert verdicts({}, counts={name: 1.5})["c5"] == FAILS
    assert verdicts({}, counts={})["c5"] == UNTESTED


def test_claims_are_about_models_and_rounds_that_the_thesis_has():
    table = published("table_5_7")
    for claim in claims():
        assert {"id", "says"} < set(claim)
        named = [model for group in claim.get("order", [claim.get("among", [])]) for model in group]
        assert len(set(named)) == len(named)
        assert {*named, *claim.get("best_of", [])} <= set(table["model"])
        assert {*claim.get("rounds", []), claim.get("round", "all")} <= set(table["round"].dropna())
    assert len({claim["id"] for claim in claims()}) == len(claims()) == 8

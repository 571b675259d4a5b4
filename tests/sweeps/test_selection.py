"""`winners: own`: compounds and recipes are those of the best recorded runs, chosen when their turn
comes.
"""

import json
from contextlib import nullcontext
from itertools import product
from math import nan

import pytest
from conftest import docemb

from docemb_lib import records, sweep
from docemb_lib.runs.records import Record
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps import sweep as sweeps
from docemb_lib.sweeps.execution import Reporter
from docemb_lib.sweeps.plan import chosen_runs, resolve_plan, resolve_sweep, runs_of

SWEEPS = ("weighting-cosine", "weighting-max-margin", "structural")


@pytest.fixture
def own(params):
    """The small profile with the grids of the thesis as its plan, and its own winners."""
    lines = "".join(f"\n  - {{grid: {name}}}" for name in ("paragraph-vector", *SWEEPS))
    plan = f"{lines}\n  - {{grid: final, profile: other.yaml}}\n"
    text = f"base: small.yaml\nname: small\nwinners: own\nplan:{plan}"
    (params / "own-small.yaml").write_text(text, encoding="utf-8")
    return "own-small"


@pytest.fixture
def record(workspace):
    """Records runs as done, with these means (None: as failed)."""

    def save(runs, means):
        for run, mean in zip(runs, means, strict=True):
            result = {"status": "failed"} if mean is None else {"metrics": {"mean": mean}}
            records.save(workspace, Record.of(run.key, **result))

    return save


@pytest.fixture
def executed(monkeypatch, record):
    """Runs are recorded in place of their execution, with the means of `executed.mean`; comparisons
    are collected.
    """

    class Executed:
        compared = []

        def mean(self, run):
            return 0.5

        def distribute(self, client, grids, *_, wait):
            missing = [run for grid in grids for run in grid.todo]
            record(missing, [self.mean(run) for run in missing])
            self.compared += [list(grid.runs) for grid in grids if grid.compared]
            return ["no luck" for run in missing if self.mean(run) is None]

    executed_runs = Executed()
    monkeypatch.setattr(sweeps.cluster, "local_workers", lambda count: nullcontext())
    monkeypatch.setattr(sweeps, "_distribute", executed_runs.distribute)
    return executed_runs


def runs_in(name, workspace, profile="small", **parameters):
    return chosen_runs(resolve_sweep(None, name, workspace, profile=profile, parameters=parameters))


def plan_of(name, workspace, **selection):
    return resolve_plan(Profile.load(name), name, workspace, **selection)


def test_the_winners_of_the_thesis_are_the_default_and_the_choice_changes_no_run(workspace, own):
    mine, small = (runs_in("weighting-cosine", workspace, name) for name in (own, "small"))
    assert [run.fingerprint for run in mine] == [run.fingerprint for run in small]
    assert {step.choose for step in plan_of("small", workspace)} == {None}


def test_compounds_are_of_the_three_best_of_each_kind_in_any_order_of_their_scores(
    workspace, own, record
):
    singles = runs_in("paragraph-vector", workspace)[:36]
    means = [(7 * place) % 36 / 100 for place in range(36)]  # a permutation
    record(singles, means)
    first, second = resolve_sweep("02", "paragraph-vector", workspace, profile=own, parameters={})
    assert (len(first.runs), first.choose, len(second.runs)) == (36, None, 9)
    chosen = second.choose()
    ranked = sorted(zip(means, singles, strict=True), key=lambda pair: -pair[0])
    best = [
        [run.label for _, run in ranked if run.parameters["dm"] is dm][:3] for dm in (True, False)
    ]
    assert [run.parameters["compound"] for run in chosen] == [
        "+".join(both) for both in product(*best)
    ]
    assert f"recorded runs of paragraph-vector: {best[0][0]} (" in chosen[0].chosen
    assert f"{ranked[0][1].label} ({ranked[0][0]:.4f})" in chosen[0].chosen


def test_a_plan_chooses_each_final_recipe_when_the_sweeps_before_have_ended(
    workspace, own, executed
):
    """The parameters are those of the best runs; documents and profile are those of the chosen
    run's own line.
    """
    best = {"weighting-cosine": 3, "weighting-max-margin": 8, "structural": 1}
    winners = [runs_in(name, workspace)[place] for name, place in best.items()]
    executed.mean = lambda run: (
        0.9 if run.fingerprint in {pair.fingerprint for pair in winners} else 0.5
    )
    steps = plan_of(own, workspace)
    assert (len(runs_of(steps)), len(chosen_runs(steps))) == (
        36 + 9 + 9 + 9 + 11 + 3,
        36 + 9 + 9 + 11,
    )  # as listed
    assert sweeps.execute_plan(steps, workspace, Reporter()) == []
    final = executed.compared[-1]
    assert [run.fingerprint for run in chosen_runs(steps)[-3:]] == [
        run.fingerprint for run in final
    ]
    for run, source in zip(final, winners, strict=True):
        assert (run.notebook, run.key.cell) == ("06_evaluation", source.key.cell)
        assert (run.profile.name, run.parameters["documents"]) == ("other", 30)
        assert f"{source.label} (0.9000)" in run.chosen
    assert final[2].parameters["contextual_teacher"] is None


def test_runs_that_failed_or_have_no_finite_mean_are_not_chosen_equal_ones_are_one(
    workspace, params, own, record
):
    best_of = "[[structural], [structural, weighting-cosine]]"
    grid = f"{{notebook: 06, runs: [{{}}, {{lam: 0.3}}], best_of: {best_of}}}"
    (params / "grids" / "mine.yaml").write_text(grid)
    structural = runs_in("structural", workspace)
    record(structural, [None, nan, 0.4, 0.5, 0.5, *[0.1] * 6])
    record(runs := runs_in("weighting-cosine", workspace), [0.3] * len(runs))
    (chosen,) = runs_in("mine", workspace, own)
    assert chosen.key.cell == structural[3].key.cell  # of equal runs the first
    record(structural[3:4], [0.2])
    (other,) = runs_in("mine", workspace, own)
    assert other.key.cell == structural[4].key.cell
    of_the_thesis = runs_in("mine", workspace)
    assert [run.chosen for run in of_the_thesis] == ["", ""]
    mine = params / "own-small.yaml"
    mine.write_text(mine.read_text().replace("structural}", "structural, documents: 18}"))
    record(runs_in("structural", workspace, documents=18), [0.1] * 5 + [0.6] * 6)
    of_the_plans_line, *_ = runs_in("mine", workspace, own)
    assert of_the_plans_line.key.cell == structural[5].key.cell


def test_missing_or_failed_records_are_one_line_and_stop_no_other_step(
    workspace, own, record, executed, refused
):
    record(runs_in("weighting-cosine", workspace)[:4], [0.5] * 4)
    few = "winners: own: 4 of the 9 runs of 05_weighting to choose from are recorded"
    said = f"{few}, and 1 of these have a score; execute their sweep first"
    refused(f"^{said}", runs_in, "final", workspace, own)
    executed.mean = lambda run: None if run.notebook == "03_structural" else 0.5
    failures = sweeps.execute_plan(plan_of(own, workspace), workspace, Reporter())
    assert failures[:11] == ["no luck"] * 11
    (said,) = failures[11:]
    few = "11 of the 11 runs of 03_structural to choose from are recorded, and 0 of these have "
    assert said.startswith(f"grid final: winners: own: {few}")


def test_a_sweep_that_chooses_among_its_own_runs_lists_all(workspace, own, executed):
    executed.mean = lambda run: run.parameters["vector_size"] / 1000
    listed = docemb(
        "sweep", "02", "--grid", "paragraph-vector", "--profile", own, "--dry-run", "--json"
    )
    assert len(json.loads(listed.stdout)) == 45
    assert len(sweep("02", "paragraph-vector", profile=own)) == 45
    assert [len(runs) for runs in executed.compared] == [36, 9]
    chosen = [bool(run.chosen) for runs in executed.compared for run in runs]
    assert chosen == [False] * 36 + [True] * 9

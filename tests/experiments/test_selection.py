"""`winners: own`: compounds and recipes are those of the best recorded runs, chosen when the runs before have ended."""

from itertools import product

import pytest

from docemb_lib import records
from docemb_lib.errors import InputError
from docemb_lib.experiments import sweeps
from docemb_lib.experiments.execution import Reporter
from docemb_lib.experiments.plan import chosen_runs, resolve_plan, resolve_sweep, runs_of
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.terminal import print_forecast

SWEEPS = ("weighting-cosine", "weighting-max-margin", "structural")
LATE = "chosen when the sweep has ended"


@pytest.fixture
def own(params):
    """The small profile with the grids of the thesis as its plan, and its own winners."""
    lines = "".join(f"\n  - {{grid: {name}}}" for name in ("paragraph-vector", *SWEEPS, "final"))
    (params / "own-small.yaml").write_text(
        f"base: small.yaml\nname: small\nwinners: own\nplan:{lines}\n", encoding="utf-8"
    )
    return "own-small"


@pytest.fixture
def record(workspace):
    """Records runs as done, with these means (None: as failed)."""

    def save(runs, means):
        for run, mean in zip(runs, means, strict=True):
            result = {"status": "failed"} if mean is None else {"metrics": {"mean": mean}}
            records.save(workspace, Record.of(run.key, **result))

    return save


def runs_in(name, workspace, profile="small"):
    return runs_of(resolve_sweep(None, name, workspace, profile=profile, parameters={}))


def plan_of(name, workspace, **selection):
    return resolve_plan(Profile.load(name), name, workspace, **selection)


def parameters_of(run):
    return {name: value for name, value in run.parameters.items() if name != "profile"}


def test_the_winners_of_the_thesis_are_the_default_and_the_choice_does_not_change_a_run(workspace, own):
    mine, small = (runs_in("weighting-cosine", workspace, name) for name in (own, "small"))
    assert [run.fingerprint for run in mine] == [run.fingerprint for run in small]
    assert Profile.load("small").winners == "thesis"
    assert [step.choose for step in plan_of("small", workspace)] == [None] * 7


def test_compounds_are_of_the_three_best_of_each_kind_whatever_the_order_of_their_scores(workspace, own, record):
    singles = runs_in("paragraph-vector", workspace)[:36]
    means = [(7 * place) % 36 / 100 for place in range(36)]  # a permutation
    record(singles, means)
    steps = resolve_sweep("02", "paragraph-vector", workspace, profile=own, parameters={})
    assert [(len(step.runs), step.choose) for step in steps] == [(36, None), (9, None)]
    ranked = sorted(zip(means, singles, strict=True), key=lambda one: -one[0])
    best = [[run.label for _, run in ranked if run.parameters["dm"] is dm][:3] for dm in (True, False)]
    assert [run.parameters["compound"] for run in steps[1].runs] == ["+".join(both) for both in product(*best)]
    text = steps[1].runs[0].chosen
    assert all(f"**{label}**" in text for label in (*best[0], *best[1]))
    assert text.count("the best of 18 recorded runs (of 18) of paragraph-vector") == 2
    assert f"| **{ranked[0][0]:.4f}** |" in text


def test_the_final_students_have_the_recipes_of_the_best_run_of_each_sweep(workspace, own, record):
    best = {"weighting-cosine": 3, "weighting-max-margin": 8, "structural": 1}
    for name, place in best.items():
        runs = runs_in(name, workspace)
        record(runs, [0.9 if number == place else 0.5 for number in range(len(runs))])
    final = runs_in("final", workspace, own)
    for run, (name, place) in zip(final, best.items(), strict=True):
        source = runs_in(name, workspace)[place]
        assert run.notebook == "06_evaluation"
        assert run.key.cell == source.key.cell
        assert source.label in run.chosen
    assert final[2].parameters["contextual_teacher"] is None
    (recipe,) = runs_in("recipe", workspace, own)
    assert recipe.key.cell == runs_in("structural", workspace)[1].key.cell  # of equal runs the first
    assert "of structural and weighting-cosine and weighting-max-margin" in recipe.chosen
    (written,) = runs_in("recipe", workspace)  # the profile's own
    assert (written.key.same_but(), written.chosen) == (
        RunKey.of("06_evaluation", Profile.load("small")).same_but(),
        "",
    )


def test_a_choice_is_the_same_for_the_same_records_and_another_for_others(workspace, own, record):
    runs = runs_in("structural", workspace)
    grids = {"weighting-cosine": None, "weighting-max-margin": None}
    for name in grids:
        record(others := runs_in(name, workspace), [0.1] * len(others))
    record(runs, [0.5] * len(runs))
    first, again = (runs_in("final", workspace, own) for _ in range(2))
    assert [(run.fingerprint, run.stamp) for run in first] == [(run.fingerprint, run.stamp) for run in again]
    record(runs[-1:], [0.6])
    changed = runs_in("final", workspace, own)
    assert [run.fingerprint for run in changed[:2]] == [run.fingerprint for run in first[:2]]
    assert changed[2].fingerprint != first[2].fingerprint
    assert changed[2].stamp["chosen"] != first[2].stamp["chosen"]


def test_failed_runs_are_not_chosen_and_all_failing_is_one_line(workspace, own, record, refused):
    for name in SWEEPS[:2]:
        record(runs := runs_in(name, workspace), [0.5] * len(runs))
    structural = runs_in("structural", workspace)
    record(structural, [None] + [0.5] * 10)
    assert "the best of 10 recorded runs (of 11) of structural" in runs_in("final", workspace, own)[2].chosen
    for run in structural[1:]:
        records.save(workspace, Record.of(run.key, status="failed"))
    refused("^winners: own: 0 of the 11 runs of structural have succeeded, 1 must$", runs_in, "final", workspace, own)


@pytest.mark.parametrize("call", [
    lambda workspace, own: runs_in("final", workspace, own),
    lambda workspace, own: plan_of(own, workspace, only="06")])  # fmt: skip
def test_missing_records_are_one_line_that_names_the_sweep_to_run_first(workspace, own, record, refused, call):
    runs = runs_in("weighting-cosine", workspace)
    record(runs[:4], [0.5] * 4)
    said = "winners: own: 5 of the 9 runs of grid weighting-cosine, of which the best are taken, have not ended; run "
    refused(f"{said}`docemb sweep 05 --grid weighting-cosine --profile own-small` first$", call, workspace, own)


def test_a_plan_with_the_sweep_and_what_depends_on_it_says_that_it_chooses_later(workspace, own, capsys):
    from rich.console import Console

    from docemb_lib.experiments.forecast import forecast

    steps = plan_of(own, workspace)
    assert [(step.grid, len(step.runs), step.choose is None) for step in steps] == [
        ("paragraph-vector", 36, True), ("paragraph-vector", 9, False), ("weighting-cosine", 9, True),
        ("weighting-max-margin", 9, True), ("structural", 11, True), ("final", 3, False)]  # fmt: skip
    assert len(chosen_runs(steps)) == 36 + 9 + 9 + 11
    print_forecast(forecast(steps, workspace), Console(width=250))
    shown = capsys.readouterr().out
    assert shown.count(LATE) == 2
    assert f"final; {LATE}" in shown


class Counter(Reporter):
    def __init__(self):
        self.lines = []

    def begin(self, runs, missing, where=""):
        self.lines.append((len(runs), len(missing)))


def test_a_plan_chooses_when_the_sweep_before_has_ended(workspace, params, own, record, monkeypatch):
    lines = "[{grid: weighting-cosine, seed: 2}, {grid: mine, profile: other.yaml}]"
    (params / "grids" / "mine.yaml").write_text("{notebook: 06, runs: [{}], best_of: [[weighting-cosine]]}")
    (params / "planned.yaml").write_text(
        f"base: small.yaml\nname: small\nwinners: own\nplan: {lines}\n", encoding="utf-8"
    )
    executed = []

    def execute(planned, todo, *_):
        executed.append(planned)
        record(todo, [0.9 if run.parameters["lam"] == 0.2 else 0.5 for run in todo])
        return []

    monkeypatch.setattr(sweeps, "_execute_grid", execute)
    reporter, steps = Counter(), plan_of("planned", workspace)
    assert sweeps.execute_plan(steps, workspace, reporter) == []
    (chosen,) = executed[1]
    assert [run.parameters["seed"] for run in executed[0]] == [2] * 9
    assert (chosen.parameters["lam"], chosen.parameters["max_structural_len"]) == (0.2, 64)  # the first of two equal
    assert (chosen.parameters["seed"], chosen.profile.name, chosen.parameters["documents"]) == (0, "other", 30)
    assert reporter.lines == [(10, 10), (10, 1)]
    assert [run.fingerprint for run in chosen_runs(steps)[9:]] == [chosen.fingerprint]


def test_a_choice_that_fails_is_a_line_and_stops_no_other_step(workspace, params, own, record, monkeypatch):
    lines = "[{grid: structural}, {grid: mine}, {grid: weighting-cosine}]"
    (params / "grids" / "mine.yaml").write_text("{notebook: 06, runs: [{}], best_of: [[structural]]}")
    (params / "planned.yaml").write_text(
        f"base: small.yaml\nname: small\nwinners: own\nplan: {lines}\n", encoding="utf-8"
    )
    executed = []

    def execute(planned, todo, *_):
        executed.append(planned[0].notebook)
        record(todo, [None] * len(todo))
        return []

    monkeypatch.setattr(sweeps, "_execute_grid", execute)
    failures = sweeps.execute_plan(plan_of("planned", workspace), workspace, Reporter())
    assert failures == ["grid mine: winners: own: 0 of the 11 runs of structural have succeeded, 1 must"]
    assert executed == ["03_structural", "05_weighting"]


@pytest.mark.parametrize(("given", "said"), [
    ("best_of: 7", "best_of: write lists of names of grids, as in [[structural]], got 7"),
    ("best_of: [structural]", "best_of: write lists of names"), ("best_of: [[3]]", "best_of: write lists of names"),
    ("compounds: many", "compounds: write how many models of each kind, got 'many'"),
    ("compounds: true", "compounds: write how many"), ("compounds: -1", "compounds: write how many"),
    ("best_of: [[structual]]", "grid 'structual' is unknown"),
    ("compounds: 3", "winners: own: 0 of the 0 runs of")])  # fmt: skip
def test_a_wrong_choice_in_a_grid_is_refused(workspace, params, own, given, said):
    (params / "mine.yaml").write_text(f"notebook: 06_evaluation\nruns: [{{}}]\n{given}\n", encoding="utf-8")
    with pytest.raises(InputError) as caught:
        resolve_sweep(None, params / "mine.yaml", workspace, profile=own, parameters={})
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)

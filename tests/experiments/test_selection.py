"""`winners: own`: compounds and recipes are those of the best recorded runs, chosen when the runs before have ended."""

import json
import re
from itertools import product
from math import nan

import pytest
import yaml
from conftest import docemb

from docemb_lib import records, sweep
from docemb_lib.cli.terminal import print_forecast
from docemb_lib.experiments import execution, sweeps
from docemb_lib.experiments.execution import Reporter, is_done
from docemb_lib.experiments.plan import chosen_runs, resolve_plan, resolve_sweep, runs_of
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile

SWEEPS = ("weighting-cosine", "weighting-max-margin", "structural")
LATE = "chosen when the sweep has ended"
MINE = "{notebook: 06, runs: [{}], best_of: [[%s]]}"
NOTEBOOK = """
from docemb_lib.experiments.run import begin
run = begin("%s", globals())
with open("executed.txt", "a") as file:
    file.write(f"%s {lam}\\n")
run.finish({"mean": lam})
"""


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


@pytest.fixture
def planned(params, own):
    """Writes a profile with its own winners and a plan, and grids by name."""

    def write(lines, more="", **grids):
        for name, text in grids.items():
            (params / "grids" / f"{name}.yaml").write_text(text, encoding="utf-8")
        text = f"base: small.yaml\nname: small\nwinners: own\n{more}\nplan: {lines}\n"
        (params / "planned.yaml").write_text(text, encoding="utf-8")
        return "planned"

    return write


@pytest.fixture
def executed(monkeypatch, record):
    """Runs are recorded in place of their execution, with the means of `executed.mean`; comparisons are collected."""

    class Executed:
        runs, compared = [], []

        def mean(self, run):
            return 0.5

        def side_by_side(self, missing, workspace, *_):
            self.runs.append(list(missing))
            record(missing, [self.mean(run) for run in missing])
            return {run: "no luck" for run in missing if self.mean(run) is None}

        def compare(self, planned, *_):
            self.compared.append(list(planned))
            return []

    made = Executed()
    monkeypatch.setattr(sweeps, "_execute_side_by_side", made.side_by_side)
    monkeypatch.setattr(sweeps, "_compare", made.compare)
    return made


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
    assert [step.later for step in plan_of("small", workspace)] == [()] * 7


def test_compounds_are_of_the_three_best_of_each_kind_whatever_the_order_of_their_scores(workspace, own, record):
    singles = runs_in("paragraph-vector", workspace)[:36]
    means = [(7 * place) % 36 / 100 for place in range(36)]  # a permutation
    record(singles, means)
    (step,) = resolve_sweep("02", "paragraph-vector", workspace, profile=own, parameters={})
    assert (len(step.known), step.later) == (36, [*step.runs[36:]])  # recorded, but without executed copies
    assert not any(run.chosen for run in step.runs)
    chosen = step.choose()
    ranked = sorted(zip(means, singles, strict=True), key=lambda one: -one[0])
    best = [[run.label for _, run in ranked if run.parameters["dm"] is dm][:3] for dm in (True, False)]
    assert [run.parameters["compound"] for run in chosen] == ["+".join(both) for both in product(*best)]
    text = chosen[0].chosen
    assert all(f"**{label}**" in text for label in (*best[0], *best[1]))
    assert text.count("the best of 18 recorded runs (of 18) of paragraph-vector") == 2
    assert f"| **{ranked[0][0]:.4f}** |" in text


def test_the_final_students_have_the_recipes_of_the_best_run_of_each_sweep(workspace, params, own, record):
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
    (params / "grids" / "mine.yaml").write_text(MINE % ", ".join(SWEEPS[::-1]))
    (recipe,) = runs_in("mine", workspace, own)
    assert recipe.key.cell == runs_in("structural", workspace)[1].key.cell  # of equal runs the first
    assert "of structural and weighting-max-margin and weighting-cosine" in recipe.chosen
    (written,) = runs_in("mine", workspace)  # the profile's own
    assert written.key.same_but() == RunKey.of("06_evaluation", Profile.load("small")).same_but()
    assert written.chosen == ""


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
    assert changed[2].chosen != first[2].chosen
    assert changed[1].chosen != first[1].chosen  # the text alone is no other run
    assert changed[1].stamp == first[1].stamp


def test_runs_that_failed_or_have_no_finite_mean_are_not_chosen_and_all_failing_is_one_line(
    workspace, own, record, refused
):
    for name in SWEEPS[:2]:
        record(runs := runs_in(name, workspace), [0.5] * len(runs))
    structural = runs_in("structural", workspace)
    record(structural, [None, nan, 0.4, *[0.5] * 8])
    records.save(workspace, Record.of(structural[2].key))  # without any mean
    assert "the best of 8 recorded runs (of 11) of structural" in runs_in("final", workspace, own)[2].chosen
    assert runs_in("final", workspace, own)[2].key.cell == structural[3].key.cell
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

    from docemb_lib.cli.forecast import forecast

    steps = plan_of(own, workspace)
    assert [(step.grid, len(step.known), len(step.later)) for step in steps] == [
        ("paragraph-vector", 36, 9), ("weighting-cosine", 9, 0), ("weighting-max-margin", 9, 0), ("structural", 11, 0),
        ("final", 0, 3)]  # fmt: skip
    assert len(chosen_runs(steps)) == 36 + 9 + 9 + 11
    print_forecast(forecast(steps, workspace), Console(width=250))
    shown = capsys.readouterr().out
    assert shown.count(LATE) == 2
    assert f"final; 3 {LATE}" in shown
    assert "77 runs, 0 of them already there" in shown


class Counter(Reporter):
    def __init__(self):
        self.lines = []

    def begin(self, runs, missing, where=""):
        self.lines.append((len(runs), len(missing)))


def test_a_plan_chooses_when_the_sweep_before_has_ended(workspace, planned, executed):
    """The chosen run has the parameters of the best one, those of its line and of the profile's notebooks included."""
    lines = """[{grid: weighting-cosine, seed: 2, beta: 0.5}, {grid: weighting-cosine, seed: 3},
        {grid: mine, profile: other.yaml}]"""
    plan_of(planned(lines, "notebooks: {05_weighting: {delta: 0.3}}", mine=MINE % "weighting-cosine"), workspace)
    executed.mean = lambda run: 0.9 if (run.parameters.get("lam"), run.parameters["beta"]) == (0.2, 0.5) else 0.5
    reporter, steps = Counter(), plan_of("planned", workspace)
    assert sweeps.execute_plan(steps, workspace, reporter) == []
    (chosen,) = executed.compared[2]
    assert [[run.parameters["seed"] for run in runs] for runs in executed.compared[:2]] == [[2] * 9, [3] * 9]
    assert (chosen.parameters["lam"], chosen.parameters["max_structural_len"]) == (0.2, 64)  # the first of two equal
    assert (chosen.parameters["beta"], chosen.parameters["delta"]) == (0.5, 0.3)
    assert (chosen.parameters["seed"], chosen.profile.name, chosen.parameters["documents"]) == (0, "other", 30)
    assert "the best of 18 recorded runs (of 18) of weighting-cosine" in chosen.chosen
    assert reporter.lines == [(18, 18), (1, 1)]
    assert [run.fingerprint for run in chosen_runs(steps)[18:]] == [chosen.fingerprint]


def test_a_choice_that_fails_is_a_line_and_stops_no_other_step(workspace, planned, executed):
    lines = "[{grid: structural}, {grid: mine}, {grid: weighting-cosine}]"
    executed.mean = lambda run: None
    steps = plan_of(planned(lines, mine=MINE % "structural"), workspace)
    failures = sweeps.execute_plan(steps, workspace, Reporter())
    said = "grid mine: winners: own: 0 of the 11 runs of structural have succeeded, 1 must"
    assert failures == ["no luck"] * 11 + [said] + ["no luck"] * 9
    assert [runs[0].notebook for runs in executed.runs if runs] == ["03_structural", "05_weighting"]


def test_runs_that_a_plan_executes_again_are_waited_for_and_others_must_have_ended(workspace, planned, record, refused):
    """Of the first sweep there are records, whose executed copies are gone."""
    name = planned("[{grid: structural, seed: 2}, {grid: mine}]", mine=MINE % "structural")
    structural, mine = plan_of(name, workspace)
    assert len(mine.later) == 1
    record(structural.runs, [0.5] * 11)
    assert len(plan_of(name, workspace)[1].later) == 1
    assert not plan_of(name, workspace, only="06")[0].later
    both = planned("[{grid: structural}, {grid: mine}]", mine=MINE % "structural, weighting-cosine")
    refused("9 of the 9 runs of grid weighting-cosine, of which the best are taken, have", plan_of, both, workspace)
    given = planned("[{grid: structural, seed: 4, documents: 12}, {grid: mine}]", mine=MINE % "structural")
    command = "docemb sweep 03 --grid structural --profile planned -p seed=4 -p documents=12"
    refused(f"run `{command}` first$", plan_of, given, workspace, only="06")


def test_equal_runs_that_are_chosen_are_one(workspace, own, params, record):
    text = "{notebook: 06, runs: [{}, {lam: 0.3}], best_of: [[structural], [structural, weighting-cosine]]}"
    (params / "grids" / "mine.yaml").write_text(text)
    for name, mean in (("structural", 0.5), ("weighting-cosine", 0.4)):
        record(runs := runs_in(name, workspace), [mean] * len(runs))
    (chosen,) = runs_in("mine", workspace, own)
    assert chosen.key.cell == runs_in("structural", workspace)[0].key.cell


def test_a_sweep_that_chooses_among_its_own_runs_has_one_comparison_and_lists_all(
    workspace, own, executed, monkeypatch
):
    executed.mean = lambda run: run.parameters["vector_size"] / 1000
    listed = docemb("sweep", "02", "--grid", "paragraph-vector", "--profile", own, "--dry-run")
    assert listed.stdout.count("chosen when") >= 9  # cells may wrap
    assert "45 runs, 0 of them already there" in listed.stdout
    rows = json.loads(
        docemb("sweep", "02", "--grid", "paragraph-vector", "--profile", own, "--dry-run", "--json").stdout
    )
    assert [row["label"] == LATE for row in rows] == [False] * 36 + [True] * 9
    assert [row["parameters"] for row in rows[36:]] == [{}] * 9
    bars, progress = [], sweeps.progress
    monkeypatch.setattr(sweeps, "progress", lambda **given: bars.append(progress(**given)) or bars[0])
    frame = sweep("02", "paragraph-vector", profile=own)
    assert [bar.total for bar in bars] == [45]
    (compared,) = executed.compared
    assert len(compared) == len(frame) == 45
    assert [bool(run.chosen) for run in compared] == [False] * 36 + [True] * 9


def test_a_choice_that_fails_is_an_error_of_the_python_function(workspace, own, executed, refused):
    executed.mean = lambda run: None if run.parameters["dm"] else 0.5
    said = "^winners: own: 0 of the 18 runs of paragraph-vector have succeeded, 3 must$"
    refused(said, sweep, "02", "paragraph-vector", profile=own)


@pytest.mark.slow
def test_a_plan_executes_what_it_chooses_once(workspace, planned, write_notebook, monkeypatch):
    """Two lines choose one recipe; neither line, nor a change of how it was chosen, executes it again."""

    def one_by_one(missing, workspace, *_):
        for run in missing:
            execution.execute_run(run, workspace)
        return {}

    monkeypatch.setattr(sweeps, "_execute_side_by_side", one_by_one)  # without workers, which take seconds to start
    for name in ("05_weighting", "06_evaluation"):
        write_notebook(name, "profile = 'tiny'\nseed = 0\nlam = 0.1", NOTEBOOK % (name, name))
    grids = {"mine": MINE % "lams", "twin": MINE % "lams, lams"}
    name = planned("[{grid: lams}, {grid: mine}, {grid: twin}]", **grids)

    def execute():
        steps = plan_of(name, workspace)
        assert sweeps.execute_plan(steps, workspace, Reporter()) == []
        return chosen_runs(steps)[2:], (workspace.root / "notebooks" / "executed.txt").read_text().splitlines()

    both, lines = execute()
    page = "06_evaluation 0.8"  # a comparison is drawn by a further execution
    assert sorted(lines) == ["05_weighting 0.5"] * 2 + ["05_weighting 0.8"] + [page] * 2
    assert both[0].executed == both[1].executed
    cell = json.loads(both[0].executed.read_text())["cells"][1]
    assert cell["cell_type"] == "markdown"
    assert "the best of 2 recorded runs (of 2) of lams" in "".join(cell["source"])
    assert execute()[1] == lines
    (workspace.root / "params" / "grids" / "lams.yaml").write_text("{notebook: 05, axes: {lam: [0.8, 0.3]}}")
    again, more = execute()
    assert sorted(more[len(lines) :]) == ["05_weighting 0.3", "05_weighting 0.8"]  # the latter for the comparison
    assert again[0].chosen != both[0].chosen
    assert is_done(again[0], workspace)


@pytest.mark.parametrize(("given", "said"), [
    ("best_of: 7", "best_of: write lists of names of grids, as in [[structural]], got 7"),
    ("best_of: [structural]", "best_of: write lists of names"), ("best_of: [[3]]", "best_of: write lists of names"),
    ("compounds: many", "compounds: write how many models of each kind, got 'many'"),
    ("compounds: true", "compounds: write how many"), ("compounds: -1", "compounds: write how many"),
    ("best_of: [[structual]]", "grid 'structual' is unknown"), ("best_of: [[]]", "best_of: write lists of names"),
    ("compounds: 3", "compounds replaces 9 runs, but 0 are listed; list 9, which are executed with `winners: thesis`"),
    ("best_of: [[structural], [structural]]", "best_of replaces 2 runs, but 1 are listed; list 2, which are"),
    ("{best_of: [[structural]], compounds: 1}", "best_of makes final students; write notebook: 06_evaluation, and no"),
    ("{notebook: 05, best_of: [[structural]]}", "best_of makes final students; write notebook: 06_evaluation"),
    ("{best_of: [[structural]], runs: []}", "mine.yaml: no runs; list some under `runs`"),
    ("best_of: [[final]]", "grid mine.yaml: best_of: names a grid of 06_evaluation; name those of 03, 04 or 05"),
    ("best_of: [[paragraph-vector]]", "best_of: names a grid of 02_paragraph_vector; name"),
    ("best_of: [[corpora]]", "best_of: names a grid of 01_corpus; name")])  # fmt: skip
def test_a_wrong_choice_in_a_grid_is_refused(workspace, params, own, refused, given, said, monkeypatch):
    monkeypatch.chdir(params)
    (params / "grids" / "corpora.yaml").write_text("{notebook: 01, axes: {seed: [0, 1]}}")
    content = {"notebook": "06_evaluation", "runs": [{}], **yaml.safe_load(given)}
    (params / "mine.yaml").write_text(yaml.safe_dump(content), encoding="utf-8")
    refused(re.escape(said), resolve_sweep, None, "mine.yaml", workspace, profile=own, parameters={})

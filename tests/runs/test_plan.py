"""Plans: resolved and checked before anything starts."""

import ast
import inspect
import re
from pathlib import Path

import pytest
from conftest import REPOSITORY

from docemb_lib.base.errors import InputError
from docemb_lib.cli.__main__ import evaluate, train
from docemb_lib.runs.plan import planned_beside, resolve_plan, resolve_run, runs_of
from docemb_lib.runs.run import Run
from docemb_lib.settings.notebooks import REGISTRY
from docemb_lib.settings.profile import Profile

PARAMS = REPOSITORY / "params"
LINES = """[{notebook: 05_weighting, lam: 0.3}, {grid: grids/lams.yaml, seed: 3},
    {notebook: 05_weighting, lam: 0.3, profile: other.yaml}, {grid: lams, profile: other.yaml},
    {notebook: 01_corpus}, {notebook: 05_weighting, runs: [{lam: 0.2}, {lam: 0.8}], seed: 3}]"""
EACH = f"[{', '.join(f'{{notebook: {name}}}' for name in REGISTRY)}]"
ON_REQUEST = "[{notebook: 06_evaluation}, {notebook: 07_simde, seed: 1, on_request: true}]"


@pytest.mark.parametrize(
    ("runs", "selection", "notebooks"),
    [
        (EACH, {"first": "05"}, ["05_weighting", "06_evaluation", "07_simde"]),
        (LINES, {"only": "05"}, ["05_weighting"] * 8),
        (ON_REQUEST, {}, ["06_evaluation"]),
        (ON_REQUEST, {"only": "07"}, ["07_simde"]),
        (LINES, {"only": "03"}, ["03_structural"]),
    ],
)
def test_from_and_only_choose_runs_and_grids_by_their_notebook(plan_of, runs, selection, notebooks):
    assert [run.notebook for run in runs_of(plan_of(runs, **selection))] == notebooks


def test_a_single_run_has_its_parameters_over_those_of_its_profile_in_the_plan(plan_of):
    plan_of("[{notebook: 05_weighting, lam: 0.3}, {notebook: 06_evaluation, profile: other.yaml}]")
    planned = Profile.load("planned")
    for given in ({"lam": 0.7}, {}):
        (run,) = runs_of(resolve_run("05", given, planned))
        assert run.key == Run.of("05_weighting", planned, **given).key
    (run,) = runs_of(resolve_run("06", {"documents": 13}, planned))
    assert run.key == Run.of("06_evaluation", Profile.load("other"), documents=13).key
    assert Path(run.profile.source).name == "other.yaml"


@pytest.mark.parametrize(("lam", "others"), [(0.3, [0.2, None]), (0.7, [0.2, 0.3, None])])
def test_the_runs_beside_a_run_are_the_others_of_its_notebook_in_the_plan(plan_of, lam, others):
    plan_of(
        """[{notebook: 05_weighting, lam: 0.2}, {notebook: 05_weighting, lam: 0.3},
        {notebook: 05_weighting, runs: [{lam: 0.2}, {lam: null}]},
        {notebook: 05_weighting, lam: 0.9, on_request: true}, {notebook: 04_projections},
        {grid: grids/lams.yaml}, {notebook: 05_weighting, lam: 0.8, profile: other.yaml}]"""
    )
    run = Run.of("05_weighting", Profile.load("planned"), lam=lam)
    planned = planned_beside(run)
    assert [parameters["lam"] for parameters in planned] == others
    assert all({**parameters, "lam": lam} == run.parameters for parameters in planned)


def test_a_missing_notebook_is_named_before_anything_starts(plan_of, workspace_root, refused):
    (workspace_root / "notebooks" / "05_weighting.ipynb").unlink()
    said = "05_weighting.ipynb: there is no such notebook; make it again with"
    refused(said, plan_of, "[{notebook: 05_weighting}]")


def test_the_notebook_gets_every_parameter_so_that_both_sides_mean_the_same_run(small):
    for run in runs_of(resolve_plan(small)):
        assert Run.of(run.notebook, Profile.load("small"), **run.parameters).key == run.key
        assert set(run.parameters) == {*REGISTRY[run.notebook].values}


def test_commands_for_final_students_have_the_profile_of_the_final_notebook():
    source = (REPOSITORY / "notebooks" / "06_evaluation.py").read_text(encoding="utf-8")
    for command in (train, evaluate):
        default = inspect.signature(command).parameters["profile"].default
        assert f'\nprofile = "{default}"  #' in source


@pytest.mark.parametrize("name", ["tiny", "own"])
def test_a_notebook_as_it_is_opened_is_a_run_of_the_plan(name):
    def described(notebook, profile, parameters):
        run = Run.of(notebook, Profile.load(PARAMS / f"{profile}.yaml"), **parameters)
        return notebook, profile, run.same_but()

    planned = []
    for line in Profile.load(PARAMS / f"{name}.yaml").plan:
        for run in line.runs or [{}]:
            parameters = {**run, **line.parameters}
            planned.append(described(line.notebook, line.profile or name, parameters))
    for notebook in REGISTRY:
        source = (REPOSITORY / "notebooks" / f"{notebook}.py").read_text(encoding="utf-8")
        cell = ast.parse(source.split('tags=["parameters"]')[1].split("# %%")[0])
        assigned = {node.targets[0].id: ast.literal_eval(node.value) for node in cell.body}
        opened = assigned.pop("profile")
        assert described(notebook, opened if name == "tiny" else name, assigned) in planned


@pytest.mark.parametrize(
    "line",
    [
        "{runs: [{lam: 0.2}]}",
        "{notebook: 05_weighting, runs: []}",
        "{notebook: 05_weighting, runs: [{gama: 0.2}]}",
        "{notebook: 05_weighting, grid: weighting-cosine, runs: [{lam: 0.2}]}",
    ],
)
def test_runs_of_a_line_are_of_a_notebook_with_its_parameters_and_no_grid(line, plan_of):
    with pytest.raises(InputError, match="plan"):
        plan_of(f"[{line}]")


def test_a_line_stands_for_a_run_or_for_all_runs_of_a_grid_in_any_profile(plan_of):
    steps = plan_of(LINES)
    resolved = []
    for step in steps:
        values = [(run.parameters.get("lam"), run.parameters["seed"]) for run in step.runs]
        resolved.append((step.runs[0].profile.name, step.grid is None, values))
    assert resolved == [
        ("planned", True, [(0.3, 0)]),
        ("planned", False, [(0.5, 3), (0.8, 3)]),
        ("other", True, [(0.3, 0)]),
        ("other", False, [(0.5, 0), (0.8, 0)]),
        ("planned", True, [(None, 0)]),
        ("planned", False, [(0.2, 3), (0.8, 3)]),
    ]
    assert {run.profile.parameters.documents for run in steps[3].runs} == {30}
    # λ .8 with seed 3 stands in two lines.
    for identities in ("key", "folder"):
        assert len({getattr(run, identities) for run in runs_of(steps)}) == 8


NAMED = "S+PV masked, λ .1, 64 tokens, S:16(ReLU)x16, C:16, 24 docs"
REPEATED = f"run 2: it is the same as run 1 ({NAMED}); leave one of them out, or vary"


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ("[{notebook: 01_corpus}, {grid: lam}]", "line 2 (grid lam): grid 'lam' is unknown; did"),
        ("[{grid: lams, notebook: 03_structural}]", "it is for notebook 05_weighting, not for 03"),
        ("[{grid: lams, lam: 0.1}]", REPEATED),
        ("[{grid: lams, profile: absent}]", "(grid lams absent): profile 'absent' is unknown"),
        (
            "[{notebook: 05_weighting, profile: other.yaml, lam: 2}]",
            "other.yaml): 05_weighting: lam: input should be less than or equal to 1",
        ),
        ("[{notebook: 05_weighting, student_projection: 16x17}]", "384 → 16 → 17"),
    ],
)
def test_a_wrong_line_is_refused_with_its_number_before_anything_starts(
    plan_of, workspace_root, refused, runs, said
):
    refused(f"^(?=profile planned: plan, line ).*{re.escape(said)}", plan_of, runs)
    assert not (workspace_root / "outputs").exists()


def test_two_settings_that_would_write_one_folder_are_refused(plan_of, params, refused):
    (params / "same.yaml").write_text("base: other.yaml\nname: planned\ntraining: {epochs: 9}")
    lines = "{notebook: 01_corpus}, {notebook: 01_corpus, profile: same.yaml}"
    said = "two runs with different settings would both write planned-corpus-seed0; give one of"
    refused(said, plan_of, f"[{lines}]")

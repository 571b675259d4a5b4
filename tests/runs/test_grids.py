"""Grids: read and checked before anything starts; those of the thesis are its figures'."""

import json
import re
from pathlib import Path

import pytest
from conftest import REPOSITORY, with_setting

from docemb_lib import grid, sweep
from docemb_lib.runs.grids import load_grid
from docemb_lib.runs.plan import resolve_sweep, runs_of
from docemb_lib.settings.profile import Profile

PARAMS = REPOSITORY / "params"


def test_sizes_of_teachers_and_masks_are_scaled_to_the_profile():
    tiny = Profile.load(PARAMS / "tiny.yaml")
    assert {run["max_structural_len"] for run in grid("weighting-cosine", tiny)} == {256, None}
    vectors = grid("paragraph-vector", tiny)
    assert sorted({run["vector_size"] for run in vectors[:36]}) == [50, 384, 512]
    assert vectors[36]["compound"] == "DM;512;stem;2+DBOW;512;None;2"


LAYERS = "768(ReLU,drop0.15,norm)x1024x"
SCALED = [  # a side ends as wide as the larger embedding, or as a teacher without a projection
    ({"student_projection": f"{LAYERS}768(norm)"}, "384(ReLU,drop0.15,norm)x512x500(norm)", "500"),
    ({"student_projection": "768", "contextual_projection": "-"}, "500", "-"),
    ({"student_projection": "768x768"}, "384x500", "500"),
]


@pytest.mark.parametrize("scale", ["scale: thesis, ", ""])
@pytest.mark.parametrize(("given", "student", "contextual"), SCALED)
def test_a_grid_is_scaled_where_it_says_so(tmp_path, given, student, contextual, scale):
    tiny = Profile.load(PARAMS / "tiny.yaml")
    dm = tiny.contextual_teachers.DM.model_copy(update={"vector_size": 500})
    run = {"contextual_teacher": "DM", "contextual_projection": "768", **given}
    file = tmp_path / "mine.yaml"
    file.write_text(f"{{{scale}runs: [{json.dumps(run)}]}}")
    (scaled,) = load_grid(file, with_setting(tiny, "contextual_teachers", DM=dm)).runs
    expected = {"student_projection": student, "contextual_projection": contextual}
    assert scaled == run | (expected if scale else {})


@pytest.mark.parametrize("profile", ["small", PARAMS / "tiny.yaml"])
@pytest.mark.parametrize("name", [path.stem for path in (PARAMS / "grids").glob("*.yaml")])
def test_every_grid_resolves_at_any_widths_to_runs_that_are_told_apart(
    name, profile, workspace_root
):
    """The projections of each run meet: a run is refused otherwise."""
    planned = runs_of(resolve_sweep(None, name, profile=profile, parameters={"seed": 1}))
    assert len(planned) > 2
    for identity in ("label", "key", "folder"):
        assert len({getattr(run, identity) for run in planned}) == len(planned)
    assert {run.parameters["seed"] for run in planned} == {1}


def resolve(text, notebook=None, **overrides):
    path = Path("params/mine.yaml")
    path.write_text(text, encoding="utf-8")
    return runs_of(resolve_sweep(notebook, path, profile="small", parameters=overrides))


GRID = """
notebook: 05_weighting
base: {structural_loss: mse}
axes: {lam: [0.2, 0.5], max_structural_len: [32, null]}
runs: [{lam: null, max_structural_len: null}]
"""


def test_a_grid_of_ones_own_has_products_and_single_runs_over_a_base(workspace_root):
    planned = [run.parameters for run in resolve(GRID, documents=12)]
    given = [(run["lam"], run["max_structural_len"]) for run in planned]
    assert given == [(0.2, 32), (0.2, None), (0.5, 32), (0.5, None), (None, None)]
    assert {(run["structural_loss"], run["documents"]) for run in planned} == {("mse", 12)}
    assert planned[0]["student_projection"] == "16(ReLU)x16"  # the profile's, taken as it is


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mine.yaml: there are no runs; list some"),
        ("{notebook: 05, lam: [0.2, 0.8]}", "lam: put the lists of values under `axes`"),
        ("[{lam: 1}]", "input should be a valid dictionary"),
        ("axis: {lam: [1]}", "unknown key 'axis'; did you mean axes?"),
        ("{notebook: 05, axes: {lam: 0.5}}", "axes.0.lam: input should be a valid list, got 0.5"),
        ("{notebook: 05, runs: {lam: 1}}", "runs: Input should be a valid list"),
        ("{runs: [{lam: 1}]}", "notebook is missing; say which of 01_corpus"),
        ("{notebook: 05, runs: [{lam: 1}, {lamb: 1}]}", "run 2: 05_weighting: unknown parameter"),
        ("{notebook: 05, axes: {gamma: [0.1, 0.5]}}", "run 2: it is the same as run 1"),
        ("{notebook: 05, scale: thsis, runs: [{}]}", "scale: input should be 'thesis', got 'thsi"),
        ("{notebook: 05, scale: thesis, runs: [{lam: 2}]}", "run 1: lam: input should be less"),
        ("{notebook: 05, runs: [{profile: tiny}]}", "run 1: profile: a sweep has one profile for"),
    ],
)
def test_a_wrong_grid_is_refused_whole_naming_file_run_and_field(
    workspace_root, refused, text, said
):
    refused(f"^(?=.*mine.yaml).*{re.escape(said)}", resolve, text)
    assert not (workspace_root / "outputs").exists()


def test_parameters_that_are_no_grid_and_a_grid_of_another_notebook_are_refused(
    workspace_root, refused
):
    said = r"grid given: runs\.1: input should be a valid dictionary, got 'lam'"
    refused(said, sweep, "05", [{"lam": 0.5}, "lam"], profile="small")
    said = "grid given: run 2: 05_weighting: unknown parameter 'lamm'"
    refused(said, sweep, "05", [{"lam": 0.5}, {"lamm": 0.5}], profile="small")
    said = r"mine.yaml: it is for notebook 05_weighting, not for 03_structural; name 05_weighting"
    refused(said, resolve, "{notebook: 05_weighting, runs: [{lam: 1}]}", "03")
    said = r"grid 'nowhere\.yaml' is unknown .*; give one of these"
    refused(said, load_grid, "nowhere.yaml", Profile.load("small"))

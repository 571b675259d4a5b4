"""The thesis' grids are those of its tables, at any widths; a grid of one's own is checked whole."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from docemb_lib.errors import InputError
from docemb_lib.experiments import grid, sweep
from docemb_lib.experiments.grids import load_grid
from docemb_lib.experiments.plan import resolve_grid
from docemb_lib.losses.projection import check_widths
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import published
from docemb_lib.workspace import Workspace

PARAMS = Path(__file__).resolve().parents[2] / "params"
SIZES = {
    "structural": ("03_structural", 11), "paragraph-vector": ("02_paragraph_vector", 36 + 9),
    "projections-contextual": ("04_projections", 16), "projections-cosine": ("04_projections", 12),
    "projections-max-margin": ("04_projections", 14), "weighting-cosine": ("05_weighting", 8 + 1),
    "weighting-max-margin": ("05_weighting", 8 + 1), "final": ("06_evaluation", 3),
}  # fmt: skip
WIDTHS = {  # of student, DM, DBOW, PV
    "thesis": (768, 100, 1024, 2048),
    "tiny": (384, 100, 100, 200),
}


def as_set(runs):
    """Runs as comparable values: switched off and not said are the same."""
    return {frozenset((k, v) for k, v in run.items() if not pd.isna(v)) for run in runs}


def figure(name, source, columns):
    """The runs of one figure as the published data has them, typed in independently of the grids."""
    rows = published(name).query(f"source == '{source}' and kind != 'baseline'")
    if "contextual_teacher" in rows:  # the best students of earlier figures, shown for comparison, have none
        rows = rows[rows["contextual_teacher"].notna()]
    return [dict(zip(columns, row, strict=True)) for row in rows[columns].itertuples(index=False)]


@pytest.mark.parametrize("name", SIZES)
def test_the_thesis_grids_have_its_sizes_and_notebooks(name):
    notebook, size = SIZES[name]
    runs = grid(name)
    assert len(as_set(runs)) == len(runs) == size
    assert load_grid(name, Profile.load("thesis")).notebook == notebook
    assert sorted(path.stem for path in (PARAMS / "grids").glob("*.yaml")) == sorted(SIZES)


@pytest.mark.parametrize(
    ("name", "data", "source", "columns"),
    [
        ("structural", "structural_losses", "figure 4.3", ["structural_loss", "distance", "gamma"]),
        *[
            (name, "projections", source,
             ["structural_loss", "distance", "gamma", "contextual_teacher", "student_projection", "contextual_projection"])
            for name, source in [("projections-contextual", "figure 4.7"), ("projections-cosine", "figure 4.8"),
                                 ("projections-max-margin", "figure 4.9")]
        ],
    ],
)  # fmt: skip
def test_a_grid_has_the_rows_of_its_figure(name, data, source, columns):
    assert as_set(grid(name)) == as_set(figure(data, source, columns))


def test_the_paragraph_vectors_are_those_of_figure_4_5():
    rows = published("paragraph_vectors")
    singles = rows[rows["kind"] != "DM+DBOW"][["dm", "vector_size", "min_count", "preprocess"]].to_dict("records")
    runs = grid("paragraph-vector")
    assert as_set(run for run in runs if "compound" not in run) == as_set(singles)
    assert {run["compound"] for run in runs[36:]} == set(rows[rows["kind"] == "DM+DBOW"]["label"])


@pytest.mark.parametrize(
    ("name", "source", "fixed"),
    [
        ("weighting-cosine", "figure 4.10", {"structural_loss": "cosine", "contextual_teacher": "PV",
         "student_projection": "768(ReLU)x4096(ReLU)x2048", "contextual_projection": "-"}),
        ("weighting-max-margin", "figure 4.11", {"structural_loss": "max-margin", "distance": "mse", "gamma": 1.0,
         "contextual_teacher": "DM", "student_projection": "768(ReLU)x1024(ReLU)x768", "contextual_projection": "768"}),
    ],
)  # fmt: skip
def test_the_weightings_are_those_of_their_figure(name, source, fixed):
    rows = figure("weighting", source, ["lam", "max_structural_len"])
    assert as_set(grid(name)) == as_set({**fixed, **row} for row in rows)
    assert all({"lam", "max_structural_len"} <= run.keys() for run in grid(name))  # whatever a profile has


def test_the_final_students_are_those_of_section_5_1():
    masked, contextual, only = grid("final")
    assert masked["max_structural_len"] == 384
    assert (masked["structural_loss"], masked["contextual_teacher"], masked["lam"]) == ("cosine", "PV", 0.5)
    assert (contextual["structural_loss"], contextual["gamma"], contextual["contextual_teacher"]) == (
        "max-margin",
        1.0,
        "DM",
    )
    assert contextual["max_structural_len"] is None
    assert (only["structural_loss"], only["distance"], only["contextual_teacher"]) == ("max-margin", "mse", None)


@pytest.mark.parametrize("profile", WIDTHS)
@pytest.mark.parametrize("name", SIZES)
def test_every_run_is_valid_and_its_projections_meet_at_any_widths(name, profile):
    student, *teachers = WIDTHS[profile]
    widths = dict(zip(("DM", "DBOW", "PV"), teachers, strict=True))
    loaded = Profile.load(PARAMS / f"{profile}.yaml")
    for run in grid(name, loaded):
        parameters = loaded.for_notebook(SIZES[name][0], **run).parameters
        if run.get("contextual_teacher"):
            ends = check_widths(parameters.student_projection, student, parameters.contextual_projection,
                                widths[run["contextual_teacher"]])  # fmt: skip
            assert ends in {student, widths[run["contextual_teacher"]]}


def test_widths_and_masks_are_scaled_to_the_profile():
    tiny = Profile.load(PARAMS / "tiny.yaml")
    contextual = grid("projections-contextual", tiny)
    sides = [(run["student_projection"], run["contextual_projection"]) for run in contextual]
    assert sides[:4] == [("384(ReLU)x512(ReLU)x384", "100(ReLU)x384"), ("384(ReLU)x512(ReLU)x384", "384"),
                         ("384", "100(ReLU)x384"), ("384", "384")]  # fmt: skip
    assert sides[4:6] == [("384(ReLU)x100", "75x100"), ("384(ReLU)x100", "100")]
    assert sides[10:] == [("512(ReLU)x200", "100x200"), ("512(ReLU)x200", "200"), ("512(ReLU)x200", "-"),
                          ("200", "100x200"), ("200", "200"), ("200", "-")]  # fmt: skip
    assert {run["max_structural_len"] for run in grid("weighting-cosine", tiny)} == {256, None}
    vectors = grid("paragraph-vector", tiny)
    assert sorted({run["vector_size"] for run in vectors[:36]}) == [50, 384, 512]
    assert vectors[36]["compound"] == "DM;512;stem;2+DBOW;512;None;2"


@pytest.mark.parametrize("name", SIZES)
def test_every_grid_resolves_on_the_small_profile_to_runs_that_are_told_apart(name, workspace_root):
    profile, (notebook, size) = Profile.load("small"), SIZES[name]
    planned = resolve_grid(load_grid(name, profile), notebook[:2], {"seed": 1}, profile, "small", Workspace())
    assert len({run.fingerprint for run in planned}) == len({run.executed for run in planned}) == size
    assert len({run.label for run in planned}) == size
    assert {run.notebook for run in planned} == {notebook}
    assert {run.parameters["seed"] for run in planned} == {1}


def resolve(text, notebook=None, **overrides):
    path = Path("params/mine.yaml")
    path.write_text(text, encoding="utf-8")
    profile = Profile.load("small")
    return resolve_grid(load_grid(path, profile), notebook, overrides, profile, "small", Workspace())


def test_a_grid_of_ones_own_has_products_and_single_runs_over_a_base(workspace_root):
    planned = resolve("""
        notebook: 05_weighting
        base: {structural_loss: mse}
        axes: {lam: [0.2, 0.5], max_structural_len: [32, null]}
        runs: [{lam: null, max_structural_len: null}]
        """, documents=12)  # fmt: skip
    given = [(run.parameters["lam"], run.parameters["max_structural_len"]) for run in planned]
    assert given == [(0.2, 32), (0.2, None), (0.5, 32), (0.5, None), (None, None)]
    assert {(run.parameters["structural_loss"], run.parameters["documents"]) for run in planned} == {("mse", 12)}
    assert planned[0].parameters["student_projection"] == "16(ReLU)x16"  # the profile's, and taken as it is


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "mine.yaml: a grid is a mapping with `axes` or `runs`"),
        ("[1, 2", "mine.yaml: not readable as YAML"),
        ("axis: {lam: [1]}", "unknown key 'axis'; did you mean axes?"),
        ("notebook: 05_weighting", "mine.yaml: no runs"),
        ("{notebook: 05, axes: {lam: 0.5}}", "axes: lam: write a list of values, got 0.5"),
        ("{notebook: 05, axes: {lam: []}}", "axes: lam: write a list of values, got []"),
        ("{notebook: 05, axes: [{lam: [1]}, {lam: 2}]}", "axes, product 2: lam: write a list"),
        ("{notebook: 05, axes: 7}", "axes: write a mapping from parameters to values, got 7"),
        ("{notebook: 05, runs: {lam: 1}}", "runs: write a list of mappings"),
        ("{notebook: 05, runs: [lam]}", "runs, line 1: write a mapping"),
        ("{notebook: '05', base: [lam], runs: [{}]}", "base: write a mapping"),
        ("{runs: [{lam: 1}]}", "notebook is missing; say which of 01_corpus"),
        ("{notebook: 07_all, runs: [{lam: 1}]}", "notebook '07_all' is unknown"),
        ("{notebook: '0', runs: [{lam: 1}]}", "notebook '0' is unknown"),
        ("{notebook: '05', runs: [{lam: 1}, {lamb: 1}]}", "run 2: 05_weighting: unknown parameter 'lamb'; did you mean lam?"),
        ("{notebook: '03', runs: [{lam: 1}]}", "run 1: 03_structural: unknown parameter 'lam'"),
        ("{notebook: '05', runs: [{notebook: '03'}]}", "run 1: 05_weighting: unknown parameter 'notebook'"),
        ("{notebook: '05', runs: [{source: hub}]}", "run 1: 05_weighting: unknown parameter 'source'"),
        ("{notebook: '05', axes: {lam: [0.5, 1.5]}}", "run 2: 05_weighting: lam: must lie in [0, 1]"),
        ("{notebook: '05', runs: [{lam: 'null'}]}", "run 1: 05_weighting: lam: got the string 'null'"),
        ("{notebook: '05', runs: [{documents: many}]}", "run 1: 05_weighting: documents: "),
        ("{notebook: '05', runs: [{student_projection: 16x17}]}", "384 → 16 → 17"),
        ("{notebook: '05', axes: {lam: [0.5, 0.2, 0.5]}}", "run 3: the same as run 1 (cosine;64;λ=0.5); leave one of them out"),
        ("{notebook: '05', axes: {structural_loss: [mse], gamma: [0.1, 0.5]}}", "run 2: the same as run 1"),
        ("{notebook: '05', base: {form: half_means_sum}, runs: [{lam: 1}, {lam: 1.0}]}", "run 2: the same as run 1"),
        ("{notebook: 05, runs: [{lam: 0.5, lam: 0.2}]}", "not readable as YAML (the key 'lam' is there twice; keep one"),
        ("{notebook: 05, scale: thsis, runs: [{lam: 1}]}", "scale: write thesis, or leave it out, got 'thsis'"),
        ("{notebook: 05, scale: thesis, runs: [{contextual_teacher: DM, student_projection: 768x99}]}",
         "run 1: student_projection: 768x99 cannot be scaled, it does not end in 768 or 100"),
        ("{notebook: 05, scale: thesis, runs: [{contextual_teacher: DN}]}", "run 1: contextual_teacher: input should be"),
        ("{notebook: true, runs: [{lam: 1}]}", "notebook 'True' is unknown"),
        ("{notebook: '05', runs: [{profile: tiny}]}", "run 1: profile: a sweep has one for all its runs"),
    ],
)  # fmt: skip
def test_a_wrong_grid_is_refused_whole_naming_file_run_and_field(workspace_root, text, said):
    with pytest.raises(InputError) as error:
        resolve(text)
    assert "mine.yaml" in str(error.value)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert not (workspace_root / "outputs").exists()


def test_a_notebooks_number_needs_no_quotes(workspace_root):
    assert [run.notebook for run in resolve("{notebook: 05, runs: [{lam: 1}]}")] == ["05_weighting"]
    assert [run.notebook for run in resolve("{notebook: 3, runs: [{structural_loss: mse}]}")] == ["03_structural"]


def test_a_grid_is_scaled_where_it_says_so_whatever_its_place(workspace_root):
    text = "{notebook: 05, runs: [{contextual_teacher: DM, student_projection: 32x16, contextual_projection: 16}]}"
    small = Profile.load("small")
    folder = workspace_root / "params" / "grids"
    folder.mkdir()
    (folder / "mine.yaml").write_text(text)
    assert grid("mine", small)[0]["student_projection"] == "32x16"
    scaled = text.replace("32x16", "768x100").replace("16}", '"768"}').replace("runs:", "scale: thesis, runs:")
    (folder / "mine.yaml").write_text(scaled)
    for name in ("mine", folder / "mine.yaml"):
        (run,) = load_grid(name, small).runs
        assert (run["student_projection"], run["contextual_projection"]) == ("384x8", "384")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ([], "grid: write a list of mappings from parameters to values, got []"),
        ({"lam": 0.5}, "grid: write a list of mappings"),
        ([{"lam": 0.5}, "lam"], "grid: run 2: write a mapping from parameters to values, got 'lam'"),
        ([{"lam": 0.5}, {"lamm": 0.5}], "grid given: run 2: 05_weighting: unknown parameter 'lamm'"),
    ],
)
def test_parameters_that_are_no_grid_are_refused(workspace_root, runs, said):
    with pytest.raises(InputError, match=f"^{re.escape(said)}"):
        sweep("05", runs, profile="small")


def test_listing_runs_builds_nothing_where_only_the_students_files_tell_its_width(workspace_root, tmp_path):
    (tmp_path / "encoder").mkdir()
    (tmp_path / "encoder" / "config.json").write_text('{"model_type": "longformer", "hidden_size": 96}')
    small = Profile.load("small")
    student = small.student.model_copy(update={"model": str(tmp_path / "encoder")})
    assert grid("paragraph-vector", small.model_copy(update={"student": student}))[0]["vector_size"] == round(100 / 8)
    monkey = pytest.MonkeyPatch()
    monkey.setattr("docemb_lib.experiments.grids.width", lambda model: None)
    assert grid("paragraph-vector", small.model_copy(update={"student": student}))[0]["vector_size"] == round(100 / 8)
    monkey.undo()
    assert not (workspace_root / "outputs").exists()


def test_a_grid_of_another_notebook_or_name_is_refused(workspace_root):
    with pytest.raises(InputError, match=r"mine.yaml: is for notebook 05_weighting, not for 03_structural"):
        resolve("{notebook: 05_weighting, runs: [{lam: 1}]}", "03")
    assert resolve("{runs: [{lam: 1}]}", "05")[0].notebook == "05_weighting"
    with pytest.raises(InputError, match=r"grid 'structual' is unknown; known are final, paragraph-vector,"):
        grid("structual", "small")
    with pytest.raises(InputError, match=r"grid nowhere\.yaml: no such file"):
        load_grid("nowhere.yaml", Profile.load("small"))


def test_naming_the_functions_loads_neither_torch_nor_dask():
    code = "import sys; from docemb_lib.experiments import grid, sweep; grid('structural'); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert "'docemb_lib.experiments.sweeps'" in loaded
    assert not {"torch", "dask", "distributed"} & set(loaded.split("'"))

"""Which run of the thesis a run is: by the parameters that count, at the thesis' widths and at a profile's."""

from __future__ import annotations

import pytest

from docemb_lib.experiments.grids import grid
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import FIGURES, STUDENTS, ThesisValues, baseline_name, final_name, published

LARGE = "768(ReLU)x4096(ReLU)x2048"
COSINE_WEIGHTING = {
    "structural_loss": "cosine", "contextual_teacher": "PV", "student_projection": LARGE, "contextual_projection": "-",
    "lam": 0.5, "max_structural_len": 384,
}  # fmt: skip


@pytest.fixture
def thesis():
    return Profile(name="thesis")


@pytest.fixture
def small(workspace_root):
    return Profile.load("small")


@pytest.mark.parametrize("figure", [f for f in FIGURES if len(f.grids) == 1], ids=lambda f: f.source)
@pytest.mark.parametrize("profile", ["thesis", "small"])
def test_every_run_of_a_grid_finds_its_own_value(figure, profile, request):
    """All of them, at any widths: no row of the thesis' figure is missed, none is taken for another."""
    profile = request.getfixturevalue(profile)
    runs = grid(figure.grids[0], profile)
    values = ThesisValues(figure.notebook, profile.for_notebook(figure.notebook, **runs[0]))
    found = [values.of_run(RunKey.of(figure.notebook, profile, **run)) for run in runs]
    rows = published(figure.data).query("source == @figure.source and kind != 'baseline'")
    expected = rows[~rows["label"].str.startswith("only-")]["value"]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize(
    ("notebook", "parameters", "value"),
    [
        ("02_paragraph_vector", {"dm": True, "vector_size": 100, "min_count": "10%", "preprocess": "none"}, 0.8622),
        ("02_paragraph_vector", {"compound": "DM;1024;stem;2+DBOW;1024;None;2"}, 0.9704),
        ("02_paragraph_vector", {"compound": "DBOW;1024;None;2+DM;1024;stem;2"}, 0.9704),  # DM stands first anyway
        ("03_structural", {"structural_loss": "mse"}, 0.7973),
        ("03_structural", {"structural_loss": "mse", "gamma": 0.3, "distance": "cosine"}, 0.7973),  # which it ignores
        ("03_structural", {"structural_loss": "max-margin", "distance": "cosine", "gamma": 0.5}, 0.9254),
        ("03_structural", {"structural_loss": "contrastive"}, 0.9199),
        ("05_weighting", COSINE_WEIGHTING, 0.9407),
        ("05_weighting", COSINE_WEIGHTING | {"max_structural_len": None, "lam": 0.8}, 0.9222),
        ("05_weighting", COSINE_WEIGHTING | {"max_structural_len": None, "lam": None}, 0.9387),
        ("05_weighting", {"structural_loss": "cosine", "contextual_teacher": None, "max_structural_len": None}, 0.9326),
    ],
)
def test_known_runs_have_the_values_of_their_figures(thesis, notebook, parameters, value):
    profile = thesis.for_notebook(notebook)
    assert ThesisValues(notebook, profile).of_run(RunKey.of(notebook, profile, **parameters)) == value


@pytest.mark.parametrize(
    ("notebook", "parameters"),
    [
        ("02_paragraph_vector", {"vector_size": 101}),
        ("02_paragraph_vector", {"compound": "DM;768;stem;2+DBOW;768;None;2"}),
        ("03_structural", {"structural_loss": "max-margin", "gamma": 0.7}),
        ("03_structural", {"structural_loss": "contrastive", "temperature": 0.1}),
        ("03_structural", {"structural_loss": "max-margin", "gamma": 1.0, "negatives": 20}),
        ("05_weighting", COSINE_WEIGHTING | {"lam": 0.6}),
        ("05_weighting", COSINE_WEIGHTING | {"max_structural_len": 512}),
        ("05_weighting", COSINE_WEIGHTING | {"contextual_loss": "cca"}),
        ("05_weighting", COSINE_WEIGHTING | {"form": "contextual_full"}),
        ("05_weighting", COSINE_WEIGHTING | {"lam_by_length": "linear:384:4096"}),
        ("05_weighting", COSINE_WEIGHTING | {"student_projection": "768(ReLU)x2048"}),
        ("05_weighting", {"structural_loss": "cosine", "contextual_teacher": None, "max_structural_len": 384}),
    ],
)
def test_what_the_thesis_did_not_run_has_no_value(thesis, notebook, parameters):
    key = RunKey.of(notebook, thesis, **parameters)
    assert ThesisValues(notebook, thesis.for_notebook(notebook)).of_run(key) is None


def test_the_structural_student_has_the_value_of_the_figure_of_the_runs_own_loss(thesis):
    only = {"structural_loss": "cosine", "contextual_teacher": None}
    for loss, value in ((None, 0.9296), ("cosine", 0.9333)):
        profile = thesis.for_notebook("04_projections", structural_loss=loss)
        assert ThesisValues("04_projections", profile).of_run(RunKey.of("04_projections", profile, **only)) == value


def test_baselines_have_the_values_of_the_same_figure(thesis):
    profile = thesis.for_notebook("05_weighting", structural_loss="max-margin", distance="mse", gamma=1.0)
    values = ThesisValues("05_weighting", profile)
    assert values.of_baseline("student before distillation") == 0.8464
    assert values.of_baseline("SBERT truncated") == 0.9081
    assert values.of_baseline("DM;100d") == 0.8295
    for unknown in ("SBERT over chunks", "PV;2048d", "TF-IDF", "LSA;300d"):
        assert values.of_baseline(unknown) is None
    elsewhere = thesis.for_notebook("05_weighting", structural_loss="contrastive")
    assert ThesisValues("05_weighting", elsewhere).of_baseline("SBERT truncated") is None


def test_a_profile_with_further_teachers_makes_no_run_of_the_thesis(thesis):
    further = {"name": "words", "role": "contextual", "teacher": "LSA", "loss": "soft-cca"}
    more = Profile.model_validate(thesis.model_dump() | {"further_teachers": [further]})
    key = RunKey.of("03_structural", more, structural_loss="mse")
    assert ThesisValues("03_structural", key.profile).of_run(key) is None


@pytest.mark.parametrize("profile", ["thesis", "small"])
def test_final_students_have_the_names_of_table_5_7(profile, request):
    profile = request.getfixturevalue(profile)
    assert [final_name(RunKey.of("06_evaluation", profile, **run)) for run in grid("final", profile)] == list(STUDENTS)
    masked, margin, only = grid("final", profile)

    def named(parameters):
        return final_name(RunKey.of("06_evaluation", profile, **parameters))

    assert named({**only, "lam": 0.2, "documents": 9}) == "only-MSE"  # λ counts where there are two roles
    assert named({**masked, "lam": 0.6}) is None
    assert named({**margin, "max_structural_len": 12}) is None
    assert {*STUDENTS} < {*published("table_5_7")["model"]}


def test_baselines_have_the_names_of_table_5_7(small):
    ours = [
        "student before distillation",
        "SBERT truncated",
        "SBERT over chunks",
        "DM;8d",
        "DBOW;8d",
        "PV;16d",
        "TF-IDF",
    ]
    assert [baseline_name(label, small) for label in ours] == ["Longformer", "SBERT", None, "DM", None, "PV", None]


def test_the_four_best_students_have_the_values_of_figure_4_12(thesis):
    values = ThesisValues("06_evaluation", thesis)

    def value(parameters):
        return values.of_run(RunKey.of("06_evaluation", thesis, **parameters))

    rows = published("weighting").query("source == 'figure 4.12'").set_index("label")["value"]
    unweighted = COSINE_WEIGHTING | {"max_structural_len": None, "lam": None}
    assert value(COSINE_WEIGHTING) == rows["masked-cosine;λ=0.5"]
    assert value(unweighted) == rows["cosine;no-weighting"]
    assert value(grid("final")[1]) == rows["mm-MSE;λ=0.5"]
    assert value(grid("final")[2]) == rows["only-structural;mm-MSE"]
    assert value(COSINE_WEIGHTING | {"lam": 0.8}) is None
    assert values.of_baseline("PV;2048d") == rows["PV;2048d"]


def test_the_values_of_a_run_whose_loss_takes_options_that_other_losses_refuse(small):
    parameters = {"structural_loss": "max-margin", "negatives": 3}
    for notebook in ("04_projections", "05_weighting", "06_evaluation"):
        key = RunKey.of(notebook, small, **parameters)
        assert ThesisValues(notebook, key.profile).of_run(key) is None
    assert final_name(RunKey.of("06_evaluation", small, **parameters)) is None

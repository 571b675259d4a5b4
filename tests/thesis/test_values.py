"""Published results are consistent, and each run finds the value of the run that it repeats."""

import numpy as np
import pytest
from conftest import with_setting

from docemb_lib.runs.grids import grid
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import FIGURES, ThesisValues, final_name, published

LARGE = "768(ReLU)x4096(ReLU)x2048"
STUDENTS = ("cosine-masked", "MSE-contextual", "only-MSE")  # of the grid `final`, in its order
COSINE_WEIGHTING = {
    "structural_loss": "cosine",
    "contextual_teacher": "PV",
    "student_projection": LARGE,
    "contextual_projection": "-",
    "lam": 0.5,
    "max_structural_len": 384,
}


def figure(name, number):
    return published(name).query(f"source == 'figure {number}'").set_index("label")


def test_the_legend_is_the_thesis_alone_only_with_its_tasks_and_models():
    thesis = Profile.load("thesis")
    fewer = with_setting(thesis, "evaluation", sweep_tasks=["arxiv"])
    others = [
        fewer,
        Profile.load("tiny"),
        Profile.load("thesis-mini"),
    ]
    legends = [ThesisValues("05_weighting", profile).legend for profile in (thesis, *others)]
    assert legends == ["thesis", *["thesis, with other tasks or models"] * 3]


@pytest.mark.parametrize(
    "name", ["structural_losses", "paragraph_vectors", "projections", "weighting"]
)
def test_every_box_is_in_order(name):
    frame = published(name)
    boxes = frame.dropna(subset="median")
    assert len(boxes) >= len(frame) - 4  # Figure 4.2 shows whiskers only
    lower = ["low", "q1", "median", "q1", "low"]
    upper = ["q3", "median", "q3", "high", "high"]
    assert (boxes[lower].to_numpy() <= boxes[upper].to_numpy()).all()
    assert frame["value"].between(0.5, 1.0).all()


def value_of(notebook, profile, run, **given):
    return ThesisValues(notebook, profile.for_notebook(notebook, **given)).of_run(
        Run.of(notebook, profile, **run)
    )


@pytest.fixture
def thesis():
    return Profile(name="thesis")


@pytest.mark.parametrize(
    "of_figure", [f for f in FIGURES if len(f.grids) == 1], ids=lambda f: f.source
)
@pytest.mark.parametrize("profile", ["thesis", "small"])
def test_every_run_of_a_grid_finds_its_own_value(of_figure, profile, request):
    """At any widths: every row of the thesis' figure is found, by one run of the grid."""
    profile = request.getfixturevalue(profile)
    runs = grid(of_figure.grids[0], profile)
    values = ThesisValues(of_figure.notebook, profile.for_notebook(of_figure.notebook, **runs[0]))
    values_of_runs = [values.of_run(Run.of(of_figure.notebook, profile, **run)) for run in runs]
    rows = figure(of_figure.data, of_figure.source.removeprefix("figure ")).query(
        "kind != 'baseline'"
    )
    assert sorted(values_of_runs) == sorted(rows[~rows.index.str.startswith("only-")]["value"])


@pytest.mark.parametrize(
    ("notebook", "parameters", "value"),
    [
        (
            "03_structural",
            {"structural_loss": "mse", "gamma": 0.3, "distance": "cosine"},
            0.7973,
        ),
        ("05_weighting", COSINE_WEIGHTING, 0.9407),
        (
            "05_weighting",
            {"structural_loss": "cosine", "contextual_teacher": None, "max_structural_len": None},
            0.9326,
        ),
        ("02_paragraph_vector", {"vector_size": 101}, None),
        ("03_structural", {"structural_loss": "max-margin", "gamma": 0.7}, None),
        ("05_weighting", COSINE_WEIGHTING | {"lam": 0.6}, None),
        ("05_weighting", COSINE_WEIGHTING | {"max_structural_len": 512}, None),
        ("05_weighting", COSINE_WEIGHTING | {"contextual_loss": "cca"}, None),
        ("05_weighting", COSINE_WEIGHTING | {"lam_by_length": "linear:384:4096"}, None),
        (
            "05_weighting",
            {"structural_loss": "cosine", "contextual_teacher": None, "max_structural_len": 384},
            None,
        ),
    ],
)
def test_a_run_has_the_value_of_its_figure_if_the_thesis_has_the_run(
    thesis, notebook, parameters, value
):
    assert value_of(notebook, thesis, parameters) == value


def test_the_structural_student_has_the_value_of_the_figure_of_the_runs_own_loss(thesis):
    only = {"structural_loss": "cosine", "contextual_teacher": None}
    for loss, value in ((None, 0.9296), ("cosine", 0.9333)):
        assert value_of("04_projections", thesis, only, structural_loss=loss) == value


def value_of_baseline(values, kind, form=Form.SAVED):
    value = values.columns_of_baseline(kind, form)["thesis"]
    return None if np.isnan(value) else value


def test_baselines_have_the_values_of_the_same_figure(thesis, small):
    profile = thesis.for_notebook(
        "05_weighting", structural_loss="max-margin", distance="mse", gamma=1.0
    )
    values = ThesisValues("05_weighting", profile)
    known = {Kind.UNTRAINED: 0.8464, Kind.SBERT_TRUNCATED: 0.9081, Kind.DM: 0.8295}
    unknown = (Kind.SBERT_CHUNKS, Kind.PV, Kind.TFIDF, Kind.CORPUS_LSA, Kind.STUDENT)
    assert {
        kind: value_of_baseline(values, kind) for kind in (*known, *unknown)
    } == known | dict.fromkeys(unknown)
    assert value_of_baseline(values, Kind.UNTRAINED, Form.ADAPTED) is None
    of_small = ThesisValues("05_weighting", small.for_notebook("05_weighting"))
    assert value_of_baseline(of_small, Kind.PV) == 0.9169
    elsewhere = thesis.for_notebook("05_weighting", structural_loss="contrastive")
    of_contrastive = ThesisValues("05_weighting", elsewhere)
    assert value_of_baseline(of_contrastive, Kind.SBERT_TRUNCATED) is None


def test_losses_of_other_options_make_no_run_of_the_thesis(small):
    parameters = {"structural_loss": "max-margin", "gamma": 0.7}
    for notebook in ("04_projections", "05_weighting", "06_evaluation"):
        assert value_of(notebook, small, parameters, **parameters) is None
    assert final_name(Run.of("06_evaluation", small, **parameters)) is None


@pytest.mark.parametrize("profile", ["thesis", "small"])
def test_final_students_have_the_names_of_table_5_7(profile, request):
    profile = request.getfixturevalue(profile)

    def named(run, **changed):
        return final_name(Run.of("06_evaluation", profile, **{**run, **changed}))

    masked, margin, only = grid("final", profile)
    assert [named(run) for run in (masked, margin, only)] == list(STUDENTS)
    assert named(only, lam=0.2, documents=9) == "only-MSE"  # λ counts where there are two roles
    assert named(masked, lam=0.6) is None
    assert named(margin, max_structural_len=12) is None
    assert {*STUDENTS} < {*published("table_5_7")["model"]}


@pytest.mark.parametrize(
    ("section", "changed"),
    [
        ("student", {"pooling": "lead"}),
        ("student", {"words": 8}),
        ("structural_teacher", {"long": "chunks"}),
    ],
)
def test_a_student_of_another_form_has_no_name_of_the_thesis(section, changed):
    thesis = Profile.load("thesis")
    other = with_setting(thesis, section, **changed)
    assert final_name(Run.of("06_evaluation", thesis, **grid("final")[0])) == STUDENTS[0]
    assert final_name(Run.of("06_evaluation", other, **grid("final")[0])) is None


def test_the_four_best_students_have_the_values_of_figure_4_12(thesis):
    rows = figure("weighting", "4.12")["value"]
    unweighted = COSINE_WEIGHTING | {"max_structural_len": None, "lam": None}
    runs = {
        "masked-cosine;λ=0.5": COSINE_WEIGHTING,
        "cosine;no-weighting": unweighted,
        "mm-MSE;λ=0.5": grid("final")[1],
        "only-structural;mm-MSE": grid("final")[2],
    }
    assert {name: value_of("06_evaluation", thesis, run) for name, run in runs.items()} == rows[
        list(runs)
    ].to_dict()
    assert value_of("06_evaluation", thesis, COSINE_WEIGHTING | {"lam": 0.8}) is None
    values = ThesisValues("06_evaluation", thesis)
    assert value_of_baseline(values, Kind.PV) == rows["PV;2048d"]

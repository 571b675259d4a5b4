"""Labels read as in the thesis' figures, and slugs are safe and different for different runs."""

from __future__ import annotations

import re

import pytest

from docemb_lib.experiments.run import fingerprint_of_run
from docemb_lib.experiments.runkey import LONGEST_SLUG, label_of, slug_of
from docemb_lib.settings import FurtherTeacher
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import published

FAR = {"name": "far", "role": "structural", "model": "all-MiniLM-L6-v2", "loss": "mse"}
TOPICS = {"name": "topics", "role": "contextual", "teacher": "LSA", "loss": "mse", "student_projection": "8"}


@pytest.mark.parametrize(
    ("notebook", "parameters", "label"),
    [
        ("02_paragraph_vector", {"dm": True, "preprocess": "none"}, "DM;100;None;2"),
        ("02_paragraph_vector", {"dm": False, "min_count": "10%", "vector_size": 768}, "DBOW;768;lowercase;10%"),
        ("03_structural", {"structural_loss": "mse"}, "MSE"),
        ("03_structural", {"structural_loss": "max-margin", "gamma": 1}, "max-margin;MSE;γ=1.0"),
        ("03_structural", {"structural_loss": "max-margin", "distance": "cosine"}, "max-margin;cosine;γ=1.0"),
        ("04_projections", {"structural_loss": None}, "only-contextual;PV;S:768(ReLU)x4096(ReLU)x2048;C:-"),
        ("05_weighting", {"lam": 0.5}, "cosine;384;λ=0.5"),
        ("05_weighting", {"lam": None, "max_structural_len": None}, "cosine;no-weighting"),
        ("05_weighting", {"contextual_teacher": None, "max_structural_len": None}, "only-structural;cosine"),
        ("05_weighting", {"structural_loss": None}, "only-contextual;PV"),
        ("03_structural", {"structural_loss": "contrastive"}, "contrastive"),
        ("03_structural", {"structural_loss": "contrastive", "temperature": 0.05}, "contrastive;τ=0.05"),
        ("03_structural", {"structural_loss": "max-margin", "negatives": 64}, "max-margin;MSE;γ=1.0;+64 negatives"),
        ("05_weighting", {"form": "half_means_sum"}, "cosine;384;λ=0.5;half_means_sum"),
        ("07_simde", {"documents": 9}, "SimDE;9 docs"),
        (
            "07_simde",
            {"documents": 9, "pairs": "dropout", "pair_temperature": 0.1, "mlm_weight": 0, "seed": 2},
            "SimCSE;τ=0.1;mlm=0.0;9 docs;seed 2",
        ),
        (
            "07_simde",
            {"documents": 9, "beside_teachers": 0.5},
            "SimDE;×0.5 beside;cosine;384;λ=0.5;PV;S:768(ReLU)x4096(ReLU)x2048;C:-;9 docs",
        ),
        (
            "05_weighting",
            {"form": "contextual_full", "lam": None, "max_structural_len": None},
            "cosine;no-weighting;contextual_full",
        ),
    ],
)
def test_labels_are_those_of_the_thesis(notebook, parameters, label):
    assert label_of(notebook, Profile.load("thesis").for_notebook(notebook, **parameters).parameters) == label


def test_the_labels_of_the_structural_losses_and_paragraph_vectors_meet_the_published_ones():
    """Otherwise the thesis' value would silently be missing beside ours."""
    profile = Profile.load("thesis")
    structural = published("structural_losses").query("kind == 'student' and source == 'figure 4.3'")
    for row in structural.itertuples():
        given = {"structural_loss": row.structural_loss}
        if row.structural_loss == "max-margin":
            given |= {"distance": row.distance, "gamma": row.gamma}
        parameters = profile.for_notebook("03_structural", **given).parameters
        assert label_of("03_structural", parameters) == row.label
    singles = published("paragraph_vectors").query("kind != 'DM+DBOW'")
    assert len(singles) == 36
    for row in singles.itertuples():
        given = {"dm": bool(row.dm), "vector_size": int(row.vector_size), "min_count": row.min_count}
        parameters = profile.for_notebook("02_paragraph_vector", preprocess=row.preprocess, **given).parameters
        assert label_of("02_paragraph_vector", parameters) == row.label


def test_slugs_are_one_safe_path_component_and_tell_runs_apart():
    profile = Profile.load("thesis")
    variations = [{}, {"lam": 0.8}, {"lam": None}, {"max_structural_len": None}, {"documents": 7}, {"seed": 1},
                  {"student_projection": "2048"}, {"contextual_teacher": "DM", "contextual_projection": "2048"},
                  {"structural_loss": "contrastive"}, {"structural_loss": "contrastive", "temperature": 0.05},
                  {"structural_loss": "contrastive", "negatives": 8}, {"form": "contextual_full"}]  # fmt: skip
    slugs = [slug_of("05_weighting", profile.for_notebook("05_weighting", **given)) for given in variations]
    assert len(set(slugs)) == len(slugs)
    assert all(re.fullmatch(r"[A-Za-z0-9.=+-]+", slug) for slug in slugs)


COSINE, MARGIN = {"structural_loss": "cosine"}, {"structural_loss": "max-margin"}
ALONE, CONTEXTUAL = {"contextual_teacher": None}, {"structural_loss": None}


@pytest.mark.parametrize(
    ("notebook", "further", "one", "other", "same"),
    [
        ("03_structural", [], COSINE, {"gamma": 0.5}, True),
        ("03_structural", [], MARGIN, {"gamma": 0.5}, False),
        ("03_structural", [], MARGIN, {"temperature": 0.1}, True),
        ("04_projections", [], CONTEXTUAL, {"gamma": 0.5, "distance": "cosine"}, True),
        ("05_weighting", [], COSINE, {"distance": "cosine"}, True),
        ("05_weighting", [], ALONE, {"lam": 0.2, "form": "contextual_full", "student_projection": "8"}, True),
        ("05_weighting", [], ALONE, {"max_structural_len": 9}, False),
        ("05_weighting", [], CONTEXTUAL, {"lam": 0.2, "max_structural_len": 9}, True),
        ("05_weighting", [TOPICS], ALONE, {"lam": 0.2}, False),
        ("05_weighting", [TOPICS], ALONE, {"form": "contextual_full"}, False),
        ("05_weighting", [FAR], ALONE, {"lam": 0.2}, True),
        ("05_weighting", [FAR], CONTEXTUAL, {"lam": 0.2}, False),
        ("05_weighting", [FAR], CONTEXTUAL, {"max_structural_len": 9}, False),
        ("06_evaluation", [FAR], CONTEXTUAL, {"max_structural_len": 9}, False),
        ("06_evaluation", [], CONTEXTUAL, {"max_structural_len": 9}, True),
        ("06_evaluation", [], COSINE, {"documents": 9}, False),
        ("06_evaluation", [], COSINE, {"seed": 9}, False),
    ],
)  # fmt: skip
def test_runs_have_one_record_and_one_slug_where_what_counts_is_the_same(
    workspace_root, notebook, further, one, other, same
):
    small = Profile.load("small").model_copy(update={"further_teachers": [FurtherTeacher(**f) for f in further]})
    runs = [small.for_notebook(notebook, **given) for given in (one, one | other)]
    assert (fingerprint_of_run(notebook, runs[0]) == fingerprint_of_run(notebook, runs[1])) == same
    assert (slug_of(notebook, runs[0]) == slug_of(notebook, runs[1])) == same


@pytest.mark.parametrize(
    ("notebook", "further", "parameters", "label"),
    [
        ("05_weighting", [TOPICS], ALONE, "cosine;384;λ=0.5"),
        ("05_weighting", [FAR], ALONE, "only-structural;cosine;384"),
        ("05_weighting", [FAR], CONTEXTUAL, "far;384;λ=0.5"),
        ("05_weighting", [TOPICS], CONTEXTUAL, "only-contextual;PV"),
        ("03_structural", [FAR], CONTEXTUAL | {"contextual_teacher": "PV"}, "far"),
        ("04_projections", [TOPICS], ALONE, "cosine;topics"),
    ],
)
def test_labels_name_further_teachers_where_they_stand_for_a_role(notebook, further, parameters, label):
    p = Profile(name="thesis").with_parameters(**parameters).parameters
    assert label_of(notebook, p, [FurtherTeacher(**teacher) for teacher in further]) == label


def test_settings_that_no_result_depends_on_leave_a_run_what_it_is(workspace_root):
    small = Profile.load("small")

    def with_training(**changes):
        return small.model_copy(update={"training": small.training.model_copy(update=changes)})

    def found(profile):
        return fingerprint_of_run("05_weighting", profile.for_notebook("05_weighting"))

    indecisive = {"save_every": 7, "log_every": 3, "report_to": ["wandb"], "batch_tokens": 9, "checkpointing": True}
    assert found(with_training(**indecisive, compile=False)) == found(small)
    assert found(with_training(precision="fp32")) != found(small)


def test_the_settings_of_simde_count_in_its_own_notebook_alone(workspace_root):
    small = Profile.load("small")
    other = small.model_copy(update={"simde": small.simde.model_copy(update={"symmetric": True})})

    def found(notebook, profile):
        return fingerprint_of_run(notebook, profile.for_notebook(notebook))

    assert found("06_evaluation", other) == found("06_evaluation", small)
    assert found("07_simde", other) != found("07_simde", small)


def test_long_slugs_are_cut_and_stay_different(workspace_root):
    small = Profile.load("small")
    projections = ["x".join(["16(ReLU)"] * 40) + f"x{width}" for width in (8, 16)]
    slugs = [slug_of("05_weighting", small.for_notebook("05_weighting", student_projection=p)) for p in projections]
    assert len(set(slugs)) == 2
    assert {len(slug) for slug in slugs} == {LONGEST_SLUG}
    short = slug_of("05_weighting", small.for_notebook("05_weighting"))
    assert short == "small-cosine-64-lam=0.5-PV-S-16-ReLU-x16-C-16-24docs-seed0"

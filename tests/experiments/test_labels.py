"""Labels read as in the thesis' figures, and slugs are safe and different for different runs."""

from __future__ import annotations

import re

import pytest

from docemb_lib.evaluation.published import published
from docemb_lib.experiments.labels import label_of, slug_of
from docemb_lib.profile import Profile


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

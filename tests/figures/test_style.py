"""One palette, one size of text, and one short name for a model."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from docemb_lib import figures
from docemb_lib.figures import names, short_names
from docemb_lib.runs.kinds import Form, Identity, Kind
from docemb_lib.runs.models import scored_model
from docemb_lib.settings.labels import student_name
from docemb_lib.settings.parameters import Parameters


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (Identity(Kind.SBERT_TRUNCATED), "SBERT-256"),
        (Identity(Kind.SBERT_CHUNKS, Form.CENTRED), "SBERT-chunks, centred"),
        (Identity(Kind.UNTRAINED, Form.ADAPTED), "start ⊕ LSA"),
        (Identity(Kind.PV, name="PV;200d"), "PV, 200d"),
        (Identity(Kind.TFIDF), "TF-IDF"),
        (Identity(Kind.STUDENT, Form.ADAPTED, "the label"), "S+PV masked, adapted"),
    ],
)
def test_models_have_short_names_in_figures_and_tables(identity, expected):
    profile = SimpleNamespace(structural_teacher=SimpleNamespace(max_tokens=256))
    model = scored_model(identity, "f")
    run = SimpleNamespace(models=lambda: [model], profile=profile, name="S+PV masked")
    assert short_names(run) == {model.label: expected}


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({"structural_loss": "cosine", "contextual_teacher": None}, "S (cosine)"),
        ({"structural_loss": "cosine", "contextual_teacher": "PV"}, "S+PV"),
        ({"structural_loss": "mse", "contextual_teacher": "DM"}, "S (mse)+DM"),
        ({"structural_loss": "cosine", "max_structural_len": 256}, "S+PV masked"),
        ({"structural_loss": "cosine", "lam": 0.2}, "S+PV, λ .2"),
        ({"contextual_teacher": None, "lam": 0.2}, "S (cosine)"),
        ({"structural_loss": None}, "C (PV)"),
        ({"structural_loss": None, "contextual_loss": "cosine"}, "C (PV, cosine)"),
    ],
)
def test_a_student_is_named_by_what_it_learns_from(parameters, expected):
    parameters = {"contextual_teacher": "PV", "max_structural_len": None} | parameters
    assert student_name(Parameters(**parameters)) == expected
    assert student_name(Parameters(pairs="dropout"), from_pairs=True) == "SimCSE"


NAMES = {"student a;b": "S+PV", "SBERT truncated": "SBERT-256"}


def test_a_table_has_short_names_rounded_numbers_and_no_nan():
    values = {"value": [0.12345, np.nan], "n": [3, 4]}
    models = ["a;b", "student a;b"]
    rows = pd.DataFrame({"model": models, "reference": "SBERT truncated", **values})
    expected = [["a, b", "SBERT-256", "0.123", 3], ["S+PV", "SBERT-256", "", 4]]
    assert figures.table(rows, NAMES).to_numpy().tolist() == expected
    indexed = figures.table(rows.set_index(["n", "model"])[["value"]], NAMES, digits=1)
    assert indexed.index.tolist() == [(3, "a, b"), (4, "S+PV")]
    assert rows["model"].tolist() == models


def test_a_table_without_rows_is_left_out_together_with_its_section(monkeypatch):
    shown = []
    monkeypatch.setattr(names, "display", lambda section: shown.append(section.data))
    rows = pd.DataFrame({"model": ["a"], "value": [0.5]})
    assert figures.table(rows[:0], section="## Numbers") is None
    assert not shown
    assert len(figures.table(rows, section="## Numbers")) == 1
    assert shown == ["## Numbers"]


def test_many_series_have_different_colours():
    assert len(set(figures.series_colors(range(12)).values())) == 12


@pytest.fixture
def drawn():
    """A figure of scores and two of documents, whose names hold dollars."""
    columns = {"kind": "student", "task": "$t$", "metric": "map", "low": 0.1, "high": 0.9}
    models = ["$x$", r"$\nonsense{$", "a_$b$"]
    scores = pd.DataFrame({"model": models, "value": 0.5, **columns})
    coordinates = {"first": range(9), "second": range(9), "length": range(2, 11)}
    points = pd.DataFrame({**coordinates, "$s$": [f"$s{n}$" for n in range(9)]})
    drawn = [figures.plot_rows(scores, panel="task")]
    for by in ("$s$", "length"):
        drawn.append(figures.plot_plane(points, colour=by, ax=plt.subplots()[1]).figure)
    for figure in drawn:
        figure.canvas.draw()
    return drawn


def test_texts_have_one_size_and_a_dollar_in_a_name_is_no_formula(drawn):
    texts = [text for figure in drawn for text in figure.findobj(Text) if text.get_text()]
    assert {text.get_fontsize() for text in texts} == {9}
    assert not [text for text in texts if text.get_parse_math() or "mathd" in text.get_text()]
    assert {"$x$", r"$\nonsense{$", "a_$b$", "$t$"} <= {text.get_text() for text in texts}


def test_figures_have_one_width(drawn):
    assert {figure.get_figwidth() for figure in drawn} == {figures.WIDTH}


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_text_has_enough_contrast_with_light_and_dark_pages(page):
    def luminance(colour):  # of WCAG 2
        c = np.array(to_rgb(colour))
        linear = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722]

    low, high = sorted((luminance(figures.GREY), luminance(page)))
    assert (high + 0.05) / (low + 0.05) > 4.2

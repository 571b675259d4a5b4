"""One palette, figures sized by their rows, and every plot function by its public name."""

import re

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from docemb_lib import figures
from docemb_lib.figures import (
    PALETTE,
    colour_of,
    each_task,
    looks_of,
    short_names,
)
from docemb_lib.runs.kinds import Form, Identity, Kind
from docemb_lib.runs.models import scored_model


def test_what_notebooks_call_is_there_and_others_are_refused(request):
    with pytest.raises(AttributeError, match="no attribute 'plot_nothing'"):
        figures.plot_nothing  # noqa: B018
    notebooks = request.config.rootpath / "notebooks"
    called = {
        name
        for path in notebooks.glob("*.py")
        for name in re.findall(r"\bfigures\.(plot_\w+)", path.read_text())
    }
    assert called
    assert not [name for name in called if not callable(getattr(figures, name))]


COLOURS = {
    Kind.STUDENT: "student",
    Kind.UNTRAINED: "untrained",
    Kind.SBERT_TRUNCATED: "structural",
    Kind.SBERT_CHUNKS: "structural",
    Kind.PUBLISHED: "structural",
    Kind.FUSION: "structural",
    Kind.DM: "contextual",
    Kind.PV: "contextual",
    Kind.CORPUS_LSA: "contextual",
    Kind.PARAGRAPH_VECTOR: "contextual",
    Kind.TFIDF: "floor",
    Kind.TASK_LSA: "floor",
    Kind.BM25: "floor",
}


@pytest.mark.parametrize("kind", COLOURS)
def test_every_kind_of_model_has_its_colour(kind):
    assert colour_of(kind.value) == PALETTE[COLOURS[kind]]


OWN = "student cosine;PV;S:384(ReLU)x512;C:-;700 docs"


@pytest.mark.parametrize(
    ("kind", "form", "name", "student", "expected"),
    [
        (Kind.SBERT_WITH_PV, Form.SAVED, "", OWN, "chunks ⊕ PV"),
        (Kind.SBERT_CHUNKS, Form.CENTRED, "", OWN, "chunks, centred"),
        (Kind.UNTRAINED, Form.ADAPTED, "", OWN, "before distillation ⊕ LSA"),
        (Kind.STUDENT, Form.SAVED, OWN, OWN, "this student"),
        (Kind.STUDENT, Form.DENSE, "a;b", "a;b", "this student: a, b, dense half"),
        (Kind.STUDENT, Form.SAVED, "cosine", "cosine", "this student: cosine"),
    ],
)
def test_models_have_short_names_in_figures_and_tables(kind, form, name, student, expected):
    model = scored_model(Identity(kind, form, name), "f")
    assert short_names([model], student) == {model.label: expected}


def test_students_of_other_runs_keep_their_labels():
    other = scored_model(Identity(Kind.STUDENT, name="a;b"), "f")
    assert short_names([other], "a") == {}


NAMES = {OWN: "this student", "SBERT truncated": "truncated"}


def test_a_table_has_short_names_rounded_numbers_and_no_nan():
    values = {"value": [0.12345, np.nan], "n": [3, 4]}
    rows = pd.DataFrame({"model": ["a;b", OWN], "reference": "SBERT truncated", **values})
    expected = [["a, b", "truncated", "0.123", 3], ["this student", "truncated", "", 4]]
    assert figures.table(rows, NAMES).to_numpy().tolist() == expected
    indexed = figures.table(rows.set_index(["n", "model"])[["value"]], NAMES, digits=1)
    assert indexed.index.tolist() == [(3, "a, b"), (4, "this student")]
    assert indexed["value"].tolist() == ["0.1", ""]
    assert rows["model"].tolist() == ["a;b", OWN]


def test_a_table_without_rows_is_left_out_together_with_its_section(monkeypatch):
    shown = []
    monkeypatch.setattr(figures, "display", lambda section: shown.append(section.data))
    rows = pd.DataFrame({"model": ["a"], "value": [0.5]})
    assert figures.table(rows[:0], section="## Numbers") is None
    assert not shown
    assert len(figures.table(rows, section="## Numbers")) == 1
    assert shown == ["## Numbers"]


def test_models_of_one_kind_share_a_colour_and_differ_in_style():
    kinds = {
        "SimDE;400 docs": Kind.STUDENT,
        "student before distillation": Kind.UNTRAINED,
        "SBERT truncated": Kind.SBERT_TRUNCATED,
        "SBERT over chunks": Kind.SBERT_CHUNKS,
        "SimCSE": Kind.STUDENT,
    }
    looks = looks_of(pd.DataFrame({"model": list(kinds), "kind": list(kinds.values())}))
    colours = [PALETTE[COLOURS[kind]] for kind in kinds.values()]
    assert [colour for colour, _ in looks.values()] == colours
    assert [style for _, style in looks.values()] == ["-", "-", "-", "--", "--"]
    assert (
        len(set(figures.series_colors(range(12), more="viridis").values())) == 12
    )  # more than there are in SERIES


def test_a_dollar_in_a_name_is_no_formula_and_no_tick_is_one():
    names = ["$x$", r"$\nonsense{$", "a_$b$"]
    scores = pd.DataFrame(
        {
            "model": names,
            "kind": "student",
            "task": "$t$",
            "metric": "accuracy",
            "value": 0.5,
            "low": 0.1,
            "high": 0.9,
        }
    )
    points = pd.DataFrame(
        {
            "first": range(9),
            "second": range(9),
            "length": range(2, 11),
            "$s$": [f"$s{n}$" for n in range(9)],
        }
    )
    drawn = [figures.plot_task(scores, task="$t$", ax=plt.subplots()[1])]
    drawn += [
        figures.plot_plane(points, colour=by, ax=plt.subplots()[1]) for by in ("$s$", "length")
    ]
    for ax in drawn:
        ax.figure.canvas.draw()
        texts = [text for text in ax.figure.findobj(Text) if text.get_text()]
        assert not [
            text for text in texts if text.get_parse_math() or "mathdefault" in text.get_text()
        ]
    assert {*names, "$t$"} <= {text.get_text() for text in drawn[0].figure.findobj(Text)}


def test_each_task_has_a_row_of_its_own_in_the_order_of_the_scores():
    scores = pd.DataFrame({"task": ["halves", "package", "halves"], "value": [0.5, 0.7, 0.1]})
    drawn = []

    def plot(frame: pd.DataFrame, *, task: str, ax: Axes, level: int) -> Axes:
        drawn.append((len(frame), task, ax, level))
        return ax

    figure = each_task(plot, scores, height=2, level=3)
    assert drawn == [
        (3, task, ax, 3) for task, ax in zip(("halves", "package"), figure.axes, strict=True)
    ]
    assert list(figure.get_size_inches()) == [7.2, 4]


@pytest.mark.parametrize("page", ["#ffffff", "#111111"])
def test_text_has_enough_contrast_with_light_and_dark_pages(page):
    def luminance(colour):  # of WCAG 2
        c = np.array(to_rgb(colour))
        return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4) @ [
            0.2126,
            0.7152,
            0.0722,
        ]

    low, high = sorted((luminance(figures.GREY), luminance(page)))
    assert (high + 0.05) / (low + 0.05) > 4.2

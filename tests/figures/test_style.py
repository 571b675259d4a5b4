"""One palette for all figures, figures sized by their rows, and every plot function by its public name."""

import re

import pandas as pd
import pytest
from matplotlib.axes import Axes

from docemb_lib import figures
from docemb_lib.figures import PALETTE, each_task, kind_of, looks_of, rows_axes, short


def test_every_public_name_and_what_notebooks_call_is_there_and_others_are_refused(request):
    assert all(getattr(figures, name) for name in figures._MODULE_OF)
    with pytest.raises(AttributeError, match="no attribute 'plot_nothing'"):
        figures.plot_nothing  # noqa: B018
    notebooks = request.config.rootpath / "notebooks"
    called = {name for path in notebooks.glob("*.py") for name in re.findall(r"\bplot_\w+(?=\()", path.read_text())}
    assert called
    assert not [name for name in called if not callable(getattr(figures, name))]


@pytest.mark.parametrize(("model", "kind"),
    [("SBERT truncated", "structural"), ("DM;100d", "contextual"), ("PV;200d", "contextual"), ("TF-IDF", "floor"),
    ("student before distillation", "untrained"), ("cosine;256;λ=0.5", "student"), ("cosine;PV;S:384;C:-", "student")])  # fmt: skip
def test_every_kind_of_model_has_its_colour(model, kind):
    assert kind_of(model) == kind


def test_models_of_one_kind_share_a_colour_and_differ_in_style():
    kinds = {"SimDE;400 docs": "student", "student before distillation": "untrained", "SBERT truncated": "structural",
             "SBERT over chunks": "structural", "SimCSE": "student"}  # fmt: skip
    looks = looks_of(kinds)
    assert [colour for colour, _ in looks.values()] == [PALETTE[kind] for kind in kinds.values()]
    assert [style for _, style in looks.values()] == ["-", "-", "-", "--", "--"]
    assert (short("$x$"), short("x" * 30, 5), short("")) == (r"\$x\$", "xxxx…", "")  # dollars are escaped


def test_rows_make_a_figure_high_and_columns_share_their_rows():
    few, (left, right) = rows_axes(2)[0], rows_axes(45, columns=2)
    assert few.figure.get_figheight() < 2 < 14 < left.figure.get_figheight()
    assert left.get_shared_y_axes().joined(left, right)


def test_each_task_has_a_row_of_its_own_in_the_order_of_the_scores():
    scores = pd.DataFrame({"task": ["halves", "package", "halves"], "value": [0.5, 0.7, 0.1]})
    drawn = []

    def plot(frame: pd.DataFrame, *, task: str, ax: Axes, level: int) -> Axes:
        drawn.append((len(frame), task, ax, level))
        return ax

    figure = each_task(plot, scores, height=2, level=3)
    assert drawn == [(3, task, ax, 3) for task, ax in zip(("halves", "package"), figure.axes, strict=True)]
    assert list(figure.get_size_inches()) == [7.2, 4]

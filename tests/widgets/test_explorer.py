"""Controls change the answer; without a person, the first answer stands alone."""

from types import SimpleNamespace

import ipywidgets
import pytest
from IPython.display import HTML
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.widgets import explore
from docemb_lib.widgets import explorer as module


def answer(number, letter):
    if number == 5:
        raise InputError("no runs yet")
    return Figure(figsize=(2, 1)), HTML(f"<b>{number}/{letter}</b>")


def an_explorer():
    menu = ipywidgets.Dropdown(options=[("a", "A"), ("b", "B")], description="one")
    return explore(answer, number=ipywidgets.IntSlider(4), letter=menu)


def test_moving_a_control_changes_text_and_picture(opened):
    move = opened(an_explorer)
    assert [*move.controls] == ["number", "one"]
    assert (move().html, move().pictures) == ("<b>4/A</b>", 1)
    assert move(number=7, one="B").html == "<b>7/B</b>"


def test_an_error_becomes_a_line_and_the_controls_go_on(opened):
    move = opened(an_explorer)
    failed = move(number=5)
    assert (failed.html, failed.pictures) == ("", 0)
    assert failed.printed.endswith("no runs yet\n")
    assert move(number=6).html == "<b>6/A</b>"


def test_without_a_person_the_first_answer_says_where_controls_appear(static):
    shown = static(an_explorer)
    assert shown.html == f"<b>4/A</b>{module.STATIC}"
    assert shown.pictures == 1


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({"cellId": "abc"}, "abc"), ({}, None)],
    ids=["JupyterLab", "papermill"],
)
def test_a_person_and_papermill_differ_in_the_request(monkeypatch, metadata, expected):
    shell = SimpleNamespace(get_parent=lambda: {"metadata": metadata})
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    assert module.live_cell() == expected

"""Controls change the answer; without a person, the answer is shown alone; all text is escaped."""

from types import SimpleNamespace

import ipywidgets
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider, text_field


@pytest.fixture(autouse=True)
def shell():
    InteractiveShell.instance()
    yield
    InteractiveShell.clear_instance()


def figure():
    drawn = Figure(figsize=(2, 1))
    drawn.subplots().plot([0, 1])
    return drawn


def an_explorer(
    answer=lambda number, letter: Answer(f"<b>{number}/{letter}</b>", figure(), "a <line>"),
):
    return Explorer(
        {"number": slider(0, 9, 1, 4), "one": choice({"a": "A", "b": "B"}, "A")}, answer
    )


def test_every_control_has_its_description_and_first_value():
    controls = {
        "λ": slider(0.0, 1.0, 0.05, 0.5),
        "tokens": slider(3, 90, 1, (3, 90)),
        "find": text_field("a word"),
    }
    controls["mask"] = choice({"64": 64, "no": None}, None)
    explorer = Explorer(controls, lambda *values: Answer(str(values)))
    explorer.live()
    assert [(widget.description, widget.value) for widget in explorer.widgets.values()] == [
        ("λ", 0.5),
        ("tokens", (3, 90)),
        ("find", ""),
        ("mask", None),
    ]


def test_moving_a_control_changes_text_and_picture(moved):
    explorer = an_explorer()
    assert moved(explorer) == "<b>4/A</b>"
    assert 'alt="a &lt;line&gt;"' in explorer._picture.value
    assert moved(explorer, number=7, one="B") == "<b>7/B</b>"
    assert explorer.settings == {"number": 7, "one": "B"}
    assert explorer.answer(number=2).html == "<b>2/B</b>"


@pytest.mark.parametrize("error", [InputError("no runs yet; run <this>")])
def test_an_error_becomes_a_line_and_the_controls_go_on(moved, error):
    def answer(number, letter):
        if number == 5:
            raise error
        return Answer("fine", figure())

    explorer = an_explorer(answer)
    text = moved(explorer, number=5)
    assert text.startswith('<p class="docemb-message">')
    assert "<this>" not in text
    assert explorer._picture.value == ""
    assert moved(explorer, number=6) == "fine"


def test_without_a_person_there_is_a_figure_and_no_widget():
    with capture_output() as captured:
        an_explorer()._ipython_display_()
    image, text = captured.outputs
    assert "image/png" in image.data
    assert text.data["text/html"] == f'{html.STYLE}<div class="docemb-answer"><b>4/A</b></div>'
    assert not any("widget" in kind for output in captured.outputs for kind in output.data)
    assert not ipywidgets.Widget.get_manager_state()["state"]


def test_loading_is_shown_until_the_answer_is_there(moved):
    seen = []
    explorer = an_explorer(
        lambda number, letter: seen.append(explorer._status.value) or Answer("text")
    )
    moved(explorer, number=5)
    assert seen
    assert all("loading …" in text for text in seen)
    assert explorer._status.value == ""


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [({"cellId": "abc"}, "abc"), ({}, None)],
    ids=["JupyterLab", "papermill"],
)
def test_a_person_and_papermill_differ_in_the_request(monkeypatch, metadata, expected):
    monkeypatch.setattr(
        "IPython.get_ipython", lambda: SimpleNamespace(get_parent=lambda: {"metadata": metadata})
    )
    assert html.live_cell() == expected


HOSTILE = ["<script>alert(1)</script>", '<img src=x onerror="alert(1)">', '"><b onload=x>']


def parsed(text):
    return BeautifulSoup(text, "html.parser", multi_valued_attributes=None)


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize(
    "piece",
    [
        lambda t: html.document(t, t),
        html.message,
        lambda t: html.number("auc", t),
        lambda t: html.number(t, 1),
        lambda t: html.table("runs", pd.DataFrame({t: [1]})),
        lambda t: html.table("runs", pd.DataFrame({"a": [t]})),
        lambda t: html.picture(figure(), t),
    ],
    ids=["document", "message", "number", "name", "column", "table", "picture"],
)
def test_what_looks_like_html_shows_as_text(piece, text):
    page = parsed(piece(text))
    tags = [tag.name for tag in page.find_all()]
    assert not {"script", "iframe"} & set(tags)
    assert tags == [tag.name for tag in parsed(piece("harmless")).find_all()]
    attributes = [pair for tag in page.find_all() for pair in tag.attrs.items()]
    assert not [name for name, _ in attributes if name.startswith("on")]
    assert text in page.get_text() or any(text in value for _, value in attributes)


def test_a_table_cuts_no_text_and_formats_numbers(tables):
    rows = pd.DataFrame({"text": ["x" * 300, ""], "score": [0.12345, float("nan")], "n": [3, 40]})
    table = tables(html.table("runs", rows, {"n": "{} s".format}))["runs"]
    assert table.to_numpy().tolist() == [["x" * 300, "0.123", "3 s"], ["", "", "40 s"]]


def test_a_long_document_is_cut_and_says_so():
    shown_text = parsed(html.document("t", "x" * (html.LONGEST + 7))).get_text()
    assert shown_text.count("x") == html.LONGEST
    assert "7 more characters" in shown_text

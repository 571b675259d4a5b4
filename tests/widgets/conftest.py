"""Explorers as a person moves them, and what they then show."""

from types import SimpleNamespace

import ipywidgets
import pytest
from bs4 import BeautifulSoup
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output

from docemb_lib.widgets import explorer


@pytest.fixture(autouse=True)
def shell():
    InteractiveShell.instance()
    yield
    InteractiveShell.clear_instance()
    ipywidgets.Widget.close_all()


def shown(captured):
    """What the last answer has displayed: HTML, printed text, and the number of pictures."""
    data = [output.data for output in captured.outputs]
    html = "".join(each.get("text/html", "") for each in data)
    pictures = sum("image/png" in each for each in data)
    return SimpleNamespace(
        html=html,
        printed=captured.stdout,
        pictures=pictures,
        page=BeautifulSoup(html, "html.parser"),
    )


@pytest.fixture
def opened(monkeypatch):
    """Open an explorer as in JupyterLab; returns what moves its controls and shows the answer."""
    monkeypatch.setattr(explorer, "live_cell", lambda: "cell")

    def open_it(function, *arguments, **options):
        with capture_output() as captured:
            box = function(*arguments, **options)
        controls = {control.description: control for control in box.children[:-1]}

        def move(**values):
            answer = shown(captured)
            for name, value in values.items():
                if controls[name].value != value:
                    with capture_output() as moved:
                        controls[name].value = value
                    answer = shown(moved)
            return answer

        move.controls = controls
        return move

    return open_it


@pytest.fixture
def static():
    """The answer that stands in an executed notebook."""

    def show(function, *arguments, **options):
        with capture_output() as captured:
            assert function(*arguments, **options) is None
        return shown(captured)

    return show

"""Explorers as a person moves them, and what they then show."""

import re

import ipywidgets
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from datasets import Dataset


@pytest.fixture(autouse=True)
def close_widgets():
    yield
    ipywidgets.Widget.close_all()


@pytest.fixture
def numbers():
    return lambda html, name: re.findall(rf'class="docemb-{name}"[^>]*>([^<]*)<', html)


@pytest.fixture
def tables():
    """The tables of an answer, by name, as frames of texts."""

    def read(html):
        frames = {}
        for table in BeautifulSoup(html, "html.parser").find_all("table"):
            heads, *rows = (
                [cell.get_text() for cell in row.find_all(["th", "td"])]
                for row in table.find_all("tr")
            )
            frames[table["class"][-1].removeprefix("docemb-")] = pd.DataFrame(rows, columns=heads)
        return frames

    return read


@pytest.fixture
def moved():
    def move(explorer, **settings):
        if not explorer.widgets:
            explorer.live()
        for name, value in settings.items():
            explorer.widgets[name].value = value
        return explorer._text.value

    return move


@pytest.fixture
def hostile():
    return '<script>alert(1)</script><img src=x onerror="alert(1)">'


@pytest.fixture
def split_of():
    return lambda texts: Dataset.from_dict(
        {
            "id": [f"d{row}" for row in range(len(texts))],
            "text": texts,
            "source": ["s"] * len(texts),
            "n_structural_tokens": range(len(texts)),
        }
    )

"""Explorers as a person moves them, and what they then show."""

import re

import ipywidgets
import pytest
from datasets import Dataset

from docemb_lib.workspace import Workspace


@pytest.fixture(autouse=True)
def close_widgets():
    yield
    ipywidgets.Widget.close_all()


@pytest.fixture
def workspace(workspace_root):
    return Workspace(workspace_root)


@pytest.fixture
def numbers():
    return lambda html, name: re.findall(rf'class="docemb-{name}"[^>]*>([^<]*)<', html)


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
    return lambda texts: Dataset.from_dict({
        "id": [f"d{row}" for row in range(len(texts))], "text": texts, "source": ["s"] * len(texts),
        "n_structural_tokens": range(len(texts))})  # fmt: skip

"""Axes to draw on, and what tests read back from them."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.colors import to_hex

from docemb_lib.figures import use_style


@pytest.fixture
def ax():
    return plt.subplots()[1]


@pytest.fixture(autouse=True)
def styled_figures():
    use_style()
    yield
    plt.close("all")


@pytest.fixture
def names_of():
    return lambda labels: [
        text.get_text() for text in getattr(labels, "get_texts", lambda: labels)()
    ]


@pytest.fixture
def colour_of():
    return lambda patch: to_hex(patch.get_facecolor()).upper()

"""Axes to draw on, and what tests read back from them."""

import matplotlib.pyplot as plt
import pytest
from matplotlib.container import ErrorbarContainer

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
def intervals_of():
    """The points of all error bars of axes, and the ends of their bars."""

    def read(ax):
        bars = [each for each in ax.containers if isinstance(each, ErrorbarContainer)]
        segments = [bar[2][0].get_segments() for bar in bars]
        return [bar[0] for bar in bars], [end for ends in segments for end in ends]

    return read

"""Whether a diagram can be read: nothing lies on anything else, and every label fits its box."""

from __future__ import annotations

from itertools import combinations, pairwise

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

SLACK = 1.0  # pixels


@pytest.fixture(autouse=True)
def close_figures():
    yield
    plt.close("all")


def along(arrow):
    """Points in pixels on all segments of an arrow's line."""
    corners = arrow.axes.transData.transform(arrow._path_original.vertices)
    return np.concatenate([np.linspace(a, b, 200) for a, b in pairwise(corners)])


def check_legible(ax):
    renderer = ax.figure.canvas.get_renderer()
    ax.figure.canvas.draw()
    texts = [(text.get_text(), text.get_window_extent(renderer)) for text in ax.texts if text.get_text()]
    boxes = [p for p in ax.patches if isinstance(p, FancyBboxPatch)]
    arrows = [p for p in ax.patches if isinstance(p, FancyArrowPatch)]
    frames = [(box.get_label(), box.get_window_extent(renderer)) for box in boxes]
    assert boxes
    assert arrows
    whole = ax.figure.bbox
    for text, place in texts:
        assert place.x0 >= whole.x0, f"{text!r} leaves the figure"
        assert place.x1 <= whole.x1, f"{text!r} leaves the figure"
        assert place.y0 >= whole.y0, f"{text!r} leaves the figure"
        assert place.y1 <= whole.y1, f"{text!r} leaves the figure"
        around = [frame for label, frame in frames if label == text and frame.overlaps(place)]
        for frame in around:
            inside = (frame.x0 + SLACK, frame.y0 + SLACK, frame.x1 - SLACK, frame.y1 - SLACK)
            assert place.x0 >= inside[0], f"{text!r} is wider than its box"
            assert place.x1 <= inside[2], f"{text!r} is wider than its box"
            assert place.y0 >= inside[1], f"{text!r} is higher than its box"
            assert place.y1 <= inside[3], f"{text!r} is higher than its box"
        if not around:
            assert not [label for label, frame in frames if frame.overlaps(place)], f"{text!r} lies on a box"
    for (one, a), (other, b) in combinations(texts, 2):
        assert not a.overlaps(b), f"{one!r} lies on {other!r}"
    for (one, a), (other, b) in combinations(frames, 2):
        assert not a.overlaps(b), f"box {one!r} lies on box {other!r}"
    for arrow in arrows:
        for name, place in [*texts, *frames]:
            x, y = along(arrow).T
            hit = (x > place.x0 + SLACK) & (x < place.x1 - SLACK) & (y > place.y0 + SLACK) & (y < place.y1 - SLACK)
            assert not hit.any(), f"an arrow crosses {name!r}"


@pytest.fixture
def assert_legible():
    return check_legible

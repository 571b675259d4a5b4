"""What explorers draw, read back from the artists."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import gaussian_kde

from docemb_lib.figures.student import HALF, density, plot_distances, plot_plane
from docemb_lib.figures.sweeps import plot_weighting_points


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_a_density_is_scipys_between_its_ends():
    values = np.random.default_rng(0).lognormal(sigma=0.4, size=800)
    at, height = density(values)
    expected = gaussian_kde(values)(at)
    np.testing.assert_allclose(height, expected / expected.max(), atol=0.02)
    assert values.min() < at[0] < at[-1] < values.max()


def test_positives_stand_above_their_row_and_negatives_below(ax):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"model": "a", "kind": ["positive", "negative"] * 50, "value": rng.random(100), "auc": 0.5})
    plot_distances(frame, distance="cosine", ax=ax)
    assert ax.yaxis_inverted()
    above, below = (polygon.get_paths()[0].get_extents() for polygon in ax.collections)
    assert (above.y0, above.y1) == pytest.approx((-HALF, 0))
    assert (below.y0, below.y1) == pytest.approx((0, HALF))
    medians = [line.get_xdata()[0] for line in ax.lines if np.ptp(line.get_ydata()) > 0]
    assert medians == pytest.approx(frame.groupby("kind", sort=False)["value"].median().tolist())


def test_a_collapsed_student_is_a_spike(ax):
    frame = pd.DataFrame({"model": "a", "kind": ["positive", "negative"] * 5, "value": 0.25, "auc": 0.5})
    plot_distances(frame, distance="mse", ax=ax)
    for polygon in ax.collections:
        np.testing.assert_allclose(polygon.get_paths()[0].vertices[:, 0], 0.25)


def test_points_are_coloured_by_value_or_by_length(ax):
    points = pd.DataFrame(
        {"first": [0.0, 1, 2], "second": [5.0, 4, 3], "source": ["b", "a", "b"], "length": [9, 99, 0]}
    )
    plot_plane(points, colour="source", explained=0.25, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]
    assert [c.get_offsets().tolist() for c in ax.collections] == [[[1, 4]], [[0, 5], [2, 3]]]
    assert "25% of the variance" in ax.get_xlabel()
    ax.clear()
    plot_plane(points, colour="length", explained=np.nan, ax=ax)
    assert ax.collections[0].get_array().tolist() == [9, 99, 1]  # no logarithm of nothing
    assert "no variance" in ax.get_xlabel()


def test_a_label_that_looks_like_a_formula_is_drawn_as_it_is(ax):
    points = pd.DataFrame({"first": [0.0, 1], "second": [5.0, 4], "label": [r"$\nonsense{$", "$x$"], "length": [9, 99]})
    plot_plane(points, colour="label", explained=0.25, ax=ax)
    ax.figure.canvas.draw()
    assert [text._preprocess_math(text.get_text()) for text in ax.get_legend().get_texts()] == [
        (r"$\nonsense{$", False), ("$x$", False),
    ]  # fmt: skip


def test_only_runs_with_the_mask_are_joined_and_the_plain_sum_is_dotted(ax):
    points = pd.DataFrame(
        [(0.2, 64, 0.3), (0.8, 64, 0.5), (0.5, np.nan, 0.9), (np.nan, np.nan, 0.4)],
        columns=["lam", "max_structural_len", "value"],
    ).assign(task="sort", metric="accuracy", low=0.1, high=0.95)
    found = points.iloc[:1].assign(value=0.4)
    plot_weighting_points(points, lam=0.5, mask=64, found=found, ax=ax)
    joined, dotted, here, _ = ax.lines
    assert joined.get_xydata().tolist() == [[0.2, 0.3], [0.8, 0.5]]
    assert (dotted.get_linestyle(), dotted.get_ydata()[0]) == (":", 0.4)
    assert here.get_xydata().tolist() == [[0.5, 0.4]]
    ax.clear()
    plot_weighting_points(points, lam=0.5, mask=None, found=found, ax=ax)
    assert ax.lines[0].get_xydata().tolist() == [[0.5, 0.9]]

"""Figures of embeddings: values are read back from the artists."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import roc_auc_score

from docemb_lib.evaluation.probes import measure_distances, tidy_distances
from docemb_lib.figures import plot_distances, plot_plane
from docemb_lib.losses import MaxMargin


@pytest.fixture
def distances():
    rng = np.random.default_rng(0)
    columns = {"kind": ["positive", "negative"] * 70, "value": rng.lognormal(size=140)}
    return pd.DataFrame({"model": ["a"] * 100 + ["b"] * 40, **columns})


def test_distances_have_a_row_per_model_with_positives_above_and_its_auc(ax, names_of, distances):
    plot_distances(distances, distance="cosine", ax=ax)
    assert names_of(ax.get_yticklabels()) == ["a", "b"]
    assert ax.yaxis_inverted()
    for (_, rows), text in zip(distances.groupby("model"), ax.texts, strict=True):
        auc = roc_auc_score(rows["kind"] == "negative", rows["value"])
        assert float(text.get_text().split()[1]) == pytest.approx(auc, abs=6e-4)
    above, below, *_ = (violin.get_paths()[0].get_extents() for violin in ax.collections)
    assert (above.y0, above.y1, below.y0, below.y1) == pytest.approx((-0.4, 0, 0, 0.4))
    positives, negatives = names_of(ax.get_legend())
    assert "own" in positives
    assert "other" in negatives


@pytest.mark.parametrize(("distance", "gamma"), [("cosine", 0.3), ("mse", 1.5)])
def test_the_margin_is_minus_the_max_margin_loss(ax, names_of, distance, gamma):
    student, teacher = np.random.default_rng(0).standard_normal((2, 30, 4))
    measured = measure_distances(student, teacher, distance=distance, negatives=29)
    rows = tidy_distances(measured).assign(model="a")
    plot_distances(rows, distance=distance, gamma=gamma, ax=ax)
    (bar,) = [line for line in ax.lines if line.get_linewidth() == 4]
    start, end = bar.get_xdata()
    loss = MaxMargin(distance, gamma)(torch.from_numpy(student), torch.from_numpy(teacher))
    assert start - end == pytest.approx(loss.mean().item(), abs=1e-4)
    assert names_of(ax.get_legend())[2].startswith("margin")


def test_points_are_coloured_by_value_or_by_length(ax, names_of):
    columns = {"first": [0.0, 1, 2], "second": [5.0, 4, 3]}
    points = pd.DataFrame({**columns, "source": ["b", "a", "b"], "length": [9, 99, 1]})
    plot_plane(points, colour="source", ax=ax)
    assert names_of(ax.get_legend()) == ["a", "b"]
    (cloud,) = ax.collections
    assert cloud.get_offsets().tolist() == points[["first", "second"]].to_numpy().tolist()
    first, second, third = map(tuple, cloud.get_facecolors())
    assert first == third != second
    ax.clear()
    plot_plane(points, colour="length", ax=ax)
    assert len(set(map(tuple, ax.collections[0].get_facecolors()))) == 3


def test_the_outermost_per_cent_of_points_stands_on_the_edge_of_the_others(ax):
    first = [*np.linspace(0, 1, 400), 1e6]
    points = pd.DataFrame({"first": first, "second": [*first[:-1], -1e6], "source": "a"})
    plot_plane(points, colour="source", ax=ax)
    offsets = np.asarray(ax.collections[0].get_offsets())
    assert len(offsets) == 401
    np.testing.assert_allclose(offsets[-1], [1, 0], atol=0.01)
    np.testing.assert_array_equal(offsets[100:300], points[["first", "second"]][100:300])

"""Figures of embeddings draw what the frame contains: values are read back from the artists."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy.stats import gaussian_kde

from docemb_lib.figures import PALETTE
from docemb_lib.figures.embeddings import HALF, density, plot_attention, plot_distances, plot_plane, plot_probe


@pytest.fixture
def distances():
    rng = np.random.default_rng(0)
    return pd.DataFrame({"model": ["a"] * 100 + ["b"] * 40, "kind": ["positive", "negative"] * 70,
                         "value": rng.lognormal(size=140), "auc": [0.75] * 100 + [0.5] * 40})  # fmt: skip


def test_a_density_is_scipys_between_its_ends():
    values = np.random.default_rng(0).lognormal(sigma=0.4, size=800)
    x, height = density(values)
    expected = gaussian_kde(values)(x)
    np.testing.assert_allclose(height, expected / expected.max(), atol=0.02)
    assert values.min() < x[0] < x[-1] < values.max()


def test_distances_have_a_row_per_model_and_its_auc(ax, names_of, distances):
    plot_distances(distances, distance="cosine", ax=ax)
    assert names_of(ax.get_yticklabels()) == ["a", "b"]
    assert ax.yaxis_inverted()
    assert {"AUC 0.750", "AUC 0.500"} <= set(names_of(ax.texts))
    assert (ax.get_xlabel(), ax.get_xscale()) == ("cosine distance", "linear")
    own, others = names_of(ax.get_legend())
    assert "own" in own
    assert "other" in others


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_positives_stand_above_their_row_and_negatives_below_with_medians(ax, distances, distance):
    own = distances[distances["model"] == "a"]
    plot_distances(own, distance=distance, ax=ax)
    above, below = (polygon.get_paths()[0].get_extents() for polygon in ax.collections)
    assert (above.y0, above.y1) == pytest.approx((-HALF, 0))
    assert (below.y0, below.y1) == pytest.approx((0, HALF))
    scale, inverse = (np.log10, lambda x: float(10**x)) if distance == "mse" else (np.array, float)
    medians = [inverse(np.median(scale(rows["value"]))) for _, rows in own.groupby("kind", sort=False)]
    assert [line.get_xdata()[0] for line in ax.lines if np.ptp(line.get_ydata()) > 0] == pytest.approx(medians)


def test_squared_distances_have_a_logarithmic_axis_that_bears_zero(ax, distances):
    distances.loc[3, "value"] = 0.0  # a perfect match
    plot_distances(distances, distance="mse", ax=ax)
    assert (ax.get_xlabel(), ax.get_xscale()) == ("squared L2 distance per dimension", "log")
    assert all(np.isfinite(polygon.get_paths()[0].vertices).all() for polygon in ax.collections)


def test_a_collapsed_student_is_a_spike(ax, distances):
    plot_distances(distances.assign(value=0.25), distance="mse", ax=ax)
    for polygon in ax.collections:
        np.testing.assert_allclose(polygon.get_paths()[0].vertices[:, 0], 0.25)


def test_points_are_coloured_by_value_or_by_length(ax, names_of):
    points = pd.DataFrame(
        {"first": [0.0, 1, 2], "second": [5.0, 4, 3], "source": ["b", "a", "b"], "length": [9, 99, 0]}
    )
    plot_plane(points, colour="source", explained=0.25, ax=ax)
    assert names_of(ax.get_legend()) == ["a", "b"]
    assert [c.get_offsets().tolist() for c in ax.collections] == [[[1, 4]], [[0, 5], [2, 3]]]
    assert "25% of the variance" in ax.get_xlabel()
    ax.clear()
    plot_plane(points, colour="length", explained=np.nan, ax=ax)
    assert ax.collections[0].get_array().tolist() == [9, 99, 1]  # 0 has no logarithm
    assert "no variance" in ax.get_xlabel()


def test_a_label_that_looks_like_a_formula_is_drawn_as_it_is(ax):
    points = pd.DataFrame({"first": [0.0, 1], "second": [5.0, 4], "label": [r"$\nonsense{$", "$x$"]})
    plot_plane(points, colour="label", explained=0.25, ax=ax)
    ax.figure.canvas.draw()
    shown = [text._preprocess_math(text.get_text()) for text in ax.get_legend().get_texts()]
    assert shown == [(r"$\nonsense{$", False), ("$x$", False)]


def test_a_probe_has_a_bar_with_its_number_per_model_and_bucket(ax, names_of, colour_of):
    rows = [("student before distillation", "all", 12, 0.1), ("student before distillation", "longer", 0, np.nan),
            ("cosine", "all", 12, 0.4), ("cosine", "longer", 0, -0.3)]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["model", "bucket", "documents", "r2"]).assign(teacher="structural", overlap=0.5)
    frame = pd.concat([frame, frame.assign(teacher="contextual", r2=9.0)])
    assert plot_probe(frame, teacher="structural", measure="r2", ax=ax) is ax
    assert [bar.get_height() for bar in ax.patches] == pytest.approx([0.1, np.nan, 0.4, -0.3], nan_ok=True)
    assert [colour_of(bar) for bar in ax.patches] == [PALETTE["untrained"]] * 2 + [PALETTE["student"]] * 2
    assert names_of(ax.texts) == ["0.10", "0.40", "-0.30"]  # a bucket without value is blank
    assert names_of(ax.get_xticklabels()) == ["all\n12 documents", "longer\n0 documents"]
    assert (ax.get_ylabel(), ax.get_title()) == ("R²", "structural")


def test_attention_has_a_bar_per_model_and_part(ax, names_of):
    parts = pd.DataFrame(
        [(model, part, value + more) for model, value in (("one", 1.0), ("two", 2.0))
         for more, part in enumerate(("noun", "verb", "adjective", "other")) for _ in range(3)],
        columns=["model", "part", "relative"],
    )  # fmt: skip
    plot_attention(parts, ax=ax)
    assert names_of(ax.get_xticklabels()) == ["nouns", "verbs", "adjectives", "other words"]
    heights = [[bar.get_height() for bar in container] for container in ax.containers if len(container) == 4]
    assert heights == [[1, 2, 3, 4], [2, 3, 4, 5]]

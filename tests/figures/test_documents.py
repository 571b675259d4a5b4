"""Figures of documents and embeddings: values are read back from the artists."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from overlaps import overlapping

from docemb_lib import figures
from docemb_lib.evaluation.probes import measure_distances, separation, tidy_distances
from docemb_lib.figures import PALETTE
from docemb_lib.figures.documents import plot_distances, plot_plane, plot_probe


def test_lengths_stack_to_a_hundred_percent_and_the_share_beyond_is_named(ax, names_of):
    documents = pd.DataFrame(
        {"source": ["a"] * 6 + ["b"] * 4, "tokens": [10, 20, 30, 40, 50, 5000, 15, 25, 35, 45]}
    )
    assert figures.plot_lengths(documents, limit=28, longest=60, ax=ax) is ax
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(100)
    assert "60% are longer" in ax.texts[0].get_text()
    assert names_of(ax.get_legend()) == ["a", "b"]
    many = figures.plot_lengths(documents.assign(source=[*"abcdefghij"]), ax=plt.figure().gca())
    assert names_of(many.get_legend()) == [*"abcdef", "other"]


def test_cumulative_lines_end_at_one_and_pass_the_share_of_shorter_documents(ax, names_of):
    lengths = pd.DataFrame(
        {
            "data": ["a"] * 4 + ["b"] * 2,
            "split": ["train"] * 3 + ["test"] + ["train"] * 2,
            "tokens": [10, 20, 40, 30, 100, 5000],
        }
    )
    assert figures.plot_cumulative(lengths, ax=ax) is ax
    first, *_ = ax.lines
    x, y = first.get_data()
    assert y[x <= 20].max() == pytest.approx(2 / 3)
    assert y.max() == 1
    assert names_of(ax.get_legend()) == ["a", "b", "train", "test"]


def test_the_weights_of_both_losses_are_steps_over_the_length(ax, names_of):
    weights = pd.DataFrame(
        {
            "length": [40, 256, 257, 2000],
            "structural": [0.8, 0.8, 0, 0],
            "contextual": [0.2, 0.2, 1, 1],
        }
    )
    figures.plot_weights(weights, ax=ax)
    for line, (loss, values) in zip(ax.lines, list(weights.items())[1:], strict=True):
        assert line.get_xydata().tolist() == list(
            map(list, zip(weights["length"], values, strict=True))
        )
        assert line.get_color() == PALETTE[loss]
    assert names_of(ax.get_legend()) == ["structural loss", "contextual loss"]


@pytest.fixture
def distances():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "model": ["a"] * 100 + ["b"] * 40,
            "kind": ["positive", "negative"] * 70,
            "value": rng.lognormal(size=140),
            "auc": [0.75] * 100 + [0.5] * 40,
        }
    )


def test_distances_have_a_row_per_model_and_its_auc(ax, names_of, distances):
    plot_distances(distances, distance="cosine", ax=ax)
    assert names_of(ax.get_yticklabels()) == ["a", "b"]
    assert ax.yaxis_inverted()
    assert {"AUC 0.750", "AUC 0.500"} <= set(names_of(ax.texts))
    assert ax.get_xlabel() == "cosine distance"
    assert ax.get_xscale() == "linear"
    positives, negatives = names_of(ax.get_legend())
    assert "own" in positives
    assert "other" in negatives


@pytest.mark.parametrize("spread", [0.02, 0.2, 2.0])
def test_ticks_of_a_logarithmic_axis_stand_apart(distances, spread):
    ax = plt.figure(figsize=(3.5, 2)).subplots()
    values = np.exp(spread * np.random.default_rng(0).standard_normal(len(distances)))
    plot_distances(distances.assign(value=values), distance="mse", ax=ax)
    ax.figure.canvas.draw()
    low, high = ax.get_xlim()
    ticks = [text for text in ax.get_xticklabels() if low <= text.get_position()[0] <= high]
    assert len(ticks) >= 2
    assert not [*overlapping(ticks, ax.figure.canvas.get_renderer())]


@pytest.mark.parametrize(("distance", "gamma"), [("cosine", 0.3), ("mse", 1.5), ("mse", 0.0)])
def test_the_margin_is_minus_the_max_margin_loss(ax, names_of, distance, gamma):
    distances = measure_distances(
        *np.random.default_rng(0).standard_normal((2, 30, 4)), distance=distance
    )
    plot_distances(
        tidy_distances(distances).assign(model="a"), distance=distance, gamma=gamma, ax=ax
    )
    (bar,) = [line for line in ax.lines if line.get_linewidth() == 4]
    start, end = bar.get_xdata()
    assert start - end == pytest.approx(separation(distances, gamma=gamma)[1], abs=1e-4)
    assert names_of(ax.get_legend())[2].startswith("margin")


def test_positives_stand_above_their_row_and_negatives_below(ax, distances):
    distances.loc[3, "value"] = 0.0  # a perfect match, for which a logarithmic axis has no place
    plot_distances(distances[distances["model"] == "a"], distance="mse", ax=ax)
    above, below = (polygon.get_paths()[0].get_extents() for polygon in ax.collections)
    assert (above.y0, above.y1) == pytest.approx((-0.4, 0))
    assert (below.y0, below.y1) == pytest.approx((0, 0.4))
    assert ax.get_xscale() == "log"
    assert all(np.isfinite(polygon.get_paths()[0].vertices).all() for polygon in ax.collections)


def test_points_are_coloured_by_value_or_by_length(ax, names_of):
    points = pd.DataFrame(
        {
            "first": [0.0, 1, 2],
            "second": [5.0, 4, 3],
            "source": ["b", "a", "b"],
            "length": [9, 99, 0],
        }
    )
    plot_plane(points, colour="source", ax=ax)
    assert names_of(ax.get_legend()) == ["a", "b"]
    assert (
        ax.collections[0].get_offsets().tolist() == points[["first", "second"]].to_numpy().tolist()
    )
    first, second, third = map(tuple, ax.collections[0].get_facecolors())
    assert first == third != second
    ax.clear()
    plot_plane(points, colour="length", ax=ax)
    assert len({tuple(colour) for colour in ax.collections[0].get_facecolors()}) == 3


def test_a_probe_has_a_bar_with_its_number_per_model_and_bucket(ax, names_of, colour_of):
    rows = [
        ("student before distillation", "all", 12, 0.1),
        ("student before distillation", "longer", 0, np.nan),
        ("cosine", "all", 12, 0.4),
        ("cosine", "longer", 0, -0.3),
    ]
    frame = pd.DataFrame(rows, columns=["model", "bucket", "documents", "r2"]).assign(
        teacher="structural", kind=["untrained"] * 2 + ["student"] * 2
    )
    frame = pd.concat([frame, frame.assign(teacher="contextual", r2=9.0)])
    assert plot_probe(frame, teacher="structural", ax=ax) is ax
    assert [bar.get_height() for bar in ax.patches] == pytest.approx(
        [0.1, np.nan, 0.4, -0.3], nan_ok=True
    )
    assert [colour_of(bar) for bar in ax.patches] == [PALETTE["untrained"]] * 2 + [
        PALETTE["student"]
    ] * 2
    assert names_of(ax.texts) == ["0.10", "", "0.40", "-0.30"]  # a bucket without value is blank
    assert names_of(ax.get_xticklabels()) == ["all\n12 documents", "longer\n0 documents"]
    assert ax.get_ylabel() == "R²"
    assert ax.get_title() == "structural"

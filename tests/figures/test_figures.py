"""Figures draw what the frame says on the Axes they are given: read back from the artists, not looked at."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from docemb_lib.figures import PALETTE, kind_of
from docemb_lib.figures.corpus import plot_lengths, plot_weights
from docemb_lib.figures.distances import plot_distances
from docemb_lib.figures.losses import TEACHERS, plot_decorrelation, plot_max_margin
from docemb_lib.figures.results import plot_task
from docemb_lib.figures.sweeps import plot_history, plot_runs, plot_weighting


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def test_lengths_stack_to_a_hundred_percent_and_the_share_beyond_is_named(ax):
    documents = pd.DataFrame({"source": ["a"] * 6 + ["b"] * 4, "tokens": [10, 20, 30, 40, 50, 5000, 15, 25, 35, 45]})
    assert plot_lengths(documents, limit=28, longest=60, ax=ax) is ax
    assert sum(bar.get_height() for bar in ax.patches) == pytest.approx(100)
    assert "60% are longer" in ax.texts[0].get_text()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_weights_are_drawn_against_length(ax):
    plot_weights(np.array([1, 5, 9]), np.array([0.5, 0.5, 0.0]), ax=ax)
    assert ax.lines[0].get_xydata().tolist() == [[1, 0.5], [5, 0.5], [9, 0.0]]


def test_distances_have_a_row_per_model_and_its_auc(ax):
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"model": ["a"] * 40 + ["b"] * 40, "kind": ["positive", "negative"] * 40,
                          "value": rng.random(80), "auc": [0.75] * 40 + [0.5] * 40})  # fmt: skip
    plot_distances(frame, distance="cosine", ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["a", "b"]
    assert {text.get_text() for text in ax.texts} >= {"AUC 0.750", "AUC 0.500"}
    assert ax.get_xlabel() == "cosine distance"


def test_runs_stand_in_the_order_of_their_means_with_the_thesis_value_hollow(ax):
    scores = pd.DataFrame({"model": ["cosine", "cosine", "MSE", "TF-IDF"], "value": [0.8, 0.6, 0.5, 0.9]})
    plot_runs(scores, published=pd.DataFrame({"label": ["cosine", "contrastive"], "value": [0.93, 0.92]}), ax=ax)
    assert [label.get_text() for label in ax.get_yticklabels()] == ["TF-IDF", "cosine", "MSE"]
    assert {text.get_text() for text in ax.texts} == {"0.900", "0.700", "0.500"}
    (thesis,) = [line for line in ax.lines if line.get_marker() == "D"]
    assert thesis.get_xydata().tolist() == [[0.93, 1]]
    assert thesis.get_markerfacecolor() == "none"


def test_history_shows_the_parts_that_there_are(ax):
    train = pd.DataFrame({"step": [1, 2], "loss": [3.0, 2.0], "structural": [1.0, 0.5]})
    validation = pd.DataFrame({"step": [0, 2], "loss": [4.0, 2.5], "structural": [1.5, 0.7], "contextual": [0.0, 0.0]})
    plot_history(train, validation, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loss", "structural"]


def test_a_loss_of_one_part_is_drawn_once(ax):
    train = pd.DataFrame({"step": [1, 2], "loss": [3.0, 2.0], "structural": [3.0, 2.0]})
    plot_history(train, train, ax=ax)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["loss"]


def test_lambda_has_a_line_per_mask_and_dots_without_weighting(ax):
    runs = pd.DataFrame({"lam": [0.2, 0.5, 0.5, None], "mask": ["no mask", "no mask", "mask 256", "no mask"],
                         "value": [0.1, 0.2, 0.3, 0.4]})  # fmt: skip
    plot_weighting(runs, ax=ax)
    assert {text.get_text() for text in ax.get_legend().get_texts()} == {"no mask", "mask 256"}
    assert [line.get_ydata()[0] for line in ax.lines if line.get_linestyle() == ":"] == [0.4]


def test_lambda_alone_without_any_weighting_is_no_error(ax):
    plot_weighting(pd.DataFrame({"lam": [None], "mask": ["no mask"], "value": [0.4]}), ax=ax)
    assert ax.get_xlim() == (-0.03, 1.03)


def test_a_task_has_a_bar_per_model_in_its_colour(ax):
    scores = pd.DataFrame({"model": ["TF-IDF", "SBERT truncated", "SBERT truncated"], "task": "halves",
                           "metric": "accuracy", "value": [0.5, 0.7, 0.9]})  # fmt: skip
    plot_task(scores, task="halves", ax=ax)
    assert [bar.get_width() for bar in ax.patches] == pytest.approx([0.5, 0.8])
    assert plt.matplotlib.colors.to_hex(ax.patches[1].get_facecolor()).upper() == PALETTE["structural"]


def test_the_arrows_of_max_margin_at_gamma_one_are_all_alike(ax):
    plot_max_margin(gamma=1.0, ax=ax)
    plain, margin = ax.collections[:2]
    expected = TEACHERS[0] - TEACHERS[1:].mean(axis=0)
    np.testing.assert_allclose(np.c_[margin.U, margin.V], np.tile(expected, (len(margin.U), 1)))
    assert np.ptp(plain.U) > 1


def test_decorrelation_names_the_correlation_of_each_cloud(ax):
    plot_decorrelation(ax=ax)
    large, small = (float(text.get_text().split("=")[1]) for text in ax.texts)
    assert large > 0.8 > 0.2 > small


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        ("SBERT truncated", "structural"),
        ("DM;100d", "contextual"),
        ("PV;200d", "contextual"),
        ("TF-IDF", "floor"),
        ("student before distillation", "untrained"),
        ("cosine;256;λ=0.5", "student"),
        ("cosine;PV;S:384;C:-", "student"),
    ],
)
def test_every_kind_of_model_has_its_colour(model, kind):
    assert kind_of(model) == kind

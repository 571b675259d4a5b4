"""The figures of the redundancy study draw the numbers that they are given."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from docemb_lib.evaluation.probes import ALL_LENGTHS, BINS
from docemb_lib.figures import PALETTE, looks_of
from docemb_lib.figures.results import plot_attention, plot_few_shot, plot_redundancy, plot_sentence_similarity


def test_redundancy_has_a_line_per_data_set_and_skips_empty_bins():
    words = [*BINS, ALL_LENGTHS]
    rows = pd.DataFrame(
        {"data": ["a"] * 6 + ["b"] * 6, "words": words * 2, "redundancy": [1, 2, np.nan, 4, 5, 6.0, *range(6)]}
    )
    ax = plot_redundancy(rows)
    assert [text.get_text() for text in ax.get_xticklabels()] == words
    first, all_of_first, second, all_of_second = ax.lines
    assert first.get_xydata().tolist() == [[0, 1], [1, 2], [3, 4], [4, 5]]
    assert second.get_ydata().tolist() == [0, 1, 2, 3, 4]
    assert [line.get_xydata().tolist() for line in (all_of_first, all_of_second)] == [[[5, 6]], [[5, 5]]]
    assert all_of_first.get_color() == first.get_color() != second.get_color()
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_similarities_are_percents_of_each_kind_with_their_means():
    pairs = pd.DataFrame({"kind": ["inside"] * 4 + ["across"] * 2, "cosine": [0.5, 0.5, 0.7, 0.7, 0.1, 0.3]})
    ax = plot_sentence_similarity(pairs)
    assert [text.get_text() for text in ax.get_legend().get_texts()] == [
        "of one document, mean 0.60", "of two documents, mean 0.20",
    ]  # fmt: skip
    assert [line.get_xdata()[0] for line in ax.lines] == pytest.approx([0.6, 0.2])
    heights = sorted(round(bar.get_height()) for bar in ax.patches if bar.get_height())
    assert heights == [50, 50, 50, 50]
    low, high = ax.get_xlim()
    assert low < 0.1 < 0.7 < high


def test_attention_has_a_bar_per_model_and_part():
    parts = pd.DataFrame(
        [(model, part, value + more) for model, value in (("one", 1.0), ("two", 2.0))
         for more, part in enumerate(("noun", "verb", "adjective", "other")) for _ in range(3)],
        columns=["model", "part", "relative"],
    )  # fmt: skip
    ax = plot_attention(parts)
    assert [text.get_text() for text in ax.get_xticklabels()] == ["nouns", "verbs", "adjectives", "other words"]
    heights = [[bar.get_height() for bar in container] for container in ax.containers if len(container) == 4]
    assert heights == [[1, 2, 3, 4], [2, 3, 4, 5]]


def test_few_shot_is_the_mean_over_draws_of_one_metric():
    rows = [
        (model, number, draw, metric, value + draw / 10 + number / 100 + (metric == "accuracy"))
        for model, value in (("one", 0.2), ("two", 0.5))
        for number in (5, 10)
        for draw in (0, 1)
        for metric in ("accuracy", "f1_macro")
    ]
    ax = plot_few_shot(pd.DataFrame(rows, columns=["model", "per_class", "draw", "metric", "value"]))
    one, two = ax.collections[0].get_paths()[0].vertices[:, 1], 0.1 / np.sqrt(2)  # the band; of two draws .1 apart
    np.testing.assert_allclose([one.min(), one.max()], [0.3 - two, 0.35 + two])
    lines = [line for line in ax.lines if len(line.get_xdata()) == 2]
    assert [line.get_xdata().tolist() for line in lines] == [[5, 10]] * 2
    np.testing.assert_allclose([line.get_ydata() for line in lines], [[0.3, 0.35], [0.6, 0.65]])
    assert ax.get_ylabel() == "macro-F1"
    assert list(ax.get_xticks()) == [5, 10]


def test_models_have_the_colours_of_their_kinds_and_one_kind_different_lines():
    looks = looks_of(
        ["SimDE;400 docs", "student before distillation", "SBERT truncated", "SBERT over chunks", "SimCSE"]
    )
    assert [colour for colour, _ in looks.values()] == [
        PALETTE[kind] for kind in ("student", "untrained", "structural", "structural", "student")
    ]
    assert [style for _, style in looks.values()] == ["-", "-", "-", "--", "--"]

"""DM and DBOW as drawn predict what gensim's do."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle

from docemb_lib.figures.diagrams import plot_paragraph_vectors, plot_windows, reads

WORDS = ["Return", "the", "shortest", "path", "lengths", "between", "source", "and", "all", "reachable", "nodes"]


@pytest.mark.parametrize("words", [1, 4, 12])
@pytest.mark.parametrize("window", [1, 5])
def test_dm_reads_the_document_and_the_neighbours_of_the_word(words, window):
    expected = []
    for predicted in range(words):
        row = [True]
        for word in range(words):
            row.append(word != predicted and predicted - window <= word <= predicted + window)
        expected.append(row)
    np.testing.assert_array_equal(reads(words, dm=True, window=window), expected)


def test_dbow_reads_the_document_alone():
    found = reads(4, dm=False)
    assert found.shape == (4, 5)
    assert found[:, 0].all()
    assert not found[:, 1:].any()


def test_the_diagram_is_legible_and_leaves_the_middle_word_out_of_what_predicts_it(assert_legible):
    ax = plot_paragraph_vectors(WORDS)
    assert_legible(ax)
    labels = [patch.get_label() for patch in ax.patches if isinstance(patch, FancyBboxPatch)]
    assert labels.count("document vector") == 2
    assert {word: labels.count(word) for word in WORDS[:5]} == dict.fromkeys(WORDS[:5], 2)
    assert len([p for p in ax.patches if isinstance(p, FancyArrowPatch)]) == (1 + 4 + 1) + 5
    shortest = [p for p in ax.patches if isinstance(p, FancyBboxPatch) and p.get_label() == "shortest"]
    assert all(box.get_linestyle() != "-" for box in shortest)  # predicted in both, read in none


@pytest.mark.parametrize(
    "words", [["one"], ["a", "b"], ["matplotlib.pyplot.set_loglevel", *WORDS], [r"$\nonsense$", "$a_b$", "5$", r"\$"]]
)
def test_few_and_long_words_are_drawn_legibly(words, assert_legible):
    assert_legible(plot_paragraph_vectors(words))


def test_formulas_among_the_words_are_shown_as_they_are_written():
    ax = plot_windows([r"$\nonsense{$", "$x_i$"], dm=True)
    ax.figure.canvas.draw()  # raised where it was read as a formula
    as_words = [text.get_window_extent().width for text in ax.get_yticklabels()]
    same = plot_windows(["~\\nonsense{~", "~x_i~"], dm=True)
    same.figure.canvas.draw()
    assert as_words == pytest.approx([text.get_window_extent().width for text in same.get_yticklabels()], rel=0.2)


@pytest.mark.parametrize("dm", [True, False])
def test_windows_have_a_row_for_each_prediction(dm):
    ax = plot_windows(WORDS, dm=dm, window=2)
    filled, outlined = set(), set()
    for patch in ax.patches:
        assert isinstance(patch, Rectangle)
        centre = (round(patch.get_y() + 0.45), round(patch.get_x() + 0.45))
        (outlined if patch.get_facecolor()[3] == 0 else filled).add(centre)
    assert filled == {tuple(cell) for cell in np.argwhere(reads(len(WORDS), dm=dm, window=2))}
    assert outlined == {(row, row + 1) for row in range(len(WORDS))}
    assert [text.get_text() for text in ax.get_xticklabels()] == ["document vector", *WORDS]
    assert [text.get_text() for text in ax.get_yticklabels()] == WORDS

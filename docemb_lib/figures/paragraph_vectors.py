"""What Paragraph Vector predicts from what: DM and DBOW on the words of a real document (thesis, chapter 3)."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from docemb_lib.figures import PALETTE, plain
from docemb_lib.figures.canvas import INK, Box, canvas, draw_arrow, draw_box, tint, write

DRAWN = 5  # words of the diagram: one that is predicted, two on each side
LONGEST_WORD = 16  # characters of a word that its box holds
CONTEXTUAL, WORD = PALETTE["contextual"], PALETTE["untrained"]


def plot_paragraph_vectors(words: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """DM on the left, DBOW on the right, as diagrams on the first five words. words: those of a document, in order."""
    words = [_short(word) for word in words[:DRAWN]]
    centre = len(words) // 2
    each, size = 0.42, (1.25, 0.3)
    rows = [0.3 + each * (len(words) - 1 - place) for place in range(len(words))]  # from top to bottom
    height = 1.05 + each * len(words)
    ax = canvas(ax, 7.4, height)

    write(ax, (1.9, height - 0.12), "DM: a word from its neighbours and the document", bold=True)
    document = Box(0.75, rows[0] + 0.5, *size)
    mean, predicted = Box(2.1, rows[centre], 0.6, 0.3), Box(3.25, rows[centre], 1.2, 0.3)
    draw_box(ax, document, "document vector", color=CONTEXTUAL)
    draw_arrow(ax, [document.right, (mean.x, document.y), mean.top])
    for place, (word, row) in enumerate(zip(words, rows, strict=True)):
        if place != centre:
            box = Box(0.75, row, *size)
            draw_box(ax, box, word, color=WORD)
            draw_arrow(ax, [box.right, mean.left])
    draw_box(ax, mean, "mean", color=INK)
    draw_box(ax, predicted, words[centre], color=CONTEXTUAL, dashed=True)
    draw_arrow(ax, [mean.right, predicted.left])

    write(ax, (5.75, height - 0.12), "DBOW: every word from the document alone", bold=True)
    document = Box(4.85, rows[centre], *size)
    draw_box(ax, document, "document vector", color=CONTEXTUAL)
    for word, row in zip(words, rows, strict=True):
        box = Box(6.7, row, 1.2, 0.3)
        draw_box(ax, box, word, color=CONTEXTUAL, dashed=True)
        draw_arrow(ax, [document.right, box.left])
    return ax


def reads(words: int, *, dm: bool, window: int = 5) -> np.ndarray:
    """Which inputs each prediction reads, bool (N, N + 1): row i predicts word i; column 0 is the document's vector.

    The word columns follow in order: up to `window` words on each side for DM, none for DBOW.
    """
    place = np.arange(words)
    apart = np.abs(place[:, None] - place[None])
    neighbours = (apart >= 1) & (apart <= window) & dm
    return np.column_stack([np.ones(words, dtype=bool), neighbours])


def plot_windows(words: Sequence[str], *, dm: bool, window: int = 5, ax: Axes | None = None) -> Axes:
    """A row per prediction: filled is what it reads, outlined the word it predicts. words: those of a document.

    gensim draws the size of each word's window anew, from 1 to `window`; drawn is the largest.
    """
    ax = plt.gca() if ax is None else ax
    N = len(words)
    for row, inputs in enumerate(reads(N, dm=dm, window=window)):
        for column in np.flatnonzero(inputs):
            color = CONTEXTUAL if column == 0 else tint(CONTEXTUAL, 0.4)
            ax.add_patch(Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, facecolor=color))
        ax.add_patch(Rectangle((row + 1 - 0.45, row - 0.45), 0.9, 0.9, facecolor="none", edgecolor=INK, linestyle="--"))
    ax.set(xlim=(-0.6, N + 0.6), ylim=(N - 0.4, -0.6), ylabel="predicted word")
    ax.set_xticks(
        range(N + 1), ["document vector", *map(_short, words)], rotation=35, ha="left", rotation_mode="anchor"
    )
    ax.set_yticks(range(N), [_short(word) for word in words])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def _short(word: str) -> str:
    return plain(word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 1]}…")

"""The documents of a corpus: lengths, what the mask does at each length, repetition inside a document."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from docemb_lib.evaluation.probes import ALL_LENGTHS
from docemb_lib.figures import PALETTE, SERIES, STYLES, label, value_grid

MASK_ROWS = 12  # documents drawn by plot_mask
MASK_LABELS = {"structural": "weight of the structural loss", "contextual": "weight of the contextual loss"}
PAIR_LABELS = {"inside": ("of one document", "positive"), "across": ("of two documents", "negative")}


def plot_lengths(
    documents: pd.DataFrame, *, limit: int | None = None, longest: int | None = None,
    sources: Sequence[str] | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Stacked histogram of document lengths by source, in percent of all documents (thesis, Figures 4.1 and 5.1).

    documents: one row each; columns source, tokens. limit: tokens that the structural teacher reads, drawn as a line.
    longest: end of the axis (None: the 98th percentile); the last bin holds all longer documents. sources: from bottom
    to top, so that several panels share colours (None: the most frequent first).
    """
    ax = plt.gca() if ax is None else ax
    longest = longest or int(documents["tokens"].quantile(0.98))
    edges = np.linspace(0, longest, 41)
    look: dict[str, Any] = {"width": np.diff(edges), "align": "edge", "edgecolor": "white", "linewidth": 0.3}
    below = np.zeros(len(edges) - 1)  # percent already drawn in each bin
    for number, source in enumerate(documents["source"].value_counts().index if sources is None else sources):
        tokens = documents.loc[documents["source"] == source, "tokens"].clip(upper=longest)
        percent = 100 * np.histogram(tokens, bins=edges)[0] / len(documents)
        look |= {"color": SERIES[number % len(SERIES)], "hatch": "///" if number >= len(SERIES) else ""}
        ax.bar(edges[:-1], percent, bottom=below, label=str(source), **look)
        below += percent
    ax.margins(y=0.18)  # room for the annotation
    if limit is not None:
        ax.axvline(limit, color="black", linewidth=1.2, linestyle="--")
        text = f"{(documents['tokens'] > limit).mean():.0%} are longer than\nthe structural teacher reads ({limit})"
        label(ax, text, (limit, 1), (6, -4), xycoords=("data", "axes fraction"), va="top", fontsize=10)
    ax.set(xlabel="tokens per document (the last bin holds all longer ones)", ylabel="documents (%)", xlim=(0, longest))
    value_grid(ax)
    ax.legend(title="source", loc="center right", fontsize=8)
    return ax


def plot_cumulative(lengths: pd.DataFrame, *, shortest: int = 8, longest: int = 4096, ax: Axes | None = None) -> Axes:
    """Share of documents with at most so many tokens (thesis, Figure 5.2); colour = data set, line style = split.

    lengths: one row per document; columns data, split, tokens. shortest, longest: ends of the logarithmic axis.
    """
    ax = plt.gca() if ax is None else ax
    colors, styles = _colors(lengths["data"]), dict(zip(dict.fromkeys(lengths["split"]), cycle(STYLES), strict=False))
    for (name, split), group in lengths.groupby(["data", "split"], sort=False):
        ax.ecdf(group["tokens"], color=colors[name], linestyle=styles[split], linewidth=1.5)
    handles = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    handles += [Line2D([], [], color="black", linestyle=style, label=str(split)) for split, style in styles.items()]
    ax.legend(handles=handles, fontsize=8, loc="upper left")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="tokens per document", ylabel="share of documents", xlim=(shortest, longest), ylim=(0, 1))
    return ax


def plot_weights(lengths: np.ndarray, weights: np.ndarray, *, ax: Axes | None = None) -> Axes:
    """Weight λ(x) of the structural loss, (N,), against document length in structural tokens, (N,), ascending."""
    ax = plt.gca() if ax is None else ax
    ax.plot(lengths, weights, color=PALETTE["structural"], linewidth=2, drawstyle="steps-post")
    ax.fill_between(lengths, weights, step="post", color=PALETTE["structural"], alpha=0.15, linewidth=0)
    ax.set(xlabel="length of the document (structural tokens)", ylabel="weight of its structural loss", ylim=(0, 1.05))
    ax.set_xlim(0, float(np.quantile(lengths, 0.95)))  # a few documents are many times longer
    return ax


def plot_mask(weights: pd.DataFrame, *, max_structural_len: int | None, ax: Axes | None = None) -> Axes:
    """Weights of both losses for twelve documents between the shortest and the longest.

    weights: one row per document; columns length (structural tokens, ascending), structural, contextual.
    max_structural_len: length where the mask begins, drawn as a line between two documents; None: no mask.
    """
    ax = plt.gca() if ax is None else ax
    shown = weights.iloc[np.unique(np.linspace(0, len(weights) - 1, MASK_ROWS).round().astype(int))]
    left = np.zeros(len(shown))
    for kind, text in MASK_LABELS.items():
        width = shown[kind].to_numpy(dtype=float)
        ax.barh(range(len(shown)), width, left=left, height=0.75, color=PALETTE[kind], label=text)
        left += width
    if max_structural_len is not None and (shown["length"] > max_structural_len).any():
        kept = int((shown["length"] <= max_structural_len).sum())
        ax.axhline(kept - 0.5, color="black", linewidth=1.2, linestyle="--")
        options: dict[str, Any] = {"xycoords": ("axes fraction", "data"), "va": "top" if kept else "center"}
        label(ax, f"masked:\nmore than\n{max_structural_len:,} tokens", (1.01, kept - 0.5), **options)
    ax.set_yticks(range(len(shown)), [f"{length:,}" for length in shown["length"]])
    ax.invert_yaxis()
    ax.set(xlabel="weights of the two losses of a document", ylabel="length of a document\n(structural tokens)")
    ax.set_xlim(0, 1.02 * max(1.0, float(left.max())))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8)
    return ax


def plot_redundancy(rows: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Nouns and verbs per distinct noun or verb against document length (SimDE paper, Table 4); a line per data set.

    A diamond is the value over all documents. rows: columns data, words (in order, `ALL_LENGTHS` last), redundancy.
    Bins without documents (NaN) are left out.
    """
    ax = plt.gca() if ax is None else ax
    bins, colors = list(dict.fromkeys(rows["words"])), _colors(rows["data"])
    for name, group in rows.dropna(subset="redundancy").groupby("data", sort=False):
        in_bins = group["words"] != ALL_LENGTHS
        for part, marker, entry in ((group[in_bins], "o-", str(name)), (group[~in_bins], "D", None)):
            ax.plot(part["words"].map(bins.index), part["redundancy"], marker, color=colors[name], label=entry)
    ax.set_xticks(range(len(bins)), bins)
    ax.set(xlabel="words of the document", ylabel="nouns and verbs per distinct one")
    ax.legend(fontsize=8)
    return ax


def plot_sentence_similarity(pairs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Histograms and means of the cosine by kind ("inside" a document, "across" documents; SimDE paper, Table 5)."""
    ax = plt.gca() if ax is None else ax
    bars: dict[str, Any] = {"stat": "percent", "binwidth": 0.05, "binrange": (-1, 1), "alpha": 0.5}
    for kind, (text, key) in PAIR_LABELS.items():
        cosines, color = pairs.loc[pairs["kind"] == kind, "cosine"], PALETTE[key]
        sns.histplot(x=cosines, **bars, color=color, label=f"{text}, mean {cosines.mean():.2f}", ax=ax)
        ax.axvline(cosines.mean(), color=color, linestyle="--")
    low, high = pairs["cosine"].min(), pairs["cosine"].max()
    ax.set(xlabel="cosine of two sentences", ylabel="pairs (%)", xlim=(low - 0.05, high + 0.05))
    ax.legend(fontsize=8)
    return ax


def _colors(names: Iterable[Any]) -> dict[Any, str]:
    """A colour per name, in order of first appearance."""
    return dict(zip(dict.fromkeys(names), cycle(SERIES), strict=False))

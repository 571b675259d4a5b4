"""How long the documents are, and what the lengths mean for the mask."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from docemb_lib.figures import PALETTE, SERIES, STYLES

# ---- how long the documents are


def plot_lengths(
    documents: pd.DataFrame,
    *,
    limit: int | None = None,
    longest: int | None = None,
    sources: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Stacked histogram of lengths by source, as Figures 4.1 and 5.1: percent of all documents per bin.

    documents: columns source, tokens (one row a document); limit: the structural teacher's context in tokens, drawn
    as a line; longest: the end of the axis, which takes everything beyond it into its last bin;
    sources: from the bottom to the top, for panels with the same colours; None: that with the most documents first.
    """
    ax = plt.gca() if ax is None else ax
    longest = longest or int(documents["tokens"].quantile(0.98))
    edges = np.linspace(0, longest, 41)
    below = np.zeros(len(edges) - 1)  # percent already drawn in each bin
    for number, source in enumerate(documents["source"].value_counts().index if sources is None else sources):
        tokens = documents.loc[documents["source"] == source, "tokens"].clip(upper=longest)
        percent = 100 * np.histogram(tokens, bins=edges)[0] / len(documents)
        ax.bar(
            edges[:-1], percent, width=np.diff(edges), bottom=below, align="edge", label=str(source),
            color=SERIES[number % len(SERIES)], edgecolor="white", linewidth=0.3,
            hatch="///" if number >= len(SERIES) else "",  # a second round of colours is told apart by its hatching
        )  # fmt: skip
        below += percent
    ax.margins(y=0.18)  # room for the label
    if limit is not None:
        beyond = 100 * (documents["tokens"] > limit).mean()
        ax.axvline(limit, color="black", linewidth=1.2, linestyle="--")
        ax.annotate(
            f"{beyond:.0f}% are longer than\nthe structural teacher sees ({limit})",
            (limit, 1), xycoords=("data", "axes fraction"), xytext=(6, -4), textcoords="offset points", va="top",
        )  # fmt: skip
    ax.set(xlabel="tokens per document (the last bin holds all longer ones)", ylabel="documents (%)", xlim=(0, longest))
    ax.grid(axis="x", visible=False)
    ax.grid(axis="y", visible=True)
    ax.legend(title="source", loc="center right", fontsize=8)
    return ax


def plot_cumulative(lengths: pd.DataFrame, *, shortest: int = 8, longest: int = 4096, ax: Axes | None = None) -> Axes:
    """Which share of the documents has at most so many tokens, as Figure 5.2: colour = data set, line style = split.

    lengths: columns data, split, tokens (one row a document); shortest, longest: the ends of the logarithmic axis.
    """
    ax = plt.gca() if ax is None else ax
    names, splits = list(dict.fromkeys(lengths["data"])), list(dict.fromkeys(lengths["split"]))
    for (name, split), group in lengths.groupby(["data", "split"], sort=False):
        colour, style = SERIES[names.index(name) % len(SERIES)], STYLES[splits.index(split) % len(STYLES)]
        ax.ecdf(group["tokens"], color=colour, linestyle=style, linewidth=1.5)
    entries = [Line2D([], [], color=SERIES[k % len(SERIES)], label=str(name)) for k, name in enumerate(names)]
    entries += [
        Line2D([], [], color="black", linestyle=STYLES[k % len(STYLES)], label=str(split))
        for k, split in enumerate(splits)
    ]
    ax.legend(handles=entries, fontsize=8, loc="upper left")
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="tokens per document", ylabel="share of documents", xlim=(shortest, longest), ylim=(0, 1))
    return ax


def plot_weights(lengths: np.ndarray, weights: np.ndarray, *, ax: Axes | None = None) -> Axes:
    """The weight λ(x) of the structural loss against a document's length.

    lengths: (N,), structural tokens, ascending; weights: (N,), what the structural loss is multiplied by.
    """
    ax = plt.gca() if ax is None else ax
    ax.plot(lengths, weights, color=PALETTE["structural"], linewidth=2, drawstyle="steps-post")
    ax.fill_between(lengths, weights, step="post", color=PALETTE["structural"], alpha=0.15, linewidth=0)
    ax.set(xlabel="length of the document (structural tokens)", ylabel="weight of its structural loss", ylim=(0, 1.05))
    ax.set_xlim(0, float(np.quantile(lengths, 0.95)))  # the last few are many times as long
    return ax


# ---- which documents learn from


DRAWN = 12  # documents
KINDS = {"structural": "weight of the structural loss", "contextual": "weight of the contextual loss"}


def plot_mask(weights: pd.DataFrame, *, max_structural_len: int | None, ax: Axes | None = None) -> Axes:
    """Twelve of the documents, from the shortest to the longest, and what each of both losses counts for them.

    weights: columns length (structural tokens, ascending), structural, contextual; a row per document.
    max_structural_len: where the mask begins, a line between two documents; None: nowhere.
    """
    ax = plt.gca() if ax is None else ax
    shown = weights.iloc[np.unique(np.linspace(0, len(weights) - 1, DRAWN).round().astype(int))]
    left = np.zeros(len(shown))
    for kind, label in KINDS.items():
        share = shown[kind].to_numpy(dtype=float)
        ax.barh(range(len(shown)), share, left=left, height=0.75, color=PALETTE[kind], label=label)
        left += share
    kept = 0 if max_structural_len is None else int((shown["length"] <= max_structural_len).sum())
    if max_structural_len is not None and kept < len(shown):
        ax.axhline(kept - 0.5, color="black", linewidth=1.2, linestyle="--")
        ax.annotate(
            f"masked:\nmore than\n{max_structural_len:,} tokens", (1.01, kept - 0.5),
            xycoords=("axes fraction", "data"), va="top" if kept else "center", fontsize=8,
        )  # fmt: skip
    ax.set_yticks(range(len(shown)), [f"{length:,}" for length in shown["length"]])
    ax.invert_yaxis()
    ax.set(xlabel="weights of the two losses of a document", ylabel="length of a document\n(structural tokens)")
    ax.set_xlim(0, 1.02 * max(1.0, float(left.max())))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8)
    return ax

"""What embeddings contain: distances to the teacher, a plane of principal axes, probes, attention."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, NullLocator
from scipy.ndimage import gaussian_filter1d

from docemb_lib.figures import PALETTE, SERIES, kind_of, label, looks_of, short, value_grid

UNITS = {"cosine": "cosine distance", "mse": "squared L2 distance per dimension"}
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}
FLOOR = 1e-6  # of the largest squared distance, and of 1: smaller ones are drawn there, a logarithmic axis has no 0
HALF = 0.42  # height of half a violin; rows are 1 apart
BINS = 256  # of the histogram that a density is smoothed from
MARKERS = "osD^vP"  # one per round of colours
MEASURES = {"r2": "R²", "overlap": "common neighbours"}
PARTS = {"noun": "nouns", "verb": "verbs", "adjective": "adjectives", "other": "other words"}


def plot_distances(
    distances: pd.DataFrame, *, distance: str, kinds: Mapping[str, str] = KINDS, ax: Axes | None = None
) -> Axes:
    """Split violins with medians, a row per model: positives above, negatives below (thesis, Figure 4.4).

    Squared distances have a logarithmic axis: the norms of students differ by orders of magnitude. distances: columns
    model, kind ("positive" or "negative"), value, and auc, the share of (positive, negative) pairs in which the
    positive is nearer (0.5: chance). distance: "cosine" or "mse". kinds: legend labels of the two kinds.
    """
    ax = plt.gca() if ax is None else ax
    models, logarithmic = list(distances["model"].unique()), distance == "mse"
    floor = max(FLOOR * distances["value"].max(), FLOOR)
    for row, model in enumerate(models):
        own = distances[distances["model"] == model]
        for kind, side in zip(kinds, (-HALF, HALF), strict=True):
            values = own.loc[own["kind"] == kind, "value"].to_numpy()
            values = np.log10(np.maximum(values, floor)) if logarithmic else values  # density on the drawn scale
            x, height = density(values)
            middle = np.median(values)
            x, middle = (10**x, 10**middle) if logarithmic else (x, middle)
            ax.fill_between(x, row, row + side * height, color=PALETTE[kind], alpha=0.75, linewidth=0.6, label=kind)
            ax.plot([middle, middle], [row, row + 0.8 * side], color="black", linewidth=0.9)
        ax.axhline(row, color="#555555", linewidth=0.6)
        label(ax, f"AUC {own['auc'].iloc[0]:.3f}", (1.01, row), xycoords=("axes fraction", "data"), fontsize=9)
    ax.set_yticks(range(len(models)), models)
    ax.set(xlabel=UNITS[distance], ylim=(len(models) - 0.5, -0.5), xscale="log" if logarithmic else "linear")
    if logarithmic:
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
    handles, _ = ax.get_legend_handles_labels()
    ax.legend(handles[:2], kinds.values(), loc="lower left", bbox_to_anchor=(0, 1), ncols=1, fontsize=8)
    return ax


def density(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Gaussian kernel density between the ends of the values, scaled to a peak of 1; constant values give one spike.

    Scott's bandwidth on a histogram: linear in the values, fast enough for an explorer; `gaussian_kde` is not.
    """
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-12 * max(1.0, abs(high)):
        return np.array([low, low]), np.array([0.0, 1.0])
    counts, edges = np.histogram(values, BINS, (low, high))
    bandwidth = values.std(ddof=1) * len(values) ** -0.2
    smooth = gaussian_filter1d(counts.astype(float), bandwidth / (edges[1] - edges[0]), mode="constant", truncate=6)
    return (edges[:-1] + edges[1:]) / 2, smooth / smooth.max()


def plot_plane(
    points: pd.DataFrame, *, colour: str, explained: float, legend: bool = True, ax: Axes | None = None
) -> Axes:
    """Documents as points in a plane, coloured by length (logarithmic) or by the values of another column `colour`.

    points: columns first, second (coordinates) and `colour`. explained: share of the variance in the plane, or NaN.
    """
    ax = plt.gca() if ax is None else ax
    x, y = points["first"], points["second"]
    if colour == "length":
        drawn = ax.scatter(x, y, c=points["length"].clip(lower=1), cmap="viridis", norm=LogNorm(), s=14, linewidth=0)
        if legend:
            ax.figure.colorbar(drawn, ax=ax, label="tokens of the structural teacher")
    else:
        for place, (value, rows) in enumerate(points.groupby(colour)):
            color, marker = SERIES[place % len(SERIES)], MARKERS[place // len(SERIES) % len(MARKERS)]
            look: dict[str, Any] = {"color": color, "marker": marker, "s": 16, "linewidth": 0, "alpha": 0.85}
            ax.scatter(rows["first"], rows["second"], label=short(str(value), 60), **look)
        if legend:
            ax.legend(fontsize=7, title=colour, title_fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    share = "no variance" if np.isnan(explained) else f"{explained:.0%} of the variance in the plane"
    ax.set(xlabel=f"first principal axis ({share})", ylabel="second principal axis", xticks=[], yticks=[])
    ax.grid(visible=False)
    return ax


def plot_probe(probes: pd.DataFrame, *, teacher: str, measure: str, ax: Axes | None = None) -> Axes:
    """How well a linear probe predicts one teacher: a group of bars per length bucket, a bar per model.

    probes: columns model, teacher, bucket, documents, r2, overlap, in the order to draw; measure: a key of `MEASURES`.
    """
    ax = plt.gca() if ax is None else ax
    rows = probes[probes["teacher"] == teacher]
    table = rows.pivot_table(index="bucket", columns="model", values=measure, sort=False, dropna=False)
    documents = rows.drop_duplicates("bucket").set_index("bucket")["documents"]
    places, width = np.arange(len(table)), 0.8 / table.shape[1]
    for number, (model, values) in enumerate(table.items()):
        left = places + (number - (table.shape[1] - 1) / 2) * width
        ax.bar(left, values, width=width, color=PALETTE[kind_of(str(model))], label=str(model))
        for x, value in zip(left, values, strict=True):
            if np.isfinite(value):  # an empty bucket has no value
                label(ax, f"{value:.2f}", (x, max(value, 0)), (0, 2), ha="center", va="bottom")
    ax.set_xticks(places, [f"{bucket}\n{documents[bucket]} documents" for bucket in table.index])
    ax.axhline(0, color="black", linewidth=0.8)
    value_grid(ax)
    ax.margins(y=0.15)
    ax.set(ylabel=MEASURES[measure])
    ax.set_title(teacher, pad=14)
    return ax


def plot_attention(parts: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Attention to a word by part of speech, relative to any word, mean over documents (SimDE paper, Figure 3).

    parts: one row per model, document and part; columns model, part, relative. Models of one kind share a colour.
    """
    ax = plt.gca() if ax is None else ax
    palette = {model: color for model, (color, _) in looks_of(parts["model"]).items()}
    look: dict[str, Any] = {"saturation": 1, "errorbar": ("ci", 95), "seed": 0, "err_kws": {"linewidth": 1}}
    order: dict[str, Any] = {"order": list(PARTS), "hue_order": list(palette), "palette": palette}
    sns.barplot(parts, x="part", y="relative", hue="model", ax=ax, **order, **look)
    ax.axhline(1, color="black", linewidth=0.8, linestyle="--")
    ax.set_xticks(range(len(PARTS)), list(PARTS.values()))
    ax.set(xlabel="", ylabel="attention to a word\n(1: as to any word)")
    ax.legend(title="", fontsize=8)
    return ax

"""Positives against negatives: how far a student's embedding is from its teacher's, and from other documents'."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import LogLocator, NullLocator
from scipy.ndimage import gaussian_filter1d

from docemb_lib.figures import PALETTE

UNITS = {"cosine": "cosine distance", "mse": "squared L2 distance per dimension"}
FLOOR = 1e-6  # of the largest squared distance, and of 1: what lies below is drawn there
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}
HALF = 0.42  # height of half a violin, where rows are 1 apart
BINS = 256  # that a density is smoothed over


def plot_distances(
    distances: pd.DataFrame, *, distance: str, kinds: Mapping[str, str] = KINDS, ax: Axes | None = None
) -> Axes:
    """Split violins, one row a model, as one panel of Figure 4.4: positives above, negatives below, with their medians.
    Squared distances stand on a logarithmic axis, because the norms of students differ by orders of magnitude.

    distances: columns model, kind ("positive" or "negative"), value, and auc, the share of (positive, negative)
    couples in which the positive is nearer: 0.5 is chance, 1 is apart. Rows in order of first appearance. kinds: what
    the legend calls the two.
    """
    ax = plt.gca() if ax is None else ax
    logarithmic = distance == "mse"
    floor = max(FLOOR * distances["value"].max(), FLOOR)  # a perfect match has no logarithm
    models = list(distances["model"].unique())
    values = {
        key: np.log10(np.maximum(rows, floor)) if logarithmic else rows.to_numpy()
        for key, rows in distances.groupby(["model", "kind"], sort=False)["value"]
    }
    for row, model in enumerate(models):
        for kind, side in zip(kinds, (-HALF, HALF), strict=True):
            own = np.asarray(values[model, kind])
            at, height = density(own)
            x = 10**at if logarithmic else at
            ax.fill_between(x, row, row + side * height, color=PALETTE[kind], alpha=0.75, linewidth=0.6, label=kind)
            middle = np.median(own)
            middle = 10**middle if logarithmic else middle
            ax.plot([middle, middle], [row, row + 0.8 * side], color="black", linewidth=0.9)
        ax.axhline(row, color="#555555", linewidth=0.6)
        auc = distances.loc[distances["model"] == model, "auc"].iloc[0]
        ax.annotate(f"AUC {auc:.3f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9)
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
    """A Gaussian kernel density between the smallest and the largest value, on `BINS` bins, its peak being 1.

    The bandwidth is Scott's. Values that are all alike are one spike.
    """
    low, high = float(values.min()), float(values.max())
    if high - low <= 1e-12 * max(1.0, abs(high)):
        return np.array([low, low]), np.array([0.0, 1.0])
    counts, edges = np.histogram(values, BINS, (low, high))
    bandwidth = values.std(ddof=1) * len(values) ** -0.2
    smooth = gaussian_filter1d(counts.astype(float), bandwidth / (edges[1] - edges[0]), mode="constant", truncate=6)
    return (edges[:-1] + edges[1:]) / 2, smooth / smooth.max()

"""Positives against negatives: how far a student's embedding is from its teacher's, and from other documents'."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from docemb_lib.figures import PALETTE

UNITS = {"cosine": "cosine distance", "mse": "mean squared difference"}
FLOOR = 1e-6  # of the largest squared difference, and of 1: what lies below is drawn there
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}


def plot_distances(distances: pd.DataFrame, *, distance: str, ax: Axes | None = None) -> Axes:
    """Split violins, one row a model, as one panel of Figure 4.4; squared differences on a logarithmic axis, because
    the norms of students differ by orders of magnitude.

    distances: columns model, kind ("positive" or "negative"), value, and auc, the share of (positive, negative)
    couples in which the positive is nearer: 0.5 is chance, 1 is apart. Rows in order of first appearance.
    """
    ax = plt.gca() if ax is None else ax
    if distance == "mse":  # a perfect match has no logarithm
        value = distances["value"]
        distances = distances.assign(value=value.clip(lower=max(FLOOR * value.max(), FLOOR)))
    sns.violinplot(
        distances, x="value", y="model", hue="kind", hue_order=list(KINDS), split=True, inner="quart",
        palette={kind: PALETTE[kind] for kind in KINDS}, cut=0, density_norm="width", linewidth=0.8, gap=0.05,
        log_scale=distance == "mse", ax=ax,
    )  # fmt: skip
    for row, (_, rows) in enumerate(distances.groupby("model", sort=False)):
        ax.annotate(
            f"AUC {rows['auc'].iloc[0]:.3f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9
        )
    ax.set(xlabel=UNITS[distance], ylabel="")
    handles, _ = ax.get_legend_handles_labels()
    ax.legend(handles, KINDS.values(), loc="lower left", bbox_to_anchor=(0, 1), ncols=1, fontsize=8)
    return ax

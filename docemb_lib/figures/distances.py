"""Positives against negatives: how far a student's embedding is from its teacher's, and from other documents'."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes

from docemb_lib.figures import PALETTE

UNITS = {"cosine": "cosine distance", "mse": "mean squared difference"}


def plot_distances(distances: pd.DataFrame, *, distance: str, ax: Axes | None = None) -> Axes:
    """Split violins, one row a model, as Figure 4.4.

    distances: columns model, kind ("positive" or "negative"), value, and auc, the share of (positive, negative)
    couples in which the positive is nearer: 0.5 is chance, 1 is apart. Rows in order of first appearance.
    """
    ax = plt.gca() if ax is None else ax
    sns.violinplot(
        distances, x="value", y="model", hue="kind", hue_order=["positive", "negative"], split=True, inner="quart",
        palette={kind: PALETTE[kind] for kind in ("positive", "negative")}, cut=0, density_norm="width",
        linewidth=0.8, gap=0.05, ax=ax,
    )  # fmt: skip
    for row, (_, rows) in enumerate(distances.groupby("model", sort=False)):
        ax.annotate(
            f"AUC {rows['auc'].iloc[0]:.3f}", (1.01, row), xycoords=("axes fraction", "data"), va="center", fontsize=9
        )
    ax.set(xlabel=UNITS[distance], ylabel="")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2)
    return ax

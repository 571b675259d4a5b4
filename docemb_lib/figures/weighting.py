"""Scores along λ: what is recorded, and where one looks."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from docemb_lib.figures import SERIES


def plot_weighting_points(
    points: pd.DataFrame, *, lam: float, mask: float | None, found: pd.DataFrame, ax: Axes | None = None
) -> Axes:
    """The recorded scores with one mask against λ, a colour for each task, with 95% intervals; runs without weighting
    are dotted lines. A vertical line is drawn at `lam`.

    points: see `weighting_points`; found: the scores at `lam`, as hollow circles.
    """
    ax = plt.gca() if ax is None else ax
    for colour, (task, rows) in zip(SERIES * 4, points.groupby("task", sort=False), strict=False):
        metric = rows["metric"].iloc[0]
        masked = rows["max_structural_len"].isna() if mask is None else rows["max_structural_len"] == mask
        own = rows[masked & rows["lam"].notna()].sort_values("lam")
        ax.plot(own["lam"], own["value"], color=colour, marker="o", linewidth=1, label=f"{task} ({metric})")
        ax.vlines(own["lam"], own["low"], own["high"], color=colour, linewidth=1.6, alpha=0.6)
        for value in rows.loc[rows["lam"].isna(), "value"]:
            ax.axhline(value, color=colour, linestyle=":", linewidth=1)
        here = found[found["task"] == task]
        ax.plot([lam] * len(here), here["value"], "o", color=colour, markerfacecolor="white", markersize=9, zorder=3)
    ax.axvline(lam, color="#555555", linewidth=0.8)
    ax.set(
        xlabel="λ (weight of the structural loss); dotted: no weighting", ylabel="validation score", xlim=(-0.03, 1.03)
    )
    ax.grid(axis="y", visible=True)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return ax

"""Documents in a plane."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from docemb_lib.figures import SERIES, plain

MARKERS = "osD^vP"  # colours come again with another marker


def plot_plane(
    points: pd.DataFrame, *, colour: str, explained: float, legend: bool = True, ax: Axes | None = None
) -> Axes:
    """Each document a point; coloured by length on a logarithmic scale, or by the values of another column.

    points: columns first, second (coordinates), and the one named by `colour`. explained: the share of the space's
    variance that the plane holds; legend: what the colours mean.
    """
    ax = plt.gca() if ax is None else ax
    if colour == "length":
        lengths = points["length"].clip(lower=1)
        drawn = ax.scatter(
            points["first"], points["second"], c=lengths, cmap="viridis", norm=LogNorm(), s=14, linewidth=0
        )
        if legend:
            ax.figure.colorbar(drawn, ax=ax, label="tokens of the structural teacher")
    else:
        for place, (value, rows) in enumerate(points.groupby(colour)):
            ax.scatter(
                rows["first"], rows["second"], s=16, linewidth=0, alpha=0.85, label=plain(str(value)),
                color=SERIES[place % len(SERIES)], marker=MARKERS[place // len(SERIES) % len(MARKERS)],
            )  # fmt: skip
        if legend:
            ax.legend(fontsize=7, title=colour, title_fontsize=7, loc="center left", bbox_to_anchor=(1, 0.5))
    share = "no variance" if np.isnan(explained) else f"{explained:.0%} of the variance in the plane"
    ax.set(xlabel=f"first principal axis ({share})", ylabel="second principal axis", xticks=[], yticks=[])
    ax.grid(visible=False)
    return ax

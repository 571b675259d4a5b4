"""Embeddings of documents: distances to a teacher, and planes."""

from collections.abc import Mapping
from textwrap import shorten
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm

from docemb_lib.evaluation.probes import Distance
from docemb_lib.figures.style import BESIDE, PALETTE, series_colors

UNITS: dict[Distance, str] = {
    "cosine": "cosine distance",
    "mse": "squared L2 distance per dimension",
}
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}
MOST = 1000  # values of a half violin, enough for its shape and fast enough for an explorer


def plot_distances(
    distances: pd.DataFrame,
    *,
    distance: Distance,
    kinds: Mapping[str, str] = KINDS,
    gamma: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw split violins with quartiles, a row per model, positives above (thesis, Figure 4.4).

    Squared distances have a logarithmic axis: the norms of students differ by orders of magnitude.

    Args:
        distances: columns model, kind ("positive" or "negative") and value. The AUC beside a row is
            the share of (positive, negative) pairs in which the positive is nearer.
        distance: "cosine" or "mse".
        kinds: the names of the two kinds in the legend.
        gamma: if given, the margin is drawn, too: a bar from the mean positive to gamma times the
            mean negative, whose length is minus the max-margin loss.
    """
    import seaborn as sns
    from sklearn.metrics import roc_auc_score

    ax = ax or plt.gca()
    models = list(distances["model"].unique())
    sns.violinplot(
        distances.sample(frac=1, random_state=0).groupby(["model", "kind"]).head(MOST),
        x="value",
        y="model",
        order=models,
        hue="kind",
        hue_order=list(kinds),
        palette=PALETTE,
        log_scale=distance == "mse",
        split=True,
        inner="quart",
        cut=0,
        density_norm="width",
        linewidth=0.8,
        ax=ax,
    )
    names = list(kinds.values())
    least = distances["value"].min()
    means = distances.groupby(["model", "kind"])["value"].mean()
    for place, (model, rows) in enumerate(distances.groupby("model", sort=False)):
        auc = roc_auc_score(rows["kind"] == "negative", rows["value"])
        ax.text(1.01, place, f"AUC {auc:.3f}", transform=ax.get_yaxis_transform(), va="center")
        if gamma is not None:
            ends = [means[model, "positive"], max(gamma * means[model, "negative"], least)]
            look: dict[str, Any] = {"color": PALETTE["floor"], "linewidth": 4, "markersize": 16}
            ax.plot(ends, [place, place], "|-", **look)
    handles = ax.get_legend_handles_labels()[0]
    if gamma is not None:
        handles.append(ax.lines[-1])
        names.append(f"margin: from the mean of the first to {gamma:g} × that of the second")
    ax.legend(handles, names, loc="lower left", bbox_to_anchor=(0, 1))
    ax.set(xlabel=UNITS[distance], ylabel="")
    if distance == "mse":
        ticks = np.geomspace(least, distances["value"].max(), 4)
        ax.set_xticks(ticks, [f"{tick:.2g}" for tick in ticks])
        ax.minorticks_off()
    return ax


def plot_plane(
    points: pd.DataFrame, *, colour: str, legend: bool = True, ax: Axes | None = None
) -> Axes:
    """Draw documents as points in a plane, coloured by the column `colour`.

    The outermost per cent of either coordinate is drawn on the edge, so that the others fill the
    plane. points: columns first, second (coordinates) and `colour`; a length is logarithmic.
    """
    import seaborn as sns

    ax = ax or plt.gca()
    places = points[["first", "second"]]
    low, high = (places.quantile(share, interpolation="nearest") for share in (0.005, 0.995))
    points = points.assign(**places.clip(low, high, axis=1))
    values = points[colour]
    look: dict[str, Any] = {"palette": "viridis", "hue_norm": LogNorm()}
    if colour != "length":
        values = values.map(lambda value: shorten(str(value), 40, placeholder=" …"))
        palette = series_colors(values.sort_values())
        look = {"palette": palette, "hue_order": [*palette], "style": values}
    sns.scatterplot(
        points, x="first", y="second", hue=values, s=22, linewidth=0, legend=legend, **look, ax=ax
    )
    if legend:
        sns.move_legend(ax, **BESIDE, title=colour)
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    ax.grid(visible=False)
    return ax

"""Documents and their embeddings: lengths, weights; distances to teachers, planes, probes."""

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from docemb_lib.figures import BESIDE, GREY, PALETTE, STYLES, kind_of, label, series_colors, short

# ---- documents of a corpus
SOURCES = 7  # sources in a figure: more colours look alike
WEIGHTS = {"structural": "structural loss", "contextual": "contextual loss"}


def plot_lengths(
    documents: pd.DataFrame,
    *,
    limit: int | None = None,
    longest: int | None = None,
    sources: Sequence[str] | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Stacked histogram of document lengths by source, in percent of all documents (thesis, Figures
    4.1 and 5.1).

    documents: one row each; columns source, tokens. limit: tokens that the structural teacher
    reads, drawn as a line. longest: end of the axis (None: the 98th percentile, or twice the
    limit); the last bin holds all longer documents. sources: those of all panels that share colours
    (None: those of `documents`, most frequent first); beyond SOURCES the last are "other".
    """
    ax = plt.gca() if ax is None else ax
    longest = longest or max(int(documents["tokens"].quantile(0.98)), 2 * (limit or 0))
    names = list(documents["source"].value_counts().index if sources is None else sources)
    kept = names if len(names) <= SOURCES else [*names[: SOURCES - 1], "other"]
    colors, source = series_colors(kept), documents["source"]
    few = source.where(source.isin(kept), "other")
    shown = documents.assign(tokens=documents["tokens"].clip(upper=longest), source=few)
    bars: dict[str, Any] = {
        "multiple": "stack",
        "stat": "percent",
        "bins": 40,
        "binrange": (0, longest),
        "alpha": 1,
    }
    bars |= {"edgecolor": "white", "linewidth": 0.3}
    sns.histplot(
        shown, x="tokens", hue="source", palette=colors, hue_order=list(colors), **bars, ax=ax
    )
    ax.margins(y=0.18)  # room for the annotation
    if limit is not None:
        ax.axvline(limit, color=GREY, linewidth=1.2, linestyle="--")
        text = f"{(documents['tokens'] > limit).mean():.0%} are longer than\nthe structural teacher reads ({limit})"
        label(
            ax, text, (limit, 1), (6, -4), xycoords=("data", "axes fraction"), va="top", fontsize=10
        )
    ax.set(
        xlabel="tokens per document (the last bin holds all longer ones)",
        ylabel="documents (%)",
        xlim=(0, longest),
    )
    sns.move_legend(ax, **BESIDE)
    return ax


def plot_cumulative(lengths: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Share of documents (rows: data, split, tokens) with at most so many tokens (thesis, Figure
    5.2).
    """
    ax = plt.gca() if ax is None else ax
    colors, styles = (
        series_colors(lengths["data"]),
        dict(zip(lengths["split"].unique(), cycle(STYLES), strict=False)),
    )
    for (name, split), group in lengths.groupby(["data", "split"], sort=False):
        ax.ecdf(group["tokens"], color=colors[name], linestyle=styles[split], linewidth=1.5)
    handles = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    handles += [
        Line2D([], [], color=GREY, linestyle=style, label=str(split))
        for split, style in styles.items()
    ]
    ax.legend(**BESIDE, handles=handles)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="tokens per document", ylabel="share of documents", xlim=(8, 4096), ylim=(0, 1))
    return ax


def plot_weights(weights: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Weights of both losses against document length; the mask is a step.

    weights: one row per document; columns length (structural tokens, ascending), structural,
    contextual.
    """
    ax = plt.gca() if ax is None else ax
    look: dict[str, Any] = {
        "drawstyle": "steps-post",
        "linewidth": 2,
        "style": list(STYLES[:2]),
    }  # equal ones are seen
    look["color"] = [PALETTE[loss] for loss in WEIGHTS]
    weights.set_index("length")[list(WEIGHTS)].rename(columns=WEIGHTS).plot(**look, ax=ax)
    ax.set(
        xlabel="length of the document (structural tokens)",
        ylabel="weight of the loss of a document",
    )
    ax.set(
        xlim=(0, float(weights["length"].quantile(0.95))), ylim=(0, 1.05)
    )  # a few are many times longer
    ax.legend(**BESIDE)
    return ax


# ---- embeddings
UNITS = {"cosine": "cosine distance", "mse": "squared L2 distance per dimension"}
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}
# of the largest squared distance, and of 1: smaller ones are drawn there, a logarithmic axis has no
# 0
FLOOR = 1e-6
MOST = 2000  # values of a half violin, enough for its shape and fast enough for an explorer


def plot_distances(
    distances: pd.DataFrame,
    *,
    distance: str,
    kinds: Mapping[str, str] = KINDS,
    gamma: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Split violins with quartiles, a row per model: positives above, negatives below (thesis,
    Figure 4.4).

    Squared distances have a logarithmic axis: the norms of students differ by orders of magnitude.
    distances: columns model, kind ("positive" or "negative"), value, and auc, the share of
    (positive, negative) pairs in which the positive is nearer (0.5: chance). distance: "cosine" or
    "mse". kinds: legend labels of the two kinds. gamma: also draw the margin, a bar from the mean
    positive to gamma times the mean negative: minus the max-margin loss.
    """
    ax = plt.gca() if ax is None else ax
    models, logarithmic = list(distances["model"].unique()), distance == "mse"
    floor = max(FLOOR * distances["value"].max(), FLOOR) if logarithmic else -np.inf
    shown = distances.assign(
        kind=distances["kind"].map(kinds), value=distances["value"].clip(lower=floor)
    )
    few = shown.sample(frac=1, random_state=0).groupby(["model", "kind"]).head(MOST)
    look: dict[str, Any] = {
        "palette": [PALETTE[kind] for kind in kinds],
        "hue_order": list(kinds.values()),
    }
    look |= {
        "split": True,
        "inner": "quart",
        "cut": 0,
        "density_norm": "width",
        "linewidth": 0.8,
        "orient": "y",
    }
    sns.violinplot(
        few, x="value", y="model", order=models, hue="kind", log_scale=logarithmic, **look, ax=ax
    )
    for row, model in enumerate(models):
        own = shown[shown["model"] == model]
        if gamma is not None:
            near, far = own.groupby("kind")["value"].mean()[list(kinds.values())]
            text = (
                ""
                if row
                else f"margin: from the mean of the first to {gamma:g} × the mean of the second"
            )
            ends = [near, max(gamma * far, floor)]
            ax.plot(
                ends,
                [row, row],
                "|-",
                color=PALETTE["floor"],
                linewidth=4,
                markersize=16,
                label=text,
            )
        label(
            ax,
            f"AUC {own['auc'].iloc[0]:.3f}",
            (1.01, row),
            xycoords=("axes fraction", "data"),
            fontsize=9,
        )
    ax.set(xlabel=UNITS[distance], ylabel="")
    if logarithmic:
        low, high = ax.get_xlim()
        subs = (1, 2, 5) if high < 200 * low else (1,)
        ax.xaxis.set_major_locator(MaxNLocator(4) if high < 10 * low else LogLocator(subs=subs))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
    return ax


def plot_plane(
    points: pd.DataFrame,
    *,
    colour: str,
    explained: float,
    legend: bool = True,
    ax: Axes | None = None,
) -> Axes:
    """Documents as points in a plane, coloured by length (logarithmic) or by the values of another
    column `colour`.

    points: columns first, second (coordinates) and `colour`. explained: share of the variance in
    the plane, or NaN.
    """
    ax = plt.gca() if ax is None else ax
    look: dict[str, Any] = {"palette": "viridis", "hue_norm": LogNorm()}
    if by_length := colour == "length":
        values = points["length"].clip(lower=1)
    else:
        values = points[colour].map(lambda value: short(str(value), 60))
        palette = series_colors(values.sort_values())
        look = {
            "palette": palette,
            "hue_order": list(palette),
            "style": values,
            "style_order": list(palette),
        }
    ax = sns.scatterplot(
        points, x="first", y="second", hue=values, s=22, linewidth=0, legend=legend, **look, ax=ax
    )
    if legend:
        sns.move_legend(ax, **BESIDE, title="tokens" if by_length else colour)
    share = "no variance" if np.isnan(explained) else f"both axes: {explained:.0%} of the variance"
    ax.set(
        xlabel=f"first principal axis ({share})",
        ylabel="second principal axis",
        xticks=[],
        yticks=[],
    )
    ax.grid(visible=False)
    return ax


def plot_probe(probes: pd.DataFrame, *, teacher: str, ax: Axes | None = None) -> Axes:
    """How well a probe predicts one teacher (R²): a group of bars per bucket, a bar per model."""
    ax = plt.gca() if ax is None else ax
    rows = probes[probes["teacher"] == teacher]
    table = rows.pivot_table(index="bucket", columns="model", values="r2", sort=False, dropna=False)
    documents = rows.drop_duplicates("bucket").set_index("bucket")["documents"]
    places, width = np.arange(len(table)), 0.8 / table.shape[1]
    for number, (model, values) in enumerate(table.items()):
        left = places + (number - (table.shape[1] - 1) / 2) * width
        bars = ax.bar(
            left, values, width=width, color=PALETTE[kind_of(str(model))], label=str(model)
        )
        ax.bar_label(bars, fmt="{:z.2f}", padding=2, fontsize=8)  # an empty bucket has no value
    ax.set_xticks(places, [f"{bucket}\n{documents[bucket]} documents" for bucket in table.index])
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.margins(y=0.15)
    ax.set_ylabel("R²")
    ax.set_title(teacher, pad=14)
    return ax

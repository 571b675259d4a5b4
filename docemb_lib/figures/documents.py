"""Documents and their embeddings: lengths, weights; distances to teachers, planes, probes."""

from collections.abc import Mapping, Sequence
from itertools import cycle

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import LogNorm
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

from docemb_lib.figures import BESIDE, GREY, PALETTE, STYLES, colour_of, label, series_colors, short

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
    """Histogram of document lengths, stacked by source (thesis, Figures 4.1 and 5.1).

    The height is in percent of all documents; the last bin holds all longer ones.

    Args:
        documents: a row for each, with the columns source and tokens.
        limit: the tokens that the structural teacher reads, drawn as a line.
        longest: the end of the axis; None: the 98th percentile, or twice the limit.
        sources: the sources of all panels that share colours; beyond SOURCES the last are "other".
            None: the sources of `documents`, the most frequent first.
    """
    import seaborn as sns

    ax = ax or plt.gca()
    longest = longest or max(int(documents["tokens"].quantile(0.98)), 2 * (limit or 0))
    names = list(documents["source"].value_counts().index if sources is None else sources)
    if len(names) > SOURCES:
        names = [*names[: SOURCES - 1], "other"]
    colors = series_colors(names)
    rows = documents.assign(
        tokens=documents["tokens"].clip(upper=longest),
        source=documents["source"].where(documents["source"].isin(names), "other"),
    )
    sns.histplot(
        rows,
        x="tokens",
        hue="source",
        palette=colors,
        hue_order=names,
        multiple="stack",
        stat="percent",
        bins=40,
        binrange=(0, longest),
        alpha=1,
        edgecolor="white",
        linewidth=0.3,
        ax=ax,
    )
    ax.margins(y=0.18)  # room for the annotation
    if limit is not None:
        ax.axvline(limit, color=GREY, linewidth=1.2, linestyle="--")
        longer = (documents["tokens"] > limit).mean()
        text = f"{longer:.0%} are longer than\nthe structural teacher reads ({limit})"
        below = ("data", "axes fraction")
        label(ax, text, (limit, 1), (6, -4), xycoords=below, va="top", fontsize=10)
    ax.set_xlabel("tokens per document (the last bin holds all longer ones)")
    ax.set(ylabel="documents (%)", xlim=(0, longest))
    sns.move_legend(ax, **BESIDE)
    return ax


def plot_cumulative(lengths: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Share of documents with at most so many tokens (thesis, Figure 5.2).

    lengths: one row per document; columns data, split, tokens.
    """
    ax = ax or plt.gca()
    colors = series_colors(lengths["data"])
    styles = dict(zip(lengths["split"].unique(), cycle(STYLES), strict=False))
    for (name, split), group in lengths.groupby(["data", "split"], sort=False):
        ax.ecdf(group["tokens"], color=colors[name], linestyle=styles[split], linewidth=1.5)
    handles = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    for split, style in styles.items():
        handles.append(Line2D([], [], color=GREY, linestyle=style, label=str(split)))
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
    ax = ax or plt.gca()
    lengths = weights["length"]
    for (loss, name), style in zip(WEIGHTS.items(), STYLES, strict=False):  # equal lines are seen
        ax.step(
            lengths,
            weights[loss],
            where="post",
            color=PALETTE[loss],
            linestyle=style,
            linewidth=2,
            label=name,
        )
    ax.set_xlabel("length of the document (structural tokens)")
    ax.set_ylabel("weight of the loss of a document")
    # a few documents are many times longer
    ax.set(xlim=(0, float(lengths.quantile(0.95))), ylim=(0, 1.05))
    ax.legend(**BESIDE)
    return ax


# ---- embeddings
UNITS = {"cosine": "cosine distance", "mse": "squared L2 distance per dimension"}
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}
# Smaller squared distances are drawn at this share of the largest one, or at this value, because a
# logarithmic axis has no 0.
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
    """Split violins with quartiles, a row per model, positives above (thesis, Figure 4.4).

    Squared distances have a logarithmic axis: the norms of students differ by orders of magnitude.

    Args:
        distances: columns model, kind ("positive" or "negative"), value, and auc, the share of
            (positive, negative) pairs in which the positive is nearer (0.5: chance).
        distance: "cosine" or "mse".
        kinds: the names of the two kinds in the legend.
        gamma: if given, the margin is drawn, too: a bar from the mean positive to gamma times the
            mean negative, whose length is minus the max-margin loss.
    """
    import seaborn as sns

    ax = ax or plt.gca()
    models = list(distances["model"].unique())
    logarithmic = distance == "mse"
    floor = max(FLOOR * distances["value"].max(), FLOOR) if logarithmic else -np.inf
    rows = distances.assign(
        kind=distances["kind"].map(kinds), value=distances["value"].clip(lower=floor)
    )
    sns.violinplot(
        rows.sample(frac=1, random_state=0).groupby(["model", "kind"]).head(MOST),
        x="value",
        y="model",
        order=models,
        hue="kind",
        hue_order=list(kinds.values()),
        palette=[PALETTE[kind] for kind in kinds],
        log_scale=logarithmic,
        split=True,
        inner="quart",
        cut=0,
        density_norm="width",
        linewidth=0.8,
        orient="y",
        ax=ax,
    )
    for place, model in enumerate(models):
        of_model = rows[rows["model"] == model]
        auc = f"AUC {of_model['auc'].iloc[0]:.3f}"
        label(ax, auc, (1.01, place), xycoords=("axes fraction", "data"), fontsize=9)
        if gamma is None:
            continue
        positive, negative = of_model.groupby("kind")["value"].mean()[list(kinds.values())]
        (bar,) = ax.plot(
            [positive, max(gamma * negative, floor)],
            [place, place],
            "|-",
            color=PALETTE["floor"],
            linewidth=4,
            markersize=16,
            label="",
        )
        if place == 0:  # a single entry of the legend
            bar.set_label(
                f"margin: from the mean of the first to {gamma:g} × the mean of the second"
            )
    ax.set(xlabel=UNITS[distance], ylabel="")
    if logarithmic:
        _few_ticks(ax)
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
    return ax


def _few_ticks(ax: Axes) -> None:
    """Ticks of a logarithmic axis that stand apart, however many powers of ten it spans."""
    low, high = ax.get_xlim()
    if high < 10 * low:
        ax.xaxis.set_major_locator(MaxNLocator(4))
    else:
        ax.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 200 * low else (1,)))
    ax.xaxis.set_major_formatter("{x:g}")
    ax.xaxis.set_minor_locator(NullLocator())


def plot_plane(
    points: pd.DataFrame, *, colour: str, legend: bool = True, ax: Axes | None = None
) -> Axes:
    """Documents as points in a plane, coloured by the column `colour`; length is logarithmic.

    points: columns first, second (coordinates) and `colour`.
    """
    import seaborn as sns

    ax = ax or plt.gca()
    if colour == "length":
        values = points["length"].clip(lower=1)
        norm = LogNorm(values.min(), values.max())
        look = {"palette": "viridis", "hue_norm": norm, "legend": False}
    else:
        values = points[colour].map(lambda value: short(str(value), 60))
        palette = series_colors(values.sort_values())
        order = list(palette)
        look = {"palette": palette, "hue_order": order, "style": values, "style_order": order}
        look["legend"] = legend
    sns.scatterplot(points, x="first", y="second", hue=values, s=22, linewidth=0, **look, ax=ax)
    if legend and colour == "length":
        bar = ax.figure.colorbar(ScalarMappable(norm, "viridis"), ax=ax, label="tokens")
        ends = [values.min(), np.sqrt(values.min() * values.max()), values.max()]
        bar.set_ticks(ends, labels=[f"{end:,.0f}" for end in ends], minor=False)
        bar.minorticks_off()
    elif legend:
        sns.move_legend(ax, **BESIDE, title=colour)
    ax.set(xlabel="", ylabel="", xticks=[], yticks=[])
    ax.grid(visible=False)
    return ax


def plot_probe(probes: pd.DataFrame, *, teacher: str, ax: Axes | None = None) -> Axes:
    """How well a probe predicts one teacher (R²): a group of bars per bucket, a bar per model."""
    ax = ax or plt.gca()
    rows = probes[probes["teacher"] == teacher]
    table = rows.pivot_table(index="bucket", columns="model", values="r2", sort=False, dropna=False)
    documents = rows.drop_duplicates("bucket").set_index("bucket")["documents"]
    kinds = rows.drop_duplicates("model").set_index("model")["kind"]
    places = np.arange(len(table))
    models = table.shape[1]
    width = 0.8 / models
    for number, (model, values) in enumerate(table.items()):
        left = places + (number - (models - 1) / 2) * width
        color = colour_of(kinds[str(model)])
        bars = ax.bar(left, values, width=width, color=color, label=str(model))
        ax.bar_label(bars, fmt="{:z.2f}", padding=2, fontsize=8)  # an empty bucket has no value
    ax.set_xticks(places, [f"{bucket}\n{documents[bucket]} documents" for bucket in table.index])
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.margins(y=0.15)
    ax.set_ylabel("R²")
    ax.set_title(teacher, pad=14)
    return ax

"""Documents and their embeddings: lengths, weights, repetition; distances to teachers, planes, probes, attention."""

from __future__ import annotations

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
from scipy.ndimage import gaussian_filter1d

from docemb_lib.evaluation.probes import ALL_LENGTHS
from docemb_lib.figures import (
    GREY,
    PALETTE,
    SERIES,
    STYLES,
    kind_of,
    label,
    legend_beside,
    looks_of,
    series_colors,
    short,
)

# ---- documents of a corpus
WEIGHTS = {"structural": "structural loss", "contextual": "contextual loss"}
PAIR_LABELS = {"inside": ("of one document", "positive"), "across": ("of two documents", "negative")}


def plot_lengths(
    documents: pd.DataFrame, *, limit: int | None = None, longest: int | None = None,
    sources: Sequence[str] | None = None, ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Stacked histogram of document lengths by source, in percent of all documents (thesis, Figures 4.1 and 5.1).

    documents: one row each; columns source, tokens. limit: tokens that the structural teacher reads, drawn as a line.
    longest: end of the axis (None: the 98th percentile); the last bin holds all longer documents. sources: from bottom
    to top, so that several panels share colours (None: the most frequent first).
    """
    ax = plt.gca() if ax is None else ax
    longest = longest or int(documents["tokens"].quantile(0.98))
    sources = list(documents["source"].value_counts().index if sources is None else sources)
    lengths = [documents.loc[documents["source"] == source, "tokens"].clip(upper=longest) for source in sources]
    bars: dict[str, Any] = {"bins": 40, "range": (0, longest), "stacked": True, "edgecolor": "white", "linewidth": 0.3}
    bars["weights"] = [np.full(len(own), 100 / len(documents)) for own in lengths]
    ax.hist(lengths, label=sources, color=[SERIES[n % len(SERIES)] for n in range(len(sources))], **bars)
    for again in ax.containers[len(SERIES) :]:  # of a colour that is taken
        plt.setp(again, hatch="///")
    ax.margins(y=0.18)  # room for the annotation
    if limit is not None:
        ax.axvline(limit, color=GREY, linewidth=1.2, linestyle="--")
        text = f"{(documents['tokens'] > limit).mean():.0%} are longer than\nthe structural teacher reads ({limit})"
        label(ax, text, (limit, 1), (6, -4), xycoords=("data", "axes fraction"), va="top", fontsize=10)
    ax.set(xlabel="tokens per document (the last bin holds all longer ones)", ylabel="documents (%)", xlim=(0, longest))
    legend_beside(ax, title="source")
    return ax


def plot_cumulative(lengths: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Share of documents (rows: data, split, tokens) with at most so many tokens (thesis, Figure 5.2)."""
    ax = plt.gca() if ax is None else ax
    colors = series_colors(lengths["data"])
    styles = dict(zip(lengths["split"].unique(), cycle(STYLES), strict=False))
    for (name, split), group in lengths.groupby(["data", "split"], sort=False):
        ax.ecdf(group["tokens"], color=colors[name], linestyle=styles[split], linewidth=1.5)
    handles = [Line2D([], [], color=color, label=name) for name, color in colors.items()]
    handles += [Line2D([], [], color=GREY, linestyle=style, label=str(split)) for split, style in styles.items()]
    legend_beside(ax, handles=handles)
    ax.set_xscale("log", base=2)
    ax.xaxis.set_major_formatter("{x:g}")
    ax.set(xlabel="tokens per document", ylabel="share of documents", xlim=(8, 4096), ylim=(0, 1))
    return ax


def plot_weights(weights: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Weights of both losses against document length; the mask is a step.

    weights: one row per document; columns length (structural tokens, ascending), structural, contextual.
    """
    ax = plt.gca() if ax is None else ax
    for (loss, text), style in zip(WEIGHTS.items(), STYLES, strict=False):  # of equal weights both are seen
        look: dict[str, Any] = {"color": PALETTE[loss], "linestyle": style, "linewidth": 2, "drawstyle": "steps-post"}
        ax.plot(weights["length"], weights[loss], **look, label=text)
    ax.set(xlabel="length of the document (structural tokens)", ylabel="weight of the loss of a document")
    ax.set(xlim=(0, float(weights["length"].quantile(0.95))), ylim=(0, 1.05))  # a few are many times longer
    legend_beside(ax)
    return ax


def plot_redundancy(rows: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Nouns and verbs per distinct noun or verb against document length (SimDE paper, Table 4); a line per data set.

    A diamond is the value over all documents; bins without documents (NaN) are left out.
    """
    ax = plt.gca() if ax is None else ax
    bins, colors = list(dict.fromkeys(rows["words"])), series_colors(rows["data"])
    for name, group in rows.dropna(subset="redundancy").groupby("data", sort=False):
        in_bins = group["words"] != ALL_LENGTHS
        for part, marker, entry in ((group[in_bins], "o-", str(name)), (group[~in_bins], "D", None)):
            ax.plot(part["words"].map(bins.index), part["redundancy"], marker, color=colors[name], label=entry)
    ax.set_xticks(range(len(bins)), bins)
    ax.set(xlabel="words of the document", ylabel="nouns and verbs per distinct one")
    legend_beside(ax)
    return ax


def plot_sentence_similarity(pairs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Histograms and means of the cosine by kind ("inside" a document, "across" documents; SimDE paper, Table 5)."""
    ax = plt.gca() if ax is None else ax
    bars: dict[str, Any] = {"stat": "percent", "binwidth": 0.05, "binrange": (-1, 1), "alpha": 0.5}
    for kind, (text, key) in PAIR_LABELS.items():
        cosines, color = pairs.loc[pairs["kind"] == kind, "cosine"], PALETTE[key]
        sns.histplot(x=cosines, **bars, color=color, label=f"{text}, mean {cosines.mean():.2f}", ax=ax)
        ax.axvline(cosines.mean(), color=color, linestyle="--")
    low, high = pairs["cosine"].min(), pairs["cosine"].max()
    ax.set(xlabel="cosine of two sentences", ylabel="pairs (%)", xlim=(low - 0.05, high + 0.05))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
    return ax


# ---- embeddings
UNITS = {"cosine": "cosine distance", "mse": "squared L2 distance per dimension"}
KINDS = {"positive": "to its own teacher embedding", "negative": "to those of other documents"}
FLOOR = 1e-6  # of the largest squared distance, and of 1: smaller ones are drawn there, a logarithmic axis has no 0
HALF = 0.42  # height of half a violin; rows are 1 apart
BINS = 256  # of the histogram that a density is smoothed from
MARKERS = "osD^vP"  # one per round of colours
PARTS = {"noun": "nouns", "verb": "verbs", "adjective": "adjectives", "other": "other words"}


def plot_distances(
    distances: pd.DataFrame, *, distance: str, kinds: Mapping[str, str] = KINDS, gamma: float | None = None,
    ax: Axes | None = None,
) -> Axes:  # fmt: skip
    """Split violins with medians, a row per model: positives above, negatives below (thesis, Figure 4.4).

    Squared distances have a logarithmic axis: the norms of students differ by orders of magnitude. distances: columns
    model, kind ("positive" or "negative"), value, and auc, the share of (positive, negative) pairs in which the
    positive is nearer (0.5: chance). distance: "cosine" or "mse". kinds: legend labels of the two kinds. gamma: also
    draw the margin, a bar from the mean positive to gamma times the mean negative: minus the max-margin loss.
    """
    ax = plt.gca() if ax is None else ax
    models, logarithmic = list(distances["model"].unique()), distance == "mse"
    floor = max(FLOOR * distances["value"].max(), FLOOR)
    for row, model in enumerate(models):
        own = distances[distances["model"] == model]
        for (kind, text), side in zip(kinds.items(), (-HALF, HALF), strict=True):
            values = own.loc[own["kind"] == kind, "value"].to_numpy()
            values = np.log10(np.maximum(values, floor)) if logarithmic else values  # density on the drawn scale
            x, height = density(values)
            x, middle = (10**x, 10 ** np.median(values)) if logarithmic else (x, np.median(values))
            look: dict[str, Any] = {"color": PALETTE[kind], "alpha": 0.75, "linewidth": 0.6}
            ax.fill_between(x, row, row + side * height, **look, label="" if row else text)
            ax.plot([middle, middle], [row, row + 0.8 * side], color="white", linewidth=0.9)
        ax.axhline(row, color=GREY, linewidth=0.6)
        if gamma is not None:
            near, far = own.groupby("kind")["value"].mean()[list(kinds)]
            ends = [near, max(gamma * far, floor) if logarithmic else gamma * far]
            text = "" if row else f"margin: from the mean of the first to {gamma:g} × the mean of the second"
            ax.plot(ends, [row, row], "|-", color=PALETTE["floor"], linewidth=4, markersize=16, label=text)
        label(ax, f"AUC {own['auc'].iloc[0]:.3f}", (1.01, row), xycoords=("axes fraction", "data"), fontsize=9)
    ax.set_yticks(range(len(models)), models)
    ax.set(xlabel=UNITS[distance], ylim=(len(models) - 0.5, -0.5), xscale="log" if logarithmic else "linear")
    if logarithmic:
        low, high = ax.get_xlim()
        subs = (1, 2, 5) if high < 200 * low else (1,)
        ax.xaxis.set_major_locator(MaxNLocator(4) if high < 10 * low else LogLocator(subs=subs))
        ax.xaxis.set_major_formatter("{x:g}")
        ax.xaxis.set_minor_locator(NullLocator())
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), fontsize=8)
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
            ticks: Any = {"ticks": LogLocator(subs=(1, 2, 5)), "format": "{x:g}"}
            ax.figure.colorbar(drawn, ax=ax, label="tokens of the structural teacher", **ticks).minorticks_off()
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


def plot_probe(probes: pd.DataFrame, *, teacher: str, ax: Axes | None = None) -> Axes:
    """How well a probe predicts one teacher (R²): a group of bars per bucket, a bar per model."""
    ax = plt.gca() if ax is None else ax
    rows = probes[probes["teacher"] == teacher]
    table = rows.pivot_table(index="bucket", columns="model", values="r2", sort=False, dropna=False)
    documents = rows.drop_duplicates("bucket").set_index("bucket")["documents"]
    places, width = np.arange(len(table)), 0.8 / table.shape[1]
    for number, (model, values) in enumerate(table.items()):
        left = places + (number - (table.shape[1] - 1) / 2) * width
        bars = ax.bar(left, values, width=width, color=PALETTE[kind_of(str(model))], label=str(model))
        ax.bar_label(bars, fmt="{:z.2f}", padding=2, fontsize=8)  # an empty bucket has no value
    ax.set_xticks(places, [f"{bucket}\n{documents[bucket]} documents" for bucket in table.index])
    ax.axhline(0, color=GREY, linewidth=0.8)
    ax.margins(y=0.15)
    ax.set_ylabel("R²")
    ax.set_title(teacher, pad=14)
    return ax


def plot_attention(parts: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Attention to a word by part of speech, relative to any word, mean over documents (SimDE paper, Figure 3)."""
    ax = plt.gca() if ax is None else ax
    palette = {model: color for model, (color, _) in looks_of(parts["model"]).items()}
    look: dict[str, Any] = {
        "saturation": 1,
        "errorbar": ("ci", 95),
        "seed": 0,
        "err_kws": {"linewidth": 1, "color": GREY},
    }
    order: dict[str, Any] = {"order": list(PARTS), "hue_order": list(palette), "palette": palette}
    sns.barplot(parts, x="part", y="relative", hue="model", ax=ax, **order, **look)
    ax.axhline(1, color=GREY, linewidth=0.8, linestyle="--")
    ax.set_xticks(range(len(PARTS)), list(PARTS.values()))
    ax.set(xlabel="", ylabel="attention to a word\n(1: as to any word)")
    legend_beside(ax, title="")
    return ax

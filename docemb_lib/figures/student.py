"""A toy: where the structural losses would move an embedding, from wherever it is."""

from __future__ import annotations

from collections.abc import Mapping

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm
from matplotlib.ticker import LogLocator, NullLocator
from scipy.ndimage import gaussian_filter1d

from docemb_lib.figures import PALETTE, SERIES, kind_of, plain

# ---- a toy


TEACHERS = np.array([[1.0, 0.6], [-0.8, 0.9], [0.1, -1.0]])  # three documents in the plane; the first is ours


def plot_max_margin(*, gamma: float = 1.0, ax: Axes | None = None) -> Axes:
    """Where plain MSE and max-margin MSE would move a student's embedding, over a grid of the plane.

    The arrows are minus the gradient of D(y, t_0) - gamma * mean of D(y, t_1), D(y, t_2), with D the MSE, which in the
    plane has the gradient y - t.
    """
    ax = plt.gca() if ax is None else ax
    grid = np.stack(np.meshgrid(np.linspace(-1.8, 1.8, 9), np.linspace(-1.6, 1.6, 7)), axis=-1).reshape(-1, 2)
    own, others = TEACHERS[0], TEACHERS[1:]
    plain = own - grid
    margin = plain - gamma * (others[None] - grid[:, None]).mean(axis=1)
    for arrows, color, label in (
        (plain, PALETTE["untrained"], "MSE"),
        (margin, PALETTE["student"], f"max-margin MSE, γ = {gamma}"),
    ):
        ax.quiver(*grid.T, *arrows.T, color=color, angles="xy", scale_units="xy", scale=6, width=0.004, label=label)
    ax.plot(*own, marker="s", color=PALETTE["positive"], markersize=11, linestyle="", label="its teacher embedding")
    ax.plot(*others.T, marker="s", color=PALETTE["negative"], markersize=11, linestyle="", label="of other documents")
    ax.margins(0.12)  # room for the outer arrows
    ax.set(xlabel="first dimension", ylabel="second dimension", aspect="equal")
    ax.grid(visible=False)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return ax


# ---- positives against negatives


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


# ---- Documents in a plane.


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


# ---- how much of a teacher can be read off a student


MEASURES = {"r2": "R²", "overlap": "common neighbours"}


def plot_probe(probes: pd.DataFrame, *, teacher: str, measure: str, ax: Axes | None = None) -> Axes:
    """One teacher and one measure: a group of bars for each bucket of lengths, a bar for each model.

    probes: columns model, teacher, bucket, documents, r2, overlap, in the order in which they are drawn; measure: r2 or
    overlap.
    """
    ax = plt.gca() if ax is None else ax
    rows = probes[probes["teacher"] == teacher]
    table = rows.pivot_table(index="bucket", columns="model", values=measure, sort=False, dropna=False)
    documents = rows.drop_duplicates("bucket").set_index("bucket")["documents"]
    places, width = np.arange(len(table)), 0.8 / table.shape[1]
    for number, model in enumerate(table.columns):
        left = places + (number - (table.shape[1] - 1) / 2) * width
        ax.bar(left, table[model], width=width, color=PALETTE[kind_of(str(model))], label=str(model))
        known = table[model].notna().to_numpy()  # an empty bucket has no value
        for x, value in zip(left[known], table[model][known], strict=True):
            ax.annotate(
                f"{value:.2f}", (x, max(value, 0)), xytext=(0, 2), textcoords="offset points", ha="center", fontsize=8
            )
    ax.set_xticks(places, [f"{bucket}\n{documents[bucket]} documents" for bucket in table.index])
    ax.axhline(0, color="black", linewidth=0.8)
    ax.grid(axis="x", visible=False)
    ax.grid(axis="y", visible=True)
    ax.margins(y=0.15)
    ax.set(ylabel=MEASURES[measure])
    ax.set_title(teacher, pad=14)  # above the numbers of bars that hang down
    return ax

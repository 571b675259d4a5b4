"""Runs and models side by side: training curves, scores over tasks, λ, length, retrieval."""

from collections.abc import Mapping
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType
from pandas.core.groupby import DataFrameGroupBy

from docemb_lib.evaluation.scoreboard import MAIN_METRICS, mean_over_tasks, normalised
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS
from docemb_lib.figures import (
    BESIDE,
    GREY,
    PALETTE,
    SERIES,
    colour_of,
    label,
    looks_of,
    series_colors,
)
from docemb_lib.thesis.values import BASELINE

METRICS = {"map": "MAP", "mrr": "MRR", "mean": "mean score", "f1_macro": "macro-F1"}
# Columns of the validation history. A balanced delta is a weight.
NOT_LOSSES = {"step", "epoch", "norm", "spread", "collapsed", "cca", "cca_embeddings", "delta"}
MEAN: dict[str, Any] = {"marker": "^", "color": GREY, "linestyle": ""}
HOLLOW: dict[str, Any] = {
    "marker": "D",
    "markerfacecolor": "none",
    "color": GREY,
    "linestyle": "",
    "markersize": 5,
}


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Losses over updates: training as thin smoothed lines, validation as points on lines.

    train, validation: see `training.run.History`.
    """
    ax = ax or plt.gca()
    colors = {
        "loss": GREY,
        "structural": PALETTE["structural"],
        "contextual": PALETTE["contextual"],
    }
    further = sorted({*train} & {*validation} - {*colors} - NOT_LOSSES)
    spare = [color for color in SERIES if color not in colors.values()]
    colors.update(zip(further, cycle(spare), strict=False))
    for part, color in colors.items():
        if part not in train or part not in validation or train[part].isna().all():
            continue
        if part != "loss" and train[part].equals(train["loss"]):
            continue  # the only part is the loss itself
        smooth = train[part].rolling(window=max(1, len(train) // 20), min_periods=1).mean()
        ax.plot(train["step"], smooth, color=color, linewidth=0.9, alpha=0.7)
        ax.plot(validation["step"], validation[part], "o-", color=color, linewidth=1.8, label=part)
    ax.set(xlabel="updates", ylabel="loss")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(**BESIDE, title="validation\n(thin: training)")
    return ax


def plot_runs(runs: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Normalised scores over tasks, a row per model, lowest mean on top (Figures 4.2 to 4.11).

    Each score is divided by the best score shown on its task. The triangle is the mean with the
    deviation over head seeds. runs: tidy scores (model, task, metric, seed, value) with `group`, a
    category that gives the colour ("baseline": grey), `thesis`, the mean in the thesis (hollow
    diamond) or NaN, and `legend`, the name of this mean. `by` is the title of the legend.
    """
    scores = normalised(runs[runs["metric"].isin(MAIN_METRICS)])
    scores["value"] = scores["normalised"]
    over_seeds = mean_over_tasks(scores).groupby("model")["value"]
    rows = scores.groupby("model")[["group", "thesis"]].first()
    rows["mean"] = over_seeds.mean()
    rows["std"] = over_seeds.std().fillna(0.0)
    rows = rows.sort_values("mean", kind="stable")

    points = scores.groupby(["model", "task"])["value"].mean().reset_index()  # over head seeds
    points["group"] = points["model"].map(rows["group"].astype(str))
    present = set(points["group"])
    groups = [group for group in pd.Categorical(rows["group"]).categories if group in present]
    colors = series_colors((group for group in groups if group != BASELINE), more="viridis")
    if BASELINE in groups:
        colors[BASELINE] = PALETTE["untrained"]
    legend = runs["legend"].iloc[0]
    ax = _draw_points(points, rows, hue="group", colors=colors, title=by, thesis=legend, ax=ax)
    ax.set_xlabel("normalised score (1: the best model shown on a task)")
    return ax


def plot_contextual_losses(losses: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Scores of students by their contextual loss, with the spread of each beside its row.

    The lowest mean is on top, the triangle is the mean over tasks. The spread is the mean cosine
    distance of two documents; a student that has collapsed is called so. losses: see
    `views.contextual_losses`.
    """
    points = losses[losses["metric"].isin(MAIN_METRICS)]
    by_loss = points.groupby("loss", sort=False)
    rows = (
        by_loss[["spread", "collapsed"]].first().assign(mean=by_loss["value"].mean(), thesis=None)
    )
    rows = rows.astype({"thesis": float}).sort_values("mean", kind="stable")
    colors = series_colors(points["task"].sort_values())
    ax = _draw_points(points, rows, y="loss", hue="task", colors=colors, ax=ax)
    for place, row in enumerate(rows.itertuples()):
        text = f"spread {row.spread:.2g}" + (", collapsed" if row.collapsed else "")
        color = PALETTE["structural"] if row.collapsed else GREY
        # At the right edge of the axes, at the height of the row.
        ax.annotate(
            text,
            (1.01, place),
            xycoords=ax.get_yaxis_transform(),
            va="center",
            fontsize=8,
            color=color,
        )
    ax.set_xlabel("score on validation documents")
    return ax


def plot_correlations(validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Canonical correlations of student and contextual teacher over updates.

    One line is that of the projected views, the other that of the embeddings before projection.
    validation: see `training.run.History`; without these correlations a text says why.
    """
    ax = ax or plt.gca()
    if "cca" not in validation:
        ax.set_axis_off()
        reason = "The canonical correlation is not measured:\nno views, or too few documents"
        ax.text(0.5, 0.5, reason, ha="center")
        return ax
    lines = {"cca": "views", "cca_embeddings": "embeddings"}
    for (column, name), color in zip(lines.items(), SERIES, strict=False):
        ax.plot(validation["step"], validation[column], "o-", color=color, label=name)
    ax.set(xlabel="updates", ylabel="mean canonical correlation")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(**BESIDE)
    return ax


def plot_rounds(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Normalised accuracy over tasks, a row per model and round (thesis, Figure 5.3).

    The lowest mean of a round is on top. A score is divided by the best score on its task over all
    rounds; scores of the thesis are divided by the best score of the thesis for these models. A row
    has a diamond if the thesis has all tasks of the row.
    """
    points = normalised(scores[scores["metric"] == "accuracy"], over_rounds=True)
    in_thesis = points.assign(value=points["thesis"]).drop(columns="normalised")
    points["thesis"] = normalised(in_thesis, over_rounds=True)["normalised"]
    points["value"] = points["normalised"]
    rounds = list(points["round"].unique())
    points["row"] = points["model"]
    best = "task"
    if len(rounds) > 1:
        points["row"] += ";" + points["round"]
        best = "task, of all rounds"
    by_row = points.groupby("row")
    rows = _means(by_row).assign(round=by_row["round"].first().map(rounds.index))
    rows = rows.sort_values(["round", "mean"], kind="stable")
    title = "examples for the heads"
    colors = series_colors(rounds)
    ax = _draw_points(points, rows, y="row", hue="round", colors=colors, title=title, ax=ax)
    ax.set_xlabel(f"normalised accuracy (1: the best model shown on a {best})")
    return ax


def plot_retrieval(scores: pd.DataFrame, *, metric: str, ax: Axes | None = None) -> Axes:
    """MAP or MRR on each retrieval task, a row per model (thesis, Figures 5.5 and 5.6).

    The lowest mean is on top. The triangle is the mean over tasks. A row has a diamond, the mean in
    the thesis, if the thesis has all its tasks.
    """
    points = scores[scores["metric"] == metric]
    points = points.drop_duplicates(["model", "task"])  # rankings are equal in all rounds
    rows = _means(points.groupby("model")).sort_values("mean", kind="stable")
    colors = series_colors(points["task"].sort_values())
    ax = _draw_points(points, rows, hue="task", colors=colors, ax=ax)
    ax.set_xlabel(METRICS[metric])
    return ax


def _means(groups: DataFrameGroupBy) -> pd.DataFrame:
    """The mean of `value` in each group, and of `thesis` where it has all values of the group."""
    thesis = groups["thesis"].agg(lambda values: values.mean(skipna=False))
    return pd.DataFrame({"mean": groups["value"].mean(), "thesis": thesis})


def _draw_points(
    points: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    y: str = "model",
    hue: str,
    colors: Mapping[str, ColorType],
    ax: Axes | None,
    title: str = "",
    thesis: str = "thesis",
) -> Axes:
    """A point per task for each row, a triangle for the mean, and a legend above.

    A diamond is the mean in the thesis, which the legend calls `thesis`.
    """
    ax = ax or plt.gca()
    sns.stripplot(
        points,
        x="value",
        y=y,
        hue=hue,
        palette=colors,
        order=list(rows.index),
        jitter=False,
        size=6.5,
        edgecolor="white",
        linewidth=0.4,
        legend=False,
        ax=ax,
    )
    places = range(len(rows))
    ax.errorbar(
        rows["mean"],
        places,
        xerr=rows.get("std"),
        markersize=3.5,
        capsize=2,
        linewidth=0.9,
        zorder=5,
        **MEAN,
    )
    ax.plot(rows["thesis"], places, zorder=6, **HOLLOW)
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= 15 else 8)
    ax.set(ylabel="", ylim=(len(rows) - 0.4, -0.6))

    handles: list[Any] = [Patch(color=color, label=name) for name, color in colors.items()]
    handles.append(Line2D([], [], label=OVERALL, **MEAN))
    if rows["thesis"].notna().any():
        handles.append(Line2D([], [], label=thesis, **HOLLOW))
    longest = max(map(len, colors))
    ax.legend(
        handles=handles,
        title=title,
        ncols=min(4, len(handles), max(1, 100 // (longest + 5))),
        fontsize=8,
        title_fontsize=8,
        loc="lower left",
        bbox_to_anchor=(0, 1),
        alignment="left",
        columnspacing=1.2,
    )
    return ax


def plot_weighting(
    points: pd.DataFrame,
    *,
    task: str | None = None,
    lam: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Score on a task against λ, a line per mask with 95% intervals; dotted: the plain sum.

    `points` come from `widgets.weighting_points`. Without `task`, the last one is drawn, which is
    the mean if there are several. `lam` is marked by a line.
    """
    ax = ax or plt.gca()
    task = task or points["task"].iloc[-1]
    rows = points[points["task"] == task]
    masks = rows["max_structural_len"].map("mask {:.0f}".format).replace("mask nan", "no mask")
    shifts = _dodged(masks.nunique(), 0.012)
    groups = rows.groupby(masks)
    for (mask, group), color, shift in zip(groups, cycle(SERIES), shifts, strict=False):
        line = group.dropna(subset="lam").sort_values("lam")
        _draw_intervals(ax, line["lam"] + shift, line, fmt="o-", color=color, label=mask)
        for value in group.loc[group["lam"].isna(), "value"]:
            ax.axhline(value, color=color, linestyle=":", linewidth=1.2, label=f"plain sum, {mask}")
    if lam is not None:
        ax.axvline(lam, color=GREY, linewidth=0.8)
    ax.legend(**BESIDE)
    ax.set(xlabel="λ (weight of the structural loss)", ylabel=_metric(rows))
    ax.set(xlim=(-0.03, 1.03), title=task)
    return ax


def plot_negatives(points: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Score against the number of negatives of a document, a line per task with 95% intervals.

    `points` come from `views.scores_by_negatives`.
    """
    ax = ax or plt.gca()
    for (task, line), color in zip(points.groupby("task", sort=False), cycle(SERIES)):
        line = line.sort_values("negatives")
        _draw_intervals(ax, line["negatives"], line, fmt="o-", color=color, label=task)
    ax.set_xscale("log")
    ax.legend(**BESIDE)
    ax.set(xlabel="K (negatives of a document)", ylabel=_metric(points))
    return ax


def plot_by_length(by_length: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """The score on one task by document length, a line per model with 95% intervals.

    `by_length` has the columns model, kind, task, metric, bucket (in order), examples, value, low
    and high.
    """
    ax = ax or plt.gca()
    rows = by_length[by_length["task"] == task]
    examples = rows.drop_duplicates("bucket").set_index("bucket")["examples"]
    looks = looks_of(rows)
    for (model, (color, style)), shift in zip(looks.items(), _dodged(len(looks), 0.1), strict=True):
        line = rows[rows["model"] == model]
        places = line["bucket"].map(list(examples.index).index) + shift
        look = {"fmt": f"o{style}", "color": color, "markersize": 4, "label": model}
        _draw_intervals(ax, places, line, **look)
    ax.legend(**BESIDE, handlelength=3)
    names = [f"{bucket}\n({count})" for bucket, count in examples.items()]
    ax.set_xticks(range(len(examples)), names, fontsize="small")  # seven buckets side by side
    ax.set_xlabel("length in tokens of the structural teacher (examples)")
    ax.set(ylabel=_metric(rows), title=task)
    return ax


def _draw_intervals(ax: Axes, places: pd.Series, rows: pd.DataFrame, **look: Any) -> None:
    ax.errorbar(places, rows["value"], yerr=_reach(rows), elinewidth=1, capsize=2, **look)


def plot_task(intervals: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """The first metric of one task, a bar per row with the 95% interval (thesis, Figure 5.4).

    `intervals` has the columns model, kind, task, metric, value, low, high, and perhaps `thesis`,
    the score in the thesis, which is drawn as a hollow diamond.
    """
    ax = ax or plt.gca()
    rows = intervals[intervals["task"] == task]
    rows = rows[rows["metric"] == rows["metric"].iloc[0]]
    places = range(len(rows))
    ax.barh(
        places,
        rows["value"],
        xerr=_reach(rows),
        color=rows["kind"].map(colour_of),
        ecolor=GREY,
        alpha=0.6,  # so that the interval is visible on its bar
        height=0.7,
        capsize=2,
    )
    for place, value, high in zip(places, rows["value"], rows["high"], strict=True):
        label(ax, f"{value:.3f}", (high, place), (4, 0))
    if "thesis" in rows:
        ax.plot(rows["thesis"], places, zorder=6, **HOLLOW)
    ax.set_yticks(places, list(rows["model"]))
    ax.invert_yaxis()
    ax.set(xlabel=_metric(rows), title=task)
    return ax


def plot_differences(
    comparison: pd.DataFrame, *, task: str, reference: str, ax: Axes | None = None
) -> Axes:
    """The difference of each model to the reference on one task, with its 95% interval.

    The models are in the order of the rows. A point is filled if the paired test shows a
    difference. comparison: see `runs.scores.Final`.
    """
    ax = ax or plt.gca()
    rows = comparison[(comparison["task"] == task) & (comparison["reference"] == reference)]
    for place, row in enumerate(rows.to_dict("records")):
        color = colour_of(row["kind"])
        ax.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.6)
        fill = "none" if row["verdict"] == VERDICTS[-1] else color
        ax.plot(row["difference"], place, "o", color=color, markerfacecolor=fill)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.set(ylim=(len(rows) - 0.4, -0.6), title=task)
    fills = "filled: difference shown; hollow: none shown"
    ax.set_xlabel(f"{_metric(rows)}, minus that of {reference}\n{fills}")
    return ax


def plot_few_shot(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Macro-F1 against training examples per class, by model (SimDE paper, Figure 2).

    A line is the mean over draws, a band the deviation.
    """
    ax = ax or plt.gca()
    rows = scores[scores["metric"] == "f1_macro"]
    sns.lineplot(
        rows,
        x="per_class",
        y="value",
        hue="model",
        style="model",
        markers=True,
        palette={model: color for model, (color, _) in looks_of(rows).items()},
        errorbar="sd",
        ax=ax,
    )
    ax.legend(**BESIDE)
    ax.set_xticks(sorted(rows["per_class"].unique()))
    ax.set(xlabel="training examples of each class", ylabel=_metric(rows))
    return ax


def _metric(rows: pd.DataFrame) -> str:
    metric = str(rows["metric"].iloc[0])
    return METRICS.get(metric, metric)


def _dodged(count: int, gap: float) -> np.ndarray:
    """Shifts that put `count` marks of one place side by side, so that each interval is visible."""
    return gap * (np.arange(count) - (count - 1) / 2)


def _reach(rows: pd.DataFrame) -> np.ndarray:
    """How far the intervals reach below and above the values: (2, N)."""
    return np.stack([rows["value"] - rows["low"], rows["high"] - rows["value"]]).clip(min=0)

"""Scores of runs and models: training curves, rows with intervals, lines with intervals."""

from collections.abc import Mapping
from itertools import cycle
from textwrap import fill
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from matplotlib.typing import ColorType

from docemb_lib.evaluation.scoreboard import METRIC_NAMES, UNCLEAR, best_means, main_rows
from docemb_lib.figures.style import BESIDE, GREY, PALETTE, WIDTH, colour_of, series_colors
from docemb_lib.thesis.values import BASELINE

# The names in a history that are neither the loss nor a part of it. A balanced delta is a weight.
NOT_LOSSES = {
    "step",
    "epoch",
    "learning_rate",
    "grad_norm",
    "norm",
    "spread",
    "collapsed",
    "cca",
    "cca_embeddings",
    "delta",
    "documents_per_second",
    "tokens_per_second",
}
LOSSES = {"loss": GREY, "structural": PALETTE["structural"], "contextual": PALETTE["contextual"]}
FURTHER = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9")  # of the parts of both
MARKERS = "sv^PX*p<>h"  # of tasks
STYLES = ("-", "--", ":", "-.")
LETTERS = 34  # in a line of the name of a row: a third of the width
LINE = 0.15  # inches of such a line
ABOVE: dict[str, Any] = {"loc": "outside upper left", "ncols": 4, "alignment": "left"}
NUMBERS = ["value", "low", "high"]
QUARTILES = ["thesis_q1", "thesis_q3"]


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Draw losses over updates: training as thin smoothed lines, validation as points on lines.

    A part that is the whole loss is left out. train, validation: see `training.run.History`.
    """
    ax = ax or plt.gca()
    common: set[Any] = set(train) & set(validation) - NOT_LOSSES
    further = sorted(common - set(LOSSES))
    colors: dict[Any, str] = {**LOSSES, **dict(zip(further, FURTHER, strict=False))}
    parts = train[[part for part in colors if part in common]].T.drop_duplicates().index
    smooth = train[parts].rolling(max(1, len(train) // 20), min_periods=1).mean()
    for part in parts:
        color = colors[part]
        ax.plot(train["step"], smooth[part], color=color, linewidth=0.9, alpha=0.7)
        ax.plot(validation["step"], validation[part], "o-", color=color, label=part)
    ax.set(xlabel="updates", ylabel="loss")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(**BESIDE, title="validation\n(thin: training)")
    return ax


# ---- rows


def plot_rows(
    scores: pd.DataFrame, *, panel: str | None = None, hue: str | None = None, by: str = ""
) -> Figure:
    """Draw a row for each model: its mean over tasks, the best on top.

    A row has the 95% interval, the number at the right and, if there are several tasks, a small
    mark for each. A point is hollow where a test shows no difference. A hollow diamond is the mean
    in the thesis, and a dotted line joins the quartiles there. The first metric of a task counts.

    Args:
        scores: rows of model, task, metric, value, low and high, the bounds of the interval;
            perhaps verdict (of a test), thesis (the value there) and the columns QUARTILES.
        panel: the column whose values have a panel each, one below the other.
        hue: the column that gives the colour; None: the kind of the model.
        by: what the colours stand for, the title of the legend.
    """
    panels = {"": scores} if panel is None else dict(iter(scores.groupby(panel, sort=False)))
    lines = [_height_of(rows) for rows in panels.values()]
    figure = plt.figure(figsize=(WIDTH, 0.7 + sum(lines) + 0.6 * len(lines)))
    axes = figure.subplots(len(panels), height_ratios=lines, squeeze=False).flat
    colors = {}
    if hue is not None:
        colors = series_colors(group for group in scores[hue] if group != BASELINE)
        colors[BASELINE] = PALETTE["untrained"]
    legend: dict[str, Any] = {}
    for ax, (name, rows) in zip(axes, panels.items(), strict=True):
        _draw_rows(ax, main_rows(rows), hue, colors)
        if panel != "metric":
            ax.set_title(name)
        handles, labels = ax.get_legend_handles_labels()
        legend |= dict(zip(labels, handles, strict=True))
    if legend:
        figure.legend([*legend.values()], [*legend], title=by, **ABOVE)
    return figure


def _height_of(rows: pd.DataFrame) -> float:
    """Return the inches of the rows of a panel, which all have the lines of the longest name."""
    names = rows["model"].unique()
    longest = max(_wrapped(name).count("\n") for name in names)
    return len(names) * LINE * (1.4 + longest)


def _wrapped(name: str) -> str:
    return fill(name, LETTERS, break_on_hyphens=False)


def _draw_rows(
    ax: Axes, scores: pd.DataFrame, hue: str | None, colors: Mapping[str, ColorType]
) -> None:
    rows = over_tasks(scores)
    for place, row in enumerate(rows.to_dict("records")):
        color = colour_of(row["kind"]) if hue is None else colors[row[hue]]
        ax.errorbar(
            row["value"],
            place,
            xerr=[[row["below"]], [row["above"]]],
            fmt="o",
            color=color,
            markerfacecolor="none" if row.get("verdict") == UNCLEAR else color,
            label="" if hue is None else row[hue],
        )
        at_the_edge = ax.get_yaxis_transform()
        ax.text(1.01, place, f"{row['value']:.3f}", transform=at_the_edge, va="center")
    places = range(len(rows))
    by_task = scores.groupby(["model", "task"], sort=False)["value"].mean().unstack()
    for (task, values), marker in zip(by_task.items(), cycle(MARKERS), strict=False):
        if by_task.shape[1] > 1:
            ax.plot(values[rows.index], places, marker, color=GREY, markersize=4, label=task)
    if rows["thesis"].notna().any():
        look: dict[str, Any] = {"color": GREY, "markerfacecolor": "none", "label": "in the thesis"}
        ax.plot(rows["thesis"], places, "D", **look)
    if QUARTILES[0] in rows:
        ax.hlines(places, *rows[QUARTILES].to_numpy().T, color=GREY, linestyle=":")
    ax.set_yticks(places, [_wrapped(name) for name in rows.index])
    ax.set(ylim=(len(rows) - 0.5, -0.5), xlabel=_metric(scores))


def over_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """Return a row per model, the best mean over tasks first, with `below` and `above`.

    These are how far its 95% interval reaches. The examples of the K tasks are independent, so the
    reaches of their intervals add in squares: sqrt(sum of squares) / K. A number is NaN where a
    model lacks it on some task. Other columns have the first value of the model.
    """
    numbers = scores.reindex(columns=[*NUMBERS, "thesis"]).astype(float)
    scores = scores.assign(**numbers)
    means = scores.groupby(["model", "task"], sort=False)[[*numbers]].mean()
    by_task: Any = means.unstack()  # numbers × tasks
    rows = scores.groupby("model", sort=False).first()
    value = by_task["value"]
    rows["value"] = value.mean(axis=1, skipna=False)
    rows["thesis"] = by_task["thesis"].mean(axis=1, skipna=False)
    reaches = {"below": value - by_task["low"], "above": by_task["high"] - value}
    for side, reach in reaches.items():
        squares = reach.clip(lower=0) ** 2
        rows[side] = np.sqrt(squares.sum(axis=1, skipna=False)) / value.shape[1]
    return rows.sort_values("value", ascending=False, kind="stable")


def plot_runs(
    runs: pd.DataFrame, *, panel: str | None = None, hue: str | None = "group", by: str = ""
) -> Figure:
    """Draw normalised scores in rows, see `plot_rows` (thesis, Figures 4.2 to 4.12 and 5.3).

    A score is divided by the best mean of a model on its task, in all panels together. Values of
    the thesis are normalised already.
    """
    runs = main_rows(runs)
    best = best_means(runs, over_rounds=True)
    numbers = runs.reindex(columns=NUMBERS).astype(float).div(best, axis=0)
    figure = plot_rows(runs.assign(**numbers), panel=panel, hue=hue, by=by)
    for ax in figure.axes:
        ax.set_xlabel("normalised score (1: the best model on a task)")
    return figure


# ---- lines


def plot_lines(rows: pd.DataFrame, *, x: str, ax: Axes | None = None) -> Axes:
    """Draw a line with intervals for each model over the column `x`.

    The colour is that of the kind. rows: model, kind, metric, value, low, high and `x`, whose
    values stand in order.
    """
    ax = ax or plt.gca()
    places, names = pd.factorize(rows[x])
    lines = list(rows.assign(place=places).groupby("model", sort=False))
    for number, (model, line) in enumerate(lines):
        # Points of one place stand side by side, so that each interval is visible.
        shift = 0.08 * (number - (len(lines) - 1) / 2)
        ax.errorbar(
            line["place"] + shift,
            line["value"],
            yerr=[line["value"] - line["low"], line["high"] - line["value"]],
            fmt="o",
            linestyle=STYLES[number % len(STYLES)],
            color=colour_of(line["kind"].iloc[0]),
            label=model,
        )
    ax.set_xticks(range(len(names)), names)
    ax.legend(**BESIDE, handlelength=3)
    ax.set_ylabel(_metric(rows))
    return ax


def _metric(rows: pd.DataFrame) -> str:
    metric = str(rows["metric"].iloc[0])
    return METRIC_NAMES.get(metric, metric)

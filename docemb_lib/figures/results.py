"""The final evaluation: every model on every task, what is shown to differ, and what length does to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS
from docemb_lib.figures import PALETTE, kind_of, looks_of

NAMES = {"map": "MAP", "mean": OVERALL}
NARROW = 0.15  # of what the farthest interval reaches
LEAST = 10  # examples of a bucket: the fewest that a score is drawn of


def each_task(plot: Callable[..., Axes], scores: pd.DataFrame, *, height: float, **options: Any) -> Figure:
    """One of the plots below, a row per task. scores: what it takes; height: of a row, in inches."""
    tasks = list(scores["task"].unique())
    figure, axes = plt.subplots(len(tasks), 1, figsize=(7.2, height * len(tasks)), layout="constrained", squeeze=False)
    for task, ax in zip(tasks, axes[:, 0], strict=True):
        plot(scores, task=task, ax=ax, **options)
    return figure


def plot_task(intervals: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: a bar per model with its 95% interval, in the order of the models' first appearance.

    intervals: columns model, task, metric, value, low, high; the task's main metric comes first.
    """
    ax = plt.gca() if ax is None else ax
    rows = intervals[intervals["task"] == task]
    metric = rows["metric"].iloc[0]
    rows = rows[rows["metric"] == metric]
    colors = [PALETTE[kind_of(str(model))] for model in rows["model"]]
    reach = np.stack([rows["value"] - rows["low"], rows["high"] - rows["value"]]).clip(min=0)
    ax.barh(range(len(rows)), rows["value"], xerr=reach, color=colors, height=0.7, capsize=2)
    narrow = NARROW * rows["high"].max()  # too narrow a bar for its number
    for row, (value, high) in enumerate(zip(rows["value"], rows["high"], strict=True)):
        at, colour = (high, "black") if value < narrow else (0, "white")
        ax.annotate(
            f"{value:.3f}", (at, row), xytext=(4, 0), textcoords="offset points", va="center", color=colour, fontsize=8
        )
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.invert_yaxis()
    ax.set(xlabel=NAMES.get(metric, metric), title=task)
    return ax


def plot_differences(comparison: pd.DataFrame, *, task: str, reference: str, ax: Axes | None = None) -> Axes:
    """One task: how far every model is ahead of the reference, with 95% intervals, in the order of the rows.

    Filled where the paired test finds a difference, hollow where none is shown. comparison: see `compare`.
    """
    ax = plt.gca() if ax is None else ax
    rows = comparison[(comparison["task"] == task) & (comparison["reference"] == reference)]
    for place, (_, row) in enumerate(rows.iterrows()):
        color = PALETTE[kind_of(str(row["model"]))]
        shown = row["verdict"] != VERDICTS[-1]
        ax.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.6)
        ax.plot(row["difference"], place, "o", color=color, markerfacecolor=color if shown else "white")
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.set(ylim=(len(rows) - 0.4, -0.6), title=task)
    metric = rows["metric"].iloc[0]
    ax.set_xlabel(
        f"{NAMES.get(metric, metric)}, minus that of {reference}\nfilled: difference shown; hollow: none shown"
    )
    return ax


def plot_by_length(by_length: pd.DataFrame, *, task: str, least: int = LEAST, ax: Axes | None = None) -> Axes:
    """One task: the score in buckets of length, a line per model, its 95% interval as a band.

    Buckets of fewer than `least` examples are left out, and the axis says which. by_length: columns model, task,
    metric, bucket (in order), examples, value, low, high.
    """
    ax = plt.gca() if ax is None else ax
    rows = by_length[by_length["task"] == task]
    examples = rows.drop_duplicates("bucket").set_index("bucket")["examples"]
    kept = list(examples.index[examples >= least])
    places = np.arange(len(kept))
    for model, (colour, style) in looks_of(rows["model"]).items():
        values = rows[rows["model"] == model].set_index("bucket").loc[kept]
        ax.plot(places, values["value"], style, marker="o", markersize=4, color=colour, label=model)
        ax.fill_between(places, values["low"], values["high"], color=colour, alpha=0.12, linewidth=0)
    ax.set_xticks(range(len(kept)), [f"{bucket}\n({examples[bucket]})" for bucket in kept])
    few = examples[(examples > 0) & (examples < least)]
    left_out = ", ".join(f"{bucket} ({count})" for bucket, count in few.items())
    note = f"\nleft out, fewer than {least} examples: {left_out}" if left_out else ""
    metric = rows["metric"].iloc[0]
    ax.set(
        xlabel=f"length in tokens of the structural teacher (examples){note}",
        ylabel=NAMES.get(metric, metric),
        title=task,
    )
    ax.grid(axis="y", visible=True)
    ax.legend(fontsize=8, handlelength=3)
    return ax

"""Several final evaluations together, as the thesis draws them: Figures 5.3 to 5.6.

All take rows of round, model, task, metric and value with `thesis`, the thesis' number of the same score, NaN where it
has none, which is drawn hollow.
"""

from __future__ import annotations

from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from docemb_lib.evaluation.scoreboard import normalised
from docemb_lib.figures import SERIES

NAMES = {"map": "MAP", "mrr": "MRR"}
MARKERS = {"map": "o", "mrr": "s"}
HOLLOW: dict[str, Any] = {"marker": "D", "markerfacecolor": "none", "color": "black", "linestyle": "", "markersize": 5}
THESIS = "thesis"
WIDE = 100  # letters of a legend in one row


def plot_rounds(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Figure 5.3: box plots of normalised accuracy over tasks, a row per model and round; the lowest mean of a round on
    top. A score is divided by the best of its task over all rounds. Triangles are means; the thesis' hollow diamonds,
    divided by the best of what it has of these models, stand where it has all of a row's tasks.
    """
    ax = plt.gca() if ax is None else ax
    points = normalised(scores[scores["metric"] == "accuracy"], over_rounds=True)
    theirs = normalised(points.assign(value=points["thesis"]).drop(columns="normalised"), over_rounds=True)
    points["theirs"] = theirs["normalised"]
    rounds = list(dict.fromkeys(points["round"]))
    points["row"] = points["model"] + (";" + points["round"] if len(rounds) > 1 else "")
    by_row = points.groupby("row")
    means = pd.DataFrame(
        {
            "mean": by_row["normalised"].mean(),
            "thesis": by_row["theirs"].agg(lambda own: own.mean(skipna=False)),
            "round": by_row["round"].first().map(rounds.index),
        }
    ).sort_values(["round", "mean"], kind="stable")
    colors = dict(zip(rounds, SERIES, strict=False))
    row_of = {"x": "normalised", "y": "row", "order": list(means.index), "hue": "round", "palette": colors, "ax": ax}
    sns.boxplot(
        points,
        **row_of,
        dodge=False,
        legend=False,
        width=0.6,
        showfliers=False,
        linewidth=0.9,
        boxprops={"alpha": 0.55},
    )
    sns.stripplot(points, **row_of, legend=False, jitter=False, size=6, edgecolor="white", linewidth=0.4)
    places = range(len(means))
    ax.plot(means["mean"], places, "^", color="black", markersize=4, zorder=5)
    ax.plot(means["thesis"], places, zorder=6, **HOLLOW)
    handles: list[Any] = [Patch(color=color, alpha=0.7, label=name) for name, color in colors.items()]
    handles.append(Line2D([], [], marker="^", color="black", linestyle="", label="mean over tasks"))
    _legend(ax, handles, title="examples for the heads", thesis=means["thesis"])
    ax.tick_params(axis="y", labelsize=9 if len(means) <= 15 else 8)
    best = "task" if len(rounds) == 1 else "task, of all rounds"
    ax.set(
        xlabel=f"normalised accuracy (1: the best model shown on a {best})", ylabel="", ylim=(len(means) - 0.4, -0.6)
    )
    return ax


def plot_by_task(scores: pd.DataFrame, *, name: str, ax: Axes | None = None) -> Axes:
    """Figure 5.4: the accuracy of every model on every task in round `name`, a group of bars per task with 95%
    intervals. scores: with low and high. Panels of a figure share a legend: `ax.get_legend_handles_labels()`."""
    ax = plt.gca() if ax is None else ax
    rows = scores[scores["metric"] == "accuracy"]
    colors, tasks = _colors(scores["model"]), sorted(rows["task"].unique())
    rows = rows[rows["round"] == name]
    models = list(colors)
    width, marks = 0.84 / len(models), []
    for place, model in enumerate(models):
        own = rows[rows["model"] == model].set_index("task").reindex(tasks)
        x = np.arange(len(tasks)) + (place - (len(models) - 1) / 2) * width
        reach = np.stack([own["value"] - own["low"], own["high"] - own["value"]]).clip(min=0)
        marks.append(np.stack([x, own["thesis"]]))
        ax.bar(x, own["value"], width, yerr=reach, color=colors[model], error_kw={"linewidth": 0.8}, label=model)
    if rows["thesis"].notna().any():
        ax.plot(*np.concatenate(marks, axis=1), zorder=6, label=THESIS, **HOLLOW)
    ax.set_xticks(range(len(tasks)), tasks)
    ax.set(ylabel="accuracy", xlabel="", ylim=(0, 1), title=f"heads trained on {name} examples")
    ax.grid(axis="x", visible=False)
    ax.grid(axis="y", visible=True)
    return ax


def plot_retrieval_means(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Figure 5.5: mean MAP and MRR over the retrieval tasks, a bar per model from their smallest to their largest."""
    ax = plt.gca() if ax is None else ax
    rows = _retrieval(scores)
    models, colors = _by_map(rows), _colors(scores["model"])
    height = 0.84 / len(models)
    for group, metric in enumerate(NAMES):
        for place, model in enumerate(models):
            own = rows[(rows["metric"] == metric) & (rows["model"] == model)]
            mean, y = own["value"].mean(), group + (place - (len(models) - 1) / 2) * height
            span = [[mean - own["value"].min()], [own["value"].max() - mean]]
            ax.barh(y, mean, height, xerr=span, color=colors[model], error_kw={"linewidth": 0.8})
            ax.plot(own["thesis"].mean(skipna=False), y, zorder=6, **HOLLOW)
    _legend(ax, [Patch(color=colors[model], label=model) for model in models[::-1]], thesis=rows["thesis"])
    ax.set_yticks(range(len(NAMES)), list(NAMES.values()))
    ax.set(xlabel=f"mean over {rows['task'].nunique()} tasks; lines: from the lowest to the highest", ylabel="")
    return ax


def plot_retrieval(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Figure 5.6 on its side: MAP (circles) and MRR (squares) of every model on every retrieval task, a row per model,
    the lowest mean MAP on top."""
    ax = plt.gca() if ax is None else ax
    rows = _retrieval(scores)
    models = _by_map(rows)
    colors = _colors(rows["task"].sort_values())
    for (task, metric), own in rows.groupby(["task", "metric"]):
        style = {"marker": MARKERS[str(metric)], "color": colors[str(task)], "linestyle": ""}
        places = own["model"].map(models.index)
        ax.plot(own["value"], places, **style, alpha=0.9)
        ax.plot(own["thesis"], places, **style, markerfacecolor="none", markersize=9)
    handles: list[Any] = [Patch(color=color, label=task) for task, color in colors.items()]
    for metric, marker in MARKERS.items():
        handles.append(Line2D([], [], marker=marker, color="black", linestyle="", label=NAMES[metric]))
    if rows["thesis"].notna().any():
        handles.append(Line2D([], [], marker="o", color="black", markerfacecolor="none", linestyle="", label=THESIS))
    _legend(ax, handles)
    ax.set_yticks(range(len(models)), models)
    ax.set(xlabel="score", ylabel="", xlim=(0, None), ylim=(len(models) - 0.4, -0.6))
    return ax


def _retrieval(scores: pd.DataFrame) -> pd.DataFrame:
    """Rankings train nothing and are the same in every round."""
    return scores[scores["metric"].isin(NAMES)].drop_duplicates(["model", "task", "metric"])


def _by_map(rows: pd.DataFrame) -> list[str]:
    means = rows[rows["metric"] == "map"].groupby("model", sort=False)["value"].mean()
    return list(means.sort_values(kind="stable").index)


def _colors(names: pd.Series) -> dict[str, Any]:
    """A colour for each name, in the order of first appearance: the same in all figures of one frame."""
    unique = list(dict.fromkeys(names))
    more = sns.color_palette("tab20" if len(unique) <= 20 else "husl", len(unique))
    hues = SERIES if len(unique) <= len(SERIES) else more
    return dict(zip(unique, hues, strict=False))


def _legend(ax: Axes, handles: list[Any], *, title: str = "", thesis: pd.Series | None = None) -> None:
    """Above the axes, in as many columns as the longest name leaves; with the hollow mark where one is drawn."""
    if thesis is not None and thesis.notna().any():
        handles = [*handles, Line2D([], [], label=THESIS, **HOLLOW)]
    longest = max(len(handle.get_label()) for handle in handles)
    ax.legend(
        handles=handles, title=title, loc="lower left", bbox_to_anchor=(0, 1), fontsize=8, title_fontsize=8,
        ncols=max(1, min(len(handles), WIDE // (longest + 5))), alignment="left", columnspacing=1.2,
    )  # fmt: skip

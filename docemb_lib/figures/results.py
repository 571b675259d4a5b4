"""Runs and models beside each other: training curves, scores over tasks, λ, document length,
retrieval.
"""

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

from docemb_lib.evaluation.scoreboard import MAIN_METRICS, mean_over_tasks, normalised
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS
from docemb_lib.figures import (
    BESIDE,
    GREY,
    PALETTE,
    SERIES,
    kind_of,
    label,
    looks_of,
    series_colors,
)
from docemb_lib.thesis.values import BASELINE

METRICS = {"map": "MAP", "mrr": "MRR", "mean": "mean score", "f1_macro": "macro-F1"}
NOT_LOSSES = ("step", "epoch", "norm", "spread", "cca")  # columns of the validation history
MEAN: dict[str, Any] = {"marker": "^", "color": GREY, "linestyle": ""}
HOLLOW: dict[str, Any] = {
    "marker": "D",
    "markerfacecolor": "none",
    "color": GREY,
    "linestyle": "",
    "markersize": 5,
}


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Losses over updates (`training.run.History`): training as thin smoothed lines, validation as
    points on lines.
    """
    ax = plt.gca() if ax is None else ax
    colors = {
        "loss": GREY,
        "structural": PALETTE["structural"],
        "contextual": PALETTE["contextual"],
    }
    further = sorted({*train} & {*validation} - {*colors, *NOT_LOSSES})
    spare = (color for color in SERIES if color not in colors.values())
    for part, color in {**colors, **dict(zip(further, cycle(spare), strict=False))}.items():
        known = part in train and part in validation and train[part].notna().any()
        if not known or (
            part != "loss" and train[part].equals(train["loss"])
        ):  # the only part equals the loss
            continue
        smooth = train[part].rolling(window=max(1, len(train) // 20), min_periods=1).mean()
        ax.plot(train["step"], smooth, color=color, linewidth=0.9, alpha=0.7)
        ax.plot(
            validation["step"], validation[part], color=color, marker="o", linewidth=1.8, label=part
        )
    ax.set(xlabel="updates", ylabel="loss")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(**BESIDE, title="validation\n(thin: training)")
    return ax


def plot_runs(runs: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Normalised scores over tasks, a row per model, lowest mean on top (thesis, Figures 4.2 to
    4.11).

    Each score is divided by the best score shown on its task. The triangle is the mean with the
    deviation over head seeds. runs: tidy scores (model, task, metric, seed, value) with `group`, a
    category that gives the colour ("baseline": grey), `thesis`, the mean in the thesis (hollow
    diamond) or NaN, and `legend`, the name of this mean. by: title of the legend.
    """
    scores = normalised(runs[runs["metric"].isin(MAIN_METRICS)])
    scores["value"] = scores["normalised"]
    over_seeds = mean_over_tasks(scores).groupby("model")["value"]
    rows = scores.groupby("model")[["group", "thesis"]].first()
    rows = rows.assign(mean=over_seeds.mean(), std=over_seeds.std().fillna(0.0)).sort_values(
        "mean", kind="stable"
    )
    present = [
        group
        for group in pd.Categorical(rows["group"]).categories
        if (rows["group"] == group).any()
    ]
    colors = series_colors((group for group in present if group != BASELINE), more="viridis")
    colors |= {group: PALETTE["untrained"] for group in present if group == BASELINE}
    points = scores.groupby(["model", "task"])["value"].mean().reset_index()  # over head seeds
    points["group"] = points["model"].map(rows["group"].astype(str))
    ax = _draw_points(
        points, rows, hue="group", colors=colors, title=by, thesis=runs["legend"].iloc[0], ax=ax
    )
    ax.set_xlabel("normalised score (1: the best model shown on a task)")
    return ax


def plot_rounds(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Normalised accuracy over tasks, a row per model and round, lowest mean of a round on top
    (thesis, Figure 5.3).

    A score is divided by the best score on its task over all rounds; scores of the thesis are
    divided by the best score of the thesis for these models. A row has a diamond if the thesis has
    all tasks of the row.
    """
    points = normalised(scores[scores["metric"] == "accuracy"], over_rounds=True)
    published = normalised(
        points.assign(value=points["thesis"]).drop(columns="normalised"), over_rounds=True
    )
    points = points.assign(value=points["normalised"], thesis=published["normalised"])
    rounds = list(dict.fromkeys(points["round"]))
    points["row"] = points["model"] + (";" + points["round"] if len(rounds) > 1 else "")
    of_row = points.groupby("row")
    rows = _means(of_row).assign(round=of_row["round"].first().map(rounds.index))
    rows = rows.sort_values(["round", "mean"], kind="stable")
    colors = series_colors(rounds)
    ax = _draw_points(
        points, rows, y="row", hue="round", colors=colors, title="examples for the heads", ax=ax
    )
    best = "task" if len(rounds) == 1 else "task, of all rounds"
    ax.set_xlabel(f"normalised accuracy (1: the best model shown on a {best})")
    return ax


def _draw_points(
    points: pd.DataFrame,
    rows: pd.DataFrame,
    *,
    y: str = "model",
    hue: str,
    colors: dict[str, Any],
    ax: Axes | None,
    title: str = "",
    thesis: str = "thesis",
) -> Axes:
    """A point per task for each row, a triangle for the mean, a diamond for that in the thesis; a
    legend above.
    """
    ax = plt.gca() if ax is None else ax
    common: dict[str, Any] = {
        "x": "value",
        "y": y,
        "hue": hue,
        "palette": colors,
        "order": list(rows.index),
        "ax": ax,
    }
    sns.stripplot(
        points, **common, jitter=False, size=6.5, edgecolor="white", linewidth=0.4, legend=False
    )
    places = range(len(rows))
    ax.errorbar(
        rows["mean"],
        places,
        xerr=rows.get("std"),
        **MEAN,
        markersize=3.5,
        capsize=2,
        linewidth=0.9,
        zorder=5,
    )
    ax.plot(rows["thesis"], places, zorder=6, **HOLLOW)
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= 15 else 8)
    ax.set(ylabel="", ylim=(len(rows) - 0.4, -0.6))
    marks = {OVERALL: MEAN} | ({thesis: HOLLOW} if rows["thesis"].notna().any() else {})
    handles: list[Any] = [Patch(color=color, label=name) for name, color in colors.items()]
    handles += [Line2D([], [], label=name, **mark) for name, mark in marks.items()]
    columns = min(
        4, len(handles), max(1, 100 // (max(map(len, colors)) + 5))
    )  # as many as the longest name leaves
    place: dict[str, Any] = {
        "loc": "lower left",
        "bbox_to_anchor": (0, 1),
        "alignment": "left",
        "columnspacing": 1.2,
    }
    ax.legend(handles=handles, title=title, ncols=columns, fontsize=8, title_fontsize=8, **place)
    return ax


def plot_weighting(
    points: pd.DataFrame,
    *,
    task: str | None = None,
    lam: float | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Score on a task against λ, a line per mask with 95% intervals, side by side; dotted: the
    plain sum.

    points: see `widgets.weighting_points`. task: None is the last one, the mean if there are
    several. lam: to be marked.
    """
    ax = plt.gca() if ax is None else ax
    task = points["task"].iloc[-1] if task is None else task
    rows = points[points["task"] == task]
    masks = rows["max_structural_len"].map(
        lambda longest: "no mask" if pd.isna(longest) else f"mask {longest:.0f}"
    )
    shifts = _dodged(masks.nunique(), 0.012)
    for (mask, group), color, shift in zip(
        rows.groupby(masks), cycle(SERIES), shifts, strict=False
    ):
        line = group.dropna(subset="lam").sort_values("lam")
        look: dict[str, Any] = {
            "fmt": "o-",
            "color": color,
            "elinewidth": 1,
            "capsize": 2,
            "label": mask,
        }
        ax.errorbar(line["lam"] + shift, line["value"], yerr=_reach(line), **look)
        for value in group.loc[group["lam"].isna(), "value"]:
            ax.axhline(value, color=color, linestyle=":", linewidth=1.2, label=f"plain sum, {mask}")
    if lam is not None:
        ax.axvline(lam, color=GREY, linewidth=0.8)
    ax.legend(**BESIDE)
    ax.set(
        xlabel="λ (weight of the structural loss)",
        ylabel=_metric(rows),
        xlim=(-0.03, 1.03),
        title=task,
    )
    return ax


def plot_task(intervals: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: its first metric, a bar per row (model, task, metric, value, low, high) with the
    95% interval.

    The thesis' score is a hollow diamond if there is a column `thesis`. For each round, this is the
    thesis' Figure 5.4.
    """
    ax = plt.gca() if ax is None else ax
    rows = intervals[intervals["task"] == task]
    rows = rows[rows["metric"] == rows["metric"].iloc[0]]
    colors = [PALETTE[kind_of(str(model))] for model in rows["model"]]
    reach = _reach(rows)
    # transparent, so that the interval is visible on its bar
    ax.barh(
        range(len(rows)),
        rows["value"],
        xerr=reach,
        color=colors,
        ecolor=GREY,
        alpha=0.6,
        height=0.7,
        capsize=2,
    )
    for place, (value, high) in enumerate(zip(rows["value"], rows["high"], strict=True)):
        label(ax, f"{value:.3f}", (high, place), (4, 0))
    if "thesis" in rows:
        ax.plot(rows["thesis"], range(len(rows)), zorder=6, **HOLLOW)
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.invert_yaxis()
    ax.set(xlabel=_metric(rows), title=task)
    return ax


def plot_differences(
    comparison: pd.DataFrame, *, task: str, reference: str, ax: Axes | None = None
) -> Axes:
    """One task: difference of each model to the reference with its 95% interval, in the order of
    the rows.

    A point is filled if the paired test shows a difference. comparison: see
    `evaluation.uncertainty.verdicts`.
    """
    ax = plt.gca() if ax is None else ax
    rows = comparison[(comparison["task"] == task) & (comparison["reference"] == reference)]
    for place, row in enumerate(rows.to_dict("records")):
        color = PALETTE[kind_of(str(row["model"]))]
        ax.plot([row["low"], row["high"]], [place, place], color=color, linewidth=1.6)
        fill = "none" if row["verdict"] == VERDICTS[-1] else color
        ax.plot(row["difference"], place, "o", color=color, markerfacecolor=fill)
    ax.axvline(0, color=GREY, linewidth=0.8)
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.set(ylim=(len(rows) - 0.4, -0.6), title=task)
    ax.set_xlabel(
        f"{_metric(rows)}, minus that of {reference}\nfilled: difference shown; hollow: none shown"
    )
    return ax


def _metric(rows: pd.DataFrame) -> str:
    return str(METRICS.get(rows["metric"].iloc[0], rows["metric"].iloc[0]))


def plot_by_length(by_length: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: score by document length, a line per model with 95% intervals, side by side.

    by_length: columns model, task, metric, bucket (in order), examples, value, low, high.
    """
    ax = plt.gca() if ax is None else ax
    rows = by_length[by_length["task"] == task]
    examples = rows.drop_duplicates("bucket").set_index("bucket")["examples"]
    looks = looks_of(rows["model"])
    for (model, (color, style)), shift in zip(looks.items(), _dodged(len(looks), 0.1), strict=True):
        own = rows[rows["model"] == model]
        look: dict[str, Any] = {
            "fmt": f"o{style}",
            "color": color,
            "elinewidth": 1,
            "capsize": 2,
            "markersize": 4,
        }
        places = own["bucket"].map(list(examples.index).index) + shift
        ax.errorbar(places, own["value"], yerr=_reach(own), label=model, **look)
    ax.legend(**BESIDE, handlelength=3)
    names = [f"{bucket}\n({count})" for bucket, count in examples.items()]
    ax.set_xticks(range(len(examples)), names, fontsize="small")  # seven buckets side by side
    ax.set_xlabel("length in tokens of the structural teacher (examples)")
    ax.set(ylabel=_metric(rows), title=task)
    return ax


def plot_few_shot(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Macro-F1 against training examples per class: mean and deviation over draws (SimDE paper,
    Figure 2).
    """
    ax = plt.gca() if ax is None else ax
    shown = scores[scores["metric"] == "f1_macro"]
    palette = {model: color for model, (color, _) in looks_of(shown["model"]).items()}
    look: dict[str, Any] = {"style": "model", "markers": True, "palette": palette, "errorbar": "sd"}
    sns.lineplot(shown, x="per_class", y="value", hue="model", **look, ax=ax)
    ax.legend(**BESIDE)
    ax.set_xticks(sorted(shown["per_class"].unique()))
    ax.set(xlabel="training examples of each class", ylabel=_metric(shown))
    return ax


def plot_retrieval(scores: pd.DataFrame, *, metric: str, ax: Axes | None = None) -> Axes:
    """MAP or MRR on each retrieval task, a row per model, lowest mean on top (thesis, Figures 5.5
    and 5.6).

    The triangle is the mean over tasks. A row has a diamond, the mean in the thesis, if the thesis
    has all its tasks.
    """
    points = scores[scores["metric"] == metric].drop_duplicates(
        ["model", "task"]
    )  # rankings are equal in all rounds
    rows = _means(points.groupby("model")).sort_values("mean", kind="stable")
    colors = series_colors(points["task"].sort_values())
    ax = _draw_points(points, rows, hue="task", colors=colors, ax=ax)
    ax.set_xlabel(METRICS[metric])
    return ax


def _means(groups: Any) -> pd.DataFrame:
    """The mean of `value` in each group, and of `thesis` where it has all values of the group."""
    thesis = groups["thesis"].agg(lambda values: values.mean(skipna=False))
    return pd.DataFrame({"mean": groups["value"].mean(), "thesis": thesis})


def _dodged(count: int, gap: float) -> np.ndarray:
    """Shifts that put `count` marks of one place side by side, so that each interval is visible."""
    return gap * (np.arange(count) - (count - 1) / 2)


def _reach(rows: pd.DataFrame) -> np.ndarray:
    return np.stack([rows["value"] - rows["low"], rows["high"] - rows["value"]]).clip(min=0)

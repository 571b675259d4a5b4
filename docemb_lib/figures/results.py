"""Runs and models beside each other: training curves, scores over tasks, λ, document length, retrieval."""

from __future__ import annotations

from itertools import cycle
from textwrap import fill
from typing import Any, Literal

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
from docemb_lib.figures import GREY, PALETTE, SERIES, STYLES, kind_of, label, legend_beside, looks_of, series_colors
from docemb_lib.thesis.values import BASELINE

METRICS = {"map": "MAP", "mrr": "MRR", "mean": OVERALL, "f1_macro": "macro-F1"}
RETRIEVAL = {"map": "o", "mrr": "s"}  # metric → marker
NOT_LOSSES = ("step", "epoch", "norm", "spread", "cca")  # columns of the validation history
MEAN: dict[str, Any] = {"marker": "^", "color": GREY, "linestyle": ""}
HOLLOW: dict[str, Any] = {"marker": "D", "markerfacecolor": "none", "color": GREY, "linestyle": "", "markersize": 5}
BOXED = 5  # points from which a row has a box
WIDTH = 0.84  # of a group of bars; groups are 1 apart
LEAST = 10  # fewest examples of a length bucket that is drawn


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Losses over the updates (`training.History`): training as thin smoothed lines, validation as points on lines."""
    ax = plt.gca() if ax is None else ax
    colors = {"loss": GREY, "structural": PALETTE["structural"], "contextual": PALETTE["contextual"]}
    further = sorted({*train} & {*validation} - {*colors, *NOT_LOSSES})
    spare = (color for color in SERIES if color not in colors.values())
    for part, color in {**colors, **dict(zip(further, cycle(spare), strict=False))}.items():
        known = part in train and part in validation and train[part].notna().any()
        if not known or (part != "loss" and train[part].equals(train["loss"])):  # the only part equals the loss
            continue
        smooth = train[part].rolling(window=max(1, len(train) // 20), min_periods=1).mean()
        ax.plot(train["step"], smooth, color=color, linewidth=0.9, alpha=0.7)
        ax.plot(validation["step"], validation[part], color=color, marker="o", linewidth=1.8, label=part)
    ax.set(xlabel="updates", ylabel="loss")
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    legend_beside(ax, title="validation\n(thin: training)")
    return ax


def plot_correlation(validation: pd.DataFrame, *, note: str = "", ax: Axes | None = None) -> Axes:
    """Canonical correlation of the two validation views over the updates (`cca` of `training.History`).

    note: stands there where it was not measured, see `views.why_no_correlation`.
    """
    ax = plt.gca() if ax is None else ax
    if "cca" in validation.columns:
        ax.plot(validation["step"], validation["cca"], color=PALETTE["contextual"], marker="o", linewidth=1.8)
        ax.set(ylim=(min(0.0, validation["cca"].min()) - 0.03, 1.03))
    else:
        ax.text(0.5, 0.5, fill(note, 40), transform=ax.transAxes, ha="center", va="center", size=8)
        ax.set(yticks=[])
    ax.set(xlabel="updates", ylabel="canonical correlation of the views")
    ax.grid(axis="y", visible=True)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    return ax


def plot_runs(runs: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Normalised scores over tasks, a row per model, lowest mean on top (thesis, Figures 4.2 to 4.11).

    Each score is divided by the best score shown on its task. The triangle is the mean with the deviation over head
    seeds. runs: tidy scores (model, task, metric, seed, value) with `group`, a category that gives the colour
    ("baseline": grey), and `thesis`, the mean in the thesis (hollow diamond) or NaN. by: title of the legend.
    """
    scores = normalised(runs[runs["metric"].isin(MAIN_METRICS)])
    scores["value"] = scores["normalised"]
    over_seeds = mean_over_tasks(scores).groupby("model")["value"]
    rows = scores.groupby("model")[["group", "thesis"]].first()
    rows = rows.assign(mean=over_seeds.mean(), std=over_seeds.std().fillna(0.0)).sort_values("mean", kind="stable")
    present = [group for group in pd.Categorical(rows["group"]).categories if (rows["group"] == group).any()]
    colors = series_colors((group for group in present if group != BASELINE), more="viridis")
    colors |= {group: PALETTE["untrained"] for group in present if group == BASELINE}
    points = scores.groupby(["model", "task"])["value"].mean().reset_index()  # over head seeds
    points["group"] = points["model"].map(rows["group"].astype(str))
    ax = _draw_boxes(points, rows, y="model", hue="group", colors=colors, ax=ax)
    ax.set_xlabel("normalised score (1: the best model shown on a task)")
    thesis = _thesis(rows["thesis"], "thesis, on other tasks with other models")
    _legend(ax, colors, {"mean over tasks": MEAN} | thesis, title=by)
    return ax


def plot_rounds(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Normalised accuracy over tasks, a row per model and round, lowest mean of a round on top (thesis, Figure 5.3).

    A score is divided by the best score on its task over all rounds; scores of the thesis are divided by the best score
    of the thesis for these models. A row has a diamond if the thesis has all tasks of the row.
    """
    points = normalised(scores[scores["metric"] == "accuracy"], over_rounds=True)
    published = normalised(points.assign(value=points["thesis"]).drop(columns="normalised"), over_rounds=True)
    points = points.assign(value=points["normalised"], thesis=published["normalised"])
    rounds = list(dict.fromkeys(points["round"]))
    points["row"] = points["model"] + (";" + points["round"] if len(rounds) > 1 else "")
    of_row = points.groupby("row")
    rows = pd.DataFrame({"mean": of_row["value"].mean(), "round": of_row["round"].first().map(rounds.index)})
    rows["thesis"] = of_row["thesis"].agg(lambda values: values.mean(skipna=False))
    rows = rows.sort_values(["round", "mean"], kind="stable")
    colors = series_colors(rounds)
    ax = _draw_boxes(points, rows, y="row", hue="round", colors=colors, ax=ax)
    best = "task" if len(rounds) == 1 else "task, of all rounds"
    ax.set_xlabel(f"normalised accuracy (1: the best model shown on a {best})")
    _legend(ax, colors, {"mean over tasks": MEAN} | _thesis(rows["thesis"]), title="examples for the heads")
    return ax


def _draw_boxes(
    points: pd.DataFrame, rows: pd.DataFrame, *, y: str, hue: str, colors: dict[str, Any], ax: Axes | None
) -> Axes:
    """A point per task for each row, a box of `BOXED` and more, a triangle for the mean, a diamond for the thesis'."""
    ax = plt.gca() if ax is None else ax
    common: dict[str, Any] = {"x": "value", "y": y, "hue": hue, "palette": colors, "order": list(rows.index), "ax": ax}
    box: dict[str, Any] = {"dodge": False, "width": 0.6, "showfliers": False, "boxprops": {"alpha": 0.55}}
    boxed = points[points.groupby(y)["value"].transform("count") >= BOXED]
    if len(boxed):
        sns.boxplot(boxed, **common, **box, linewidth=0.9, legend=False)
    sns.stripplot(points, **common, jitter=False, size=6.5, edgecolor="white", linewidth=0.4, legend=False)
    places = range(len(rows))
    ax.errorbar(rows["mean"], places, xerr=rows.get("std"), **MEAN, markersize=3.5, capsize=2, linewidth=0.9, zorder=5)
    ax.plot(rows["thesis"], places, zorder=6, **HOLLOW)
    ax.tick_params(axis="y", labelsize=9 if len(rows) <= 15 else 8)
    ax.set(ylabel="", ylim=(len(rows) - 0.4, -0.6))
    return ax


def plot_weighting(runs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Mean over tasks against λ, one line per mask; dotted lines are runs without weighting.

    runs: tidy scores (model, task, metric, seed, value) with `lam`, `lam_by_length` and `max_structural_len` of the run
    of each model; missing values mean no weighting and no mask. Runs weighted by length alone are not drawn.
    """
    ax = plt.gca() if ax is None else ax
    runs = runs[runs["lam"].notna() | runs["lam_by_length"].isna()]
    masks = runs["max_structural_len"].map(lambda longest: "no mask" if pd.isna(longest) else f"mask {longest:.0f}")
    of_model = runs.assign(mask=masks).drop_duplicates("model")[["model", "lam", "mask"]]
    means = runs.iloc[:0] if runs.empty else mean_over_tasks(runs)
    means = means[["model", "value"]].merge(of_model, on="model").astype({"lam": float})
    weighted = means[means["lam"].notna()]
    if not weighted.empty:
        look: dict[str, Any] = {"markers": True, "dashes": False, "errorbar": "sd", "err_style": "bars"}
        palette = list(SERIES[: weighted["mask"].nunique()])
        sns.lineplot(weighted, x="lam", y="value", hue="mask", style="mask", palette=palette, **look, ax=ax)
    for (mask, rows), style in zip(means[means["lam"].isna()].groupby("mask"), cycle(STYLES[2:]), strict=False):
        ax.axhline(rows["value"].mean(), color=GREY, linestyle=style, linewidth=1.2, label=f"no λ, {mask}")
    if len(means):
        legend_beside(ax, title="")
    ax.set(xlabel="λ (weight of the structural loss)", ylabel="mean over tasks", xlim=(-0.03, 1.03))
    return ax


def plot_weighting_points(
    points: pd.DataFrame, *, lam: float, mask: float | None, found: pd.DataFrame, ax: Axes | None = None
) -> Axes:
    """`widgets.weighting_points` with one mask, a colour per task; dotted: no weighting; hollow: `found` at `lam`."""
    ax = plt.gca() if ax is None else ax
    for color, (task, rows) in zip(cycle(SERIES), points.groupby("task", sort=False), strict=False):
        masked = rows["max_structural_len"].isna() if mask is None else rows["max_structural_len"] == mask
        line = rows[masked & rows["lam"].notna()].sort_values("lam")
        ax.plot(line["lam"], line["value"], "o-", color=color, linewidth=1, label=f"{task} ({_metric(rows)})")
        ax.vlines(line["lam"], line["low"], line["high"], color=color, linewidth=1.6, alpha=0.6)
        for value in rows.loc[rows["lam"].isna(), "value"]:
            ax.axhline(value, color=color, linestyle=":", linewidth=1)
        here = found.loc[found["task"] == task, "value"]
        ax.plot([lam] * len(here), here, "o", color=color, markerfacecolor="none", markersize=10, zorder=3)
    ax.axvline(lam, color=GREY, linewidth=0.8)
    xlabel = "λ (weight of the structural loss); dotted: no weighting"
    ax.set(xlabel=xlabel, ylabel="validation score", xlim=(-0.03, 1.03))
    legend_beside(ax)
    return ax


def plot_task(intervals: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: its first metric, a bar per row (model, task, metric, value, low, high) with the 95% interval."""
    ax = plt.gca() if ax is None else ax
    rows = intervals[intervals["task"] == task]
    rows = rows[rows["metric"] == rows["metric"].iloc[0]]
    colors = [PALETTE[kind_of(str(model))] for model in rows["model"]]
    reach = _reach(rows["value"], rows["low"], rows["high"])
    # transparent, so that the interval is visible on its bar
    ax.barh(range(len(rows)), rows["value"], xerr=reach, color=colors, ecolor=GREY, alpha=0.6, height=0.7, capsize=2)
    for place, (value, high) in enumerate(zip(rows["value"], rows["high"], strict=True)):
        label(ax, f"{value:.3f}", (high, place), (4, 0))
    ax.set_yticks(range(len(rows)), list(rows["model"]))
    ax.invert_yaxis()
    ax.set(xlabel=_metric(rows), title=task)
    return ax


def plot_differences(comparison: pd.DataFrame, *, task: str, reference: str, ax: Axes | None = None) -> Axes:
    """One task: difference of each model to the reference with its 95% interval, in the order of the rows.

    A point is filled if the paired test shows a difference. comparison: see `evaluation.uncertainty.compare`.
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
    ax.set_xlabel(f"{_metric(rows)}, minus that of {reference}\nfilled: difference shown; hollow: none shown")
    return ax


def _metric(rows: pd.DataFrame) -> str:
    return str(METRICS.get(rows["metric"].iloc[0], rows["metric"].iloc[0]))


def plot_by_length(by_length: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: score by document length, a line per model with its 95% interval as a band.

    Buckets with fewer than `LEAST` examples are left out and named below the axis. by_length: columns model, task,
    metric, bucket (in order), examples, value, low, high.
    """
    ax = plt.gca() if ax is None else ax
    rows = by_length[by_length["task"] == task]
    examples = rows.drop_duplicates("bucket").set_index("bucket")["examples"]
    kept = list(examples.index[examples >= LEAST])
    drawn = rows[rows["bucket"].isin(kept)]
    _draw_bands(drawn.assign(x=drawn["bucket"].map(kept.index)), ax)
    ax.set_xticks(range(len(kept)), [f"{bucket}\n({examples[bucket]})" for bucket in kept])
    few = examples[(examples > 0) & (examples < LEAST)]
    left_out = ", ".join(f"{bucket} ({count})" for bucket, count in few.items())
    note = f"\nleft out, fewer than {LEAST} examples: {left_out}" if left_out else ""
    ax.set_xlabel(f"length in tokens of the structural teacher (examples){note}", loc="left")  # not below the y axis
    ax.set(ylabel=_metric(rows), title=task)
    return ax


def plot_few_shot(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Macro-F1 against training examples per class: mean and deviation over draws (SimDE paper, Figure 2)."""
    ax = plt.gca() if ax is None else ax
    shown = scores[scores["metric"] == "f1_macro"]
    draws = shown.groupby(["model", "per_class"], sort=False)["value"].agg(value="mean", std="std").reset_index()
    draws = draws.sort_values("per_class", kind="stable").rename(columns={"per_class": "x"})
    _draw_bands(draws.assign(low=draws["value"] - draws["std"], high=draws["value"] + draws["std"]), ax)
    ax.set_xticks(sorted(shown["per_class"].unique()))
    ax.set(xlabel="training examples of each class", ylabel=_metric(shown))
    return ax


def _draw_bands(rows: pd.DataFrame, ax: Axes) -> None:
    """A line per model with `low` to `high` as a band. rows: columns model, x, value, low, high."""
    for model, (color, style) in looks_of(rows["model"]).items():
        own = rows[rows["model"] == model]
        ax.plot(own["x"], own["value"], style, marker="o", markersize=4, color=color, label=model)
        ax.fill_between(own["x"], own["low"], own["high"], color=color, alpha=0.12, linewidth=0)
    if len(rows):
        legend_beside(ax, handlelength=3)


def plot_by_task(scores: pd.DataFrame, *, name: str, ax: Axes | None = None) -> Axes:
    """Accuracy by task and model in round `name`, with 95% intervals, without legend (thesis, Figure 5.4)."""
    ax = plt.gca() if ax is None else ax
    accuracy = scores[scores["metric"] == "accuracy"]
    rows = accuracy[accuracy["round"] == name].set_index(["task", "model"])
    _bar_groups(rows, sorted(accuracy["task"].unique()), series_colors(scores["model"]), ax=ax)
    ax.set(ylabel="accuracy", xlabel="", ylim=(0, 1), title=f"heads trained on {name} examples")
    return ax


def plot_retrieval_means(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Mean MAP and MRR over the retrieval tasks; lines span the lowest to the highest task (thesis, Figure 5.5)."""
    ax = plt.gca() if ax is None else ax
    rows, models = _retrieval(scores)
    groups = rows.groupby(["metric", "model"])
    means = pd.DataFrame(groups["value"].agg(value="mean", low="min", high="max"))
    means["thesis"] = groups["thesis"].agg(lambda values: values.mean(skipna=False))
    of_all = series_colors(scores["model"])
    colors = {model: of_all[model] for model in models}
    _bar_groups(means, list(RETRIEVAL), colors, kind="barh", ax=ax)
    _legend(ax, dict(reversed(colors.items())), _thesis(rows["thesis"]))
    ax.set_yticks(range(len(RETRIEVAL)), [METRICS[metric] for metric in RETRIEVAL])
    ax.set(xlabel=f"mean over {rows['task'].nunique()} tasks; lines: from the lowest to the highest", ylabel="")
    return ax


def plot_retrieval(scores: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """MAP and MRR on each retrieval task, a row per model, lowest mean MAP on top (thesis, Figure 5.6)."""
    ax = plt.gca() if ax is None else ax
    rows, models = _retrieval(scores)
    colors = series_colors(rows["task"].sort_values())
    for (task, metric), group in rows.groupby(["task", "metric"]):
        look: dict[str, Any] = {"marker": RETRIEVAL[str(metric)], "color": colors[str(task)], "linestyle": ""}
        places = group["model"].map(models.index)
        ax.plot(group["value"], places, **look, alpha=0.9)
        ax.plot(group["thesis"], places, **look, markerfacecolor="none", markersize=9)
    marks = {METRICS[metric]: MEAN | {"marker": marker} for metric, marker in RETRIEVAL.items()}
    _legend(ax, colors, marks | {name: mark | {"marker": "o"} for name, mark in _thesis(rows["thesis"]).items()})
    ax.set_yticks(range(len(models)), models)
    ax.set(xlabel="score", ylabel="", xlim=(0, None), ylim=(len(models) - 0.4, -0.6))
    return ax


def _retrieval(scores: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """The retrieval scores of one round (rankings are equal in all rounds), and the models by mean MAP."""
    rows = scores[scores["metric"].isin(RETRIEVAL)].drop_duplicates(["model", "task", "metric"])
    means = rows[rows["metric"] == "map"].groupby("model", sort=False)["value"].mean()
    return rows, list(means.sort_values(kind="stable").index)


def _bar_groups(
    rows: pd.DataFrame, groups: list[str], colors: dict[str, Any], *, kind: Literal["bar", "barh"] = "bar", ax: Axes
) -> None:
    """A group of bars per value of the first index level, a bar per model (second level), with lines and diamonds."""
    columns = ("value", "low", "high", "thesis")
    value, low, high, thesis = (rows[name].unstack().reindex(index=groups, columns=list(colors)) for name in columns)
    lines: dict[str, Any] = {"yerr" if kind == "bar" else "xerr": _reach(value, low, high).transpose(2, 0, 1)}
    look: dict[str, Any] = {
        "color": list(colors.values()),
        "width": WIDTH,
        "error_kw": {"linewidth": 0.8, "ecolor": GREY},
    }
    value.plot(kind=kind, rot=0, legend=False, ax=ax, **look, **lines)
    if thesis.notna().any(axis=None):
        offsets = (np.arange(len(colors)) - (len(colors) - 1) / 2) * WIDTH / len(colors)
        points = (np.arange(len(groups))[:, None] + offsets).ravel(), thesis.to_numpy().ravel()
        ax.plot(*(points if kind == "bar" else points[::-1]), zorder=6, label="thesis", **HOLLOW)


def _reach(value: Any, low: Any, high: Any) -> np.ndarray:
    return np.stack([value - low, high - value]).clip(min=0)


def _thesis(values: pd.Series, label: str = "thesis") -> dict[str, dict[str, Any]]:
    return {label: HOLLOW} if values.notna().any() else {}


def _legend(ax: Axes, colors: dict[str, Any], marks: dict[str, dict[str, Any]], *, title: str = "") -> None:
    """A legend above the axes, in as many columns as the longest name leaves."""
    handles: list[Any] = [Patch(color=color, label=name) for name, color in colors.items()]
    handles += [Line2D([], [], label=name, **mark) for name, mark in marks.items()]
    columns = min(4, len(handles), max(1, 100 // (max(map(len, colors)) + 5)))
    place: dict[str, Any] = {"loc": "lower left", "bbox_to_anchor": (0, 1), "alignment": "left", "columnspacing": 1.2}
    ax.legend(handles=handles, title=title, ncols=columns, fontsize=8, title_fontsize=8, **place)

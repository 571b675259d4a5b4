"""Runs beside each other: their scores with baselines, and how their training went."""

from __future__ import annotations

from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import MaxNLocator

from docemb_lib.evaluation.scoreboard import MAIN_METRICS, mean_over_tasks, normalised
from docemb_lib.figures import PALETTE, SERIES
from docemb_lib.thesis.values import BASELINE

# ---- runs beside each other


BESIDE_LOSSES = ("step", "epoch", "norm", "spread")  # columns of a history's validation that are no loss


def plot_runs(runs: pd.DataFrame, *, by: str, ax: Axes | None = None) -> Axes:
    """Box plots of normalised scores over tasks, a row per model, as Figures 4.2 to 4.11: the lowest mean on top.

    A score is divided by that of the best model shown on its task. The box is over the tasks, each of which is a point;
    the triangle is their mean, its bar the deviation of that mean over head seeds. runs: tidy scores (model, task,
    metric, seed, value) with `group`, a category that colours the rows ("baseline" is grey), and `thesis`, the thesis'
    own mean of the same run, a hollow diamond, NaN where there is none. by: what groups differ in.
    """
    ax = plt.gca() if ax is None else ax
    scores = normalised(runs[runs["metric"].isin(MAIN_METRICS)])
    scores["value"] = scores["normalised"]
    over_seeds = mean_over_tasks(scores).groupby("model")["value"]
    means = pd.DataFrame({"mean": over_seeds.mean(), "std": over_seeds.std().fillna(0.0)})
    means = means.sort_values("mean", kind="stable")
    models = scores.groupby("model")[["group", "thesis"]].first().loc[means.index]
    colors = _colors(models["group"])
    points = scores.groupby(["model", "task"], as_index=False)["value"].mean()  # of a task over head seeds
    points["group"] = points["model"].map(models["group"].astype(str))
    row_of = {"y": "model", "order": list(means.index), "hue": "group", "palette": colors, "legend": False, "ax": ax}
    sns.boxplot(
        points, x="value", **row_of, dodge=False, width=0.6, showfliers=False, linewidth=0.9, boxprops={"alpha": 0.55}
    )
    sns.stripplot(points, x="value", **row_of, jitter=False, size=7, edgecolor="white", linewidth=0.4)
    rows = range(len(means))
    ax.errorbar(
        means["mean"],
        rows,
        xerr=means["std"],
        fmt="^",
        color="black",
        markersize=3.5,
        capsize=2,
        linewidth=0.9,
        zorder=5,
    )
    ax.plot(models["thesis"], rows, "D", markerfacecolor="none", color="black", markersize=5.5, zorder=6)
    ax.tick_params(axis="y", labelsize=9 if len(means) <= 15 else 8)
    ax.set(xlabel="normalised score (1: the best model shown on a task)", ylabel="", ylim=(len(means) - 0.4, -0.6))
    _legend(ax, by, colors, thesis=bool(models["thesis"].notna().any()))
    return ax


def _colors(groups: pd.Series) -> dict[str, Any]:
    """A colour for each group there is, in the groups' order; baselines are grey."""
    present = [group for group in pd.Categorical(groups).categories if (groups == group).any()]
    named = [group for group in present if group != BASELINE]
    hues = SERIES[:7] if len(named) <= 7 else sns.color_palette("viridis", len(named))
    return dict(zip(named, hues, strict=False)) | dict.fromkeys(set(present) - set(named), PALETTE["untrained"])


def _legend(ax: Axes, by: str, colors: dict[str, Any], *, thesis: bool) -> None:
    """Above the axes: the groups, the mean, and what the diamond is."""
    handles: list[Any] = [Patch(color=color, alpha=0.7, label=group) for group, color in colors.items()]
    handles.append(Line2D([], [], marker="^", color="black", linestyle="", label="mean over tasks"))
    if thesis:
        label = "thesis, on other tasks with other models"
        handles.append(Line2D([], [], marker="D", markerfacecolor="none", color="black", linestyle="", label=label))
    ax.legend(
        handles=handles, title=by, loc="lower left", bbox_to_anchor=(0, 1), ncols=min(4, len(handles)), fontsize=8,
        title_fontsize=8, alignment="left", columnspacing=1.2,
    )  # fmt: skip


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Losses by part over the updates: training as thin lines, validation as points joined by thick ones.

    train, validation: columns step, loss and one for each teacher, see `docemb_lib.training.History`.
    """
    ax = plt.gca() if ax is None else ax
    teachers = set(validation.columns) - {"loss", *BESIDE_LOSSES}
    known = [name for name in ("structural", "contextual") if name in teachers]
    parts = ["loss", *known, *sorted(teachers - set(known))]
    colors = {"loss": "#000000", **{role: PALETTE[role] for role in ("structural", "contextual")}}
    spare = cycle(color for color in SERIES if color not in colors.values())
    for part in parts:
        color = colors.get(part) or next(spare)
        if part not in train.columns or train[part].isna().all():
            continue
        if part != "loss" and train[part].equals(train["loss"]):
            continue  # the only part is the loss
        smooth = train[part].rolling(window=max(1, len(train) // 20), min_periods=1).mean()
        ax.plot(train["step"], smooth, color=color, linewidth=0.9, alpha=0.7)
        ax.plot(validation["step"], validation[part], color=color, marker="o", linewidth=1.8, label=part)
    ax.set(xlabel="updates", ylabel="loss")
    ax.grid(axis="y", visible=True)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.legend(title="validation\n(thin: training)", loc="upper left", bbox_to_anchor=(1, 1))
    return ax


def plot_weighting(runs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Mean over tasks against λ, one line per mask; runs without weighting are dotted lines.

    runs: tidy scores (model, task, metric, seed, value) with `lam`, `lam_by_length` and `max_structural_len` of each
    model's run, where missing means no weighting, or no mask. Runs weighed by length alone have no place here.
    """
    ax = plt.gca() if ax is None else ax
    ax.set(xlabel="λ (weight of the structural loss)", ylabel="mean over tasks", xlim=(-0.03, 1.03))
    ax.grid(axis="y", visible=True)
    runs = runs[runs["lam"].notna() | runs["lam_by_length"].isna()]
    if runs.empty:
        return ax
    masks = runs["max_structural_len"].map(lambda longest: "no mask" if pd.isna(longest) else f"mask {longest:.0f}")
    of_model = runs.assign(mask=masks).drop_duplicates("model")[["model", "lam", "mask"]]
    means = mean_over_tasks(runs).merge(of_model, on="model")
    weighed = means[means["lam"].notna()].astype({"lam": float})
    if not weighed.empty:
        sns.lineplot(
            weighed, x="lam", y="value", hue="mask", style="mask", markers=True, dashes=False, errorbar="sd",
            err_style="bars", palette=list(SERIES[: weighed["mask"].nunique()]), ax=ax,
        )  # fmt: skip
        ax.legend(title="")
        ax.set(xlabel="λ (weight of the structural loss)", ylabel="mean over tasks")
    for label, rows in means[means["lam"].isna()].groupby("mask"):
        ax.axhline(rows["value"].mean(), color="#555555", linestyle=":", linewidth=1.2)
        ax.annotate(
            f"no λ, {label}", (1, rows["value"].mean()), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=8,
        )  # fmt: skip
    return ax


# ---- Scores along λ: what is recorded, and where one looks.


def plot_weighting_points(
    points: pd.DataFrame, *, lam: float, mask: float | None, found: pd.DataFrame, ax: Axes | None = None
) -> Axes:
    """The recorded scores with one mask against λ, a colour for each task, with 95% intervals; runs without weighting
    are dotted lines. A vertical line is drawn at `lam`.

    points: see `weighting_points`; found: the scores at `lam`, as hollow circles.
    """
    ax = plt.gca() if ax is None else ax
    for colour, (task, rows) in zip(SERIES * 4, points.groupby("task", sort=False), strict=False):
        metric = rows["metric"].iloc[0]
        masked = rows["max_structural_len"].isna() if mask is None else rows["max_structural_len"] == mask
        own = rows[masked & rows["lam"].notna()].sort_values("lam")
        ax.plot(own["lam"], own["value"], color=colour, marker="o", linewidth=1, label=f"{task} ({metric})")
        ax.vlines(own["lam"], own["low"], own["high"], color=colour, linewidth=1.6, alpha=0.6)
        for value in rows.loc[rows["lam"].isna(), "value"]:
            ax.axhline(value, color=colour, linestyle=":", linewidth=1)
        here = found[found["task"] == task]
        ax.plot([lam] * len(here), here["value"], "o", color=colour, markerfacecolor="white", markersize=9, zorder=3)
    ax.axvline(lam, color="#555555", linewidth=0.8)
    ax.set(
        xlabel="λ (weight of the structural loss); dotted: no weighting", ylabel="validation score", xlim=(-0.03, 1.03)
    )
    ax.grid(axis="y", visible=True)
    ax.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=8)
    return ax

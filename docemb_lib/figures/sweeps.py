"""Runs beside each other: their scores with baselines, and how their training went."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from docemb_lib.figures import PALETTE, SERIES, kind_of


def plot_runs(scores: pd.DataFrame, *, published: pd.DataFrame | None = None, ax: Axes | None = None) -> Axes:
    """Mean over tasks, one row a model, the lowest on top as in the thesis' box plots; the bar is the deviation over
    head seeds.

    scores: columns model, value, one row per seed. published: columns label, value; where a label equals a model, the
    thesis' value is drawn as a hollow diamond (normalised accuracy on the thesis' own six tasks: compare orders, not
    sizes).
    """
    ax = plt.gca() if ax is None else ax
    summary = scores.groupby("model")["value"].agg(["mean", "std"]).fillna(0.0).sort_values("mean", ascending=False)
    for row, (model, (mean, std)) in enumerate(summary.iterrows()):
        ax.errorbar(mean, row, xerr=std, fmt="o", color=PALETTE[kind_of(str(model))], capsize=3)
        ax.annotate(f"{mean:.3f}", (mean, row), xytext=(0, 7), textcoords="offset points", ha="center", fontsize=8)
    handles = [
        Line2D([], [], marker="o", linestyle="", color=PALETTE[kind], label=kind)
        for kind in dict.fromkeys(kind_of(str(model)) for model in summary.index)
    ]
    if published is not None and not (known := published[published["label"].isin(summary.index)]).empty:
        rows = [list(summary.index).index(label) for label in known["label"]]
        ax.plot(known["value"], rows, marker="D", linestyle="", markerfacecolor="none", color="black", markersize=6)
        handles.append(Line2D([], [], marker="D", linestyle="", markerfacecolor="none", color="black", label="thesis"))
    ax.set_yticks(range(len(summary)), list(summary.index))
    ax.set(xlabel="mean over tasks", ylim=(-0.7, len(summary) - 0.3))
    ax.margins(x=0.12)
    ax.legend(handles=handles, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(handles))
    return ax


def plot_history(train: pd.DataFrame, validation: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Losses by part over the updates: training as thin lines, validation as points joined by thick ones.

    train, validation: columns step and some of loss, structural, contextual, see `docemb_lib.training.History`.
    """
    ax = plt.gca() if ax is None else ax
    for part, color in zip(("loss", "structural", "contextual"), ("#000000", *SERIES[:2]), strict=True):
        if part not in train.columns or train[part].isna().all():
            continue
        if part != "loss" and train[part].equals(train["loss"]):
            continue  # the only part is the loss
        smooth = train[part].rolling(window=max(1, len(train) // 20), min_periods=1).mean()
        ax.plot(train["step"], smooth, color=color, linewidth=0.9, alpha=0.7)
        ax.plot(validation["step"], validation[part], color=color, marker="o", linewidth=1.8, label=part)
    ax.set(xlabel="updates", ylabel="loss")
    ax.grid(axis="y", visible=True)
    ax.legend(title="validation (thin: training)")
    return ax


def plot_weighting(runs: pd.DataFrame, *, ax: Axes | None = None) -> Axes:
    """Mean over tasks against λ, one line per mask; runs without weighting are dotted lines.

    runs: columns lam (missing: no weighting), mask (a string), value, one row per run and head seed.
    """
    ax = plt.gca() if ax is None else ax
    weighed = runs[runs["lam"].notna()].astype({"lam": float})
    if not weighed.empty:
        sns.lineplot(
            weighed, x="lam", y="value", hue="mask", style="mask", markers=True, dashes=False, errorbar="sd",
            err_style="bars", palette=list(SERIES[: weighed["mask"].nunique()]), ax=ax,
        )  # fmt: skip
        ax.legend(title="")
    for label, rows in runs[runs["lam"].isna()].groupby("mask"):
        ax.axhline(rows["value"].mean(), color="#555555", linestyle=":", linewidth=1.2)
        ax.annotate(
            f"no λ, {label}", (1, rows["value"].mean()), xycoords=("axes fraction", "data"), ha="right", va="bottom",
            fontsize=8,
        )  # fmt: skip
    ax.set(xlabel="λ (weight of the structural loss)", ylabel="mean over tasks", xlim=(-0.03, 1.03))
    ax.grid(axis="y", visible=True)
    return ax

"""The final evaluation: every model on every task."""

from __future__ import annotations

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.axes import Axes

from docemb_lib.figures import PALETTE, kind_of


def plot_task(scores: pd.DataFrame, *, task: str, ax: Axes | None = None) -> Axes:
    """One task: a bar per model with the deviation over head seeds, in the order of the models' first appearance.

    scores: tidy, columns model, task, metric, value; the task's main metric comes first.
    """
    ax = plt.gca() if ax is None else ax
    rows = scores[scores["task"] == task]
    metric = rows["metric"].iloc[0]
    values = rows[rows["metric"] == metric].groupby("model", sort=False)["value"].agg(["mean", "std"]).fillna(0.0)
    colors = [PALETTE[kind_of(str(model))] for model in values.index]
    ax.barh(range(len(values)), values["mean"], xerr=values["std"], color=colors, height=0.7, capsize=2)
    for row, mean in enumerate(values["mean"]):
        ax.annotate(
            f"{mean:.3f}", (0, row), xytext=(4, 0), textcoords="offset points", va="center", color="white", fontsize=8
        )
    ax.set_yticks(range(len(values)), list(values.index))
    ax.invert_yaxis()
    ax.set(xlabel={"map": "MAP"}.get(metric, metric), title=task)
    return ax

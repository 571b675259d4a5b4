"""How much of a teacher can be read off a student, before and after distillation."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from docemb_lib.figures import PALETTE, kind_of

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

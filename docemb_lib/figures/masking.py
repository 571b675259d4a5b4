"""Which documents learn from which teacher: the mask and λ, document by document."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from docemb_lib.figures import PALETTE

DRAWN = 12  # documents
KINDS = {"structural": "weight of the structural loss", "contextual": "weight of the contextual loss"}


def plot_mask(weights: pd.DataFrame, *, max_structural_len: int | None, ax: Axes | None = None) -> Axes:
    """Twelve of the documents, from the shortest to the longest, and what each of both losses counts for them.

    weights: columns length (structural tokens, ascending), structural, contextual; a row per document.
    max_structural_len: where the mask begins, a line between two documents; None: nowhere.
    """
    ax = plt.gca() if ax is None else ax
    shown = weights.iloc[np.unique(np.linspace(0, len(weights) - 1, DRAWN).round().astype(int))]
    left = np.zeros(len(shown))
    for kind, label in KINDS.items():
        share = shown[kind].to_numpy(dtype=float)
        ax.barh(range(len(shown)), share, left=left, height=0.75, color=PALETTE[kind], label=label)
        left += share
    kept = 0 if max_structural_len is None else int((shown["length"] <= max_structural_len).sum())
    if max_structural_len is not None and kept < len(shown):
        ax.axhline(kept - 0.5, color="black", linewidth=1.2, linestyle="--")
        ax.annotate(
            f"masked:\nmore than\n{max_structural_len:,} tokens", (1.01, kept - 0.5),
            xycoords=("axes fraction", "data"), va="top" if kept else "center", fontsize=8,
        )  # fmt: skip
    ax.set_yticks(range(len(shown)), [f"{length:,}" for length in shown["length"]])
    ax.invert_yaxis()
    ax.set(xlabel="weights of the two losses of a document", ylabel="length of a document\n(structural tokens)")
    ax.set_xlim(0, 1.02 * max(1.0, float(left.max())))
    ax.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, fontsize=8)
    return ax

"""Figures: tidy frame in, Axes out. One palette and one look for all of them, `use_style()` at a notebook's start."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.typing import LineStyleType

# Okabe and Ito's colours, told apart with every common colour blindness; one per kind of model, everywhere.
PALETTE = {
    "student": "#0072B2",
    "untrained": "#999999",
    "structural": "#D55E00",
    "contextual": "#009E73",
    "floor": "#CC79A7",
    "positive": "#0072B2",
    "negative": "#E69F00",
}
STYLES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")  # of what shares a colour
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
RC: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.figsize": (7.2, 4.0),
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "x",
    "axes.axisbelow": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "savefig.facecolor": "white",
}


def use_style() -> None:
    """Set the look of all figures drawn from now on."""
    mpl.rcParams.update(RC)


def rows_axes(rows: int, *, columns: int = 1, each: float = 0.3) -> list[Axes]:
    """Axes beside each other that share their y axis, as high as so many rows of `each` inch need.

    One alone keeps its width whatever its labels need: saving and showing make the figure wider instead.
    """
    size = ((1 if columns == 1 else 1.4) * RC["figure.figsize"][0], 1.1 + each * rows)
    layout: Any = None if columns == 1 else "constrained"
    _, axes = plt.subplots(1, columns, figsize=size, sharey=True, squeeze=False, layout=layout)
    return list(axes[0])


def plain(text: str) -> str:
    """A text as it stands: matplotlib takes what is between two dollar signs for a formula, or fails on it."""
    return text.replace("$", r"\$")


def kind_of(model: str) -> str:
    """Which colour a model has: a key of PALETTE."""
    if model.startswith("SBERT"):
        return "structural"
    if model.startswith(("DM;", "DBOW;", "PV;", "LSA")) and "S:" not in model:
        return "contextual"
    if model == "TF-IDF":
        return "floor"
    return "untrained" if model.startswith("student before") else "student"


def looks_of(models: Iterable[str]) -> dict[str, tuple[str, LineStyleType]]:
    """Colour and line style of each model: the colour is that of its kind, the style tells models of one kind apart."""
    looks: dict[str, tuple[str, LineStyleType]] = {}
    seen: Counter[str] = Counter()
    for model in dict.fromkeys(models):
        kind = kind_of(model)
        looks[model] = PALETTE[kind], STYLES[seen[kind] % len(STYLES)]
        seen[kind] += 1
    return looks


# Functions that notebooks call → their modules, which are loaded when first asked for.
_PUBLIC = {
    **dict.fromkeys(("plot_cumulative", "plot_lengths", "plot_mask", "plot_weights"), "corpus"),
    **dict.fromkeys(("plot_contextual_loss", "plot_paragraph_vectors", "plot_training", "plot_windows"), "diagrams"),
    **dict.fromkeys(("plot_descents", "plot_soft_cca"), "losses"),
    **dict.fromkeys(("each_task", "plot_by_length", "plot_by_task", "plot_differences", "plot_retrieval"), "results"),
    **dict.fromkeys(("plot_retrieval_means", "plot_rounds", "plot_task"), "results"),
    **dict.fromkeys(("plot_attention", "plot_few_shot", "plot_redundancy", "plot_sentence_similarity"), "results"),
    **dict.fromkeys(("MEASURES", "plot_distances", "plot_max_margin", "plot_probe"), "student"),
    **dict.fromkeys(("plot_history", "plot_runs", "plot_weighting"), "sweeps"),
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'docemb_lib.figures' has no attribute {name!r}")
    return getattr(import_module(f"docemb_lib.figures.{_PUBLIC[name]}"), name)

"""The style of all figures: colours, sizes and what matplotlib is told of them."""

from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.rcsetup import cycler
from matplotlib.typing import ColorType

from docemb_lib.base.progress import in_kernel
from docemb_lib.runs.kinds import Kind

GREY = "#787878"  # contrast 4.4 to 1 with white and 4.3 to 1 with JupyterLab's dark #111111
# The colours of Okabe and Ito, distinguishable with every common colour blindness; one per kind of
# model.
PALETTE = {
    "student": "#0072B2",
    "untrained": "#999999",
    "structural": "#D55E00",
    "contextual": "#009E73",
    "floor": "#CC79A7",
    "positive": "#0072B2",
    "negative": "#E69F00",
}
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# The colours of models, keys of PALETTE; those of all other kinds are "structural".
COLOURS = {
    Kind.STUDENT: "student",
    Kind.UNTRAINED: "untrained",
    Kind.DM: "contextual",
    Kind.DBOW: "contextual",
    Kind.PV: "contextual",
    Kind.CORPUS_LSA: "contextual",
    Kind.PARAGRAPH_VECTOR: "contextual",
    Kind.TFIDF: "floor",
    Kind.TASK_LSA: "floor",
    Kind.BM25: "floor",
}
BESIDE: dict[str, Any] = {"loc": "upper left", "bbox_to_anchor": (1.01, 1)}  # of a legend
WIDTH = 7.2  # inches of a figure
RC: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.figsize": (WIDTH, 3.2),
    "figure.constrained_layout.use": True,  # labels and legends lie inside of the width
    "font.size": 9,
    "axes.titlesize": "medium",
    "figure.titlesize": "medium",
    "figure.labelsize": "medium",
    "legend.fontsize": "medium",
    "axes.prop_cycle": cycler(color=SERIES),
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GREY,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.7,
    "legend.frameon": False,
    "svg.fonttype": "none",
    "savefig.facecolor": "none",
    "axes.facecolor": "none",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    # a `$` in a text begins no formula
    "text.parse_math": False,
}


def use_style() -> None:
    """Set the style of figures and tables in this process."""
    mpl.rcParams.update(RC)
    if in_kernel():
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
        from matplotlib_inline.config import InlineBackend

        # Jupyter would show a figure that is itself transparent on a light background.
        InlineBackend.instance(parent=get_ipython()).print_figure_kwargs["facecolor"] = "none"
        set_matplotlib_formats("png")
        # The hook draws every figure once more, which the inline backend draws at a cell's end.
        plt.uninstall_repl_displayhook()
    # Ids, sentences and tables are shown whole.
    pd.set_option(
        "display.max_colwidth", None, "display.max_rows", 100, "display.expand_frame_repr", False
    )


def axes(height: float, rows: int = 1, columns: int = 1, **options: Any) -> Any:
    """Return the axes of a new figure of the common width, several of them as an array.

    height: inches; options: those of `matplotlib.pyplot.subplots`.
    """
    return plt.subplots(rows, columns, figsize=(WIDTH, height), **options)[1]


def colour_of(kind: str) -> str:
    """Return the colour of the models of a kind, see `Kind`."""
    return PALETTE[COLOURS.get(Kind(kind), "structural")]


def series_colors(names: Iterable[Any]) -> dict[Any, ColorType]:
    """Return a colour for each name, in the order of the first appearance."""
    import seaborn as sns

    unique = list(dict.fromkeys(names))
    palette = SERIES if len(unique) < len(SERIES) else sns.color_palette("husl", len(unique))
    return dict(zip(unique, palette, strict=False))

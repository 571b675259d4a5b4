"""Figures: a tidy frame in, Axes out. One palette and one style for all; call `use_style()` first
in a notebook.

Figures are transparent, with text and lines of one grey, so that they are legible on a light and on
a dark page.

Every plot function can be imported from here. Modules are loaded at the first use: `methods`, the
last, imports torch.
"""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib import import_module
from itertools import cycle
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
import seaborn as sns
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import LineStyleType

from docemb_lib.base.progress import in_kernel
from docemb_lib.runs.models import FORMS, SBERT_CHUNKS, SBERT_TRUNCATED, UNTRAINED

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
STYLES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")  # for lines of the same colour
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# Options of a legend to the right of the data.
BESIDE: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1.01, 1),
    "fontsize": 8,
    "title_fontsize": 8,
}
SHORT = {UNTRAINED: "before distillation", SBERT_CHUNKS: "chunks", SBERT_TRUNCATED: "truncated"}
SHORT["no-weighting"] = "plain sum"  # of both losses
LONGEST_OWN = 24  # characters of a label that is shown beside "this student"
GREY = "#787878"  # contrast 4.4 to 1 with white and 4.3 to 1 with JupyterLab's dark #111111
RC: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.figsize": (7.2, 4.0),
    "font.size": 10,
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
    **dict.fromkeys(
        ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY
    ),
    # a `$` in a text begins no formula; the diagrams of `methods` switch it on
    "text.parse_math": False,
}


def __getattr__(name: str) -> Any:
    for module in (
        ("documents", "results", "methods") if name.startswith("plot_") or name.isupper() else ()
    ):
        if hasattr(found := import_module(f"docemb_lib.figures.{module}"), name):
            return getattr(found, name)
    raise AttributeError(f"module 'docemb_lib.figures' has no attribute {name!r}")


def use_style() -> None:
    mpl.rcParams.update(RC)
    if in_kernel():  # of a figure that is itself transparent, Jupyter would show a light background
        from IPython import get_ipython
        from matplotlib_inline.backend_inline import set_matplotlib_formats
        from matplotlib_inline.config import InlineBackend

        InlineBackend.instance(parent=get_ipython()).print_figure_kwargs["facecolor"] = "none"
        set_matplotlib_formats("png")
        # draws every figure once more, which the inline backend draws at a cell's end
        plt.uninstall_repl_displayhook()
    # Ids, sentences and tables are shown whole.
    pd.set_option(
        "display.max_colwidth", None, "display.max_rows", 100, "display.expand_frame_repr", False
    )


def short_name(label: str, own: str | None = None) -> str:
    """A model's label for figures and tables; `own` is the label of the student of this run.

    Example:
        >>> short_name("cosine;None;λ=0.5"), short_name("student a;b, adapted", "student a;b")
        ('cosine, no mask, λ .5', 'this student: a, b, adapted')
    """
    if own is not None and label in [f"{own}{form}" for form in FORMS]:
        text = short_name(own.removeprefix("student "))
        return (
            "this student" if len(text) > LONGEST_OWN else f"this student: {text}"
        ) + label.removeprefix(own)
    for long, name in SHORT.items():
        label = label.replace(long, name)
    label = re.sub(r"None;(?=λ)", "no mask;", label)
    label = re.sub(
        r"([λγτ])=([\d.]+)",
        lambda found: f"{found[1]} {float(found[2]):g}".replace(" 0.", " ."),
        label,
    )
    return label.replace(";", ", ")


def named(frame: pd.DataFrame, own: str | None = None) -> pd.DataFrame:
    """The frame with short names in its columns `model` and `reference` and in the level `model` of
    its index.
    """
    name = partial(short_name, own=own)
    frame = frame.assign(
        **{column: frame[column].map(name) for column in ("model", "reference") if column in frame}
    )
    return frame.rename(name, level="model") if "model" in frame.index.names else frame


def table(frame: pd.DataFrame, own: str | None = None, *, digits: int = 3, empty: str = "") -> Any:
    """The frame to read: short names, rounded numbers, and nothing in place of NaN; without rows
    the text `empty`.
    """
    if empty and frame.empty:
        from IPython.display import Markdown

        return Markdown(empty)

    def text(value: Any) -> Any:
        return (
            "" if pd.isna(value) else f"{value:.{digits}f}" if isinstance(value, float) else value
        )

    return named(frame, own).map(text)


def rows_axes(rows: int, *, columns: int = 1, each: float = 0.3) -> list[Axes]:
    """Axes side by side that share the y axis, high enough for `rows` rows of `each` inches."""
    # A single panel keeps its width: saving with bbox_inches="tight" widens the figure for long
    # labels.
    wider, layout = (1.0, None) if columns == 1 else (1.4, "constrained")
    figure = plt.figure(figsize=(wider * RC["figure.figsize"][0], 1.1 + each * rows), layout=layout)
    return list(figure.subplots(1, columns, sharey=True, squeeze=False)[0])


def each_task(
    plot: Callable[..., Any], scores: pd.DataFrame, *, height: float | None = None, **options: Any
) -> Figure:
    """Draw `plot(scores, task=…, ax=…, **options)` for each task of `scores`, in rows of `height`
    inches.

    height: None gives each model a line of text.
    """
    tasks = list(scores["task"].unique())
    height = height or 1 + 0.2 * scores["model"].nunique()
    figure = plt.figure(
        figsize=(RC["figure.figsize"][0], height * len(tasks)), layout="constrained"
    )
    for task, ax in zip(tasks, figure.subplots(len(tasks), squeeze=False)[:, 0], strict=True):
        plot(scores, task=task, ax=ax, **options)
    return figure


def kind_of(model: str) -> str:
    """The kind of a model, a key of `PALETTE`, from its label."""
    if model in ("TF-IDF", "BM25", "LSA"):
        return "floor"
    if "/" in model or model.startswith(
        ("SBERT", "BM25 and", SHORT[SBERT_CHUNKS], SHORT[SBERT_TRUNCATED])
    ):  # a hub id
        return "structural"
    if re.match("(DM|DBOW|PV|LSA)[;,]", model) and "S:" not in model:
        return "contextual"
    return "untrained" if model.startswith((UNTRAINED, SHORT[UNTRAINED])) else "student"


def looks_of(models: Iterable[str]) -> dict[str, tuple[str, LineStyleType]]:
    """Colour and line style of each model: the colour shows its kind, the style separates models of
    one kind.
    """
    styles: defaultdict[str, Iterator[LineStyleType]] = defaultdict(lambda: cycle(STYLES))
    kinds = {model: kind_of(model) for model in models}
    return {model: (PALETTE[kind], next(styles[kind])) for model, kind in kinds.items()}


def series_colors(names: Iterable[Any], *, more: str = "husl") -> dict[Any, Any]:
    """A colour per name in order of first appearance: equal in all figures of one frame. more:
    palette beyond seven.
    """
    unique = list(dict.fromkeys(names))
    palette = SERIES if len(unique) < len(SERIES) else sns.color_palette(more, len(unique))
    return dict(zip(unique, palette, strict=False))


def short(text: str, longest: int = 24) -> str:
    """The text cut to `longest` characters."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def label(
    ax: Axes,
    text: str,
    place: tuple[Any, Any],
    offset: tuple[float, float] = (0, 0),
    **options: Any,
) -> None:
    """Write a small text `offset` points from a place."""
    ax.annotate(
        text,
        place,
        xytext=offset,
        textcoords="offset points",
        **{"fontsize": 8, "va": "center", **options},
    )

"""Figures: a tidy frame in, Axes out, in one palette and one style.

Call `use_style()` first in a notebook. Figures are transparent, with text and lines of one grey, so
that they are legible on a light and on a dark page.

Every plot function can be imported from here. Modules are loaded at the first use: `methods`, the
last, imports torch.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import cycle
from typing import Any

import matplotlib as mpl
import matplotlib.pyplot as plt
import pandas as pd
from IPython.display import Markdown, display
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.typing import ColorType, LineStyleType

from docemb_lib.base.progress import in_kernel
from docemb_lib.runs.kinds import SHORT_TITLES, Kind
from docemb_lib.runs.models import Model
from docemb_lib.settings.labels import typeset

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
STYLES: tuple[LineStyleType, ...] = ("-", "--", ":", "-.")  # for lines of the same colour
SERIES = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442", "#999999")
# Options of a legend to the right of the data.
BESIDE: dict[str, Any] = {
    "loc": "upper left",
    "bbox_to_anchor": (1.01, 1),
    "fontsize": 8,
    "title_fontsize": 8,
}
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
LONGEST_OWN = 24  # characters of a label that is added to "this student"
WIDTH = 7.2  # inches of a figure
LETTER = 0.075  # inches of a letter of a name, on average
RC: dict[Any, Any] = {
    "figure.dpi": 110,
    "figure.figsize": (WIDTH, 4.0),
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
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "xtick.color": GREY,
    "ytick.color": GREY,
    # a `$` in a text begins no formula
    "text.parse_math": False,
}


def __getattr__(name: str) -> Any:
    if name.startswith("plot_") or name.isupper():
        for module in ("documents", "results", "methods"):
            members = vars(import_module(f"docemb_lib.figures.{module}"))
            if name in members:
                return members[name]
    raise AttributeError(f"module 'docemb_lib.figures' has no attribute {name!r}")


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


def short_names(models: Iterable[Model], student: str) -> dict[str, str]:
    """The names of models in figures and tables, by label. Students of other runs are left out.

    student: the name of the model of this run, the label of the run.
    """
    of_run = typeset(student)
    this = "this student" if len(of_run) > LONGEST_OWN else f"this student: {of_run}"
    names = {}
    for model in models:
        ending = model.identity.ending
        if model.kind != Kind.STUDENT:
            name = typeset(model.identity.name) or SHORT_TITLES[model.kind]
            names[model.label] = f"{name}{ending}"
        elif model.identity.name == student:
            names[model.label] = f"{this}{ending}"
    return names


def named(frame: pd.DataFrame, names: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The frame with names for figures in place of labels of models.

    They are in its columns `model` and `reference` and in the level `model` of its index. names:
    see `short_names`. All are `typeset`.
    """
    of_labels = names or {}

    def name(label: str) -> str:
        return typeset(of_labels.get(label, label))

    frame = frame.copy()
    for column in {"model", "reference"} & set(frame):
        frame[column] = frame[column].map(name)
    return frame.rename(name, level="model") if "model" in frame.index.names else frame


def table(
    frame: pd.DataFrame,
    names: Mapping[str, str] | None = None,
    *,
    digits: int = 3,
    section: str = "",
) -> pd.DataFrame | None:
    """The frame to read: names as in figures (see `named`), rounded numbers, and nothing for NaN.

    section: Markdown that is shown above the table. A frame without rows is left out together with
    its section.
    """
    if frame.empty:
        return None
    if section:
        display(Markdown(section))

    def text(value: Any) -> Any:
        if pd.isna(value):
            return ""
        return f"{value:.{digits}f}" if isinstance(value, float) else value

    return named(frame, names).map(text)


def rows_axes(rows: int, *, columns: int = 1, each: float = 0.3) -> list[Axes]:
    """Axes side by side that share the y axis, high enough for `rows` rows of `each` inches."""
    height = 1.1 + each * rows
    if columns == 1:
        # A single panel keeps its width: saving with bbox_inches="tight" widens the figure for
        # long labels.
        figure = plt.figure(figsize=(WIDTH, height))
    else:
        figure = plt.figure(figsize=(1.4 * WIDTH, height), layout="constrained")
    return list(figure.subplots(1, columns, sharey=True, squeeze=False)[0])


def each_task(
    plot: Callable[..., Any], scores: pd.DataFrame, *, height: float | None = None, **options: Any
) -> Figure:
    """Draw `plot(scores, task=…, ax=…, **options)` for each task of `scores`, one below the other.

    height: inches of a task; None gives each model a line of text.
    """
    tasks = list(scores["task"].unique())
    width = WIDTH
    if height is None:
        names = scores["model"]
        height = 1 + 0.2 * names.nunique()
        # Names are inside the figure: beside the longest, half of the usual width is left.
        width = max(WIDTH, WIDTH / 2 + LETTER * names.str.len().max())
    figure = plt.figure(figsize=(width, height * len(tasks)), layout="constrained")
    for task, ax in zip(tasks, figure.subplots(len(tasks), squeeze=False).flat, strict=True):
        plot(scores, task=task, ax=ax, **options)
    return figure


def colour_of(kind: str) -> str:
    """The colour of the models of a kind, see `Kind`."""
    return PALETTE[COLOURS.get(Kind(kind), "structural")]


def looks_of(rows: pd.DataFrame) -> dict[str, tuple[str, LineStyleType]]:
    """Colour and line style of each model. rows: with the columns model and kind.

    The colour shows the kind of the model; the style separates models of one colour.
    """
    styles: defaultdict[str, Iterator[LineStyleType]] = defaultdict(lambda: cycle(STYLES))
    looks = {}
    for row in rows.drop_duplicates("model").to_dict("records"):
        colour = colour_of(row["kind"])
        looks[row["model"]] = (colour, next(styles[colour]))
    return looks


def series_colors(names: Iterable[Any], *, more: str = "husl") -> dict[Any, ColorType]:
    """A colour per name in order of first appearance: equal in all figures of one frame.

    more: the palette beyond seven names.
    """
    unique = list(dict.fromkeys(names))
    if len(unique) < len(SERIES):
        return dict(zip(unique, SERIES, strict=False))
    import seaborn as sns

    return dict(zip(unique, sns.color_palette(more, len(unique)), strict=True))


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
    look = {"fontsize": 8, "va": "center", **options}
    ax.annotate(text, place, xytext=offset, textcoords="offset points", **look)

"""Explorers: controls whose values a function answers with HTML and a figure.

Live in a notebook that a person runs, one plain answer where the notebook is executed without a
person (papermill, nbconvert). All text from documents, models and files is escaped here.
"""

import base64
import io
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple

import IPython
import ipywidgets
import numpy as np
import pandas as pd
from IPython.display import HTML, Image, display
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError

# ---- HTML

DPI = 90  # of figures: legible, and small in a saved notebook
LONGEST = 4000  # characters of a document that are shown
Points = tuple[Axes, np.ndarray, Sequence[str]]  # axes, places (N, 2) in their data, and N texts
STYLE = """<style>
:is(.docemb-explorer, .docemb-answer) table {border-collapse: collapse; font-size: 12px;}
:is(.docemb-explorer, .docemb-answer) :is(th, td) {padding: 1px 10px 1px 0; text-align: left; vertical-align: top;}
:is(.docemb-explorer, .docemb-answer) .docemb-neighbours {table-layout: fixed; width: 100%;}
.docemb-explorer .docemb-points circle:hover {stroke: gray;}
@keyframes docemb-late {from, 99% {visibility: hidden} to {visibility: visible}}
</style>"""
BOX = (
    "flex: 1 1 300px; max-height: 260px; overflow: auto; white-space: pre-wrap; margin: 0; padding: 6px; "
    "font-size: 12px; line-height: 1.35; border: 1px solid var(--jp-border-color2, #999);"
)


def message(text: str) -> str:
    return f'<p class="docemb-message">{escape(text)}</p>'


def picture(figure: Figure, alt: str, points: Sequence[Points]) -> str:
    """A figure; the pointer on one of `points` shows its text."""
    source = f"data:image/png;base64,{base64.b64encode(png_of(figure)).decode('ascii')}"
    image = (
        f'<img class="docemb-figure" style="max-width: 100%;" alt="{escape(alt)}" src="{source}">'
    )
    (width, height), circles = figure.bbox.size, ""  # last, because drawing lays the axes out
    for ax, places, texts in points:
        for (x, y), text in zip(ax.transData.transform(places), texts, strict=True):
            circles += f'<circle cx="{x:.0f}" cy="{height - y:.0f}" r="6"><title>{escape(text)}</title></circle>'
    style = "position: absolute; left: 0; top: 0; width: 100%; height: 100%;"
    box = f'class="docemb-points" viewBox="0 0 {width:.0f} {height:.0f}" fill="transparent" style="{style}"'
    tips = f"<svg {box}>{circles}</svg>" if circles else ""
    return f'<div style="position: relative; display: inline-block;">{image}{tips}</div>'


def number(name: str, value: object, tag: str = "b") -> str:
    """A value with a class: `<b class="docemb-auc">0.912</b>`."""
    return f'<{tag} class="docemb-{escape(name)}">{escape(str(value))}</{tag}>'


def table(
    name: str, rows: pd.DataFrame, formats: Mapping[str, Callable[[Any], str]] | None = None
) -> str:
    """A table of the class `docemb-<name>`; numbers have three decimals or the format of their
    column.
    """
    look: dict[str, Any] = {"classes": f"docemb-{name}", "index": False, "border": 0, "na_rep": ""}
    with pd.option_context("display.max_colwidth", None):  # no text is cut
        text = rows.to_html(float_format="{:.3f}".format, formatters=dict(formats or {}), **look)
    return f'<div style="overflow-x: auto;">{text}</div>'


def document(title: str, text: str) -> str:
    """A document as text; after `LONGEST` characters only the number of further characters is
    shown.
    """
    cut = "" if len(text) <= LONGEST else f"\n… ({len(text) - LONGEST} more characters)"
    style = (
        "white-space: pre-wrap; background: none; color: inherit; font-family: inherit; margin: 0;"
    )
    text = f'<pre class="docemb-document" style="{style}">{escape(text[:LONGEST] + cut)}</pre>'
    return f'<div style="{BOX}"><b>{escape(title)}</b>{text}</div>'


# ---- controls

SLIDER = {"width": "360px"}  # room for the longest value
# Shown while an answer is computed, unless that takes less than 0.2 seconds.
LOADING = '<span class="docemb-loading" role="status" style="animation: docemb-late .2s both;">loading …</span>'
# ipywidgets names neither the handles of a slider nor the number beside it for screen readers: give
# them its label.
NAMES = """
window.docembNames ??= new MutationObserver(() => {
    const parts = ".docemb-explorer :is(.noUi-handle, .widget-readout[contenteditable=true]):not([aria-label])";
    for (const part of document.querySelectorAll(parts)) {
        const control = part.closest(".widget-inline-hbox"), ends = [...control.querySelectorAll(".noUi-handle")];
        const end = ends.length > 1 ? [", both", ", from", ", to"][1 + ends.indexOf(part)] : "";
        part.setAttribute("aria-label", control.querySelector(".widget-label").textContent + end);
        part.role ??= "textbox";
    }
});
window.docembNames.observe(document.body, {childList: true, subtree: true});
"""


class Control(NamedTuple):
    make: Callable[..., Any]  # the widget, which only a notebook with a person needs
    value: Any  # the first


def choice(options: Mapping[str, Any], first: Any) -> Control:
    """One of several options by label, first the value `first`."""
    # index instead of value: ipywidgets takes a value of None for no value
    place = list(options.values()).index(first)
    return Control(partial(ipywidgets.Dropdown, options=list(options.items()), index=place), first)


def slider(low: float, high: float, step: float, value: float | tuple[int, int]) -> Control:
    """A number, an integer if `step` is one, or the two integers of an interval."""
    kind = ipywidgets.IntSlider if isinstance(step, int) else ipywidgets.FloatSlider
    kind = ipywidgets.IntRangeSlider if isinstance(value, tuple) else kind
    return Control(partial(kind, min=low, max=high, step=step, value=value, layout=SLIDER), value)


def text_field(placeholder: str, *, lines: int = 1) -> Control:
    """A text, which counts when the field is left or, with one line, at the return key."""
    kind = ipywidgets.Text if lines == 1 else ipywidgets.Textarea
    return Control(
        partial(kind, placeholder=placeholder, continuous_update=False, layout={"width": "98%"}), ""
    )


# ---- explorers


class Answer(NamedTuple):
    html: str  # numbers and texts, escaped
    figure: Figure | None = None
    alt: str = ""  # description of the figure
    points: Sequence[Points] = ()  # of the figure, see `picture`


class Explorer:
    """Controls, by description, and the answer to their values in that order; the last value of a
    notebook cell.
    """

    def __init__(self, controls: Mapping[str, Control], answer: Callable[..., Answer]) -> None:
        self._controls, self._answer = dict(controls), answer
        self.settings = {name: control.value for name, control in controls.items()}
        self.widgets: dict[str, Any] = {}  # by description, once live
        self._drawn: Figure | None = None

    def answer(self, **settings: Any) -> Answer:
        """The answer to these settings; the other controls keep their values.

        An error becomes one line.
        """
        try:
            return self._answer(*{**self.settings, **settings}.values())
        except (InputError, OSError) as error:  # files may have been deleted
            return Answer(message(str(error)))

    def live(self) -> Any:
        for name, control in self._controls.items():
            self.widgets[name] = control.make(description=name, style={"description_width": "80px"})
            self.widgets[name].observe(lambda _: self.refresh(), names="value")
        self._picture, self._text, self._status = (
            ipywidgets.HTML(),
            ipywidgets.HTML(),
            ipywidgets.HTML(),
        )
        controls = ipywidgets.Box(list(self.widgets.values()), layout={"flex_flow": "row wrap"})
        self.box = ipywidgets.VBox(
            [ipywidgets.HTML(STYLE), controls, self._status, self._picture, self._text]
        )
        self.box.add_class("docemb-explorer")
        self.refresh()
        return self.box

    def refresh(self) -> None:
        self._status.value = LOADING
        self.settings = {name: widget.value for name, widget in self.widgets.items()}
        self._text.value, figure, alt, points = self.answer()
        if figure is None or figure is not self._drawn:  # rendering takes most of the time
            self._picture.value = "" if figure is None else picture(figure, alt, points)
        self._drawn, self._status.value = figure, ""

    def close(self) -> None:
        """Remove the widgets from the front end and from the state that it saves."""
        for widget in (*self.widgets.values(), *self.box.children, self.box):
            for part in (
                getattr(widget, "style", widget),
                widget.layout,
                widget,
            ):  # separate models
                part.close()

    def _ipython_display_(self) -> None:
        if cell := live_cell():
            if earlier := _shown.pop(cell, None):
                earlier.close()
            display({"application/javascript": NAMES}, raw=True)
            display(self.live())
            _shown[cell] = self
            return
        answer = self.answer()
        image = [] if answer.figure is None else [Image(png_of(answer.figure), alt=answer.alt)]
        display(*image, HTML(f'{STYLE}<div class="docemb-answer">{answer.html}</div>'))


_shown: dict[
    str, Explorer
] = {}  # by cell, whose earlier explorer the front end would keep and save


def png_of(figure: Figure) -> bytes:
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def live_cell() -> str | None:
    """Id of the cell that a person runs; None under papermill and nbconvert, which send no id."""
    shell = IPython.get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = request.get("metadata", {}).get("cellId")
    return None if cell is None else str(cell)

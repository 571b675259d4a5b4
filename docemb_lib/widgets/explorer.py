"""Explorers: controls whose values a function answers with HTML and a figure.

An explorer is live in a notebook that a person runs. Where the notebook is executed without a
person (papermill, nbconvert), it shows one plain answer. All text from documents, models and files
is escaped here.
"""

import base64
import io
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import Any, NamedTuple

import ipywidgets
import pandas as pd
from IPython.display import HTML, Image, display
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import live_cell

# ---- HTML

DPI = 90  # of figures: legible, and small in a saved notebook
LONGEST = 4000  # characters of a document that are shown
# Translucent backgrounds, so that texts are legible on light and dark pages: better and worse.
MORE = "49, 130, 206"
LESS = "221, 107, 32"
STYLE = """<style>
:is(.docemb-explorer, .docemb-answer) table {border-collapse: collapse; font-size: 12px;}
:is(.docemb-explorer, .docemb-answer) :is(th, td) {
    padding: 1px 10px 1px 0; text-align: left; vertical-align: top;
}
:is(.docemb-explorer, .docemb-answer) :is(p, td, th) {line-height: 1.4; margin: 4px 0;}
:is(.docemb-explorer, .docemb-answer) .docemb-neighbours {table-layout: fixed; width: 100%;}
.docemb-neighbours td {border-top: 1px solid var(--jp-border-color2, #999);}
.docemb-query + div {height: 6em;}
.docemb-explorer ::placeholder {color: var(--jp-ui-font-color2);}
.docemb-explorer .widget-readout {min-width: max-content;}
@keyframes docemb-late {from, 99% {visibility: hidden} to {visibility: visible}}
</style>"""
BOX = (
    "flex: 1 1 300px; max-height: 260px; overflow: auto; white-space: pre-wrap; margin: 0; "
    "padding: 6px; font-size: 12px; line-height: 1.35; "
    "border: 1px solid var(--jp-border-color2, #999);"
)
# JupyterLab breaks lines of `pre` in words.
PLAIN = (
    "white-space: pre-wrap; word-break: normal; overflow-wrap: anywhere; background: none; "
    "color: inherit; font-family: inherit; margin: 0;"
)


def message(text: str) -> str:
    return f'<p class="docemb-message">{escape(text)}</p>'


def picture(figure: Figure, alt: str) -> str:
    """A figure as an image."""
    source = f"data:image/png;base64,{base64.b64encode(png_of(figure)).decode('ascii')}"
    return (
        f'<img class="docemb-figure" style="max-width: 100%;" alt="{escape(alt)}" src="{source}">'
    )


def number(name: str, value: object) -> str:
    """A value with a class: `<b class="docemb-auc">0.912</b>`."""
    return f'<b class="docemb-{escape(name)}">{escape(str(value))}</b>'


def table(
    name: str, rows: pd.DataFrame, formats: Mapping[str, Callable[..., str]] | None = None
) -> str:
    """A table of the class `docemb-<name>`; a missing value is empty.

    Numbers have three decimals unless they are integers, or the format of their column in
    `formats`.
    """
    options: dict[str, Any] = {"index": False, "border": 0, "na_rep": ""}
    with pd.option_context("display.max_colwidth", None):  # no text is cut
        html = rows.to_html(
            classes=f"docemb-{name}",
            formatters=dict(formats or {}),
            float_format="{:,.3f}".format,
            **options,
        )
    return f'<div style="overflow-x: auto;">{html}</div>'


def document(title: str, text: str) -> str:
    """A document as text, cut after `LONGEST` characters with the number of the further ones."""
    further = len(text) - LONGEST
    if further > 0:
        text = f"{text[:LONGEST]}\n… ({further:,} more characters)"
    body = f'<pre class="docemb-document" style="{PLAIN}">{escape(text)}</pre>'
    return f'<div style="{BOX}"><b>{escape(title)}</b>{body}</div>'


# ---- controls

SLIDER = {"width": "360px"}  # room for the longest value
MENU = {"width": "max-content", "min_width": "300px", "max_width": "98%"}  # none is cut
# Shown while an answer is computed, unless that takes less than 0.2 seconds.
LOADING = (
    '<span class="docemb-loading" role="status" style="animation: docemb-late .2s both;">'
    "loading …</span>"
)

Settings = dict[str, Any]  # values of controls, by description


class Control(NamedTuple):
    make: Callable[..., ipywidgets.Widget]  # the widget, which only a person needs
    value: Any  # the first
    # Of a menu that depends on other controls: its values by label.
    options: Callable[[Settings], Mapping[str, Any]] | None = None


def choice(options: Mapping[str, Any], first: Any) -> Control:
    """A menu of values by label, which begins with the value `first`."""
    # index instead of value: ipywidgets takes a value of None for no value
    index = list(options.values()).index(first)
    make = partial(ipywidgets.Dropdown, options=list(options.items()), index=index, layout=MENU)
    return Control(make, first)


def dependent_choice(options: Callable[[Settings], Mapping[str, Any]], first: Any) -> Control:
    """A menu whose values by label follow from those of the other controls."""
    return Control(partial(ipywidgets.Dropdown, layout=MENU), first, options)


def slider(low: float, high: float, step: float, value: float | tuple[int, int]) -> Control:
    """A slider for a number, an integer if `step` is one, or for the two ends of an interval."""
    if isinstance(value, tuple):
        kind = ipywidgets.IntRangeSlider
    else:
        kind = ipywidgets.IntSlider if isinstance(step, int) else ipywidgets.FloatSlider
    make = partial(kind, min=low, max=high, step=step, value=value, layout=SLIDER)
    return Control(partial(make, readout_format=",d" if isinstance(step, int) else ".2f"), value)


def text_field(placeholder: str, *, lines: int = 1) -> Control:
    """A text, which counts when the field is left or, with one line, at the return key."""
    kind = ipywidgets.Text if lines == 1 else ipywidgets.Textarea
    wide = {"width": "98%"}
    make = partial(kind, placeholder=placeholder, continuous_update=False, layout=wide)
    return Control(make, "")


# ---- explorers


class Answer(NamedTuple):
    html: str  # numbers and texts, escaped
    figure: Figure | None = None
    alt: str = ""  # description of the figure


class Explorer:
    """Controls, and the answer to their values; the last value of a notebook cell.

    `controls` are named by their descriptions. `answer` takes their values in the same order.
    """

    def __init__(self, controls: Mapping[str, Control], answer: Callable[..., Answer]) -> None:
        self._controls = controls
        self._answer = answer
        self.settings: Settings = {name: control.value for name, control in controls.items()}
        self.widgets: dict[str, Any] = {}  # by description, once live
        self._moving = False  # while controls get values from here

    def answer(self, **settings: Any) -> Answer:
        """The answer to these settings, where the other controls keep their values.

        An InputError or OSError becomes one line.
        """
        try:
            return self._answer(*{**self.settings, **settings}.values())
        except (InputError, OSError) as error:  # files may have been deleted
            return Answer(message(str(error)))

    def live(self) -> ipywidgets.VBox:
        """The widgets, which answer whenever a control changes."""
        for name, control in self._controls.items():
            widget = control.make(description=name, style={"description_width": "80px"})
            widget.observe(self._move, names="value")
            self.widgets[name] = widget
        self._picture = ipywidgets.HTML()
        self._text = ipywidgets.HTML()
        self._status = ipywidgets.HTML()
        controls = ipywidgets.Box([*self.widgets.values()], layout={"flex_flow": "row wrap"})
        style = ipywidgets.HTML(STYLE)
        box = ipywidgets.VBox([style, controls, self._status, self._picture, self._text])
        box.add_class("docemb-explorer")
        self._moving = True
        self._offer(self.settings)
        self._moving = False
        self.refresh()
        return box

    def _move(self, change: object) -> None:
        """Answer to the values that the controls have now."""
        if self._moving:
            return
        self._moving = True
        self.settings = {name: widget.value for name, widget in self.widgets.items()}
        self.settings |= self._offer(self.settings)
        self._moving = False
        self.refresh()

    def _offer(self, wanted: Settings) -> Settings:
        """The menus that depend on other controls get their values; returns the chosen ones."""
        chosen = {}
        for name, control in self._controls.items():
            if control.options is not None:
                widget = self.widgets[name]
                options = tuple(control.options(wanted).items())
                if widget.options != options:
                    widget.options = options
                values = [value for _, value in options]
                if values:
                    widget.index = values.index(wanted[name]) if wanted[name] in values else 0
                chosen[name] = widget.value
        return chosen

    def refresh(self) -> None:
        self._status.value = LOADING
        answer = self.answer()
        self._text.value = answer.html
        self._picture.value = "" if answer.figure is None else picture(answer.figure, answer.alt)
        self._status.value = ""

    def _ipython_display_(self) -> None:
        if live_cell() is not None:
            display(self.live())
            return
        answer = self.answer()
        if answer.figure is not None:
            display(Image(png_of(answer.figure), alt=answer.alt))
        display(HTML(f'{STYLE}<div class="docemb-answer">{answer.html}</div>'))


def png_of(figure: Figure) -> bytes:
    file = io.BytesIO()
    # The usual compression takes a quarter of the time of an answer.
    figure.savefig(file, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    return file.getvalue()

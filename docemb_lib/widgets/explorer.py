"""Explorers: controls whose values a function answers with HTML and a figure.

An explorer is live in a notebook that a person runs. Where the notebook is executed without a
person (papermill, nbconvert), it shows one plain answer. All text from documents, models and files
is escaped here.
"""

import base64
import io
import json
import re
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from html import escape
from numbers import Integral, Real
from typing import Any, NamedTuple

import ipywidgets
import pandas as pd
from IPython.display import HTML, Image, display
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import live_cell
from docemb_lib.widgets import maps
from docemb_lib.widgets.maps import Map

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
.docemb-differences svg {display: block;}
.docemb-answer [data-copy] {display: none;}
.docemb-explorer ::placeholder {color: var(--jp-ui-font-color2);}
.docemb-explorer .widget-readout {min-width: max-content;}
.docemb-explorer button:is([data-set], [data-copy], [data-mark]) {
    font: inherit; color: inherit; background: none; border: 0; padding: 0; text-align: left;
    text-decoration: underline dotted; cursor: pointer; overflow-wrap: anywhere;
}
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


class Markup(str):
    """HTML in a cell of a `table`, which escapes other texts."""


def message(text: str) -> str:
    return f'<p class="docemb-message">{escape(text)}</p>'


@lru_cache(maxsize=1)  # an answer may have the figure of the one before
def picture(figure: Figure, alt: str) -> str:
    """A figure as an image."""
    source = f"data:image/png;base64,{base64.b64encode(png_of(figure)).decode('ascii')}"
    return (
        f'<img class="docemb-figure" style="max-width: 100%;" alt="{escape(alt)}" src="{source}">'
    )


def button(text: str, **settings: object) -> str:
    """A button for the HTML of an answer, which gives these values to controls, see `SCRIPT`.

    In an executed copy the text alone remains.
    """
    return f'<button data-set="{escape(json.dumps(settings))}">{escape(text)}</button>'


def copy_button(text: str) -> str:
    """A button that copies a text; an executed copy has none."""
    return f'<button data-copy="{escape(text)}">copy</button>'


def number(name: str, value: object, tag: str = "b") -> str:
    """A value with a class: `<b class="docemb-auc">0.912</b>`."""
    return f'<{tag} class="docemb-{escape(name)}">{escape(str(value))}</{tag}>'


def table(
    name: str, rows: pd.DataFrame, formats: Mapping[str, Callable[..., str]] | None = None
) -> str:
    """A table of the class `docemb-<name>`; columns of numbers stand right, with their headings.

    Numbers have separators of thousands, and three decimals unless they are integers, or the
    format of their column in `formats`. A missing value is empty.
    """
    columns = []
    for column, values in rows.items():
        write = (formats or {}).get(str(column), _written)
        texts = ["" if pd.isna(value) else write(value) for value in values]
        right = all(pd.isna(value) or _is_number(value) for value in values)
        side = "right" if right else "left"
        safe = [text if isinstance(text, Markup) else escape(str(text)) for text in texts]
        cells = [f'<td style="text-align: {side};">{text}</td>' for text in safe]
        columns.append([f'<th style="text-align: {side};">{escape(str(column))}</th>', *cells])
    lines = "".join(f"<tr>{''.join(line)}</tr>" for line in zip(*columns, strict=True))
    return f'<div style="overflow-x: auto;"><table class="docemb-{name}">{lines}</table></div>'


def _is_number(value: object) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _written(value: Any) -> Any:
    if not _is_number(value):
        return value
    return f"{value:,}" if isinstance(value, Integral) else f"{value:,.3f}"


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
# ipywidgets does not name the handles of a slider, nor the number next to it, for screen readers.
# This script gives them the label of the slider. It also sends the settings of a `button` that is
# pressed, and gives the keyboard back to this button in the new answer, or to what was asked.
SCRIPT = """
window.docembNames ??= new MutationObserver(() => {
    const kinds = ":is(.noUi-handle, .widget-readout[contenteditable=true]):not([aria-label])";
    for (const part of document.querySelectorAll(".docemb-explorer " + kinds)) {
        const control = part.closest(".widget-inline-hbox");
        const ends = [...control.querySelectorAll(".noUi-handle")];
        const both = [", both", ", from", ", to"][1 + ends.indexOf(part)];
        const label = control.querySelector(".widget-label").textContent;
        part.setAttribute("aria-label", label + (ends.length > 1 ? both : ""));
        part.role ??= "textbox";
    }
    if (window.docembPressed && document.activeElement === document.body) {
        const {explorer, set} = window.docembPressed;
        const buttons = [...explorer.querySelectorAll("[data-set]")];
        const next = buttons.find(({dataset}) => dataset.set === set);
        (next ?? explorer.querySelector(".docemb-query"))?.focus();
        window.docembPressed = null;
    }
});
window.docembNames.observe(document.body, {childList: true, subtree: true});
window.docembClicks ??= document.addEventListener("click", ({target}) => {
    const button = target.closest(".docemb-explorer [data-set]");
    if (button) {
        const explorer = button.closest(".docemb-explorer");
        const field = explorer.querySelector(".docemb-asked input");
        window.docembPressed = {explorer, set: button.dataset.set};
        field.value = button.dataset.set;
        field.dispatchEvent(new Event("change", {bubbles: true}));
    }
    const copying = target.closest(".docemb-explorer [data-copy]");
    if (copying) {
        const text = document.createElement("textarea");
        text.value = copying.dataset.copy;
        copying.after(text);
        text.select();
        // The clipboard of `navigator` is missing on pages without https.
        copying.textContent = document.execCommand("copy") ? "copied" : "not copied";
        text.remove();
        copying.focus();
    }
}) ?? true;
"""


Settings = dict[str, Any]  # values of controls, by description


class Control(NamedTuple):
    # The widget, which only a person needs. None: buttons in the answer give the value, and it is
    # None again when a widget moves.
    make: Callable[..., ipywidgets.Widget] | None
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
    figure: Figure | Map | None = None
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
            if control.make is not None:
                widget = control.make(description=name, style={"description_width": "80px"})
                widget.observe(lambda _: self._move({}), names="value")
                self.widgets[name] = widget
        # A button in the answer writes settings into this field, see `SCRIPT`.
        self._asked = ipywidgets.Text(continuous_update=False, layout={"display": "none"})
        self._asked.add_class("docemb-asked")
        self._asked.observe(self._ask, names="value")
        self._picture = ipywidgets.HTML()
        self._text = ipywidgets.HTML()
        self._status = ipywidgets.HTML()
        controls = ipywidgets.Box([*self.widgets.values()], layout={"flex_flow": "row wrap"})
        style = ipywidgets.HTML(STYLE)
        shown = [style, controls, self._asked, self._status, self._picture, self._text]
        self.box = ipywidgets.VBox(shown)
        self.box.add_class("docemb-explorer")
        self._moving = True
        self._offer(self.settings)
        self._moving = False
        self.refresh()
        return self.box

    def _ask(self, change: Mapping[str, str]) -> None:
        if change["new"]:
            self._asked.value = ""  # so that the same button counts again
            self._move(json.loads(change["new"]))

    def _move(self, asked: Settings) -> None:
        """Give values to controls, those of a button or none, and answer."""
        if self._moving:
            return
        self._moving = True
        for name in self.widgets.keys() & asked.keys():
            if self._controls[name].options is None:
                self.widgets[name].value = asked[name]
        settings = {name: widget.value for name, widget in self.widgets.items()}
        settings |= self._offer({**settings, **asked})
        self.settings = {**dict.fromkeys(self._controls), **asked, **settings}
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
        if answer.figure is None:
            self._picture.value = ""
        elif isinstance(answer.figure, Map):
            self._picture.value = answer.figure.html()
        else:
            self._picture.value = picture(answer.figure, answer.alt)
        self._status.value = ""

    def close(self) -> None:
        """Remove the widgets from the front end and from the state that it saves."""
        for widget in (*self.widgets.values(), *self.box.children, self.box):
            # the style and the layout of a widget are models of their own
            for part in (getattr(widget, "style", widget), widget.layout, widget):
                part.close()

    def _ipython_display_(self) -> None:
        cell = live_cell()
        if cell is None:
            answer = self.answer()
            figure = answer.figure.figure() if isinstance(answer.figure, Map) else answer.figure
            if figure is not None:
                display(Image(png_of(figure), alt=answer.alt))
            text = re.sub(r"<(/?)button\b", r"<\1span", answer.html)
            display(HTML(f'{STYLE}<div class="docemb-answer">{text}</div>'))
            return
        if cell in _shown:
            _shown.pop(cell).close()
        display({"application/javascript": SCRIPT + maps.SCRIPT}, raw=True)
        display(self.live())
        _shown[cell] = self


# The explorer of each cell. The front end would keep and save one that a cell has shown earlier.
_shown: dict[str, Explorer] = {}


def png_of(figure: Figure) -> bytes:
    file = io.BytesIO()
    # The usual compression takes a quarter of the time of an answer.
    figure.savefig(file, format="png", dpi=DPI, pil_kwargs={"compress_level": 1})
    return file.getvalue()

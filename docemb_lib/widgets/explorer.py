"""Pieces of HTML for explorers. Whatever comes from a document, a model or a file is escaped here."""

from __future__ import annotations

import base64
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from matplotlib.figure import Figure

from docemb_lib.errors import InputError

if TYPE_CHECKING:
    from ipywidgets import Widget


# ---- pieces of HTML for explorers


LONGEST = 4000  # characters of a document that are shown
CELL = "padding: 1px 10px 1px 0; text-align: left; vertical-align: top;"
BOX = (
    "flex: 1 1 300px; max-height: 260px; overflow: auto; white-space: pre-wrap; margin: 0; padding: 6px; "
    "font-size: 12px; line-height: 1.35; border: 1px solid var(--jp-border-color2, #999);"
)


def message(text: str) -> str:
    """One line instead of an answer."""
    return f'<p class="docemb-message">{escape(text)}</p>'


def picture(png: bytes, alt: str) -> str:
    """An image, with its description for those who do not see it."""
    data = base64.b64encode(png).decode("ascii")
    return (
        f'<img class="docemb-figure" style="max-width: 100%;" alt="{escape(alt)}" src="data:image/png;base64,{data}">'
    )


def number(name: str, value: object, tag: str = "b") -> str:
    """A number that can be found again: `<b class="docemb-auc">0.912</b>`."""
    return f'<{tag} class="docemb-{escape(name)}">{escape(str(value))}</{tag}>'


def cell(name: str, value: object) -> str:
    """The same in a table."""
    return f'<td class="docemb-{escape(name)}" style="{CELL}">{escape(str(value))}</td>'


def table(name: str, heads: Sequence[str], rows: Iterable[str]) -> str:
    """rows: ready `<tr>`s."""
    head = "".join(f'<th style="{CELL}">{escape(text)}</th>' for text in heads)
    return (
        f'<div style="overflow-x: auto;"><table class="docemb-{name}" style="border-collapse: collapse; '
        f'font-size: 12px;"><thead><tr>{head}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def row(cells: Iterable[str], **data: object) -> str:
    """A row; `data` says what it is about: `<tr data-model="cosine">`."""
    said = "".join(f' data-{name}="{escape(str(value))}"' for name, value in data.items())
    return f"<tr{said}>{''.join(cells)}</tr>"


def document(title: str, text: str) -> str:
    """A document as text, cut after `LONGEST` characters, and said so."""
    cut = "" if len(text) <= LONGEST else f"\n… ({len(text) - LONGEST} more characters)"
    return (
        f'<div style="{BOX}"><b>{escape(title)}</b>'
        f'<pre class="docemb-document" style="white-space: pre-wrap; background: none; color: inherit; '
        f'font-family: inherit; margin: 0;">{escape(text[:LONGEST] + cut)}</pre></div>'
    )


def side_by_side(pieces: Iterable[str]) -> str:
    """Beside each other, or below where there is no room."""
    return f'<div style="display: flex; flex-wrap: wrap; gap: 8px;">{"".join(pieces)}</div>'


# ---- what a control is


WIDE = {"description_width": "80px"}
Options = Sequence[tuple[str, Any]]  # what is shown, and its value


class Control(Protocol):
    """`value` is the one it begins with."""

    @property
    def value(self) -> Any: ...

    def widget(self, description: str) -> Widget: ...


class Choice(NamedTuple):
    """One of several, at first that in `place`; `slider` lays them out on a line."""

    options: Options
    place: int = 0
    slider: bool = False

    @property
    def value(self) -> Any:
        return self.options[self.place][1] if self.options else None

    def widget(self, description: str) -> Widget:
        import ipywidgets

        kind = ipywidgets.SelectionSlider if self.slider else ipywidgets.Dropdown
        index = self.place if self.options else None  # a value of None would count as none given
        return kind(options=list(self.options), index=index, description=description, style=WIDE)


class Slider(NamedTuple):
    """A number; whole ones where `step` is whole."""

    low: float
    high: float
    step: float
    value: float

    def widget(self, description: str) -> Widget:
        import ipywidgets

        kind = ipywidgets.IntSlider if isinstance(self.step, int) else ipywidgets.FloatSlider
        low, high, step, value = self
        return kind(min=low, max=high, step=step, value=value, description=description, style=WIDE)


class Range(NamedTuple):
    """Two whole numbers, at first the ends."""

    low: int
    high: int

    @property
    def value(self) -> tuple[int, int]:
        return (self.low, self.high)

    def widget(self, description: str) -> Widget:
        import ipywidgets

        return ipywidgets.IntRangeSlider(
            min=self.low, max=self.high, value=self.value, description=description, style=WIDE
        )


class Check(NamedTuple):
    """Yes or no."""

    value: bool = False

    def widget(self, description: str) -> Widget:
        import ipywidgets

        return ipywidgets.Checkbox(value=self.value, description=description, style=WIDE)


class Words(NamedTuple):
    """A text; it counts once it is entered, by leaving the field or, on a single line, by the return key."""

    lines: int = 1
    value: str = ""
    placeholder: str = ""

    def widget(self, description: str) -> Widget:
        import ipywidgets

        kind = ipywidgets.Text if self.lines == 1 else ipywidgets.Textarea
        return kind(
            value=self.value,
            description=description,
            placeholder=self.placeholder,
            continuous_update=False,
            style=WIDE,
            layout={"width": "min(600px, 95%)"},
        )


# ---- controls and the answer to them


DPI = 90  # of pictures: large enough to read, small enough for the state that a saved notebook keeps


class Answer(NamedTuple):
    """What is shown for one setting of the controls."""

    html: str  # numbers and texts, escaped
    figure: Figure | None = None
    alt: str = ""  # the figure in words


class Explorer:
    """The last value of a cell.

    controls: by description, in order. answer: takes their values in that order. choices: from the same values to new
    options of some controls, asked before each answer.
    """

    def __init__(
        self,
        controls: Mapping[str, Control],
        answer: Callable[..., Answer],
        *,
        choices: Callable[..., Mapping[str, Options]] | None = None,
    ) -> None:
        self._controls, self._answer, self._choices = dict(controls), answer, choices
        self.settings = {name: control.value for name, control in controls.items()}
        self.widgets: dict[str, Any] = {}  # by description, once it is live
        self._drawn: Figure | None = None
        self._silent = False

    def answer(self, **settings: Any) -> Answer:
        """What is shown with these settings, the others as they are."""
        return self._answer(*{**self.settings, **settings}.values())

    def live(self) -> Any:
        """The controls and the answer as a widget."""
        import ipywidgets

        self.widgets = {name: control.widget(name) for name, control in self._controls.items()}
        self._picture, self._text = ipywidgets.HTML(), ipywidgets.HTML()
        for widget in self.widgets.values():
            widget.observe(self._moved, names="value")
        row = ipywidgets.Box(list(self.widgets.values()), layout={"flex_flow": "row wrap"})
        self.box = ipywidgets.VBox([row, self._picture, self._text])
        self.refresh()
        return self.box

    def refresh(self) -> None:
        """Answer to the controls as they stand."""
        self.settings = {name: widget.value for name, widget in self.widgets.items()}
        answer = self._current(self._offer)
        self._text.value = answer.html
        if answer.figure is None or answer.figure is not self._drawn:  # drawing is what takes time
            self._picture.value = "" if answer.figure is None else picture(png_of(answer.figure), answer.alt)
        self._drawn = answer.figure

    def close(self) -> None:
        """Take the widgets out of the front end, and of the state that it saves."""
        if self.widgets:
            for widget in (*self.widgets.values(), *self.box.children, self.box):
                for part in (getattr(widget, "style", widget), widget.layout, widget):  # each has a state of its own
                    part.close()

    def _current(self, offer: Callable[[Mapping[str, Options]], None]) -> Answer:
        """The answer to the settings, after `offer` was told the choices there are; a line where there is none."""
        try:
            if self._choices is not None:
                offer(self._choices(*self.settings.values()))
            return self.answer()
        except (InputError, OSError) as error:  # what was on disk may be gone
            return Answer(message(str(error)))

    def _take_first(self, choices: Mapping[str, Options]) -> None:
        self.settings |= {name: options[0][1] if options else None for name, options in choices.items()}

    def _moved(self, _: Any) -> None:
        if not self._silent:
            self.refresh()

    def _offer(self, choices: Mapping[str, Options]) -> None:
        """New options; a choice that is still among them stays."""
        with self._silently():
            for name, options in choices.items():
                widget, before = self.widgets[name], self.widgets[name].value
                if list(widget.options) != list(options):
                    values = [value for _, value in options]
                    widget.options = list(options)
                    widget.value = before if before in values else next(iter(values), None)
                self.settings[name] = widget.value

    @contextmanager
    def _silently(self) -> Iterator[None]:
        self._silent = True
        try:
            yield
        finally:
            self._silent = False

    def _ipython_display_(self) -> None:
        from IPython.display import HTML, Image, display

        if cell := live_cell():
            _replace(cell, self)
            display(self.live())
            return
        answer = self._current(self._take_first)
        if answer.figure is not None:
            display(Image(png_of(answer.figure), alt=answer.alt))
        display(HTML(answer.html))


def png_of(figure: Figure) -> bytes:
    """The figure as a PNG file."""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=DPI)
    return file.getvalue()


def live_cell() -> tuple[str, int] | None:
    """The cell that a person runs, and when: front ends name it in their request, papermill and nbconvert do not."""
    from IPython import get_ipython

    shell = get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = request.get("metadata", {}).get("cellId")
    return None if cell is None else (str(cell), int(shell.execution_count))


_shown: dict[str, tuple[int, list[Explorer]]] = {}  # by cell: what it showed when it was last run


def _replace(cell: tuple[str, int], explorer: Explorer) -> None:
    """Close what the cell showed when it was run before: the front end would keep it, and save it."""
    name, run = cell
    last, open_ = _shown.get(name, (run, []))
    if last != run:
        for earlier in open_:
            earlier.close()
        open_ = []
    _shown[name] = (run, [*open_, explorer])

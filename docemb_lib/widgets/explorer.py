"""Controls and the answer to them: live where a person can move them, a plain figure elsewhere."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from docemb_lib.errors import InputError
from docemb_lib.widgets.controls import Control, Options
from docemb_lib.widgets.html import message, picture

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

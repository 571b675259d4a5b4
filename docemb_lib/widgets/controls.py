"""What a control is, before a front end makes a widget of it: its description, its range, its first value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from ipywidgets import Widget

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

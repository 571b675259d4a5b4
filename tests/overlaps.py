"""Texts of figures that lie on other texts, found where matplotlib draws them; for the kernel of a
notebook.
"""

from collections.abc import Iterable, Iterator
from itertools import combinations
from typing import Any

from matplotlib.figure import Figure
from matplotlib.text import Text

SLACK = 1.0  # pixels by which two boxes may meet
found: set[str] = set()
drawn: set[int] = set()  # figures
_texts: list[Text] = []  # of the figure that is being drawn


def overlapping(texts: Iterable[Text], renderer: Any) -> Iterator[str]:
    boxes = [(text.get_text(), text.get_window_extent(renderer)) for text in dict.fromkeys(texts)]
    for (one, a), (other, b) in combinations(boxes, 2):
        width, height = min(a.x1, b.x1) - max(a.x0, b.x0), min(a.y1, b.y1) - max(a.y0, b.y0)
        if min(width, height) > SLACK:
            yield f"{one!r} lies on {other!r}"


def watch() -> None:
    """From now on, look at every figure that is drawn."""
    found.clear()
    drawn.clear()
    if hasattr(Figure, "unwatched"):
        return
    draw, draw_text = Figure.draw, Text.draw

    def draw_and_look(figure: Figure, renderer: Any) -> None:
        _texts.clear()
        draw(figure, renderer)
        drawn.add(id(figure))
        found.update(overlapping(_texts, renderer))

    def draw_and_note(text: Text, renderer: Any, *args: Any, **options: Any) -> None:
        if text.get_visible() and text.get_text().strip():
            _texts.append(text)
        draw_text(text, renderer, *args, **options)

    Figure.unwatched, Figure.draw, Text.draw = draw, draw_and_look, draw_and_note  # type: ignore[attr-defined, method-assign]

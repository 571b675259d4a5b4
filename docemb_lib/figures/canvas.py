"""Boxes and arrows: what the diagrams are drawn with, in inches, so that labels of one size fit their boxes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path

INK = "#333333"  # arrows and text
SIZE = 8  # points, of all labels

Point = tuple[float, float]  # inches from the lower left


class Box(NamedTuple):
    """A box by its centre and size, in inches."""

    x: float
    y: float
    width: float
    height: float

    @property
    def left(self) -> Point:
        return self.x - self.width / 2, self.y

    @property
    def right(self) -> Point:
        return self.x + self.width / 2, self.y

    @property
    def top(self) -> Point:
        return self.x, self.y + self.height / 2

    @property
    def bottom(self) -> Point:
        return self.x, self.y - self.height / 2


def canvas(ax: Axes | None, width: float, height: float) -> Axes:
    """Axes in inches without frame or ticks; without `ax`, a figure of just that size around them."""
    if ax is None:
        _, ax = plt.subplots(figsize=(width, height))
        ax.set_position((0, 0, 1, 1))
    ax.set(xlim=(0, width), ylim=(0, height), aspect="equal")
    ax.set_axis_off()
    return ax


def draw_box(ax: Axes, box: Box, text: str, *, color: str, dashed: bool = False) -> None:
    """A rounded box with its label; a dashed edge is for what is not trained."""
    (x, y), size = (box.x - box.width / 2, box.y - box.height / 2), (box.width, box.height)
    patch = FancyBboxPatch(
        (x, y), *size, boxstyle="round,pad=0,rounding_size=0.07", facecolor=tint(color), edgecolor=color,
        linewidth=1.4, linestyle=(0, (3, 1.5)) if dashed else "-", zorder=2, label=text,
    )  # fmt: skip
    ax.add_patch(patch)
    write(ax, (box.x, box.y), text)


def draw_bar(ax: Axes, box: Box, *, color: str) -> None:
    """An embedding, as a filled bar."""
    ax.add_patch(Rectangle((box.x - box.width / 2, box.y - box.height / 2), box.width, box.height, color=color))


def draw_arrow(ax: Axes, points: Sequence[Point]) -> None:
    """A line through the points, with its head at the last one."""
    arrow = FancyArrowPatch(
        path=Path(list(points)), arrowstyle="-|>", mutation_scale=9, linewidth=1.2, edgecolor=INK, facecolor=INK,
        joinstyle="miter", capstyle="butt", zorder=1,
    )  # fmt: skip
    arrow.set_fill(False)  # of the area that the line encloses
    ax.add_patch(arrow)


def write(
    ax: Axes, place: Point, text: str, *, ha: str = "center", va: str = "center", size: float = SIZE, bold: bool = False
) -> None:
    """A label at a place."""
    ax.text(*place, text, ha=ha, va=va, fontsize=size, color=INK, zorder=3, fontweight="bold" if bold else "normal")


def tint(color: str, share: float = 0.14) -> tuple[float, float, float]:
    """The colour, mixed with white: behind text that is read on it."""
    red, green, blue = (1 - share * (1 - part) for part in to_rgb(color))
    return red, green, blue

"""The curve of a training while it runs: losses and spread over updates, as HTML without scripts.

It imports no torch. `figures.plot_history` draws the history of a finished training.
"""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import cycle
from typing import NamedTuple

import numpy as np
import pandas as pd

# The names in a history that are neither the loss nor a part of it. A balanced delta is a weight.
NOT_LOSSES = {
    "step",
    "at",
    "epoch",
    "learning_rate",
    "grad_norm",
    "norm",
    "spread",
    "collapsed",
    "cca",
    "cca_embeddings",
    "delta",
    "documents_per_second",
    "tokens_per_second",
}
GREY = "#787878"  # contrast 4.4 to 1 with white and 4.3 to 1 with JupyterLab's dark #111111
COLOURS = {"loss": GREY, "structural": "#D55E00", "contextual": "#009E73"}
FURTHER = ("#0072B2", "#E69F00", "#CC79A7", "#56B4E9", "#F0E442", "#999999")
WIDTHS = {"loss": 430, "spread": 250}  # pixels of the panels
HEIGHT = 170
LEFT = 50  # pixels of the margins around the data of a panel
RIGHT = 15
TOP = 22
BOTTOM = 20
POINTS = 150  # of a line of training; a point is the mean of a bin of rows


class Line(NamedTuple):
    """A value by update, (N, 2), in training and in validation."""

    train: np.ndarray
    validation: np.ndarray
    colour: str


def parts_of(rows: pd.DataFrame) -> list[str]:
    """The columns of the loss and its parts, in the order of their colours.

    rows: of training or of validation. A part that is the whole loss is left out.
    """
    losses = set()
    for name in {*rows} - NOT_LOSSES:
        if name == "loss" or not (rows[name].isna().all() or rows[name].equals(rows["loss"])):
            losses.add(str(name))
    first = [name for name in COLOURS if name in losses]
    return [*first, *sorted(losses - {*first})]


def colours_of(parts: Iterable[str]) -> dict[str, str]:
    """A colour for each part of the loss."""
    spare = cycle(FURTHER)
    return {part: COLOURS.get(part) or next(spare) for part in parts}


def drawn(history: Sequence[Mapping[str, float]], updates: int) -> str:
    """The curve as HTML: the newest values, then a panel of losses and one of the spread.

    Training is a thin line of means over bins of rows, validation dots on a line.

    Args:
        history: rows as the Trainer logs them; names in a row of validation begin with `eval_`.
        updates: of the whole training, the end of the horizontal axes.
    """
    train = pd.DataFrame([row for row in history if "learning_rate" in row])
    validation = pd.DataFrame([row for row in history if "eval_loss" in row])
    validation = validation.rename(columns=lambda name: name.removeprefix("eval_"))
    colours = colours_of(parts_of(train if len(train) else validation))
    lines = {}
    for name, colour in {**colours, "spread": GREY}.items():
        lines[name] = Line(_points(train, name), _points(validation, name), colour)
    legend = [_newest(name, line) for name, line in lines.items()]
    if len(train):
        legend.append(f"{train['tokens_per_second'].iloc[-1]:,.0f} tokens a second")
    losses = [lines[part] for part in colours]
    panels = _panel("loss", losses, updates) + _panel("spread", [lines["spread"]], updates)
    style = "font-size: 12px; line-height: 1.6;"
    return f'<div class="docemb-curve" style="{style}">{" &emsp; ".join(legend)}<br>{panels}</div>'


def _points(rows: pd.DataFrame, name: str) -> np.ndarray:
    """Updates and finite values of a column, (N, 2)."""
    points = rows.reindex(columns=["step", name]).to_numpy(dtype=float)
    return points[np.isfinite(points).all(axis=1)]


def _newest(name: str, line: Line) -> str:
    """The name of a line in its colour, and its newest values."""
    values = [f"{value:.4g}" for _, value in line.train[-1:]]
    values += [f"validation {value:.4g}" for _, value in line.validation[-1:]]
    return f'<b style="color: {line.colour};">{escape(name)}</b> {", ".join(values)}'


def _panel(title: str, lines: Sequence[Line], updates: int) -> str:
    """Lines over updates as SVG."""
    from matplotlib.ticker import MaxNLocator  # commands that draw nothing need not import it

    width = WIDTHS[title]
    points = np.concatenate([each for line in lines for each in (line.train, line.validation)])
    values = points[:, 1] if len(points) else np.array([0.0, 1.0])
    ticks = np.asarray(MaxNLocator(4).tick_values(values.min(), values.max()))
    low = ticks[0]
    high = ticks[-1]

    def pixels(points: np.ndarray) -> list[str]:
        """Places of points, (N, 2), each as `x,y`; y is counted from the top."""
        x = LEFT + points[:, 0] / updates * (width - LEFT - RIGHT)
        y = TOP + (high - points[:, 1]) / (high - low) * (HEIGHT - TOP - BOTTOM)
        return [f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True)]

    ends = np.array([[0, tick] for tick in ticks])
    parts = [_text(LEFT, 12, "start", title)]
    for tick, place in zip(ticks, pixels(ends), strict=True):
        height = float(place.partition(",")[2])
        grid = f'd="M{place}H{width - RIGHT}" stroke="{GREY}" stroke-opacity="0.3"'
        parts += [f"<path {grid}/>", _text(LEFT - 6, height + 4, "end", f"{tick:.6g}")]
    parts.append(_text(LEFT, HEIGHT - 4, "start", "0"))
    parts.append(_text(width - RIGHT, HEIGHT - 4, "end", f"{updates:,} updates"))
    for line in lines:
        means = line.train
        if len(means) > POINTS:
            means = np.array([rows.mean(axis=0) for rows in np.array_split(means, POINTS)])
        thin = 'stroke-opacity="0.7"'
        for points, style in ((means, thin), (line.validation, 'stroke-width="1.8"')):
            drawn = f'points="{" ".join(pixels(points))}" stroke="{line.colour}" fill="none"'
            parts.append(f"<polyline {drawn} {style}/>")
        for place in pixels(line.validation):
            x, _, y = place.partition(",")
            parts.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{line.colour}"/>')
    box = f'width="{width}" height="{HEIGHT}" role="img" aria-label="{title} over updates"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {box}>{"".join(parts)}</svg>'


def _text(x: float, y: float, anchor: str, text: str) -> str:
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}"'
    return f'<text {place} font-size="11" fill="{GREY}">{escape(text)}</text>'

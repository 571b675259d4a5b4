"""Boxes and arrows: what the diagrams are drawn with, in inches, so that labels of one size fit their boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch, Rectangle
from matplotlib.path import Path as Curve

from docemb_lib.experiments.runkey import roles_of, structural_label
from docemb_lib.figures import PALETTE, plain
from docemb_lib.losses.projection import parse_projection, projection_widths
from docemb_lib.settings import Parameters, StructuralTeacher, Student
from docemb_lib.settings.profile import Profile

# ---- boxes and arrows


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
        path=Curve(list(points)), arrowstyle="-|>", mutation_scale=9, linewidth=1.2, edgecolor=INK, facecolor=INK,
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


# ---- what Paragraph Vector predicts from what


DRAWN = 5  # words of the diagram: one that is predicted, two on each side
LONGEST_WORD = 16  # characters of a word that its box holds
CONTEXTUAL, WORD = PALETTE["contextual"], PALETTE["untrained"]


def plot_paragraph_vectors(words: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """DM on the left, DBOW on the right, as diagrams on the first five words. words: those of a document, in order."""
    words = [_short(word) for word in words[:DRAWN]]
    centre = len(words) // 2
    each, size = 0.42, (1.25, 0.3)
    rows = [0.3 + each * (len(words) - 1 - place) for place in range(len(words))]  # from top to bottom
    height = 1.05 + each * len(words)
    ax = canvas(ax, 7.4, height)

    write(ax, (1.9, height - 0.12), "DM: a word from its neighbours and the document", bold=True)
    document = Box(0.75, rows[0] + 0.5, *size)
    mean, predicted = Box(2.1, rows[centre], 0.6, 0.3), Box(3.25, rows[centre], 1.2, 0.3)
    draw_box(ax, document, "document vector", color=CONTEXTUAL)
    draw_arrow(ax, [document.right, (mean.x, document.y), mean.top])
    for place, (word, row) in enumerate(zip(words, rows, strict=True)):
        if place != centre:
            box = Box(0.75, row, *size)
            draw_box(ax, box, word, color=WORD)
            draw_arrow(ax, [box.right, mean.left])
    draw_box(ax, mean, "mean", color=INK)
    draw_box(ax, predicted, words[centre], color=CONTEXTUAL, dashed=True)
    draw_arrow(ax, [mean.right, predicted.left])

    write(ax, (5.75, height - 0.12), "DBOW: every word from the document alone", bold=True)
    document = Box(4.85, rows[centre], *size)
    draw_box(ax, document, "document vector", color=CONTEXTUAL)
    for word, row in zip(words, rows, strict=True):
        box = Box(6.7, row, 1.2, 0.3)
        draw_box(ax, box, word, color=CONTEXTUAL, dashed=True)
        draw_arrow(ax, [document.right, box.left])
    return ax


def reads(words: int, *, dm: bool, window: int = 5) -> np.ndarray:
    """Which inputs each prediction reads, bool (N, N + 1): row i predicts word i; column 0 is the document's vector.

    The word columns follow in order: up to `window` words on each side for DM, none for DBOW.
    """
    place = np.arange(words)
    apart = np.abs(place[:, None] - place[None])
    neighbours = (apart >= 1) & (apart <= window) & dm
    return np.column_stack([np.ones(words, dtype=bool), neighbours])


def plot_windows(words: Sequence[str], *, dm: bool, window: int = 5, ax: Axes | None = None) -> Axes:
    """A row per prediction: filled is what it reads, outlined the word it predicts. words: those of a document.

    gensim draws the size of each word's window anew, from 1 to `window`; drawn is the largest.
    """
    ax = plt.gca() if ax is None else ax
    N = len(words)
    for row, inputs in enumerate(reads(N, dm=dm, window=window)):
        for column in np.flatnonzero(inputs):
            color = CONTEXTUAL if column == 0 else tint(CONTEXTUAL, 0.4)
            ax.add_patch(Rectangle((column - 0.45, row - 0.45), 0.9, 0.9, facecolor=color))
        ax.add_patch(Rectangle((row + 1 - 0.45, row - 0.45), 0.9, 0.9, facecolor="none", edgecolor=INK, linestyle="--"))
    ax.set(xlim=(-0.6, N + 0.6), ylim=(N - 0.4, -0.6), ylabel="predicted word")
    ax.set_xticks(
        range(N + 1), ["document vector", *map(_short, words)], rotation=35, ha="left", rotation_mode="anchor"
    )
    ax.set_yticks(range(N), [_short(word) for word in words])
    ax.xaxis.tick_top()
    ax.tick_params(length=0)
    ax.grid(visible=False)
    ax.spines[:].set_visible(False)
    return ax


def _short(word: str) -> str:
    return plain(word if len(word) <= LONGEST_WORD else f"{word[: LONGEST_WORD - 1]}…")


# ---- the thesis' diagrams of training


STUDENT, STRUCTURAL, CONTEXTUAL_COLOUR = (PALETTE[kind] for kind in ("student", "structural", "contextual"))
LONGEST_NAME = 24  # characters of a model's name that its box holds
FIRST_BAR = 0.95  # inches from the left
MOST_BLOCKS = 3  # of a projection that its box lists
SQUARE = r"$\frac{1}{n}\,\Vert z_S - z_C\Vert^2$"
ACTIVATIONS = {"relu": "ReLU", "sigmoid": "sigmoid", "softmax": "softmax"}  # how they are written
IDENTITY = "identity"
LOSSES = {  # contextual losses of the views z, n wide: title and formula
    "soft-cca": ("SoftCCA", SQUARE + "\n" + r"$+\,\delta\,(\mathrm{SDL}(z_S)+\mathrm{SDL}(z_C))$"),
    "mse": ("MSE", SQUARE),
    "cca": ("CCA", r"$-\sum_k\,\mathrm{corr}_k(z_S, z_C)$"),
}


def plot_training(profile: Profile, widths: Mapping[str, int], *, ax: Axes | None = None) -> Axes:
    """From a document to the loss: the student, its frozen teachers, their losses, the weighted sum (chapter 3).

    Drawn are the teachers that the parameters name; a note names the profile's further ones.
    """
    p, settings = profile.parameters, profile.structural_teacher
    has_structural, has_contextual = p.structural_loss is not None, p.contextual_teacher is not None
    notes = _notes(profile)
    low = 0.25 + 0.18 * len(notes) + 0.45  # the contextual teacher's row
    middle = low + (1.2 if has_contextual else 0.0)
    high = middle + 1.2
    ax = canvas(ax, 7.7, (high if has_structural else middle) + 0.5)

    document, student = Box(0.5, middle, 0.8, 0.45), Box(2.2, middle, 1.65, 0.75)
    total = Box(7.0, middle, 1.2, 0.75)
    fork, branch = (1.12, middle), (3.68, middle)  # where the document goes to all models, and y to both losses
    draw_box(ax, document, "document", color=INK)
    named = f"student\n{_short(profile.student.model)}\n{_student_reach(profile.student)}"
    draw_box(ax, student, named, color=STUDENT)
    draw_box(ax, total, _weighted_sum(profile), color=INK)
    draw_arrow(ax, [document.right, student.left])
    write(ax, (3.08, middle + 0.05), f"$y$  {widths['student']}", ha="left", va="bottom")

    if has_structural:
        teacher, loss = Box(2.2, high, 1.65, 0.75), Box(5.65, high, 1.1, 0.75)
        named = f"structural teacher\n{_short(settings.model)}\n{_teacher_reach(settings)}"
        draw_box(ax, teacher, named, color=STRUCTURAL, dashed=True)
        draw_box(ax, loss, "\n".join(["$L_S$", *structural_label(p).split(";")]), color=STRUCTURAL)
        draw_arrow(ax, [fork, (fork[0], high), teacher.left])
        draw_arrow(ax, [teacher.right, loss.left])
        write(ax, (3.08, high + 0.05), f"$t$  {widths['student']}", ha="left", va="bottom")
        turn = middle + (0.6 if has_contextual else 0.0)  # above the student's projection
        draw_arrow(ax, [student.right, branch, (branch[0], turn), (loss.x, turn), loss.bottom])
        draw_arrow(ax, [loss.right, (total.x, high), total.top])
    if has_contextual:
        teacher, loss = Box(2.2, low, 1.65, 0.75), Box(5.65, low, 1.1, 0.75)
        members = " + ".join("DM" if member.dm else "DBOW" for member in profile.contextual_teachers.PV)
        name = f"PV = {members}" if p.contextual_teacher == "PV" else p.contextual_teacher
        named = f"contextual teacher\n{name}\nwhole document"
        ours, theirs = Box(4.35, middle, 0.9, 0.75), Box(4.35, low, 0.9, 0.75)
        draw_box(ax, teacher, named, color=CONTEXTUAL_COLOUR, dashed=True)
        for box, name, spec, color in (
            (ours, "$f_S$", p.student_projection, STUDENT),
            (theirs, "$f_C$", p.contextual_projection, CONTEXTUAL_COLOUR),
        ):
            lines = _stacked(spec)
            draw_box(ax, box, f"{name}\n{lines}", color=color, dashed=lines == IDENTITY)
        draw_box(ax, loss, f"$L_C$\n{LOSSES[p.contextual_loss][0]}", color=CONTEXTUAL_COLOUR)
        draw_arrow(ax, [fork, (fork[0], low), teacher.left])
        draw_arrow(ax, [teacher.right, theirs.left])
        write(ax, (3.08, low + 0.05), f"$c$  {widths['contextual']}", ha="left", va="bottom")
        draw_arrow(ax, [student.right, ours.left])
        draw_arrow(ax, [ours.right, (loss.x, middle), loss.top])
        draw_arrow(ax, [theirs.right, loss.left])
        draw_arrow(ax, [loss.right, (total.x, low), total.bottom])
    for line, note in enumerate(reversed(notes)):
        write(ax, (0.1, 0.12 + 0.18 * line), note, ha="left")
    return ax


def plot_contextual_loss(profile: Profile, widths: Mapping[str, int], *, ax: Axes | None = None) -> Axes:
    """Both views on their way to the contextual loss, layer by layer (thesis, Figure 4.6).

    A bar is a vector of so many numbers (its height grows with the square root of their number), an arrow a layer with
    its number of weights. Without a contextual teacher, a line that says so.
    """
    p = profile.parameters
    if p.contextual_teacher is None:
        ax = canvas(ax, 7.5, 0.4)
        write(ax, (0.1, 0.2), "This run has no contextual teacher, and so no projections.", ha="left")
        return ax
    ours = projection_widths(p.student_projection, widths["student"])
    theirs = projection_widths(p.contextual_projection, widths["contextual"])
    steps = max(1, len(ours) - 1, len(theirs) - 1)
    each = max(1.0, 3.9 / steps)  # inches from bar to bar
    end = FIRST_BAR + steps * each
    ax = canvas(ax, end + 2.65, 3.0)
    loss = Box(end + 1.65, 1.45, 1.8, 0.95)
    title, formula = LOSSES[p.contextual_loss]
    draw_box(ax, loss, f"$L_C$: {title}\n{formula}", color=CONTEXTUAL_COLOUR)
    for row, target, color, owner, names, spec, chain in (
        (2.2, loss.top, STUDENT, "student", ("$y$", "$z_S$", "$f_S$"), p.student_projection, ours),
        (0.7, loss.bottom, CONTEXTUAL_COLOUR, f"{p.contextual_teacher} teacher", ("$c$", "$z_C$", "$f_C$"),
         p.contextual_projection, theirs),
    ):  # fmt: skip
        entry, view, network = names
        write(ax, (0.1, row + 0.62), f"{owner}, {network} = {spec}", ha="left")
        layers = _layers(spec, chain)
        chain = chain if parse_projection(spec) else (*chain, *chain)
        places = [*(FIRST_BAR + number * each for number in range(len(layers))), end]  # both views end there
        for x, width, name in zip(places, chain, [entry, *[""] * (len(layers) - 1), view], strict=True):
            height = 0.18 + 0.72 * (width / max(*ours, *theirs)) ** 0.5
            draw_bar(ax, Box(x, row, 0.16, height), color=color)
            write(ax, (x, row - 0.56), f"{name}  {width:,}".strip())
        for (start, stop), (layer, weights) in zip(pairwise(places), layers, strict=True):
            draw_arrow(ax, [(start + 0.12, row), (stop - 0.12, row)])
            write(ax, ((start + stop) / 2, row + 0.07), layer, va="bottom")
            write(ax, ((start + stop) / 2, row - 0.07), weights, va="top", size=7)
        draw_arrow(ax, [(end + 0.12, row), (loss.x, row), target])
    return ax


def _layers(spec: str, chain: Sequence[int]) -> list[tuple[str, str]]:
    """What each layer is, and how many weights it has, biases included."""
    layers = []
    for block, (before, after) in zip(parse_projection(spec), pairwise(chain), strict=True):
        name = "linear" if block.activation == "linear" else f"linear + {ACTIVATIONS[block.activation]}"
        layers.append((name, f"{_count((before + 1) * after)} weights"))
    return layers or [(IDENTITY, "")]


def _weighted_sum(profile: Profile) -> str:
    """The loss as `Weighting` weighs it, the factors 1 and 0 left out."""
    p, roles = profile.parameters, roles_of(profile.parameters, profile.further_teachers)
    if len(roles) == 1:
        return f"$L$ = mean of\n$L_{'S' if 'structural' in roles else 'C'}$"
    if _is_plain_sum(p):
        return "$L$ = mean of\n$L_S + L_C$"
    contextual = "L_C" if p.form == "contextual_full" else r"(1-\lambda_i)\,L_C"
    return "$L$ = mean of\n" + r"$\lambda_i\,L_S$" + "\n" + f"$+\\;{contextual}$"


def _is_plain_sum(p: Parameters) -> bool:
    return p.lam_by_length is None and (p.lam is None or (p.form == "half_means_sum" and p.lam == 0.5))


def _notes(profile: Profile) -> list[str]:
    p, roles = profile.parameters, roles_of(profile.parameters, profile.further_teachers)
    notes = ["dashed: frozen, embeds every document once before training; solid: trained"]
    if p.contextual_teacher is not None:
        notes[0] += " (the projections f are thrown away after it)"
    beyond = "" if p.max_structural_len is None else f"documents of more than {p.max_structural_len:,} tokens"
    if len(roles) == 2 and not _is_plain_sum(p):
        weight = r"$\lambda_i$ = " + ("1" if p.lam is None else f"{p.lam:g}")
        if p.lam_by_length is not None:
            first, last = (int(number) for number in p.lam_by_length.split(":")[1:])
            weight += f" up to {first:,} tokens, falling from there to 0 at {last:,}"
        notes.append(weight + (f"; 0 for {beyond}" if beyond else ""))
    elif "structural" in roles and beyond:
        notes.append(f"{beyond} have no $L_S$")
    if profile.further_teachers:
        notes.append(f"not drawn: further teachers {', '.join(one.name for one in profile.further_teachers)}")
    return notes


def _student_reach(settings: Student) -> str:
    if settings.layers is None:
        return f"up to {settings.max_tokens:,} tokens"
    kept = len(settings.layers)
    return f"{kept} layer{'s' if kept > 1 else ''}, {settings.max_tokens:,} tokens"


def _teacher_reach(settings: StructuralTeacher) -> str:
    tokens = "its limit of tokens" if settings.max_tokens is None else f"{settings.max_tokens:,} tokens"
    return f"chunks of {tokens}" if settings.long == "chunks" else f"first {tokens}"


def _short_label(model: str) -> str:
    name = Path(model).name
    return name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…"


def _stacked(spec: str) -> str:
    """A projection string with a line per block; the middle of a long one is left out."""
    if not (blocks := parse_projection(spec)):
        return IDENTITY
    named = [f"({ACTIVATIONS[block.activation]})" if block.activation != "linear" else "" for block in blocks]
    lines = [f"{block.width}{activation}" for block, activation in zip(blocks, named, strict=True)]
    return "\n".join(lines if len(lines) <= MOST_BLOCKS else [lines[0], "…", lines[-1]])


def _count(weights: int) -> str:
    for size, letter in ((1_000_000, "M"), (1_000, "k")):
        if weights >= size:
            return f"{weights / size:.3g} {letter}"
    return str(weights)

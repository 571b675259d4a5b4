"""Box-and-arrow diagrams: Paragraph Vector, training with two teachers, and the contextual loss of a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
from matplotlib.axes import Axes

from docemb_lib.experiments.runkey import roles_of, structural_label
from docemb_lib.figures import PALETTE, short
from docemb_lib.losses.projection import parse_projection, projection_widths
from docemb_lib.settings.profile import Profile

SYMBOLS = {"structural": "L_S", "contextual": "L_C"}
SQUARE = r"$\frac{1}{n}\,\Vert z_S - z_C\Vert^2$"
LOSSES = {  # title and formula, of views z with n dimensions
    "soft-cca": f"SoftCCA\n{SQUARE}\n" + r"$+\,\delta\,(\mathrm{SDL}(z_S)+\mathrm{SDL}(z_C))$",
    "mse": f"MSE\n{SQUARE}",
    "cca": "CCA\n" + r"$-\sum_k\,\mathrm{corr}_k(z_S, z_C)$",
}


class Box(NamedTuple):
    """A text on the grid, in a frame that fits it. kind: key of PALETTE; dashed: not trained, or predicted."""

    column: float
    row: float
    text: str
    kind: str | None = None
    dashed: bool = False


def draw_graph(boxes: Mapping[str, Box], arrows: Iterable[str], *, note: str = "", ax: Axes | None = None) -> Axes:
    """Draw boxes by name and `arrows` "source > target" between them; an arrow to a missing box is skipped."""
    ax = plt.figure().add_axes((0, 0, 1, 1)) if ax is None else ax
    ax.set_axis_off()
    texts = {}
    for name, (column, row, text, kind, dashed) in boxes.items():
        frame = {"boxstyle": "round", "facecolor": "white", "linestyle": "--" if dashed else "-"}
        frame["edgecolor"] = "#333333" if kind is None else PALETTE[kind]
        texts[name] = ax.text(column, row, text, size=8, ha="center", va="center", bbox=frame)
    for source, target in (arrow.split(" > ") for arrow in arrows):
        if source in texts and target in texts:  # from the right edge of one to the left edge of the other
            start, end = texts[source], texts[target]
            clip = {"arrowstyle": "-|>", "patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch()}
            ax.annotate("", (0, 0.5), xycoords=end, xytext=(1, 0.5), textcoords=start, arrowprops=clip)
    columns, rows = [box.column for box in boxes.values()], [box.row for box in boxes.values()]
    right = max(columns) + max(0.55, 0.13 * (max(columns) - min(columns)))  # room for half of a wide box
    ax.set(xlim=(min(columns) - 0.5, right), ylim=(min(rows) - 0.75, max(rows) + 0.5))
    ax.text(0.01, 0.02, note, transform=ax.transAxes, size=8, va="bottom")
    return ax


def plot_paragraph_vectors(words: Sequence[str], *, ax: Axes | None = None) -> Axes:
    """DM (left) and DBOW (right) on the first five words of a document; predicted words have a dashed frame."""
    labels = [short(word, 16) for word in words[:5]]
    centre, top, kind = len(labels) // 2, len(labels), "contextual"
    boxes = {"DM": Box(0, top, "document vector", kind), "mean": Box(1.15, top - centre - 1, "mean"),
             "DBOW": Box(3.5, top - centre - 1, "document vector", kind)}  # fmt: skip
    arrows = ["DM > mean"]
    for place, label in enumerate(labels):
        row, predicted = top - place - 1, place == centre
        boxes[f"in {place}"] = Box(2.1 if predicted else 0, row, label, kind if predicted else None, predicted)
        boxes[f"out {place}"] = Box(4.9, row, label, kind, dashed=True)
        arrows += [f"mean > in {place}" if predicted else f"in {place} > mean", f"DBOW > out {place}"]
    ax = draw_graph(boxes, arrows, ax=ax)
    titles = {1.0: "DM: a word from its neighbours and the document", 4.2: "DBOW: each word from the document"}
    for column, title in titles.items():
        ax.text(column, top + 0.7, title, size=8, weight="bold", ha="center")
    ax.set_ylim(-0.6, top + 1)
    return ax


def plot_training(profile: Profile, widths: Mapping[str, int], *, ax: Axes | None = None) -> Axes:
    """From a document to the loss of a run: student, frozen teachers, projections, losses and their sum (chapter 3).

    widths: dimensions of the embeddings of the student and, where there is one, the contextual teacher. The profile's
    further teachers are named, not drawn.
    """
    p, student, teacher = profile.parameters, profile.student, profile.structural_teacher
    kept = "" if student.layers is None else f"layers {', '.join(map(str, student.layers))}; "
    text = f"{short(Path(student.model).name)}\n{kept}{student.max_tokens:,} tokens\n$y$: {widths['student']} numbers"
    total, notes = _weighted_sum(profile)
    boxes = {"document": Box(0, 0, "document"), "student": Box(1, 0, f"student\n{text}", "student"),
             "sum": Box(4.2, 0, f"$L$ = mean of\n{total}")}  # fmt: skip
    if p.structural_loss is not None:
        limit = "limit of the model" if teacher.max_tokens is None else f"{teacher.max_tokens:,} tokens"
        reads = f"{'chunks of' if teacher.long == 'chunks' else 'first'} {limit}"
        text = f"{short(Path(teacher.model).name)}\n{reads}\n$t$: {widths['student']} numbers"
        boxes["structural"] = Box(1, 1, f"structural teacher\n{text}", "structural", dashed=True)
        boxes["L_S"] = Box(3.2, 1, "\n".join(["$L_S$", *structural_label(p).split(";")]), "structural")
    if p.contextual_teacher is not None:
        members = " + ".join("DM" if member.dm else "DBOW" for member in profile.contextual_teachers.PV)
        name = f"PV = {members}" if p.contextual_teacher == "PV" else p.contextual_teacher
        text = f"{name}\nwhole document\n$c$: {widths['contextual']} numbers"
        boxes["contextual"] = Box(1, -1, f"contextual teacher\n{text}", "contextual", dashed=True)
        for name, row, spec in (("f_S", 0, p.student_projection), ("f_C", -1, p.contextual_projection)):
            layers = _layers(spec) or ["identity"]
            shown = layers if len(layers) <= 3 else [layers[0], "…", layers[-1]]
            kind = "contextual" if row else "student"
            boxes[name] = Box(2.2, row, "\n".join([f"${name}$", *shown]), kind, dashed=layers == ["identity"])
        boxes["L_C"] = Box(3.2, -1, f"$L_C$\n{LOSSES[p.contextual_loss].splitlines()[0]}", "contextual")
    arrows = "document > student, document > structural, document > contextual, structural > L_S, student > L_S, "
    arrows += "student > f_S, contextual > f_C, f_S > L_C, f_C > L_C, L_S > sum, L_C > sum"
    return draw_graph(boxes, arrows.split(", "), note="\n".join(notes), ax=ax)


def plot_contextual_loss(profile: Profile, widths: Mapping[str, int], *, ax: Axes | None = None) -> Axes:
    """Both projections of a run, layer by layer, up to the contextual loss (thesis, Figure 4.6).

    widths: as in `plot_training`. A run without contextual teacher gets a line of text.
    """
    p = profile.parameters
    if p.contextual_teacher is None:
        return draw_graph({"": Box(0, 0, "This run has no contextual teacher and no projections.")}, [], ax=ax)
    sides = {"student": ("y", "S", p.student_projection), "contextual": ("c", "C", p.contextual_projection)}
    end = max(len(parse_projection(spec)) for _, _, spec in sides.values()) + 1.5
    boxes, arrows = {"L": Box(end, 0.5, f"$L_C$: {LOSSES[p.contextual_loss]}", "contextual")}, []
    for row, (side, (vector, letter, spec)) in enumerate(sides.items()):
        boxes[f"{letter}0"] = Box(0, 1 - row, f"{side}\n${vector}$: {widths[side]:,}", side, dashed=True)
        sizes = pairwise(projection_widths(spec, widths[side]))
        for column, (layer, (before, after)) in enumerate(zip(_layers(spec), sizes, strict=True), 1):
            boxes[f"{letter}{column}"] = Box(column, 1 - row, f"{layer}\n{(before + 1) * after:,}", side)  # with biases
        chain = [name for name in boxes if name.startswith(letter)]
        arrows += [f"{source} > {target}" for source, target in pairwise([*chain, "L"])]
    note = ", ".join(f"$f_{letter}$ = {spec}" for _, letter, spec in sides.values())
    note += "\nSolid boxes: linear layers with output features, activation, number of weights (biases included)."
    return draw_graph(boxes, arrows, note=note, ax=ax)


def _weighted_sum(profile: Profile) -> tuple[str, list[str]]:
    """The text of the loss summed over teachers as `Weighting` computes it, and the notes below the diagram."""
    p, roles = profile.parameters, roles_of(profile.parameters, profile.further_teachers)
    notes = ["Dashed: frozen, embeds each document once before training. Projections f are not part of the student."]
    masked = "" if p.max_structural_len is None else f"documents of more than {p.max_structural_len:,} tokens"
    plain_sum = p.lam_by_length is None and (p.lam is None or (p.form == "half_means_sum" and p.lam == 0.5))
    if len(roles) == 2 and not plain_sum:
        total = "$\\lambda_i\\,L_S$\n" + ("$+ L_C$" if p.form == "contextual_full" else r"$+ (1-\lambda_i)\,L_C$")
        note = r"$\lambda_i$ = " + ("1" if p.lam is None else f"{p.lam:g}")
        if p.lam_by_length is not None:
            first, last = (int(number) for number in p.lam_by_length.split(":")[1:])
            note += f" up to {first:,} tokens, then linear down to 0 at {last:,}"
        notes.append(note + (f"; 0 for {masked}" if masked else ""))
    else:
        total = f"${' + '.join(symbol for role, symbol in SYMBOLS.items() if role in roles)}$"
        notes += [f"{masked} have no $L_S$"] if masked and "structural" in roles else []
    if profile.further_teachers:
        notes.append(f"Not drawn: further teachers {', '.join(one.name for one in profile.further_teachers)}")
    return total, notes


def _layers(spec: str) -> list[str]:
    """Output features and activation of each layer of a projection."""
    names = {"linear": "", "relu": " ReLU"}
    return [f"{width:,}{names.get(activation, f' {activation}')}" for width, activation in parse_projection(spec)]

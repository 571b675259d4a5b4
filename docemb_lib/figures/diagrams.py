"""The thesis' diagrams of training, drawn from a run's own settings: which networks, which widths, which weights.

`widths` holds the dimensions of the student's and the contextual teacher's embeddings, by these names. The structural
teacher's are the student's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path

from matplotlib.axes import Axes

from docemb_lib.experiments.labels import structural_label
from docemb_lib.experiments.objectives import roles_of
from docemb_lib.figures import PALETTE
from docemb_lib.figures.canvas import INK, Box, canvas, draw_arrow, draw_bar, draw_box, write
from docemb_lib.losses.projection import parse_projection, projection_widths
from docemb_lib.profile import Profile
from docemb_lib.settings import Parameters, StructuralTeacher, Student

STUDENT, STRUCTURAL, CONTEXTUAL = (PALETTE[kind] for kind in ("student", "structural", "contextual"))
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
        draw_box(ax, teacher, named, color=CONTEXTUAL, dashed=True)
        for box, name, spec, color in (
            (ours, "$f_S$", p.student_projection, STUDENT),
            (theirs, "$f_C$", p.contextual_projection, CONTEXTUAL),
        ):
            lines = _stacked(spec)
            draw_box(ax, box, f"{name}\n{lines}", color=color, dashed=lines == IDENTITY)
        draw_box(ax, loss, f"$L_C$\n{LOSSES[p.contextual_loss][0]}", color=CONTEXTUAL)
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
    draw_box(ax, loss, f"$L_C$: {title}\n{formula}", color=CONTEXTUAL)
    for row, target, color, owner, names, spec, chain in (
        (2.2, loss.top, STUDENT, "student", ("$y$", "$z_S$", "$f_S$"), p.student_projection, ours),
        (0.7, loss.bottom, CONTEXTUAL, f"{p.contextual_teacher} teacher", ("$c$", "$z_C$", "$f_C$"),
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


def _short(model: str) -> str:
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

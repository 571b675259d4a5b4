"""The methods: diagrams of boxes and arrows, and structural losses on points in the plane."""

from collections.abc import Iterable, Mapping
from itertools import chain, pairwise, product
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from docemb_lib.evaluation.heads import one_thread
from docemb_lib.figures import GREY, PALETTE, SERIES, WIDTH, label, short
from docemb_lib.losses import MSE, Cosine, MaxMargin
from docemb_lib.settings.labels import structural_label
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.projections import ACTIVATIONS, parse_projection
from docemb_lib.settings.sections import StructuralTeacher, Student

# ---- diagrams: training with two teachers, and the networks of Paragraph Vector


class Box(NamedTuple):
    column: float
    row: float
    text: str
    kind: str | None = None  # key of PALETTE
    dashed: bool = False  # not trained, or predicted


def draw_graph(
    boxes: Mapping[str, Box], chains: Iterable[str], *, note: str = "", ax: Axes | None = None
) -> Axes:
    """Draw boxes by name and arrows along `chains`, as in "first > second > third".

    Arrows from or to missing boxes are skipped. Only here are texts between two `$` formulas;
    `literal` keeps the `$` of a name.
    """
    ax = ax or plt.figure().add_axes((0, 0, 1, 1))
    ax.set_axis_off()
    texts = {}
    for name, box in boxes.items():
        frame = {
            "boxstyle": "round",
            "facecolor": "none",
            "linestyle": "--" if box.dashed else "-",
            "edgecolor": GREY if box.kind is None else PALETTE[box.kind],
        }
        texts[name] = ax.text(
            box.column,
            box.row,
            box.text,
            size=8,
            ha="center",
            va="center",
            bbox=frame,
            parse_math=True,
        )

    pairs = chain.from_iterable(pairwise(names.split(" > ")) for names in chains)
    for source, target in dict.fromkeys(pairs):
        if source in texts and target in texts:
            start = texts[source]
            end = texts[target]
            look = {
                "arrowstyle": "-|>",
                "color": GREY,
                "patchA": start.get_bbox_patch(),
                "patchB": end.get_bbox_patch(),
            }
            # from the middle of the right edge of `start` to that of the left edge of `end`
            ax.annotate(
                "", (0, 0.5), xycoords=end, xytext=(1, 0.5), textcoords=start, arrowprops=look
            )

    columns = [box.column for box in boxes.values()]
    rows = [box.row for box in boxes.values()]
    left = min(columns)
    right = max(columns)
    right += max(0.55, 0.13 * (right - left))  # room for half of a wide box
    ax.set(xlim=(left - 0.5, right), ylim=(min(rows) - 0.75, max(rows) + 0.5))
    ax.text(0.01, 0.02, note, transform=ax.transAxes, size=8, va="bottom", parse_math=True)
    return ax


def literal(name: str) -> str:
    """The name, cut like `short`, for a text that holds formulas."""
    return short(name).replace("$", r"\$")


def plot_training(profile: Profile, widths: Mapping[str, int], *, ax: Axes | None = None) -> Axes:
    """From a document to the loss of a run (chapter 3).

    Drawn are the student, frozen teachers, projections, losses and their sum. widths: see
    `views.widths_of`.
    """
    p = profile.parameters
    boxes = {
        "document": Box(0, 0, "document"),
        "student": Box(1, 0, _student_text(profile.student, widths["student"]), "student"),
        "sum": Box(4.2, 0, f"$L$ = mean of\n{_weighted_sum(profile)}"),
    }
    if p.structural_loss is not None:
        text = _structural_text(profile.structural_teacher, widths["student"])
        loss = "\n".join(["$L_S$", *structural_label(p).split(";")])
        boxes["structural"] = Box(1, 1, text, "structural", dashed=True)
        boxes["L_S"] = Box(3.2, 1, loss, "structural")
    if p.contextual_teacher is not None:
        name: str = p.contextual_teacher
        if name == "PV":
            members = profile.contextual_teachers.PV
            name = "PV = " + " + ".join("DM" if member.dm else "DBOW" for member in members)
        text = f"contextual teacher\n{name}\nwhole document\n$c$: {widths['contextual']} numbers"
        boxes["contextual"] = Box(1, -1, text, "contextual", dashed=True)
        boxes["f_S"] = _projection("f_S", p.student_projection, 0, "student")
        boxes["f_C"] = _projection("f_C", p.contextual_projection, -1, "contextual")
        boxes["L_C"] = Box(3.2, -1, f"$L_C$\n{p.contextual_loss}", "contextual")
    chains = [
        "document > student > L_S > sum",
        "document > structural > L_S",
        "student > f_S > L_C > sum",
        "document > contextual > f_C > L_C",
    ]
    note = (
        "Dashed: frozen, embeds each document once before training. "
        "Projections f are not part of the student."
    )
    return draw_graph(boxes, chains, note=note, ax=ax)


def _student_text(student: Student, width: int) -> str:
    layers = "" if student.layers is None else f"layers {', '.join(map(str, student.layers))}; "
    reads = f"{layers}{student.max_tokens:,} tokens"
    return f"student\n{literal(Path(student.model).name)}\n{reads}\n$y$: {width} numbers"


def _structural_text(teacher: StructuralTeacher, width: int) -> str:
    limit = "limit of the model"
    if teacher.max_tokens is not None:
        limit = f"{teacher.max_tokens:,} tokens"
    reads = "first" if teacher.long == "truncate" else "chunks of"
    name = literal(Path(teacher.model).name)
    return f"structural teacher\n{name}\n{reads} {limit}\n$t$: {width} numbers"


def _projection(name: str, spec: str, row: float, kind: str) -> Box:
    """The box of a projection with its first and last layers, at most three."""
    layers = parse_projection(spec)
    lines = []
    for width, modules in layers:
        activations = [ACTIVATIONS[module] for module in modules if module in ACTIVATIONS]
        lines.append(" ".join([f"{width:,}", *filter(None, activations)]))
    if len(lines) > 3:
        lines = [lines[0], "…", lines[-1]]
    text = "\n".join([f"${name}$", *(lines or ["identity"])])
    return Box(2.2, row, text, kind, dashed=not layers)


WORDS = ("return", "the", "shortest", "path", "lengths")
MIDDLE = "shortest"  # the word that DM predicts


def plot_paragraph_vectors(profile: Profile) -> list[Axes]:
    """DM and DBOW with the widths of the profile's teachers (thesis, Figures 3.4 and 3.3).

    Returns the two panels of one figure.
    """
    _, axes = plt.subplots(1, 2, figsize=(1.3 * WIDTH, 2.9), layout="constrained")
    for ax, name in zip(axes, ("DM", "DBOW"), strict=True):
        (settings,) = profile.contextual_teachers.members(name)
        width = f"{settings.vector_size:,} numbers"
        boxes = {}
        inputs = ["document"]
        predicted = list(WORDS)
        via = ""
        if name == "DM":
            inputs += [word for word in WORDS if word != MIDDLE]
            predicted = [MIDDLE]
            via = "mean > "
            boxes["mean"] = Box(1.5, 0, f"mean\n{width}")
        for place, word in enumerate(inputs):
            row = (len(inputs) - 1) / 2 - place
            if word == "document":
                boxes[word] = Box(0, row, f"document vector $v$\n{width}", "contextual")
            else:
                boxes[word] = Box(0, row, f"{word}: {width}")
        for place, word in enumerate(predicted):
            row = (len(predicted) - 1) / 2 - place
            boxes[word] = Box(2.6, row, word, "contextual", dashed=True)
        chains = [f"{first} > {via}{last}" for first, last in product(inputs, predicted)]
        note = f"{settings.described.replace(';', ', ')}. Dashed: predicted."
        draw_graph(boxes, chains, note=note, ax=ax)
    return list(axes)


def _weighted_sum(profile: Profile) -> str:
    """The sum of the losses as `Weighting` computes it.

    λ of a document depends on its length, see `plot_weights`.
    """
    p = profile.parameters
    if len(p.roles) < 2:
        return "$L_S$" if "structural" in p.roles else "$L_C$"
    if p.lam is None and p.lam_by_length is None:
        return "$L_S + L_C$"
    if p.weighting == "structural":
        return "$\\lambda_i\\,L_S + L_C$"
    return "$\\lambda_i\\,L_S$\n$+ (1-\\lambda_i)\\,L_C$"


# ---- structural losses in the plane

TOPIC = 10  # documents of each of two topics
DESCENT_STEPS = 40
DESCENT_RATE = 0.1
FASTER = 10  # factor of the rate for cosine, whose gradient falls with the norm of the embedding
LOSSES: dict[str, nn.Module] = {
    "MSE": MSE(),
    "cosine": Cosine(),
    "max-margin MSE, γ = 0.5": MaxMargin("mse", 0.5),
    "max-margin MSE, γ = 1": MaxMargin("mse", 1.0),
    "max-margin MSE, γ = 1.5": MaxMargin("mse", 1.5),
}


def two_topics(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Student and teacher embeddings, (N, 2) each, one topic after the other.

    The student's are all similar, as those of an untrained student.
    """
    generator = torch.Generator().manual_seed(seed)
    topics = torch.tensor([[1.2, 0.5], [-0.4, 1.2]]).repeat_interleave(TOPIC, dim=0)
    teacher = topics + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator)
    student = torch.tensor([2.2, -1.5]) + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator)
    return student, teacher


@one_thread()
def descend(loss: nn.Module, student: Tensor, teacher: Tensor) -> Tensor:
    """Student embeddings under gradient descent on themselves, as one batch.

    Returns (DESCENT_STEPS + 1, N, 2), the start first.
    """
    rate = DESCENT_RATE * (FASTER if isinstance(loss, Cosine) else 1)
    path = [student]
    for _ in range(DESCENT_STEPS):
        y = path[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(y, teacher).sum(), y)
        path.append(path[-1] - rate * gradient)
    return torch.stack(path)


def plot_descents() -> list[Axes]:
    """Five losses on the same two topics, then the mean norm of the embeddings under each.

    Returns the six panels of one figure.
    """
    student, teacher = two_topics()
    figure, grid = plt.subplots(2, 3, figsize=(8.0, 5.7), layout="constrained")
    *planes, norms = grid.flat
    for ax, (name, loss), color in zip(planes, LOSSES.items(), SERIES, strict=False):
        path = descend(loss, student, teacher)
        _plot_path(ax, path, teacher)
        title = f"{name} (steps × {FASTER})" if isinstance(loss, Cosine) else name
        ax.set_title(title, fontsize=9)
        mean_norm = path.norm(dim=2).mean(dim=1)  # (steps + 1,)
        norms.plot(mean_norm, color=color, linewidth=1.8)
        label(norms, name.split(", ")[-1], (DESCENT_STEPS, mean_norm[-1].item()), (4, 0))
    plt.setp(planes[::3], ylabel="second dimension")
    plt.setp(planes[3:], xlabel="first dimension")
    norms.set(xlabel="step", yscale="log", xlim=(0, 1.4 * DESCENT_STEPS))
    norms.set_xticks(range(0, DESCENT_STEPS + 1, 10))
    norms.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"], minor=False)
    norms.minorticks_off()
    norms.set_title("mean norm of the student's embeddings", fontsize=9)
    entries = planes[0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=4, fontsize=8)
    return [*planes, norms]


def _plot_path(ax: Axes, path: Tensor, teacher: Tensor) -> None:
    """Both topics, (steps + 1, N, 2), from start to end; the second is not in the legend."""
    embeddings = {
        "teacher": (teacher, "structural"),
        "student, start": (path[0], "untrained"),
        "student, end": (path[-1], "student"),
    }
    for topic, marker, hidden in ((slice(TOPIC), "o", ""), (slice(TOPIC, None), "^", "_")):
        ax.plot(*path[:, topic].unbind(dim=2), color=PALETTE["student"], linewidth=0.6, alpha=0.5)
        for name, (points, kind) in embeddings.items():
            entry = hidden + name  # a legend leaves out what begins with "_"
            ax.plot(*points[topic].T, marker, color=PALETTE[kind], markersize=4.5, label=entry)
    ax.plot(0, 0, "+", color=GREY, markersize=7, label="origin")
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=4)
    ax.grid(visible=False)

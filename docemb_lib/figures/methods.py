"""The methods: diagrams of boxes and arrows, and what structural losses do to points in the plane."""

from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from pathlib import Path
from typing import NamedTuple

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes
from torch import Tensor, nn

from docemb_lib.evaluation.heads import one_thread
from docemb_lib.figures import GREY, PALETTE, SERIES, label, short
from docemb_lib.losses import MSE, Cosine, MaxMargin
from docemb_lib.runs.key import roles_of, structural_label
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.projections import ACTIVATIONS, parse_projection

# ---- diagrams: a sentence encoder, and training with two teachers


class Box(NamedTuple):
    column: float
    row: float
    text: str
    kind: str | None = None  # key of PALETTE
    dashed: bool = False  # not trained, or predicted


def draw_graph(
    boxes: Mapping[str, Box], chains: Iterable[str], *, note: str = "", ax: Axes | None = None
) -> Axes:
    """Draw boxes by name and arrows along `chains`, "first > second > third"; arrows to missing
    boxes are skipped.

    Only here are texts between two `$` formulas; `literal` keeps the `$` of a name.
    """
    ax = plt.figure().add_axes((0, 0, 1, 1)) if ax is None else ax
    ax.set_axis_off()
    texts = {}
    for name, (column, row, text, kind, dashed) in boxes.items():
        frame = {"boxstyle": "round", "facecolor": "none", "linestyle": "--" if dashed else "-"}
        frame["edgecolor"] = GREY if kind is None else PALETTE[kind]
        texts[name] = ax.text(
            column, row, text, size=8, ha="center", va="center", bbox=frame, parse_math=True
        )
    for source, target in chain.from_iterable(pairwise(names.split(" > ")) for names in chains):
        if (
            source in texts and target in texts
        ):  # from the right edge of one to the left edge of the other
            start, end = texts[source], texts[target]
            clip = {"patchA": start.get_bbox_patch(), "patchB": end.get_bbox_patch()}
            look = {"arrowstyle": "-|>", "color": GREY, **clip}
            ax.annotate(
                "", (0, 0.5), xycoords=end, xytext=(1, 0.5), textcoords=start, arrowprops=look
            )
    columns, rows = [box.column for box in boxes.values()], [box.row for box in boxes.values()]
    right = max(columns) + max(
        0.55, 0.13 * (max(columns) - min(columns))
    )  # room for half of a wide box
    ax.set(xlim=(min(columns) - 0.5, right), ylim=(min(rows) - 0.75, max(rows) + 0.5))
    ax.text(0.01, 0.02, note, transform=ax.transAxes, size=8, va="bottom", parse_math=True)
    return ax


def literal(name: str) -> str:
    """The name, cut like `short`, for a text that holds formulas."""
    return short(name).replace("$", r"\$")


def plot_training(profile: Profile, widths: Mapping[str, int], *, ax: Axes | None = None) -> Axes:
    """From a document to the loss of a run: student, frozen teachers, projections, losses and their
    sum (chapter 3).

    widths: see `views.widths_of`. The profile's further teachers are named, not drawn.
    """
    p, student, teacher = profile.parameters, profile.student, profile.structural_teacher
    kept = "" if student.layers is None else f"layers {', '.join(map(str, student.layers))}; "
    text = f"{literal(Path(student.model).name)}\n{kept}{student.max_tokens:,} tokens\n$y$: {widths['student']} numbers"
    notes = [
        "Dashed: frozen, embeds each document once before training. Projections f are not part of the student."
    ]
    if profile.further_teachers:
        notes.append(
            f"Not drawn: further teachers {', '.join(one.name for one in profile.further_teachers)}"
        )
    boxes = {
        "document": Box(0, 0, "document"),
        "student": Box(1, 0, f"student\n{text}", "student"),
        "sum": Box(4.2, 0, f"$L$ = mean of\n{_weighted_sum(profile)}"),
    }
    if p.structural_loss is not None:
        limit = (
            "limit of the model" if teacher.max_tokens is None else f"{teacher.max_tokens:,} tokens"
        )
        reads = f"{'first' if teacher.long == 'truncate' else 'chunks of'} {limit}"
        text = f"{literal(Path(teacher.model).name)}\n{reads}\n$t$: {widths['student']} numbers"
        boxes["structural"] = Box(1, 1, f"structural teacher\n{text}", "structural", dashed=True)
        boxes["L_S"] = Box(
            3.2, 1, "\n".join(["$L_S$", *structural_label(p).split(";")]), "structural"
        )
    if p.contextual_teacher is not None:
        members = " + ".join(
            "DM" if member.dm else "DBOW" for member in profile.contextual_teachers.PV
        )
        name = f"PV = {members}" if p.contextual_teacher == "PV" else p.contextual_teacher
        text = f"{name}\nwhole document\n$c$: {widths['contextual']} numbers"
        boxes["contextual"] = Box(1, -1, f"contextual teacher\n{text}", "contextual", dashed=True)
        for name, row, spec in (
            ("f_S", 0, p.student_projection),
            ("f_C", -1, p.contextual_projection),
        ):
            kind = "contextual" if row else "student"
            layers = "\n".join([f"${name}$", *_layers(spec)])
            boxes[name] = Box(2.2, row, layers, kind, dashed=not parse_projection(spec))
        boxes["L_C"] = Box(3.2, -1, f"$L_C$\n{p.contextual_loss}", "contextual")
    chains = [
        "document > student > L_S > sum",
        "document > structural > L_S",
        "student > f_S > L_C > sum",
    ]
    return draw_graph(
        boxes, [*chains, "document > contextual > f_C > L_C"], note="\n".join(notes), ax=ax
    )


def plot_siamese(profile: Profile, *, ax: Axes | None = None) -> Axes:
    """How a sentence encoder learns from pairs of sentences (thesis, Figure 3.2; Reimers and
    Gurevych, 2019).
    """
    name = literal(Path(profile.structural_teacher.model).name)
    boxes = {
        "objective": Box(
            4.1, 0, "loss of $\\cos(u, v)$,\nor a classifier\nof $(u, v, |u-v|)$", "structural"
        )
    }
    chains = []
    for row, sentence, vector in ((0.5, "A", "u"), (-0.5, "B", "v")):
        boxes[sentence] = Box(0, row, f"sentence {sentence}")
        boxes[f"encoder {sentence}"] = Box(1.1, row, f"{name}\none vector per token", "structural")
        boxes[f"mean {sentence}"] = Box(2.2, row, "mean over\ntokens", "structural")
        boxes[vector] = Box(3, row, f"${vector}$", "structural")
        chains.append(f"{sentence} > encoder {sentence} > mean {sentence} > {vector} > objective")
    note = (
        "Both rows are one network: they share all weights. Here it is trained already and frozen."
    )
    return draw_graph(boxes, chains, note=note, ax=ax)


def _weighted_sum(profile: Profile) -> str:
    """The sum of the losses as `Weighting` computes it; λ of a document depends on its length, see
    `plot_weights`.
    """
    p, roles = profile.parameters, roles_of(profile.parameters, profile.further_teachers)
    if len(roles) < 2:
        return "$L_S$" if "structural" in roles else "$L_C$"
    if p.lam is None and p.lam_by_length is None:
        return "$L_S + L_C$"
    return "$\\lambda_i\\,L_S$\n$+ (1-\\lambda_i)\\,L_C$"


def _layers(spec: str) -> list[str]:
    """The first and the last layers of a projection, at most three lines of features and
    activation.
    """
    layers = [
        " ".join(
            [f"{width:,}", *(ACTIVATIONS[name] or "" for name in names if name in ACTIVATIONS)]
        )
        for width, names in parse_projection(spec)
    ] or ["identity"]
    return layers if len(layers) <= 3 else [layers[0], "…", layers[-1]]


# ---- structural losses in the plane

TOPIC = 10  # documents of each of two topics
DESCENT_STEPS, DESCENT_RATE = 40, 0.1
FASTER = 10  # factor of the rate for cosine, whose gradient falls with the norm of the embedding
LOSSES: dict[str, nn.Module] = {"MSE": MSE(), "cosine": Cosine()}
LOSSES |= {f"max-margin MSE, γ = {gamma:g}": MaxMargin("mse", gamma) for gamma in (0.5, 1.0, 1.5)}


def two_topics(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Student embeddings, all similar as of an untrained one, and teacher's, (N, 2), one topic
    after the other.
    """
    generator = torch.Generator().manual_seed(seed)
    topics = torch.tensor([[1.2, 0.5], [-0.4, 1.2]]).repeat_interleave(TOPIC, dim=0)
    teacher = topics + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator)
    return torch.tensor([2.2, -1.5]) + 0.2 * torch.randn(2 * TOPIC, 2, generator=generator), teacher


@one_thread()
def descend(
    loss: nn.Module, student: Tensor, teacher: Tensor, *, steps: int = DESCENT_STEPS
) -> Tensor:
    """Student embeddings under gradient descent on themselves, as one batch: (steps + 1, N, 2), the
    start first.
    """
    path, rate = [student], DESCENT_RATE * (FASTER if isinstance(loss, Cosine) else 1)
    for _ in range(steps):
        y = path[-1].clone().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(y, teacher).sum(), y)
        path.append(path[-1] - rate * gradient)
    return torch.stack(path)


def plot_descents() -> list[Axes]:
    """Five losses on the same two topics, then the mean norm of the embeddings under each: six
    panels of one figure.
    """
    student, teacher = two_topics()
    figure, grid = plt.subplots(2, 3, figsize=(8.0, 5.7), layout="constrained")
    *planes, norms = grid.flat
    for ax, (name, loss), color in zip(planes, LOSSES.items(), SERIES, strict=False):
        path = descend(loss, student, teacher)
        _plot_path(ax, path, teacher)
        ax.set_title(f"{name} (steps × {FASTER})" if isinstance(loss, Cosine) else name, fontsize=9)
        mean_norm = path.norm(dim=2).mean(dim=1)
        norms.plot(mean_norm, color=color, linewidth=1.8)
        label(norms, name.split(", ")[-1], (DESCENT_STEPS, mean_norm[-1].item()), (4, 0))
    plt.setp(planes[::3], ylabel="second dimension")
    plt.setp(planes[3:], xlabel="first dimension")
    norms.set(
        xlabel="step",
        yscale="log",
        xlim=(0, 1.4 * DESCENT_STEPS),
        xticks=range(0, DESCENT_STEPS + 1, 10),
    )
    norms.set_yticks([1, 2, 5, 10, 20], ["1", "2", "5", "10", "20"], minor=False)
    norms.minorticks_off()
    norms.set_title("mean norm of the student's embeddings", fontsize=9)
    figure.legend(
        *planes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, fontsize=8
    )
    return [*planes, norms]


def _plot_path(ax: Axes, path: Tensor, teacher: Tensor) -> None:
    for marker, topic, hidden in (
        ("o", slice(TOPIC), ""),
        ("^", slice(TOPIC, None), "_"),
    ):  # "_": not in the legend
        ax.plot(*path[:, topic].unbind(dim=2), color=PALETTE["student"], linewidth=0.6, alpha=0.5)
        shown = {
            "teacher": (teacher, "structural"),
            "student, start": (path[0], "untrained"),
            "student, end": (path[-1], "student"),
        }
        for name, (points, kind) in shown.items():
            ax.plot(
                *points[topic].T,
                marker,
                color=PALETTE[kind],
                markersize=4.5,
                label=f"{hidden}{name}",
            )
    ax.plot(0, 0, "+", color=GREY, markersize=7, label="origin")
    ax.set_aspect("equal", adjustable="datalim")
    ax.locator_params(nbins=4)
    ax.grid(visible=False)

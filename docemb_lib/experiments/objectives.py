"""From notebook parameters to the training objective, and which of them count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from docemb_lib.settings import Parameters, Training

if TYPE_CHECKING:
    from docemb_lib.losses import Objective, Weighting
    from docemb_lib.student import Student


def make_objective(student: Student, p: Parameters, training: Training, *, contextual_width: int | None) -> Objective:
    """The objective that the parameters describe; contextual_width: C, None without a contextual teacher.

    Projections are initialised from torch's global generator: seed it first.
    """
    from docemb_lib.losses import Objective, Projection, contextual_loss, structural_loss

    structural = structural_loss(p.structural_loss, distance=p.distance, gamma=p.gamma)
    weighting = weighting_of(p)
    if contextual_width is None:
        return Objective(student, structural=structural, weighting=weighting, group_size=training.batch_size)
    student_projection = Projection(p.student_projection, student.dim)
    return Objective(
        student,
        structural=structural,
        contextual=contextual_loss(
            p.contextual_loss, student_projection.out_features, delta=training.delta, beta=training.beta
        ),
        student_projection=student_projection,
        contextual_projection=Projection(p.contextual_projection, contextual_width),
        weighting=weighting,
        group_size=training.batch_size,
    )


def weighting_of(p: Parameters) -> Weighting:
    """How the parameters weigh the two losses."""
    from docemb_lib.losses import Weighting

    return Weighting(lam=p.lam, max_structural_len=p.max_structural_len, lam_by_length=p.lam_by_length)


def objective_settings(p: Parameters) -> dict[str, Any]:
    """The parameters that count: those of a loss that is switched off, or that no loss reads, are left out."""
    settings: dict[str, Any] = {}
    if p.structural_loss is not None:
        settings |= {"structural_loss": p.structural_loss, "max_structural_len": p.max_structural_len}
        if p.structural_loss == "max-margin":
            settings |= {"distance": p.distance, "gamma": p.gamma}
    if p.contextual_teacher is not None:
        for name in ("contextual_teacher", "contextual_loss", "student_projection", "contextual_projection"):
            settings[name] = getattr(p, name)
    if p.structural_loss is not None and p.contextual_teacher is not None:
        settings |= {"lam": p.lam, "lam_by_length": p.lam_by_length}
    return settings

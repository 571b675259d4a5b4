"""From a profile and its parameters to the training objective, and which of them count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from docemb_lib.profile import Profile
from docemb_lib.settings import FurtherTeacher, Parameters, Training

if TYPE_CHECKING:
    from torch import nn

    from docemb_lib.losses import Objective, Weighting
    from docemb_lib.student import Student


def make_objective(student: Student, profile: Profile, widths: Mapping[str, int]) -> Objective:
    """The objective that the profile describes; widths: of each teacher's embeddings, by name.

    Projections are initialised from torch's global generator: seed it first.
    """
    from docemb_lib.losses import Objective, Projection, Teaching

    p, training = profile.parameters, profile.training
    teachers = []
    if p.structural_loss is not None:
        teachers.append(Teaching("structural", "structural", _structural(p.structural_loss, p)))
    if p.contextual_teacher is not None:
        ours = Projection(p.student_projection, student.dim)
        theirs = Projection(p.contextual_projection, widths["contextual"])
        loss = _contextual(p.contextual_loss, ours.out_features, training)
        teachers.append(Teaching("contextual", "contextual", loss, student_projection=ours, teacher_projection=theirs))
    for further in profile.further_teachers:
        name, role = further.name, further.role
        ours = Projection(further.student_projection, student.dim)
        theirs = Projection(further.teacher_projection, widths[name])
        if role == "structural":
            loss = _structural(further.loss, further)
        else:
            loss = _contextual(further.loss, ours.out_features, training)
        teachers.append(
            Teaching(name, role, loss, student_projection=ours, teacher_projection=theirs, weight=further.weight)
        )
    return Objective(
        student, teachers, weighting=weighting_of(p), group_size=training.batch_size, negatives=p.negatives
    )


def weighting_of(p: Parameters) -> Weighting:
    """How the parameters weigh the losses of both roles."""
    from docemb_lib.losses import Weighting

    return Weighting(lam=p.lam, max_structural_len=p.max_structural_len, lam_by_length=p.lam_by_length, form=p.form)


def roles_of(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> set[str]:
    """The roles that have a teacher, of the parameters' own or of the profile's further ones."""
    own = {"structural": p.structural_loss, "contextual": p.contextual_teacher}
    return {role for role, named in own.items() if named is not None} | {teacher.role for teacher in further}


def objective_settings(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> dict[str, Any]:
    """The parameters that count: those of a loss that is switched off, or that no loss reads, are left out.

    further: the profile's teachers beside the two that the parameters name.
    """
    roles = roles_of(p, further)
    settings: dict[str, Any] = {}
    if p.structural_loss is not None:
        settings["structural_loss"] = p.structural_loss
    if p.structural_loss == "max-margin":
        settings |= {"distance": p.distance, "gamma": p.gamma, "negatives": p.negatives}
    if p.structural_loss == "contrastive":
        settings |= {"temperature": p.temperature, "negatives": p.negatives}
    if "structural" in roles:
        settings["max_structural_len"] = p.max_structural_len
    if p.contextual_teacher is not None:
        for name in ("contextual_teacher", "contextual_loss", "student_projection", "contextual_projection"):
            settings[name] = getattr(p, name)
    if len(roles) == 2:
        settings |= {"lam": p.lam, "lam_by_length": p.lam_by_length, "form": p.form}
    if further:
        settings["further_teachers"] = [teacher.model_dump(exclude_defaults=True) for teacher in further]
    return settings


def pair_settings(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> dict[str, Any]:
    """The parameters that count where a student learns from pairs: those of its teachers only where it has some."""
    settings = {name: getattr(p, name) for name in ("pairs", "pair_temperature", "mlm_weight")}
    if p.beside_teachers is not None:
        settings |= {"beside_teachers": p.beside_teachers, "objective": objective_settings(p, further)}
    return settings


def _structural(name: str, settings: Parameters | FurtherTeacher) -> nn.Module:
    from docemb_lib.losses import structural_loss

    return structural_loss(name, distance=settings.distance, gamma=settings.gamma, temperature=settings.temperature)


def _contextual(name: str, dim: int, training: Training) -> nn.Module:
    from docemb_lib.losses import contextual_loss

    return contextual_loss(
        name, dim, delta=training.delta, beta=training.beta, reduction=training.sdl, ridge=training.ridge
    )

"""From a profile and its parameters to the training objective, and which of them count."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from docemb_lib.settings import SINGLE, FurtherTeacher, Parameters, Training, label_of_paragraph_vector
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import fingerprint_of

if TYPE_CHECKING:
    from torch import nn

    from docemb_lib.losses import Objective, Weighting
    from docemb_lib.student import Student


# ---- from a profile and its parameters to the training objective


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


# ---- what runs are called


PAPER = Parameters()  # whose pairs are weighed as the SimDE paper does
LONGEST_SLUG = 200  # characters: file systems take names of 255, and executed copies add to theirs


def label_of(notebook: str, p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    """Short and readable, e.g. `max-margin;MSE;γ=1.0`, `PV;S:768(ReLU)x2048;C:-`, `cosine;384;λ=0.5`.

    further: the profile's teachers beside the two that the parameters name.
    """
    number = notebook[:2]
    if number == "01":
        return "corpus"
    if number == "02":
        return p.compound or label_of_paragraph_vector(**{name: getattr(p, name) for name in SINGLE})
    if number == "03":
        return structural_label(p, further)
    if number == "04":
        return f"{structural_label(p, further)};{contextual_label(p, further)}"
    if number == "05":
        return weighting_label(p, further)
    if number == "07":
        return pair_label(p, further)
    return "student " + ";".join(_final_parts(p, further) + _sizes(p))


def slug_of(notebook: str, profile: Profile) -> str:
    """The label as one path component, with what else tells runs of a notebook apart: profile, documents, seed.

    One of more than 200 characters is cut, and ends in its hash.
    """
    p = profile.parameters
    parts = [profile.name, label_of(notebook, p, profile.further_teachers)]
    if notebook[:2] == "05" and p.contextual_teacher is not None:
        parts.append(contextual_label(p))
    if notebook[:2] in {"03", "04", "05"}:
        parts.append(f"{p.documents}docs")
    parts.append(f"seed{p.seed}")
    text = "-".join(parts).replace("λ", "lam").replace("γ", "gamma").replace("τ", "tau").replace("%", "pct")
    slug = re.sub(r"[^A-Za-z0-9.=+]+", "-", text).strip("-")
    digits = fingerprint_of({"slug": slug})[:8]
    return slug if len(slug) <= LONGEST_SLUG else f"{slug[: LONGEST_SLUG - 9]}-{digits}"


def structural_label(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    if p.structural_loss is None:
        return _named(further, "structural") or "only-contextual"
    bank = f";+{p.negatives} negatives" if p.negatives else ""
    if p.structural_loss == "max-margin":
        return f"max-margin;{'MSE' if p.distance == 'mse' else 'cosine'};γ={p.gamma}{bank}"
    if p.structural_loss == "contrastive":
        temperature = "" if p.temperature is None else f";τ={p.temperature}"
        return f"contrastive{temperature}{bank}"
    return {"mse": "MSE"}.get(p.structural_loss, p.structural_loss)


def contextual_label(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    if p.contextual_teacher is None:
        return _named(further, "contextual") or "only-structural"
    loss = "" if p.contextual_loss == "soft-cca" else f"{p.contextual_loss};"
    return f"{loss}{p.contextual_teacher};S:{p.student_projection};C:{p.contextual_projection}"


def weighting_label(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    roles, structural = roles_of(p, further), structural_label(p, further)
    if "contextual" not in roles:
        masked = "" if p.max_structural_len is None else f";{p.max_structural_len}"
        return f"only-structural;{structural}{masked}"
    if "structural" not in roles:
        return f"only-contextual;{p.contextual_teacher}"
    form = "" if p.form == "weighted" else f";{p.form}"
    if p.lam is None and p.lam_by_length is None and p.max_structural_len is None:
        return f"{structural};no-weighting{form}"
    by_length = "" if p.lam_by_length is None else f";{p.lam_by_length}"
    return f"{structural};{p.max_structural_len};λ={p.lam}{by_length}{form}"


def pair_label(p: Parameters, further: Sequence[FurtherTeacher] = ()) -> str:
    """`SimDE;700 docs`, and what differs from the paper's settings: `SimCSE;τ=0.1;mlm=0.0;700 docs`."""
    parts = ["SimDE" if p.pairs == "halves" else "SimCSE"]
    if p.pair_temperature != PAPER.pair_temperature:
        parts.append(f"τ={p.pair_temperature}")
    if p.mlm_weight != PAPER.mlm_weight:
        parts.append(f"mlm={p.mlm_weight}")
    if p.beside_teachers is not None:
        parts += [f"×{p.beside_teachers} beside", *_final_parts(p, further)]
    return ";".join(parts + _sizes(p))


def _final_parts(p: Parameters, further: Sequence[FurtherTeacher]) -> list[str]:
    return [weighting_label(p, further), *([contextual_label(p)] if p.contextual_teacher else [])]


def _sizes(p: Parameters) -> list[str]:
    return [f"{p.documents} docs", *([f"seed {p.seed}"] if p.seed else [])]


def _named(further: Sequence[FurtherTeacher], role: str) -> str:
    return "+".join(teacher.name for teacher in further if teacher.role == role)

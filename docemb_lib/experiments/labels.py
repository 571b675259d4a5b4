"""What runs are called: a label as in the thesis' figures, and a slug that is safe in a path."""

from __future__ import annotations

import re
from collections.abc import Sequence

from docemb_lib.experiments.objectives import roles_of
from docemb_lib.profile import Profile
from docemb_lib.settings import SINGLE, FurtherTeacher, Parameters, label_of_paragraph_vector
from docemb_lib.workspace import fingerprint_of

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

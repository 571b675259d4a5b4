"""The notebook parameters, under the same names in notebooks, grids, profiles and records."""

import re
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from docemb_lib.settings.sections import (
    SINGLE,
    ContextualLoss,
    ContextualName,
    Count,
    Float,
    MinCount,
    NotNegative,
    OrNone,
    Positive,
    ProjectionSpec,
    Section,
    Seed,
    Several,
    Share,
    StructuralLoss,
    Width,
    label_of_paragraph_vector,
)

# The label of one Paragraph Vector, see `label_of_paragraph_vector`.
_LABEL = re.compile(r"(DM|DBOW);([2-9]|[1-9]\d{1,4});(stem|lowercase|None);([1-9]\d{0,8}|10%)")


class Parameters(Section):
    """All notebook parameters.

    The defaults are the thesis' best student with the cosine loss (Table 4.10).
    """

    seed: Seed = 0

    # 02: one Paragraph Vector

    dm: bool = True  # True: distributed memory (DM); False: distributed bag of words (DBOW)
    vector_size: Width = 100  # dimensions
    min_count: MinCount = 2  # drop rarer words; an occurrence count, or the thesis' "10%"
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    compound: OrNone[str] = None  # labels of trained models, joined by +

    # 03-06: the objective of the student

    # A loss of docemb's, or module:Class (docs/extending.md)
    structural_loss: OrNone[StructuralLoss] = "cosine"
    distance: Literal["mse", "cosine"] = "mse"  # of max-margin
    gamma: NotNegative = 1.0  # of max-margin: weight of the negatives
    temperature: OrNone[Positive] = None  # of contrastive; None: none
    contextual_teacher: OrNone[ContextualName] = "PV"
    # soft-cca; soft-cca:covariance, as printed; mse; cosine; infonce; cca
    contextual_loss: ContextualLoss = "soft-cca"
    # Of soft-cca: weight of the decorrelation; balance: set at the first updates, so that distance
    # and decorrelation are equally large
    delta: NotNegative | Literal["balance"] = 0.03
    beta: Share = 0.95  # of soft-cca: memory of the running covariance
    student_projection: ProjectionSpec = "768(ReLU)x4096(ReLU)x2048"
    contextual_projection: ProjectionSpec = "-"
    # λ, the weight of the structural loss; None: plain sum of both losses
    lam: OrNone[Float] = Field(0.5, ge=0, le=1)
    # Of the contextual loss beside lam: complement is 1 - λ; structural leaves it at 1, so that λ
    # weighs the structural loss alone, as in drafts of the thesis
    weighting: Literal["complement", "structural"] = "complement"
    # "linear:384:4096": λ falls to 0 between documents of so many tokens; None: one λ for all
    lam_by_length: OrNone[str] = None
    max_structural_len: OrNone[Count] = 384  # structural tokens, special ones included
    documents: Several = 15_000  # first documents of the train split

    # 07: pairs of texts made of one document, without a teacher

    # halves: SimDE; dropout: the document twice, under dropout (SimCSE)
    pairs: Literal["halves", "dropout"] = "halves"
    pair_temperature: Positive = 0.05  # cosines are divided by it
    # Weight of the masked-language loss, which doubles the time; 0: without
    mlm_weight: NotNegative = 0.1

    @property
    def roles(self) -> set[str]:
        """The roles, structural and contextual, that there is a teacher for."""
        teachers = {"structural": self.structural_loss, "contextual": self.contextual_teacher}
        return {role for role, teacher in teachers.items() if teacher is not None}

    @model_validator(mode="before")
    @classmethod
    def _compound_alone(cls, given: object) -> object:
        """Beside a compound, reset the parameters of a single model.

        The labels of a compound name all parameters of its members.
        """
        if not isinstance(given, dict) or given.get("compound") is None:
            return given
        return {name: value for name, value in given.items() if name not in SINGLE}

    @field_validator("compound")
    @classmethod
    def _in_one_order(cls, value: str | None) -> str | None:
        if value is None:
            return None
        return "+".join(label_of_paragraph_vector(**member) for member in members_of(value))

    @model_validator(mode="after")
    def _fits_its_losses(self) -> Self:
        if self.structural_loss is None and self.contextual_teacher is None:
            raise ValueError(
                "structural_loss and contextual_teacher are both None; "
                "give one of them, because a student needs a teacher"
            )
        if self.lam_by_length is None:
            return self
        ramp = re.fullmatch(r"linear:([0-9]{1,9}):([0-9]{1,9})", self.lam_by_length)
        if ramp is None or int(ramp[1]) >= int(ramp[2]):
            raise ValueError(
                "lam_by_length: must be None or linear:FIRST:LAST with FIRST < LAST, as in "
                f"linear:384:4096, got {self.lam_by_length!r:.40}"
            )
        return self


def members_of(compound: str) -> list[dict[str, Any]]:
    """The parameters of the members of a compound, DM before DBOW.

    Raises ValueError unless the compound consists of two or more different labels.
    """
    labels = [label.strip() for label in compound.split("+")]
    matches = [match for match in map(_LABEL.fullmatch, labels) if match]
    if len(labels) < 2 or len(matches) < len(labels) or len(set(labels)) < len(labels):
        raise ValueError(
            "must be two or more different labels architecture;vector_size;preprocess;min_count, "
            "joined by +, as in DM;1024;stem;2+DBOW;1024;None;10%"
        )
    members = []
    for architecture, size, preprocess, least in (match.groups() for match in matches):
        member = {
            "dm": architecture == "DM",
            "vector_size": int(size),
            "preprocess": "none" if preprocess == "None" else preprocess,
            "min_count": least if least == "10%" else int(least),
        }
        members.append(member)
    return sorted(members, key=lambda member: not member["dm"])

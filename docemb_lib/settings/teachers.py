"""Whom students learn from."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from docemb_lib.settings.corpus import TextSource
from docemb_lib.settings.section import MinCount, ProjectionSpec, Section

ContextualName = Literal["DM", "DBOW", "PV", "LSA"]


class StructuralTeacher(Section):
    model: str = "sentence-transformers/all-mpnet-base-v2"
    max_tokens: int | None = Field(384, ge=8)  # with special tokens; None: the model's own
    long: Literal["truncate", "chunks"] = "truncate"  # beyond max_tokens: cut, or mean over chunks weighted by tokens
    bf16: bool | None = None  # compute its embeddings in bfloat16; None: where the processor is fast at it


class ParagraphVectorSettings(Section):
    """One gensim Doc2Vec; what Table 4.5 holds fixed is fixed."""

    dm: bool
    vector_size: int = Field(100, ge=2)
    min_count: MinCount = 2
    preprocess: Literal["none", "lowercase", "stem"] = "lowercase"
    epochs: int = Field(10, ge=1)
    dbow_words: bool = True  # DBOW also trains word vectors (skip-gram), several times slower
    workers: int = Field(1, ge=1)  # training threads; only with one does a training repeated give the same model
    # Cap on the words kept while counting (the thesis' last teachers: 60 and 12 million); what is then dropped depends
    # on the order of the documents. None: no cap
    max_vocab_size: int | None = Field(None, ge=1)


class ContextualTeachers(Section):
    """The contextual teachers by name (Section 5.1.2); PV concatenates its members, DM before DBOW."""

    # What they are fitted on, but for documents that the students' corpus holds out; None: the students' train split.
    corpus: TextSource | None = None
    documents: int | None = Field(None, ge=2)  # fit on the first so many of these documents; None: on all
    DM: ParagraphVectorSettings = ParagraphVectorSettings(dm=True)
    DBOW: ParagraphVectorSettings = ParagraphVectorSettings(dm=False, vector_size=1024, preprocess="none")
    PV: list[ParagraphVectorSettings] = Field(
        [
            ParagraphVectorSettings(dm=True, vector_size=1024, preprocess="stem"),
            ParagraphVectorSettings(dm=False, vector_size=1024, preprocess="none"),
        ],
        min_length=1,
    )
    lsa_dim: int = Field(300, ge=2)


# Names that a row of a training history has already, or that the first two teachers have.
TAKEN_NAMES = {"structural", "contextual", "loss", "step", "epoch", "norm", "spread", "cca"}
STRUCTURAL_ONLY = ("model", "max_tokens", "long", "distance", "gamma", "temperature")  # fields of further teachers


class FurtherTeacher(Section):
    """One more teacher of every student, beside the structural and the contextual one that the parameters name."""

    name: str = Field(pattern=r"^[a-z][a-z0-9-]*$")  # its column in the training history
    role: Literal["structural", "contextual"]  # whether lam or 1 - lam weighs it, and whether the mask holds for it
    loss: Literal["mse", "cosine", "max-margin", "contrastive", "soft-cca", "cca"]  # as the role's parameter takes it
    weight: float = Field(1.0, gt=0)  # among the losses of its role
    student_projection: ProjectionSpec = "-"
    teacher_projection: ProjectionSpec = "-"
    teacher: ContextualName | None = None  # contextual: as in contextual_teachers
    model: str | None = None  # structural: a hub id, a folder, or all-MiniLM-L6-v2
    max_tokens: int | None = Field(None, ge=8)  # with special tokens; None: the model's own
    long: Literal["truncate", "chunks"] = "truncate"
    distance: Literal["mse", "cosine"] = "mse"
    gamma: float = Field(1.0, ge=0)
    temperature: float | None = Field(None, gt=0)

    @field_validator("name")
    @classmethod
    def _free(cls, value: str) -> str:
        if value in TAKEN_NAMES:
            raise ValueError(f"is taken, as are {', '.join(sorted(TAKEN_NAMES))}; choose another")
        return value

    @model_validator(mode="after")
    def _fits_its_role(self) -> Self:
        needed, foreign, losses = {
            "structural": ("model", ("teacher",), ("mse", "cosine", "max-margin", "contrastive")),
            "contextual": ("teacher", STRUCTURAL_ONLY, ("soft-cca", "mse", "cca")),
        }[self.role]
        if getattr(self, needed) is None:
            raise ValueError(f"{needed} is missing: a {self.role} teacher is named by it")
        for field in foreign:
            if getattr(self, field) != type(self).model_fields[field].default:
                raise ValueError(f"{field} is not for a {self.role} teacher; leave it out")
        if self.loss not in losses:
            raise ValueError(f"loss of a {self.role} teacher must be one of {', '.join(losses)}, got {self.loss!r}")
        return self

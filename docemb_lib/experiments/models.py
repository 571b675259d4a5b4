"""The models that are compared: students before and after, their teachers in every form, words alone as the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.experiments.scores import Model, embed_once
from docemb_lib.experiments.stages import PV_NAMES, TEACHER_SEED
from docemb_lib.experiments.students import Stages
from docemb_lib.hardware import devices_at_hand, fast_bf16
from docemb_lib.workspace import Artefact, Workspace

if TYPE_CHECKING:
    from docemb_lib.evaluation.retrieval import TfIdf
    from docemb_lib.student import Student
    from docemb_lib.teachers.store import Teacher

UNTRAINED = "student before distillation"
SBERT_TRUNCATED, SBERT_CHUNKS = SBERT_LABELS = ("SBERT truncated", "SBERT over chunks")
TFIDF = "TF-IDF"
FEW = 200  # training documents that tell a mean embedding well enough to compare models
RECIPE = 1  # raised whenever TF-IDF would embed otherwise


def untrained_model(stages: Stages) -> Model:
    return _student(UNTRAINED, stages.untrained_student)


def student_model(label: str, student: Artefact) -> Model:
    return _student(label, student)


def sbert_models(stages: Stages) -> list[Model]:
    """The structural teacher on truncated text, and averaged over chunks of the whole document."""
    return [_teacher(SBERT_TRUNCATED, stages.sbert("truncate")), _teacher(SBERT_CHUNKS, stages.sbert("chunks"))]


def contextual_models(stages: Stages) -> list[Model]:
    """Every Paragraph Vector of the profile: DM, DBOW and the concatenation, whose members are not asked again; and LSA
    where fitting it is a matter of seconds."""
    names = (*PV_NAMES, "LSA") if stages.lsa_takes_seconds else PV_NAMES
    found = {name: _teacher(name, stages.contextual_teacher(name)) for name in names}
    members = [
        _teacher("DM" if settings.dm else "DBOW", stages.paragraph_vector(settings, seed=TEACHER_SEED))
        for settings in sorted(
            stages.profile.contextual_teachers.PV, key=lambda settings: not settings.dm
        )  # as Compound
    ]
    side_by_side = SideBySide(stages.workspace, members, "PV", stages.contextual_width("PV"))
    found["PV"] = found["PV"]._replace(load=lambda: side_by_side)
    return [model._replace(label=f"{name};{stages.contextual_width(name)}d") for name, model in found.items()]


class SideBySide(NamedTuple):
    """The embeddings of several models beside each other, each embedded once."""

    workspace: Workspace
    members: list[Model]
    label: str
    dim: int

    def embed(self, texts: list[str]) -> np.ndarray:
        """Float32 (N, sum of the members' widths)."""
        return np.concatenate([embed_once(self.workspace, member, texts) for member in self.members], axis=1)


class Centred(NamedTuple):
    """A model whose embeddings lose the mean of its embeddings of some training documents."""

    workspace: Workspace
    model: Model
    training: list[str]

    def embed(self, texts: list[str]) -> np.ndarray:
        """Float32 (N, D)."""
        mean = embed_once(self.workspace, self.model, self.training).mean(axis=0)
        return embed_once(self.workspace, self.model, texts) - mean


def centred_model(stages: Stages, model: Model) -> Model:
    """The model without what its embeddings of training documents have in common, see `Student.centre`."""
    rows = min(FEW, stages.profile.parameters.documents)
    return Model(
        f"{model.label}, centred",
        f"centred/{rows}/{stages.corpus.fingerprint}/{model.fingerprint}",
        lambda: Centred(stages.workspace, model, stages.split("train")["text"][:rows]),
    )


def paragraph_vector_model(stages: Stages) -> Model:
    """The Paragraph Vector that the parameters describe, or the compound, whose members are embedded once."""
    from docemb_lib.teachers import Compound

    p = stages.profile.parameters
    teachers = [stages.paragraph_vector(settings, seed=p.seed) for settings in stages.asked_paragraph_vectors()]
    if len(teachers) == 1:
        return _teacher(teachers[0].label, teachers[0])
    compound = Compound(teachers)
    members = [_teacher(member.label, member) for member in compound.members]
    side_by_side = SideBySide(stages.workspace, members, compound.label, compound.dim)
    return _teacher(compound.label, compound)._replace(load=lambda: side_by_side)


def tfidf_model(stages: Stages) -> Model:
    """Words alone, weighed on the train split."""

    def fit() -> TfIdf:
        from docemb_lib.evaluation.retrieval import TfIdf

        return TfIdf().fit(stages.split("train")["text"][:])

    return Model(TFIDF, f"tfidf/{RECIPE}/{stages.corpus.fingerprint}", fit)


def baseline_models(stages: Stages) -> list[Model]:
    """All models that no student's parameters change."""
    return [untrained_model(stages), *sbert_models(stages), *contextual_models(stages), tfidf_model(stages)]


def _student(label: str, artefact: Artefact) -> Model:
    def load() -> OnAllDevices:
        from docemb_lib.student import Student

        return OnAllDevices(Student.load(artefact.path))

    precision = "bf16" if fast_bf16(devices_at_hand()[0]) else "float32"
    return Model(label, f"student/{artefact.fingerprint}/{precision}", load)


class OnAllDevices(NamedTuple):
    """A student that every GPU works for."""

    student: Student

    def embed(self, texts: list[str]) -> np.ndarray:
        """Float32 (N, D)."""
        return self.student.embed(texts, devices=devices_at_hand())


def _teacher(label: str, teacher: Teacher) -> Model:
    return Model(label, f"teacher/{teacher.fingerprint}", lambda: teacher)

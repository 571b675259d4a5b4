"""The models that are compared: students before and after, their teachers in every form, words alone as the floor."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from docemb_lib.experiments.embedding_cache import Model, embed_once
from docemb_lib.experiments.stages import TEACHER_SEED, Stages
from docemb_lib.hardware import devices_at_hand, fast_bf16
from docemb_lib.workspace import Artefact, Workspace

if TYPE_CHECKING:
    from docemb_lib.evaluation.baselines import TfIdf
    from docemb_lib.student import Student
    from docemb_lib.teachers.embeddings import Teacher

UNTRAINED = "student before distillation"
SBERT_TRUNCATED, SBERT_CHUNKS = SBERT_LABELS = ("SBERT truncated", "SBERT over chunks")
TFIDF = "TF-IDF"
RECIPE = 1  # raised whenever TF-IDF would embed otherwise


def untrained_model(stages: Stages) -> Model:
    return _student(UNTRAINED, stages.untrained_student)


def student_model(label: str, student: Artefact) -> Model:
    return _student(label, student)


def sbert_models(stages: Stages) -> list[Model]:
    """The structural teacher on truncated text, and averaged over chunks of the whole document."""
    return [_teacher(SBERT_TRUNCATED, stages.sbert("truncate")), _teacher(SBERT_CHUNKS, stages.sbert("chunks"))]


def contextual_models(stages: Stages) -> list[Model]:
    """Every Paragraph Vector of the profile: DM, DBOW and the concatenation, whose members are not asked again."""
    found = {name: _teacher(name, stages.contextual_teacher(name)) for name in PV_NAMES}
    members = [
        _teacher("DM" if settings.dm else "DBOW", stages.paragraph_vector(settings, seed=TEACHER_SEED))
        for settings in sorted(
            stages.profile.contextual_teachers.PV, key=lambda settings: not settings.dm
        )  # as Compound
    ]
    found["PV"] = found["PV"]._replace(load=lambda: SideBySide(stages.workspace, members))
    return [model._replace(label=f"{name};{stages.contextual_width(name)}d") for name, model in found.items()]


PV_NAMES = ("DM", "DBOW", "PV")


class SideBySide(NamedTuple):
    """The embeddings of several models beside each other, each embedded once."""

    workspace: Workspace
    members: list[Model]

    def embed(self, texts: list[str]) -> np.ndarray:
        """Float32 (N, sum of the members' widths)."""
        return np.concatenate([embed_once(self.workspace, member, texts) for member in self.members], axis=1)


def paragraph_vector_model(stages: Stages) -> Model:
    """The Paragraph Vector that the parameters describe; what they leave open is as in the profile's DM or DBOW."""
    p = stages.profile.parameters
    kind = stages.profile.contextual_teachers.DM if p.dm else stages.profile.contextual_teachers.DBOW
    asked = {"vector_size": p.vector_size, "min_count": p.min_count, "preprocess": p.preprocess}
    teacher = stages.paragraph_vector(kind.model_copy(update=asked), seed=p.seed)
    return _teacher(teacher.label, teacher)


def tfidf_model(stages: Stages) -> Model:
    """Words alone, weighed on the train split."""

    def fit() -> TfIdf:
        from docemb_lib.evaluation.baselines import TfIdf

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

"""Models that are compared: students before and after training, their teachers in every form, and TF-IDF.

Texts are embedded once per model, however many tasks and splits contain them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, NoReturn

import numpy as np

from docemb_lib.evaluation.retrieval import TfIdf
from docemb_lib.evaluation.tasks import Embedder
from docemb_lib.experiments.runkey import PV_NAMES
from docemb_lib.experiments.stages import CorpusStage, TeacherStage
from docemb_lib.experiments.students import StudentStage
from docemb_lib.hardware import devices_at_hand, fast_bf16
from docemb_lib.settings import ParagraphVectorSettings
from docemb_lib.settings.profile import Profile
from docemb_lib.teachers import Compound, Teacher
from docemb_lib.teachers.sbert import Long
from docemb_lib.workspace import MANIFEST, VERSIONS, Artefact, Workspace

UNTRAINED = "student before distillation"
SBERT_TRUNCATED, SBERT_CHUNKS = SBERT_LABELS = ("SBERT truncated", "SBERT over chunks")
TFIDF = "TF-IDF"
FEW = 200  # training documents that estimate a mean embedding well enough to compare models
KIND = "embeddings"


class Model(NamedTuple):
    """A model that embeds texts; `load` is called only if a text has not been embedded yet."""

    label: str  # in tables and figures
    fingerprint: str  # equal for two models only if they embed alike
    load: Callable[[], Embedder]


def embed_once(workspace: Workspace, model: Model, texts: Sequence[str]) -> np.ndarray:
    """Float32 (N, D) in the order of `texts`.

    Texts without an embedding are embedded together and published as a further shard of the model's embeddings.
    """
    keys = [hashlib.sha256(text.encode()).hexdigest()[:24] for text in texts]
    known = _shards(workspace, model)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:

        def build(folder: Path) -> None:
            vectors = np.asarray(model.load().embed(list(missing.values())), dtype=np.float32)
            np.save(folder / "embeddings.npy", vectors)
            content = {"model": model.fingerprint, "label": model.label, "texts": list(missing)}
            (folder / "shard.json").write_text(json.dumps(content), encoding="utf-8")

        workspace.artefact(_shelf(model), {"model": model.fingerprint, "texts": sorted(missing)}, build)
        known = _shards(workspace, model)
    return np.stack([known[key] for key in keys])


def _shards(workspace: Workspace, model: Model) -> dict[str, np.ndarray]:
    """Text key → embedding (D,), of all shards of the model."""
    found: dict[str, np.ndarray] = {}
    for manifest in sorted((workspace.outputs / "artefacts" / _shelf(model)).glob(f"*/{MANIFEST}")):
        folder = manifest.parent
        if folder.suffix:  # `.partial`: not published yet
            continue
        texts = json.loads((folder / "shard.json").read_text(encoding="utf-8"))["texts"]
        found.update(zip(texts, np.load(folder / "embeddings.npy", mmap_mode="r"), strict=True))
    return found


def _shelf(model: Model) -> str:
    return f"{KIND}/{hashlib.sha256(model.fingerprint.encode()).hexdigest()[:16]}"


def student_model(label: str, artefact: Artefact) -> Model:
    """A student, which embeds on all GPUs."""

    def load() -> Embeds:
        from docemb_lib.student import Student

        return Embeds(partial(Student.load(artefact.path).embed, devices=devices_at_hand()))

    precision = "bf16" if fast_bf16(devices_at_hand()[0]) else "float32"
    return Model(label, f"student/{artefact.fingerprint}/{precision}", load)


def scored_model(label: str, fingerprint: str) -> Model:
    """A model whose scores are artefacts already. Its embeddings are not available."""

    def embed(texts: list[str]) -> NoReturn:
        raise RuntimeError("only the scores of a recorded model are available; it cannot embed")

    return Model(label, fingerprint, lambda: Embeds(embed))


def untrained_model(students: StudentStage) -> Model:
    return student_model(UNTRAINED, students.untrained)


def sbert_models(teachers: TeacherStage) -> list[Model]:
    """The structural teacher on truncated text, and averaged over chunks of the whole document."""
    forms: dict[str, Long] = {SBERT_TRUNCATED: "truncate", SBERT_CHUNKS: "chunks"}
    return [_teacher(label, teachers.sbert(long), teachers.workspace) for label, long in forms.items()]


def contextual_labels(profile: Profile) -> dict[str, str]:
    """The contextual teachers by the labels of their models: `DM;100d` → `DM`."""
    return {f"{name};{profile.contextual_teachers.width(name)}d": name for name in (*PV_NAMES, "LSA")}


def contextual_models(teachers: TeacherStage) -> list[Model]:
    """DM, DBOW, PV, and LSA if fitting it takes seconds."""
    labels = contextual_labels(teachers.profile).items()
    wanted = [one for one in labels if one[1] != "LSA" or teachers.lsa_takes_seconds]
    return [_teacher(label, teachers.contextual(name), teachers.workspace) for label, name in wanted]


def paragraph_vector_model(teachers: TeacherStage, settings: Sequence[ParagraphVectorSettings], *, seed: int) -> Model:
    """One Paragraph Vector, or several side by side."""
    fitted = [teachers.paragraph_vector(member, seed=seed) for member in settings]
    teacher = fitted[0] if len(fitted) == 1 else Compound(fitted)
    return _teacher(teacher.label, teacher, teachers.workspace)


def tfidf_model(corpus: CorpusStage) -> Model:
    """Words alone, weighed on the train split."""

    fingerprint = f"tfidf/{VERSIONS['tf-idf']}/{corpus.fingerprint}"
    return Model(TFIDF, fingerprint, lambda: TfIdf().fit(corpus.split("train")["text"][:]))


def centred_model(corpus: CorpusStage, model: Model) -> Model:
    """The model minus its mean embedding of some training documents, see `Student.centre`."""
    rows = min(FEW, corpus.profile.parameters.documents)

    def embed(texts: list[str]) -> np.ndarray:
        mean = embed_once(corpus.workspace, model, corpus.split("train")["text"][:rows]).mean(axis=0)
        return embed_once(corpus.workspace, model, texts) - mean

    fingerprint = f"centred/{rows}/{corpus.fingerprint}/{model.fingerprint}"
    return Model(f"{model.label}, centred", fingerprint, lambda: Embeds(embed))


class Embeds(NamedTuple):
    embed: Callable[[list[str]], np.ndarray]


class SideBySide(NamedTuple):
    """The embeddings of several models, concatenated."""

    workspace: Workspace
    members: list[Model]
    dim: int

    def embed(self, texts: list[str]) -> np.ndarray:
        """Float32 (N, sum of the members' widths)."""
        return np.concatenate([embed_once(self.workspace, member, texts) for member in self.members], axis=1)


def _teacher(label: str, teacher: Teacher, workspace: Workspace) -> Model:
    """The teacher as a model. A compound embeds through its members, so that each of them embeds a text once."""
    model = Model(label, f"teacher/{teacher.fingerprint}", lambda: teacher)
    if not isinstance(teacher, Compound):
        return model
    members = [_teacher(member.label, member, workspace) for member in teacher.members]
    return model._replace(load=lambda: SideBySide(workspace, members, teacher.dim))

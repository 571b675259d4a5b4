"""Stages: from a profile and its parameters to corpus, teachers, students and scores; the one place that composes.

Every stage is an artefact of the workspace: asked for, it is there already or is built now. Heavy libraries are
imported inside the stage that needs them, so that asking for what is built stays cheap.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.corpus.origin import source_fingerprint
from docemb_lib.experiments.corpus_stage import DATASET, check_documents, write_corpus
from docemb_lib.experiments.objectives import make_objective, objective_settings
from docemb_lib.profile import Profile
from docemb_lib.settings import UNDECISIVE, ParagraphVectorSettings, Parameters
from docemb_lib.workspace import Artefact, Workspace, write_text

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from docemb_lib.student import Student
    from docemb_lib.teachers import SBERT
    from docemb_lib.teachers.embeddings import Teacher
    from docemb_lib.teachers.sbert import Long
    from docemb_lib.training import TokenFile

logger = logging.getLogger(__name__)

RECIPE = 2  # raised whenever the same inputs would give other artefacts
HISTORY = "history.json"
TOKENS = "tokens.arrow"
TEACHER_SEED = 0  # runs of every seed share their teachers


class Stages:
    """The artefacts of one profile with one set of parameters."""

    def __init__(self, profile: Profile, workspace: Workspace | None = None) -> None:
        self.profile = profile
        self.workspace = workspace or Workspace()

    # ---- corpus

    @cached_property
    def corpus(self) -> Artefact:
        """The corpus on disk: splits train, validation and (held out from all training) tasks."""
        return self.workspace.artefact("corpus", self._corpus_inputs, self._write_corpus)

    def _write_corpus(self, folder: Path) -> None:
        write_corpus(folder, self.profile, self.sbert("truncate").count_tokens)

    @cached_property
    def _corpus_inputs(self) -> dict[str, Any]:
        return {
            "recipe": RECIPE,
            "source": source_fingerprint(self.profile.corpus),
            "student": self._pretrained_fingerprint(self.profile.student.model),
            "structural": self._pretrained_fingerprint(self.profile.structural_teacher.model),
        }

    def split(self, name: str) -> Dataset:
        """One split, memory-mapped: id, text, source, n_words, n_student_tokens, n_structural_tokens."""
        return self._splits[name]

    @cached_property
    def _splits(self) -> DatasetDict:
        from datasets import load_from_disk

        return load_from_disk(str(self.corpus.path / DATASET))

    def check_documents(self) -> None:
        """Refuse a run of more documents than the corpus leaves for training, if the corpus is built already."""
        if self.workspace.is_built("corpus", self._corpus_inputs):
            check_documents([self.profile.parameters.documents], available=len(self.split("train")))

    # ---- teachers

    @cached_property
    def structural_teacher(self) -> SBERT:
        """The structural teacher as students learn from it."""
        return self.sbert(self.profile.structural_teacher.long)

    def contextual_teacher(self, name: str) -> Teacher:
        """DM, DBOW, PV (their concatenation) or LSA, fitted on this corpus."""
        from docemb_lib.teachers import LSA, Compound

        settings = self.profile.contextual_teachers
        if name == "LSA":
            return LSA.load(self._lsa().path)
        members = settings.PV if name == "PV" else [getattr(settings, name)]
        fitted = [self.paragraph_vector(member, seed=TEACHER_SEED) for member in members]
        return fitted[0] if len(fitted) == 1 else Compound(fitted)

    def contextual_width(self, name: str) -> int:
        """The width of a contextual teacher, known before it is fitted."""
        settings = self.profile.contextual_teachers
        if name == "LSA":
            return settings.lsa_dim
        members = settings.PV if name == "PV" else [getattr(settings, name)]
        return sum(member.vector_size for member in members)

    def paragraph_vector(self, settings: ParagraphVectorSettings, *, seed: int) -> Any:
        """One Paragraph Vector, fitted on the train split."""
        from docemb_lib.teachers import ParagraphVector

        documents = self.profile.contextual_teachers.documents
        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "settings": settings.model_dump(),
            "documents": documents,
            "seed": seed,
            "versions": {name: version(name) for name in ("gensim", "nltk")},
        }

        def build(folder: Path) -> None:
            model = ParagraphVector(**settings.model_dump(), seed=seed)
            model.fit(self.split("train")["text"][:documents])
            model.save(folder)

        return ParagraphVector.load(self.workspace.artefact("paragraph-vector", inputs, build).path)

    def teacher_embeddings(self, teacher: Teacher, split: str, rows: int) -> np.ndarray:
        """The teacher's embeddings of the first `rows` documents of a split: float32 (rows, dim), memory-mapped."""
        from docemb_lib.teachers import open_embeddings, write_embeddings

        corpus, maker = f"{self.corpus.fingerprint}/{split}", teacher.fingerprint

        def build(folder: Path) -> None:
            texts = self.split(split)["text"][:rows]
            write_embeddings(folder, texts, teacher.embed, teacher.dim, corpus=corpus, teacher=maker)

        inputs = {"recipe": RECIPE, "corpus": corpus, "teacher": maker, "rows": rows}
        artefact = self.workspace.artefact("teacher-embeddings", inputs, build, resumable=True)
        return open_embeddings(artefact.path, corpus=corpus, teacher=maker)

    def sbert(self, long: Long) -> SBERT:
        """The structural teacher, truncating long documents or averaging over their chunks."""
        from docemb_lib.teachers import SBERT

        settings = self.profile.structural_teacher
        return SBERT(settings.model, max_tokens=settings.max_tokens, long=long, bf16=settings.bf16)

    def _lsa(self) -> Artefact:
        from docemb_lib.teachers import LSA

        settings = self.profile.contextual_teachers
        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "dim": settings.lsa_dim,
            "documents": settings.documents,
        }

        def build(folder: Path) -> None:
            model = LSA(dim=settings.lsa_dim)
            model.fit(self.split("train")["text"][: settings.documents])
            model.save(folder)

        return self.workspace.artefact("lsa", inputs, build)

    # ---- student

    @cached_property
    def untrained_student(self) -> Artefact:
        """The student as it starts: the encoder's weights (or some of its layers) as a Longformer."""
        from docemb_lib.student import Student

        settings = self.profile.student
        inputs = {
            "recipe": RECIPE,
            "encoder": self._pretrained_fingerprint(settings.model),
            "settings": settings.model_dump(exclude={"model"}),
        }

        def build(folder: Path) -> None:
            Student.from_encoder(
                pretrained.resolve(settings.model),
                layers=settings.layers,
                max_tokens=settings.max_tokens,
                attention_window=settings.attention_window,
                pooling=settings.pooling,
                dropout=settings.dropout,
            ).save(folder)

        return self.workspace.artefact("student-untrained", inputs, build)

    @property
    def student_width(self) -> int:
        """D, from the student's configuration."""
        config = json.loads((self.untrained_student.path / "config.json").read_text(encoding="utf-8"))
        return int(config["hidden_size"])

    def trained_student(self) -> Artefact:
        """The student distilled with this profile's parameters: a sentence-transformers folder, `history.json` and
        the projections it was trained with."""
        from docemb_lib.experiments.processes import build_together
        from docemb_lib.training import precision_of

        p = self.profile.parameters
        settings = self.profile.training
        check_documents([p.documents], available=len(self.split("train")))
        structural, contextual = self._teachers(p)
        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "start": self.untrained_student.fingerprint,
            "documents": p.documents,
            "seed": p.seed,
            "objective": objective_settings(p),
            "structural": structural.fingerprint if structural else None,
            "contextual": contextual.fingerprint if contextual else None,
            "training": settings.model_dump(exclude={*UNDECISIVE, "precision"}),
            "precision": precision_of(settings.precision),
            "versions": {name: version(name) for name in ("torch", "transformers")},
        }
        return build_together(
            self.workspace, "student", inputs, lambda folder: self._train(folder, structural, contextual)
        )

    def tokens(self, student: Student, split: str, rows: int) -> TokenFile:
        """The student's tokens of the first `rows` documents of a split, memory-mapped; written once."""
        from docemb_lib.training import TokenFile, write_tokens

        settings = self.profile.student
        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "split": split,
            "rows": rows,
            "tokenizer": self._pretrained_fingerprint(settings.model),
            "max_tokens": student.max_tokens,
        }

        def build(folder: Path) -> None:
            texts = self.split(split).select(range(rows))["text"]
            write_tokens(folder / TOKENS, texts, student.encode, total=rows, max_tokens=student.max_tokens)

        return TokenFile(self.workspace.artefact("tokens", inputs, build).path / TOKENS)

    def history(self, student: Artefact) -> tuple[pd.DataFrame, pd.DataFrame]:
        """What a trained student's training logged: a row per update, and a row per validation."""
        history = json.loads((student.path / HISTORY).read_text(encoding="utf-8"))
        return pd.DataFrame(history["train"]), pd.DataFrame(history["validation"])

    def _teachers(self, p: Parameters) -> tuple[Teacher | None, Teacher | None]:
        structural = self.structural_teacher if p.structural_loss is not None else None
        contextual = self.contextual_teacher(p.contextual_teacher) if p.contextual_teacher is not None else None
        return structural, contextual

    def _train(self, folder: Path, structural: Teacher | None, contextual: Teacher | None) -> None:
        import torch
        from safetensors.torch import save_file

        from docemb_lib.experiments.processes import is_first
        from docemb_lib.student import Student
        from docemb_lib.training import TrainingDocuments, remove_checkpoints, train_objective

        if (folder / HISTORY).is_file():  # written last: an earlier build was killed after training, while tidying up
            remove_checkpoints(folder)
            return
        p = self.profile.parameters
        student = Student.load(self.untrained_student.path)

        def documents(split: str, rows: int) -> TrainingDocuments:
            data = self.split(split).select(range(rows))
            return TrainingDocuments(
                self.tokens(student, split, rows),
                data["n_structural_tokens"][:],
                ids=data["id"],
                structural=None if structural is None else self.teacher_embeddings(structural, split, rows),
                contextual=None if contextual is None else self.teacher_embeddings(contextual, split, rows),
            )

        train = documents("train", p.documents)
        validation = documents("validation", len(self.split("validation")))
        torch.manual_seed(p.seed)
        objective = make_objective(
            student, p, self.profile.training, contextual_width=None if contextual is None else contextual.dim
        )
        history = train_objective(
            objective, train, validation, settings=self.profile.training, seed=p.seed, folder=folder
        )
        if not is_first():
            return
        student.save(folder, card=self._card(p, student, history.validation))
        beside = {name: t.contiguous() for name, t in objective.state_dict().items() if not name.startswith("student.")}
        save_file(beside, str(folder / "projections.safetensors"))
        write_text(folder / HISTORY, json.dumps(history._asdict(), sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _card(self, p: Parameters, student: Student, validation: Sequence[dict[str, float]]) -> str:
        from docemb_lib.student.export import licence_of, model_card

        return model_card(
            profile=self.profile.name,
            encoder=self.profile.student.model,
            licence=licence_of(pretrained.resolve(self.profile.student.model)),
            model_type=student.config.model_type,
            pooling=student.pooling,
            structural_teacher=None if p.structural_loss is None else self.profile.structural_teacher.model,
            contextual_teacher=p.contextual_teacher,
            parameters=objective_settings(p),
            documents=p.documents,
            corpus=self.profile.corpus.source,
            validation_before=validation[0]["loss"],
            validation_after=validation[-1]["loss"],
        )

    def _pretrained_fingerprint(self, name: str) -> str:
        return pretrained.fingerprint(pretrained.resolve(name))

"""Stages: from a profile and its parameters to corpus, teachers, students and scores; the one place that composes.

Every stage is an artefact of the workspace: asked for, it is there already or is built now. Heavy libraries are
imported inside the stage that needs them, so that asking for what is built stays cheap.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.errors import InputError
from docemb_lib.evaluation.catalogue import ProfileTasks
from docemb_lib.experiments.runkey import label_of, make_objective, objective_settings, pair_settings
from docemb_lib.experiments.stages import RECIPE, TeacherStages, check_documents
from docemb_lib.settings import NOT_IN_FINGERPRINT, FurtherTeacher
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Artefact, write_text

if TYPE_CHECKING:
    from docemb_lib.losses import MaskedLanguageHead
    from docemb_lib.student import Student
    from docemb_lib.teachers.store import Teacher
    from docemb_lib.training import PairedDocuments, TokenFile, TrainingDocuments


# ---- stages


HISTORY = "history.json"
TOKENS = "tokens.arrow"
CENTRED_ON = 1000  # training documents at most whose mean embedding a centred student subtracts


class Stages(TeacherStages):
    """The artefacts of one profile with one set of parameters."""

    @cached_property
    def tasks(self) -> ProfileTasks:
        """The profile's tasks by name, made when they are first asked for."""
        return ProfileTasks(self.profile, lambda: self.split("tasks"))

    @cached_property
    def untrained_student(self) -> Artefact:
        """The student as it starts: the encoder's weights (or some of its layers) as a Longformer."""
        from docemb_lib.student import Student

        settings = self.profile.student
        inputs = {
            "recipe": RECIPE,
            "encoder": self._pretrained_fingerprint(settings.model),
            "settings": settings.model_dump(exclude={"model", "centre"}),
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
        from docemb_lib.training import precision_of
        from docemb_lib.training.distributed import build_together

        p = self.profile.parameters
        settings = self.profile.training
        check_documents([p.documents], available=len(self.split("train")))
        self.check_negatives()
        teachers = self.teachers()
        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "start": self.untrained_student.fingerprint,
            "centre": self.profile.student.centre,
            "documents": p.documents,
            "seed": p.seed,
            "objective": objective_settings(p, self.profile.further_teachers),
            "teachers": {name: teacher.fingerprint for name, teacher in teachers.items()},
            "training": settings.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
            "precision": precision_of(settings.precision),
            "versions": {name: version(name) for name in ("torch", "transformers")},
        }
        return build_together(self.workspace, "student", inputs, lambda folder: self._train(folder, teachers))

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

    def teachers(self) -> dict[str, Teacher]:
        """The teachers of a student with these parameters, by name: `structural` and `contextual` as far as they are
        not switched off, then the profile's further ones."""
        p = self.profile.parameters
        found: dict[str, Teacher] = {}
        if p.structural_loss is not None:
            found["structural"] = self.structural_teacher
        if p.contextual_teacher is not None:
            found["contextual"] = self.contextual_teacher(p.contextual_teacher)
        return found | {further.name: self._further_teacher(further) for further in self.profile.further_teachers}

    def _further_teacher(self, further: FurtherTeacher) -> Teacher:
        from docemb_lib.teachers import SBERT

        if further.teacher is not None:
            return self.contextual_teacher(further.teacher)
        bf16 = self.profile.structural_teacher.bf16
        return SBERT(str(further.model), max_tokens=further.max_tokens, long=further.long, bf16=bf16)

    def check_negatives(self) -> None:
        """Refuse more negatives than documents to draw them from; which the mask keeps, a built corpus tells."""
        p = self.profile.parameters
        if not p.negatives:
            return
        from docemb_lib.training.documents import check_negatives

        kept = p.documents
        if p.max_structural_len is not None and self.has_corpus:
            lengths = np.asarray(self.split("train")["n_structural_tokens"][: p.documents])
            kept = int((lengths <= p.max_structural_len).sum())
        check_negatives(p.negatives, kept=kept, batch_size=self.profile.training.batch_size)

    def training_documents(
        self, student: Student, teachers: Mapping[str, Teacher], split: str, rows: int
    ) -> TrainingDocuments:
        """The first `rows` documents of a split beside their teachers' embeddings."""
        from docemb_lib.training import TrainingDocuments

        data = self.split(split).select(range(rows))
        return TrainingDocuments(
            self.tokens(student, split, rows),
            data["n_structural_tokens"][:],
            teachers={name: self.teacher_embeddings(t, split, rows) for name, t in teachers.items()},
            ids=data["id"],
        )

    def _train(self, folder: Path, teachers: Mapping[str, Teacher]) -> None:
        import torch
        from safetensors.torch import save_file

        from docemb_lib.student import Student
        from docemb_lib.training import remove_checkpoints, train_objective
        from docemb_lib.training.distributed import is_first

        if (folder / HISTORY).is_file():  # written last: an earlier build was killed after training, while tidying up
            remove_checkpoints(folder)
            return
        p = self.profile.parameters
        student = Student.load(self.untrained_student.path)
        train = self.training_documents(student, teachers, "train", p.documents)
        validation = self.training_documents(student, teachers, "validation", len(self.split("validation")))
        torch.manual_seed(p.seed)
        widths = {name: embeddings.shape[1] for name, embeddings in train.teachers.items()}
        objective = make_objective(student, self.profile, widths)
        title = label_of("06_evaluation", p, self.profile.further_teachers)
        history = train_objective(
            objective, train, validation, settings=self.profile.training, seed=p.seed, folder=folder, title=title
        )
        if not is_first():
            return
        self._centre(student)
        student.save(folder, card=self._card(student, history.validation, documents=p.documents))
        beside = {
            f"{teaching.name}.{name}": tensor.contiguous()
            for teaching in objective.teachings
            for name, tensor in teaching.state_dict().items()
        }
        save_file(beside, str(folder / "projections.safetensors"))
        write_text(folder / HISTORY, json.dumps(history._asdict(), sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _centre(self, student: Student) -> None:
        """Subtract what its embeddings of training documents have in common, if the profile says so."""
        if self.profile.student.centre:
            student.centre(self.split("train")["text"][: min(CENTRED_ON, self.profile.parameters.documents)])

    def _card(
        self,
        student: Student,
        validation: Sequence[dict[str, float]],
        *,
        documents: int,
        taught: bool = True,
        pairs: Mapping[str, object] | None = None,
    ) -> str:
        """taught: whether it had its teachers; pairs: the parameters of learning from pairs, None where it had none."""
        from docemb_lib.student.export import licence_of, model_card

        p, pairs = self.profile.parameters, pairs or {}
        objective = objective_settings(p, self.profile.further_teachers) if taught else {}
        return model_card(
            student,
            profile=self.profile.name,
            encoder=self.profile.student.model,
            licence=licence_of(pretrained.resolve(self.profile.student.model)),
            structural_teacher=self.profile.structural_teacher.model if taught and p.structural_loss else None,
            contextual_teacher=p.contextual_teacher if taught else None,
            parameters={**pairs, **objective},
            pairs=p.pairs if pairs else None,
            documents=documents,
            corpus=self.profile.corpus.source,
            validation_before=validation[0]["loss"],
            validation_after=validation[-1]["loss"],
        )


# ---- the student


SIMDE = "07_simde"


def check_dropout(profile: Profile) -> None:
    """Refuse pairs by dropout where the profile switches dropout off; what a checkpoint has, training tells."""
    simde, student = profile.simde.dropout, profile.student.dropout
    if profile.parameters.pairs == "dropout" and (student if simde is None else simde) == 0:
        raise InputError("pairs: dropout makes no pairs of a student without dropout; set simde.dropout to 0.1")


class SimDEStages(Stages):
    """As `Stages`; its trained student is the one that has learnt from pairs, by the profile's `simde` settings."""

    @property
    def starting_student(self) -> Artefact:
        """The untrained student with the dropout that it has while it learns from pairs."""
        profile, dropout = self.profile, self.profile.simde.dropout
        if dropout is None:
            return self.untrained_student
        student = profile.student.model_copy(update={"dropout": dropout})
        return Stages(profile.model_copy(update={"student": student}), self.workspace).untrained_student

    def trained_student(self) -> Artefact:
        """A sentence-transformers folder, `history.json` and the head that the student guessed hidden words with."""
        from docemb_lib.training import precision_of

        p, settings = self.profile.parameters, self.profile.simde
        training = settings.training
        check_documents([p.documents], available=len(self.split("train")))
        inputs: dict[str, Any] = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "start": self.starting_student.fingerprint,
            "centre": self.profile.student.centre,
            "documents": p.documents,
            "seed": p.seed,
            "pairs": pair_settings(p, self.profile.further_teachers),
            "settings": settings.model_dump(exclude={"training", "dropout"}),
            "training": training.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
            "precision": precision_of(training.precision),
            "versions": {name: version(name) for name in ("torch", "transformers", "sentencex")},
        }
        teachers: Mapping[str, Teacher] = {}
        if p.beside_teachers is not None:
            self.check_negatives()
            teachers = self.teachers()
            inputs["teachers"] = {name: teacher.fingerprint for name, teacher in teachers.items()}
        build = partial(self._train_on_pairs, teachers=teachers)
        return self.workspace.artefact("student", inputs, build, resumable=True)

    def sentences(self, student: Student, split: str, rows: int) -> TokenFile:
        """The student's tokens of the first `rows` documents of a split by sentence, memory-mapped; written once."""
        from docemb_lib.training import TokenFile, encode_sentences, write_tokens

        inputs = {
            "recipe": RECIPE,
            "corpus": self.corpus.fingerprint,
            "split": split,
            "rows": rows,
            "tokenizer": self._pretrained_fingerprint(self.profile.student.model),
            "max_tokens": self._text_tokens(student),
            "language": self.profile.simde.language,
            "sentencex": version("sentencex"),
        }

        def build(folder: Path) -> None:
            write_tokens(
                folder / TOKENS,
                self.split(split).select(range(rows))["text"],
                lambda texts: encode_sentences(
                    student.tokenizer,
                    texts,
                    max_tokens=self._text_tokens(student),
                    language=self.profile.simde.language,
                ),
                total=rows,
                max_tokens=2 * self._text_tokens(student),
            )

        return TokenFile(self.workspace.artefact("sentences", inputs, build).path / TOKENS)

    def paired_documents(self, student: Student, split: str, rows: int) -> PairedDocuments:
        """Pairs of the first `rows` documents of a split, as far as they have two sentences."""
        from docemb_lib.training import PairedDocuments

        p = self.profile.parameters
        return PairedDocuments(
            self.sentences(student, split, rows),
            ids=self.split(split).select(range(rows))["id"][:],
            tokenizer=student.tokenizer,
            max_tokens=self._text_tokens(student),
            pairs=p.pairs,
            seed=p.seed,
        )

    def _text_tokens(self, student: Student) -> int:
        return min(student.max_tokens, self.profile.simde.max_tokens or student.max_tokens)

    def _train_on_pairs(self, folder: Path, *, teachers: Mapping[str, Teacher]) -> None:
        import torch
        from safetensors.torch import save_file

        from docemb_lib.losses import InfoNCE, PairObjective
        from docemb_lib.student import Student
        from docemb_lib.training import Taught, remove_checkpoints, train_on_pairs

        if (folder / HISTORY).is_file():  # written last: an earlier build was killed after training, while tidying up
            remove_checkpoints(folder)
            return
        p, settings = self.profile.parameters, self.profile.simde
        student = Student.load(self.starting_student.path)
        sizes = {"train": p.documents, "validation": len(self.split("validation"))}
        train, validation = (self.paired_documents(student, split, rows) for split, rows in sizes.items())
        taught = None
        if teachers:
            taught = Taught(*(self.training_documents(student, teachers, split, rows) for split, rows in sizes.items()))
        torch.manual_seed(p.seed)
        widths = {} if taught is None else {name: rows.shape[1] for name, rows in taught.train.teachers.items()}
        objective = PairObjective(
            student,
            contrast=InfoNCE(p.pair_temperature, symmetric=settings.symmetric),
            head=self._head(student) if p.mlm_weight else None,
            mlm_weight=p.mlm_weight,
            distillation=None if taught is None else make_objective(student, self.profile, widths),
            weight=p.beside_teachers or 1.0,
        )
        title = label_of(SIMDE, p, self.profile.further_teachers)
        history = train_on_pairs(
            objective, train, validation, taught=taught, settings=settings.training, seed=p.seed, folder=folder,
            title=title,
        )  # fmt: skip
        pairs = {name: value for name, value in pair_settings(p).items() if name != "objective"}
        self._centre(student)
        card = self._card(student, history.validation, documents=len(train), taught=bool(teachers), pairs=pairs)
        student.save(folder, card=card)
        if objective.head is not None:
            save_file(objective.head.state_dict(), str(folder / "head.safetensors"))
        write_text(folder / HISTORY, json.dumps(history._asdict(), sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _head(self, student: Student) -> MaskedLanguageHead:
        """The one that the encoder was trained with, or a new one where its checkpoint has none."""
        from docemb_lib.losses import MaskedLanguageHead
        from docemb_lib.student import loading

        config = student.config
        rows = student.model.get_input_embeddings().num_embeddings
        eps = getattr(config, "layer_norm_eps", None) or config.norm_eps
        head = MaskedLanguageHead(student.dim, rows, norm_eps=eps)
        source = pretrained.resolve(self.profile.student.model)
        weights = loading.load_masked_head(source)
        if weights is not None:
            head.load_state_dict(weights)
        return head

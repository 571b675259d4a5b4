"""The student of a run before and after its training, from teachers or from pairs of texts.

This module imports torch. Therefore it is imported where a student is asked for, see
`Run.students`.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import load_file, save_file

from docemb_lib.base import pretrained
from docemb_lib.base.files import write_text
from docemb_lib.base.hardware import devices_at_hand
from docemb_lib.corpus.sources import streamed
from docemb_lib.losses import (
    InfoNCE,
    MaskedLanguageHead,
    Objective,
    PairObjective,
    Projection,
    Teaching,
    Weighting,
)
from docemb_lib.losses.contextual import contextual_loss
from docemb_lib.losses.structural import structural_loss
from docemb_lib.runs.checks import check_student, dropout_of
from docemb_lib.runs.embeddings import teacher_embedder
from docemb_lib.runs.identity import RunIdentity
from docemb_lib.runs.stages import Corpus, Teachers
from docemb_lib.runs.store import PARTIAL, cached, folder_of, is_whole
from docemb_lib.settings.parameters import Parameters
from docemb_lib.settings.sections import NOT_IN_FINGERPRINT
from docemb_lib.student import Student
from docemb_lib.student.export import saved_card, student_card, with_words
from docemb_lib.student.loading import load_masked_head
from docemb_lib.student.student import Encoded
from docemb_lib.training.batches import TokenFile, TrainingDocuments, write_tokens
from docemb_lib.training.pairs import PairedDocuments, encode_sentences
from docemb_lib.training.run import leave_group, precision_of, train_objective
from docemb_lib.training.trainer import remove_checkpoints

# Files beside the student's own: the history of its training, and what was trained with it.
HISTORY = "history.json"
OBJECTIVE = "objective.safetensors"
TOKENS = "tokens.arrow"


@dataclass(eq=False)
class Students:
    """The student of a run before and after its training."""

    run: RunIdentity
    corpus: Corpus
    teachers: Teachers

    @cached_property
    def untrained(self) -> Path:
        """The student before training: the encoder, or some of its layers, as a Longformer."""
        return self._converted(self.run.profile.student.dropout)

    @cached_property
    def without_words(self) -> Path:
        """The trained student without a half of words.

        It is a sentence-transformers folder, with the history of the training and what was trained
        with the student: projections and running statistics, or the head that predicts masked
        words.
        """
        return cached("student", self._inputs, self._train, resumable=True)

    def train_along(self) -> None:
        """Train as a further process of torchrun, where the student is not there yet.

        The first process holds the lock of the artefact, writes all files but this process' part of
        the checkpoints, and publishes.
        """
        folder = folder_of("student", self._inputs)
        if not is_whole(folder):
            self._train(folder.with_name(folder.name + PARTIAL))

    @cached_property
    def trained(self) -> Path:
        """The trained student, with its half of words if the run has one.

        The folder also holds the files that the training left.
        """
        if not self.run.has_words:
            return self.without_words
        profile = self.run.profile
        inputs = {
            "student": self.without_words.name,
            "corpus": self.corpus.fingerprint,
            "dim": profile.student.words,
            "precision": precision_of(None),
        }

        def build(folder: Path) -> None:
            student = Student.load(self.without_words)
            texts = self.corpus.texts("train")
            embed = partial(student.embed, devices=devices_at_hand())
            student.adapt(texts, dim=profile.student.words, embed=embed)
            documents = f"{len(texts)} documents of {profile.corpus.source}"
            card = with_words(saved_card(str(self.without_words)), student.words, documents)
            student.save(folder, card=card)
            for file in (HISTORY, OBJECTIVE):
                shutil.copy(self.without_words / file, folder)

        return cached("student-with-words", inputs, build)

    def history(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """A row per update, and a row per validation."""
        history = json.loads((self.trained / HISTORY).read_text(encoding="utf-8"))
        return pd.DataFrame(history["train"]), pd.DataFrame(history["validation"])

    def objective(self, *, trained: bool = True) -> Any:
        """The objective of the run, in evaluation mode, see `make_objective`.

        trained: as the training left it, with running statistics; or as the training begins.
        """
        student = Student.load(self.without_words if trained else self._start)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.run.profile.parameters.seed)
            objective = make_objective(student, self.run, self.teachers)
        if trained:
            objective.load_state_dict(load_file(self.without_words / OBJECTIVE), strict=False)
        return objective.eval()

    def training_documents(self, student: Student, split: str, rows: int) -> Any:
        """The first `rows` documents of a split, as the student learns from them.

        Returns `TrainingDocuments` with the embeddings of the teachers. Of a student that learns
        from pairs of texts, returns `PairedDocuments`, without documents of fewer than two
        sentences.
        """
        ids = self.corpus.split(split)["id"][:rows]
        if not self.run.self_supervised:
            options = {"max_tokens": student.max_tokens, "prompt": student.prompts.document}
            return TrainingDocuments(
                self._tokens(student.tokenize, split, rows, options),
                self.teachers.structural_lengths(split, rows),
                teachers=self.teachers.of_documents(split, rows),
                ids=ids,
            )
        p = self.run.profile.parameters
        settings = self.run.profile.simde
        options = {"language": settings.language, "sentencex": version("sentencex")}
        encode = partial(encode_sentences, student.tokenizer, language=settings.language)
        return PairedDocuments(
            self._tokens(encode, split, rows, options),
            ids=ids,
            tokenizer=student.tokenizer,
            max_tokens=min(student.max_tokens, settings.max_tokens or student.max_tokens),
            pairs=p.pairs,
            seed=p.seed,
        )

    @cached_property
    def _inputs(self) -> dict[str, object]:
        """What the student without words depends on. Builds corpus and teachers."""
        run = self.run
        corpus = self.corpus.fingerprint  # builds the corpus, which only then can be checked
        check_student(run, self.corpus)
        start = self._start.name  # refuses wrong layers before teachers are fitted
        if run.self_supervised:
            learns_from = run.profile.simde.model_dump(include={"language", "max_tokens"})
        else:
            learns_from = {
                role: teacher_embedder(teacher).fingerprint
                for role, teacher in self.teachers.of_student.items()
            }
        packages = ("torch", "transformers", "sentencex")
        return {
            "corpus": corpus,
            "start": start,
            "learns from": learns_from,
            "parameters": run.counted,
            "training": run.training.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
            "precision": precision_of(run.training.precision),
            "versions": {name: version(name) for name in packages},
        }

    @property
    def _start(self) -> Path:
        """The untrained student with the dropout of its training."""
        return self._converted(dropout_of(self.run))

    def _converted(self, dropout: float | None) -> Path:
        settings = self.run.profile.student
        options = settings.model_dump(exclude={"model", "words"}) | {"dropout": dropout}
        inputs = {"encoder": pretrained.fingerprint(settings.model), "settings": options}

        def build(folder: Path) -> None:
            Student.from_encoder(pretrained.resolve(settings.model), **options).save(folder)

        return cached("student-untrained", inputs, build)

    def _train(self, folder: Path) -> None:
        if not (folder / HISTORY).is_file():  # else a kill has left nothing but checkpoints
            run = self.run
            objective = self.objective(trained=False)
            student: Student = objective.student
            documents = partial(self.training_documents, student)
            texts = documents("train", run.profile.parameters.documents)
            history = train_objective(
                objective,
                texts,
                documents("validation", len(self.corpus.split("validation"))),
                settings=run.training,
                seed=run.profile.parameters.seed,
                folder=folder,
            )
            leave_group()
            if int(os.environ.get("RANK", 0)):  # `train_along`
                return
            student.save(folder, card=self._card(student, len(texts)))
            tensors = {
                name: tensor.contiguous()
                for name, tensor in objective.state_dict().items()
                if not name.startswith("student.")
            }
            save_file(tensors, str(folder / OBJECTIVE))
            # Sums are split over the threads: weights depend on their number in the last digits.
            kept = {**history._asdict(), "threads": torch.get_num_threads()}
            write_text(folder / HISTORY, json.dumps(kept, sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _card(self, student: Student, documents: int) -> str:
        profile = self.run.profile
        trained_on = f"{documents} documents of {profile.corpus.source}"
        facts = {"profile": profile.name, "trained_on": trained_on, **self.run.counting}
        if facts.get("structural_loss"):
            facts["structural_teacher"] = profile.structural_teacher.model
        datasets = [name.split()[0] for name in streamed(profile.corpus)]
        return student_card(student, profile.student.model, datasets, **facts)

    def _tokens(
        self,
        encode: Callable[[list[str]], Encoded],
        split: str,
        rows: int,
        options: Mapping[str, object],
    ) -> TokenFile:
        """The student's tokens of the first `rows` documents of a split, memory-mapped.

        They are written once. options: what `encode` depends on besides the tokenizer.
        """
        inputs = {
            "corpus": self.corpus.fingerprint,
            "split": split,
            "rows": rows,
            "tokenizer": pretrained.fingerprint(self.run.profile.student.model),
            **options,
        }

        def build(folder: Path) -> None:
            write_tokens(folder / TOKENS, self.corpus.texts(split, rows), encode, total=rows)

        return TokenFile(cached("tokens", inputs, build) / TOKENS)


def make_objective(
    student: Student, run: RunIdentity, teachers: Teachers
) -> Objective | PairObjective:
    """The objective of a run, whose new modules draw their weights from torch's global generator.

    It has a loss for each teacher, and two projections for the contextual one; or the contrast
    between pairs, and a head that predicts masked words.
    """
    p = run.profile.parameters
    training = run.training
    if run.self_supervised:
        return PairObjective(
            student,
            contrast=InfoNCE(p.pair_temperature),
            head=_head(student, run.profile.student.model) if p.mlm_weight else None,
            mlm_weight=p.mlm_weight,
        )
    teachings = []
    if p.structural_loss is not None:
        loss = structural_loss(
            p.structural_loss, distance=p.distance, gamma=p.gamma, temperature=p.temperature
        )
        teachings.append(Teaching("structural", "structural", loss))
    if p.contextual_teacher is not None:
        f = Projection(p.student_projection, student.dim)
        g = Projection(p.contextual_projection, teachers.of_student["contextual"].dim)
        loss = contextual_loss(
            p.contextual_loss,
            f.out_features,
            delta=p.delta,
            beta=p.beta,
            ridge=training.ridge,
            **training.sdl.model_dump(),
        )
        contextual = Teaching(
            "contextual", "contextual", loss, student_projection=f, teacher_projection=g
        )
        teachings.append(contextual)
    return Objective(student, teachings, weighting=weighting_of(p), group_size=training.batch_size)


def weighting_of(p: Parameters) -> Weighting:
    return Weighting(
        lam=p.lam,
        max_structural_len=p.max_structural_len,
        lam_by_length=p.lam_by_length,
        form=p.weighting,
    )


def _head(student: Student, encoder: str) -> MaskedLanguageHead:
    """The head that the encoder was trained with, or a new one if its checkpoint has none."""
    eps = getattr(student.config, "layer_norm_eps", None) or student.config.norm_eps
    vocabulary = student.model.get_input_embeddings().num_embeddings
    head = MaskedLanguageHead(student.dim, vocabulary, norm_eps=eps)
    weights = load_masked_head(pretrained.resolve(encoder))
    if weights is not None:
        head.load_state_dict(weights)
    return head

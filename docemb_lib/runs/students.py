"""The student of a run before and after its training, from teachers or from pairs of texts.

This module imports torch. Therefore it is imported where a student is asked for, see
`Run.students`.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

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
from docemb_lib.runs.embeddings import teacher_embedder
from docemb_lib.runs.identity import RunIdentity
from docemb_lib.runs.stages import Corpus, Teachers, check_student
from docemb_lib.runs.store import PARTIAL, cached, folder_of, is_whole
from docemb_lib.settings.parameters import Parameters
from docemb_lib.settings.projections import IDENTITY
from docemb_lib.settings.sections import NOT_IN_FINGERPRINT
from docemb_lib.settings.sections import Student as StudentSettings
from docemb_lib.student import Student
from docemb_lib.student.export import saved_card, student_card, with_lexical_half
from docemb_lib.student.loading import load_masked_head
from docemb_lib.student.student import Encoded
from docemb_lib.training.batches import TokenFile, TrainingDocuments, write_tokens
from docemb_lib.training.pairs import PairedDocuments, encode_sentences, train_on_pairs
from docemb_lib.training.run import History, leave_group, precision_of, train_objective
from docemb_lib.training.trainer import remove_checkpoints

# Files beside the student's own: its training history, and the modules that were trained with it.
HISTORY = "history.json"
PROJECTIONS = "projections.safetensors"
HEAD = "head.safetensors"  # predicts masked words
TOKENS = "tokens.arrow"


class _Trained(NamedTuple):
    history: History
    documents: int
    file: str  # name of the file for `tensors`
    tensors: dict[str, Tensor] | None  # of the modules that were trained with the student


class Students:
    """The student of a run before and after its training."""

    def __init__(self, run: RunIdentity, corpus: Corpus, teachers: Teachers) -> None:
        self.run = run
        self.profile = run.profile
        self.corpus = corpus
        self.teachers = teachers

    @cached_property
    def untrained(self) -> Path:
        """The student before training: the encoder, or some of its layers, as a Longformer."""
        return self._converted(self.profile.student)

    @property
    def before_training(self) -> Path:
        """The untrained student with the dropout that it is trained with.

        Learning from pairs may change the dropout.
        """
        settings = self.profile.student
        dropout = self.profile.simde.dropout
        if self.run.self_supervised and dropout is not None:
            settings = settings.model_copy(update={"dropout": dropout})
        return self._converted(settings)

    @cached_property
    def dense(self) -> Path:
        """The trained student without a lexical half.

        It is a sentence-transformers folder, with the training history and the modules that were
        trained with the student: projections, or the head that predicts masked words.
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
    def _inputs(self) -> dict[str, object]:
        """What the dense student depends on. Builds corpus and teachers."""
        run = self.run
        simde = self.profile.simde
        corpus = self.corpus.fingerprint  # builds the corpus, which only then can be checked
        check_student(run, self.corpus)
        start = self.before_training.name  # refuses wrong layers before teachers are fitted
        teachers = {}
        if run.taught:
            of_student = self.teachers.of_student
            teachers = {
                name: teacher_embedder(teacher).fingerprint for name, teacher in of_student.items()
            }
        packages = ["torch", "transformers"]
        pairs = None
        if run.self_supervised:
            packages.append("sentencex")
            pairs = simde.model_dump(exclude={"training", "dropout", "sentence_encoder"})
        return {
            "corpus": corpus,
            "start": start,
            "teachers": teachers,
            "parameters": run.counted,
            "simde": pairs,
            "training": run.training.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
            "precision": precision_of(run.training.precision),
            "versions": {name: version(name) for name in packages},
        }

    @cached_property
    def trained(self) -> Path:
        """The trained student, with its lexical half if the run has one.

        The folder also holds the files that the training left.
        """
        if not self.run.has_lexical_half:
            return self.dense
        settings = self.profile.student
        inputs = {
            "dense": self.dense.name,
            "corpus": self.corpus.fingerprint,
            "dim": settings.lexical,
            "precision": precision_of(None),
        }

        def build(folder: Path) -> None:
            student = Student.load(self.dense)
            texts = self.corpus.texts("train")
            student.adapt(
                texts,
                devices=devices_at_hand(),
                dim=settings.lexical,
            )
            documents = f"{len(texts)} documents of {self.profile.corpus.source}"
            card = with_lexical_half(saved_card(str(self.dense)), student, documents)
            student.save(folder, card=card)
            for file in (HISTORY, PROJECTIONS, HEAD):
                if (self.dense / file).is_file():
                    shutil.copy(self.dense / file, folder)

        return cached("student-lexical", inputs, build)

    def history(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """A row per update, and a row per validation."""
        history = json.loads((self.trained / HISTORY).read_text(encoding="utf-8"))
        return pd.DataFrame(history["train"]), pd.DataFrame(history["validation"])

    def objective(self) -> Objective:
        """The objective as its training left it, in evaluation mode.

        It holds the trained student, the projections and the running statistics.
        """
        student = Student.load(self.dense)
        weights = load_file(self.dense / PROJECTIONS)
        widths = {name: teacher.dim for name, teacher in self.teachers.of_student.items()}
        objective = make_objective(student, self.run, widths)
        for teaching in objective.teachings:
            start = f"{teaching.name}."
            state = {k.removeprefix(start): w for k, w in weights.items() if k.startswith(start)}
            teaching.load_state_dict(state)
        return objective.eval()

    def initial_objective(self) -> Objective:
        """The objective as its training begins, in evaluation mode: projections are random."""
        student = Student.load(self.before_training)
        widths = {name: teacher.dim for name, teacher in self.teachers.of_student.items()}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(self.profile.parameters.seed)
            return make_objective(student, self.run, widths).eval()

    def training_documents(self, student: Student, split: str, rows: int) -> TrainingDocuments:
        """The first `rows` documents of a split with the embeddings of the student's teachers."""
        documents = self.corpus.split(split).select(range(rows))
        embeddings = self.teachers.of_documents(split, rows)
        options = {"max_tokens": student.max_tokens, "prompt": student.prompt}
        tokens = self._token_file("tokens", student.tokenize, split, rows, options)
        lengths = self.teachers.structural_lengths(split, rows)
        return TrainingDocuments(tokens, lengths, teachers=embeddings, ids=documents["id"])

    def paired_documents(self, student: Student, split: str, rows: int) -> PairedDocuments:
        """The pairs of the first `rows` documents of a split.

        A document with fewer than two sentences gives no pair.
        """
        p = self.profile.parameters
        settings = self.profile.simde
        inputs = {"language": settings.language, "sentencex": version("sentencex")}
        encode = partial(encode_sentences, student.tokenizer, language=settings.language)
        return PairedDocuments(
            self._token_file("sentences", encode, split, rows, inputs),
            ids=self.corpus.split(split)["id"][:rows],
            tokenizer=student.tokenizer,
            max_tokens=min(student.max_tokens, settings.max_tokens or student.max_tokens),
            pairs=p.pairs,
            seed=p.seed,
        )

    def _converted(self, settings: StudentSettings) -> Path:
        options = settings.model_dump(exclude={"model", "lexical"})
        inputs = {"encoder": pretrained.fingerprint(settings.model), "settings": options}

        def build(folder: Path) -> None:
            Student.from_encoder(pretrained.resolve(settings.model), **options).save(folder)

        return cached("student-untrained", inputs, build)

    def _train(self, folder: Path) -> None:
        if (folder / HISTORY).is_file():
            # The history is written last: an earlier build was killed while it removed checkpoints.
            remove_checkpoints(folder)
            return
        student = Student.load(self.before_training)
        train = self._learn_from_pairs if self.run.self_supervised else self._distil
        trained = train(student, folder)
        leave_group()
        if int(os.environ.get("RANK", 0)):  # `train_along`
            return
        student.trained_on = f"{trained.documents} documents of {self.profile.corpus.source}"
        student.save(folder, card=self._card(student, trained))
        if trained.tensors is not None:
            save_file(trained.tensors, str(folder / trained.file))
        # Sums are split over the threads: weights depend on their number in the last digits.
        history = {**trained.history._asdict(), "threads": torch.get_num_threads()}
        write_text(folder / HISTORY, json.dumps(history, sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _distil(self, student: Student, folder: Path) -> _Trained:
        """Train on the embeddings of the teachers."""
        p = self.profile.parameters
        train, validation = (self.training_documents(student, *size) for size in self._sizes)
        torch.manual_seed(p.seed)  # before projections draw their weights
        objective = make_objective(student, self.run, _widths(train))
        history = train_objective(
            objective,
            train,
            validation,
            settings=self.run.training,
            seed=p.seed,
            folder=folder,
        )
        tensors = {}
        for teaching in objective.teachings:
            for name, tensor in teaching.state_dict().items():
                tensors[f"{teaching.name}.{name}"] = tensor.contiguous()
        return _Trained(history, p.documents, PROJECTIONS, tensors)

    def _learn_from_pairs(self, student: Student, folder: Path) -> _Trained:
        """Train on pairs of texts of one document (the SimDE paper, Section 3)."""
        p = self.profile.parameters
        train, validation = (self.paired_documents(student, *size) for size in self._sizes)
        torch.manual_seed(p.seed)  # before a head draws its weights
        objective = PairObjective(
            student,
            contrast=InfoNCE(p.pair_temperature),
            head=self._head(student) if p.mlm_weight else None,
            mlm_weight=p.mlm_weight,
        )
        history = train_on_pairs(
            objective,
            train,
            validation,
            settings=self.run.training,
            seed=p.seed,
            folder=folder,
        )
        tensors = None if objective.head is None else objective.head.state_dict()
        return _Trained(history, len(train), HEAD, tensors)

    @property
    def _sizes(self) -> list[tuple[str, int]]:
        """The split and the number of documents to train on, and to validate on."""
        return [
            ("train", self.profile.parameters.documents),
            ("validation", len(self.corpus.split("validation"))),
        ]

    def _head(self, student: Student) -> MaskedLanguageHead:
        """The head that the encoder was trained with, or a new one if its checkpoint has none."""
        eps = getattr(student.config, "layer_norm_eps", None) or student.config.norm_eps
        vocabulary = student.model.get_input_embeddings().num_embeddings
        head = MaskedLanguageHead(student.dim, vocabulary, norm_eps=eps)
        weights = load_masked_head(pretrained.resolve(self.profile.student.model))
        if weights is not None:
            head.load_state_dict(weights)
        return head

    def _card(self, student: Student, trained: _Trained) -> str:
        profile = self.profile
        facts = dict(self.run.counting)
        del facts["seed"], facts["documents"]
        structural = None
        if self.run.taught and profile.parameters.structural_loss:
            structural = profile.structural_teacher.model
        losses = [row["loss"] for row in trained.history.validation]
        return student_card(
            student,
            profile.student.model,
            [name.split()[0] for name in streamed(profile.corpus)],
            profile=profile.name,
            trained_on=student.trained_on,
            structural_teacher=structural,
            **facts,
            mean_validation_loss=f"{losses[0]:.4f} before, {losses[-1]:.4f} after",
        )

    def _token_file(
        self,
        kind: str,
        encode: Callable[[list[str]], Encoded],
        split: str,
        rows: int,
        encoded_by: Mapping[str, object],
    ) -> TokenFile:
        """The student's tokens of the first `rows` documents of a split, memory-mapped.

        They are written once. encoded_by: what `encode` depends on besides the tokenizer.
        """
        inputs = {
            "corpus": self.corpus.fingerprint,
            "split": split,
            "rows": rows,
            "tokenizer": pretrained.fingerprint(self.profile.student.model),
            **encoded_by,
        }

        def build(folder: Path) -> None:
            write_tokens(folder / TOKENS, self.corpus.texts(split, rows), encode, total=rows)

        return TokenFile(cached(kind, inputs, build) / TOKENS)


def make_objective(student: Student, run: RunIdentity, widths: Mapping[str, int]) -> Objective:
    """The objective of a run: a loss, and for the contextual teacher two projections.

    widths: of the embeddings of each teacher, by role. The projections draw their weights from
    torch's global generator.
    """
    p = run.profile.parameters
    training = run.training
    teachings = []
    if p.structural_loss is not None:
        loss = structural_loss(
            p.structural_loss, distance=p.distance, gamma=p.gamma, temperature=p.temperature
        )
        structural = Teaching(
            "structural",
            "structural",
            loss,
            student_projection=Projection(IDENTITY, student.dim),
            teacher_projection=Projection(IDENTITY, widths["structural"]),
        )
        teachings.append(structural)
    if p.contextual_teacher is not None:
        f = Projection(p.student_projection, student.dim)
        g = Projection(p.contextual_projection, widths["contextual"])
        loss = contextual_loss(
            p.contextual_loss,
            f.out_features,
            delta=p.delta,
            beta=p.beta,
            reduction=training.sdl.reduction,
            form=training.sdl.form,
            ridge=training.ridge,
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


def _widths(documents: TrainingDocuments) -> dict[str, int]:
    return {name: embeddings.shape[1] for name, embeddings in documents.teachers.items()}

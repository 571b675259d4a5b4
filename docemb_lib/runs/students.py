"""The student stage: from a run's key to its trained student, distilled from teachers or learning
from pairs.

This module imports torch and is imported where a student is asked for, see `Stages.students`.
"""

import json
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from docemb_lib.base import pretrained
from docemb_lib.base.hardware import devices_at_hand
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
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.stages import CorpusStage, TeacherStage, check_student
from docemb_lib.settings.parameters import Parameters
from docemb_lib.settings.sections import NOT_IN_FINGERPRINT
from docemb_lib.settings.sections import Student as StudentSettings
from docemb_lib.student import Student
from docemb_lib.student.export import saved_card, student_card, with_lexical_half
from docemb_lib.student.loading import load_masked_head
from docemb_lib.training.batches import TokenFile, TrainingDocuments, write_tokens
from docemb_lib.training.distributed import build_together, is_first
from docemb_lib.training.pairs import PairedDocuments, encode_sentences, train_on_pairs
from docemb_lib.training.run import History, precision_of, train_objective
from docemb_lib.training.trainer import remove_checkpoints
from docemb_lib.workspace import VERSIONS, Artefact, Workspace, write_text

HISTORY, PROJECTIONS, HEAD = "history.json", "projections.safetensors", "head.safetensors"
TOKENS = "tokens.arrow"


class _Trained(NamedTuple):
    history: History
    documents: int
    file: str  # name of the file with `beside`
    beside: dict[str, Tensor] | None  # tensors of the modules trained beside the student


class StudentStage:
    """The student of a run before and after training, from teachers or from pairs of texts of a
    document.
    """

    def __init__(
        self, key: RunKey, workspace: Workspace, corpus: CorpusStage, teachers: TeacherStage
    ) -> None:
        self.key, self.workspace, self.corpus, self.teachers = key, workspace, corpus, teachers
        self.profile = key.profile

    @cached_property
    def untrained(self) -> Artefact:
        """The student before training: the encoder's weights, or some of its layers, as a
        Longformer.
        """
        return self._converted(self.profile.student)

    @property
    def before_training(self) -> Artefact:
        """The untrained student with the dropout of its training, which learning from pairs may
        change.
        """
        dropout = self.profile.simde.dropout if self.key.self_supervised else None
        changed = {} if dropout is None else {"dropout": dropout}
        return self._converted(self.profile.student.model_copy(update=changed))

    @cached_property
    def dense(self) -> Artefact:
        """The trained student without a lexical half: a sentence-transformers folder with
        `history.json` and the modules trained beside it: projections, or the head that predicts
        masked words."""
        key, training = self.key, self.key.training
        corpus = self.corpus.fingerprint  # builds the corpus, which only then can be checked
        check_student(key, self.corpus)
        simde = self.profile.simde.model_dump(exclude={"training", "dropout", "sentence_encoder"})
        packages = (
            ("torch", "transformers", "sentencex")
            if key.self_supervised
            else ("torch", "transformers")
        )
        inputs = {
            "corpus": corpus,
            # which refuses wrong layers before the next line fits teachers
            "start": self.before_training.fingerprint,
            "teachers": {name: one.fingerprint for name, one in self.teachers.of_student.items()}
            if key.taught
            else {},
            "parameters": key.counting,
            "simde": simde if key.self_supervised else None,
            "training": training.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
            "precision": precision_of(training.precision),
            "versions": {name: version(name) for name in packages},
        }
        return build_together(self.workspace, "student", inputs, self._train)

    @cached_property
    def trained(self) -> Artefact:
        """The trained student, with a lexical half where there is one, and the files that its
        training left.
        """
        if not self.key.has_lexical_half:
            return self.dense
        settings = self.profile.student
        options: dict[str, Any] = {"dim": settings.lexical, "words": settings.lexical_words}
        fitted_by = {"lsa": VERSIONS["lsa"], "precision": precision_of(None)}
        inputs = {
            "dense": self.dense.fingerprint,
            "corpus": self.corpus.fingerprint,
            **options,
            "width": None,  # of a removed option: the key finds the students made before
            **fitted_by,
        }

        def build(folder: Path) -> None:
            student = Student.load(self.dense.path)
            student.adapt(self.corpus.texts("train"), devices=devices_at_hand(), **options)
            documents = (
                f"{len(self.corpus.split('train'))} documents of {self.profile.corpus.source}"
            )
            student.save(
                folder, card=with_lexical_half(saved_card(str(self.dense.path)), student, documents)
            )
            for file in (HISTORY, PROJECTIONS, HEAD):
                if (self.dense.path / file).is_file():
                    shutil.copy(self.dense.path / file, folder)

        return self.workspace.artefact("student-lexical", inputs, build)

    def history(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        """A row per update, and a row per validation."""
        history = json.loads((self.trained.path / HISTORY).read_text(encoding="utf-8"))
        return pd.DataFrame(history["train"]), pd.DataFrame(history["validation"])

    def objective(self) -> Objective:
        """The objective as its training left it: the trained student, projections and running
        statistics; for eval.
        """
        student, weights = Student.load(self.dense.path), load_file(self.dense.path / PROJECTIONS)
        widths = {name: teacher.dim for name, teacher in self.teachers.of_student.items()}
        objective = make_objective(student, self.key, widths)
        for one in objective.teachings:
            start = f"{one.name}."
            one.load_state_dict(
                {key.removeprefix(start): w for key, w in weights.items() if key.startswith(start)}
            )
        return objective.eval()

    def training_documents(self, student: Student, split: str, rows: int) -> TrainingDocuments:
        """The first `rows` documents of a split with the embeddings of the student's teachers."""
        data, teachers = self.corpus.split(split).select(range(rows)), self.teachers.of_student
        embeddings = {
            name: self.teachers.embeddings(teacher, split, rows)
            for name, teacher in teachers.items()
        }
        tokens = self._token_file(
            "tokens", student.tokenize, split, rows, max_tokens=student.max_tokens
        )
        return TrainingDocuments(
            tokens, data["n_structural_tokens"][:], teachers=embeddings, ids=data["id"]
        )

    def paired_documents(self, student: Student, split: str, rows: int) -> PairedDocuments:
        """The pairs of the first `rows` documents of a split, of those with two sentences or more."""
        p, settings, ids = (
            self.profile.parameters,
            self.profile.simde,
            self.corpus.split(split)["id"][:rows],
        )
        most = min(
            student.max_tokens, settings.max_tokens or student.max_tokens
        )  # of one text of a pair
        encode = partial(encode_sentences, student.tokenizer, language=settings.language)
        inputs = {"language": settings.language, "sentencex": version("sentencex")}
        sentences = self._token_file("sentences", encode, split, rows, **inputs)
        options: Any = {"ids": ids, "tokenizer": student.tokenizer, "max_tokens": most}
        return PairedDocuments(sentences, pairs=p.pairs, seed=p.seed, **options)

    def _converted(self, settings: StudentSettings) -> Artefact:
        options = settings.model_dump(exclude={"model", "lexical", "lexical_words"})
        inputs = {"encoder": pretrained.fingerprint(settings.model), "settings": options}

        def build(folder: Path) -> None:
            Student.from_encoder(pretrained.resolve(settings.model), **options).save(folder)

        return self.workspace.artefact("student-untrained", inputs, build)

    def _train(self, folder: Path) -> None:
        if (
            folder / HISTORY
        ).is_file():  # written last: an earlier build was killed while it removed checkpoints
            remove_checkpoints(folder)
            return
        student = Student.load(self.before_training.path)
        trained = (self._learn_from_pairs if self.key.self_supervised else self._distil)(
            student, folder
        )
        if not is_first():
            return
        student.trained_on = f"{trained.documents} documents of {self.profile.corpus.source}"
        student.save(folder, card=self._card(student, trained))
        if trained.beside is not None:
            save_file(trained.beside, str(folder / trained.file))
        # Sums are split over the threads: weights depend on their number in the last digits.
        history = {**trained.history._asdict(), "threads": torch.get_num_threads()}
        write_text(folder / HISTORY, json.dumps(history, sort_keys=True) + "\n")
        remove_checkpoints(folder)

    def _distil(self, student: Student, folder: Path) -> _Trained:
        p, title = (
            self.profile.parameters,
            RunKey("06_evaluation", self.profile).label,
        )  # the same for all notebooks
        train, validation = (
            self.training_documents(student, split, rows) for split, rows in self._sizes
        )
        torch.manual_seed(p.seed)  # before projections draw their weights
        objective = make_objective(student, self.key, _widths(train))
        options: Any = {
            "settings": self.key.training,
            "seed": p.seed,
            "folder": folder,
            "title": title,
        }
        history = train_objective(objective, train, validation, **options)
        states = ((one.name, one.state_dict()) for one in objective.teachings)
        beside = {
            f"{name}.{key}": tensor.contiguous()
            for name, state in states
            for key, tensor in state.items()
        }
        return _Trained(history, p.documents, PROJECTIONS, beside)

    def _learn_from_pairs(self, student: Student, folder: Path) -> _Trained:
        """Train on pairs of texts of one document (the SimDE paper, Section 3), beside teachers if
        there are any.
        """
        p = self.profile.parameters
        train, validation = (
            self.paired_documents(student, split, rows) for split, rows in self._sizes
        )
        taught = (
            [self.training_documents(student, *size) for size in self._sizes]
            if self.key.taught
            else []
        )
        torch.manual_seed(p.seed)  # before a head and projections draw their weights
        objective = PairObjective(
            student,
            contrast=InfoNCE(p.pair_temperature),
            head=self._head(student) if p.mlm_weight else None,
            mlm_weight=p.mlm_weight,
            distillation=make_objective(student, self.key, _widths(taught[0])) if taught else None,
            weight=p.beside_teachers or 1.0,
        )
        options: Any = {
            "settings": self.key.training,
            "seed": p.seed,
            "folder": folder,
            "title": self.key.label,
        }
        history = train_on_pairs(objective, train, validation, taught=taught, **options)
        beside = None if objective.head is None else objective.head.state_dict()
        return _Trained(history, len(train), HEAD, beside)

    @property
    def _sizes(self) -> list[tuple[str, int]]:
        return [
            ("train", self.profile.parameters.documents),
            ("validation", len(self.corpus.split("validation"))),
        ]

    def _head(self, student: Student) -> MaskedLanguageHead:
        """The head that the encoder was trained with, or a new one where the encoder's checkpoint
        has none.
        """
        eps = getattr(student.config, "layer_norm_eps", None) or student.config.norm_eps
        head = MaskedLanguageHead(
            student.dim, student.model.get_input_embeddings().num_embeddings, norm_eps=eps
        )
        if (
            weights := load_masked_head(pretrained.resolve(self.profile.student.model))
        ) is not None:
            head.load_state_dict(weights)
        return head

    def _card(self, student: Student, trained: _Trained) -> str:
        key, profile, p = self.key, self.profile, self.profile.parameters
        before, after = (trained.history.validation[at]["loss"] for at in (0, -1))
        return student_card(
            student,
            profile.student.model,
            profile=profile.name,
            trained_on=student.trained_on,
            structural_teacher=profile.structural_teacher.model
            if key.taught and p.structural_loss
            else None,
            **{
                name: value
                for name, value in key.counting.items()
                if name not in {"seed", "documents"}
            },
            mean_validation_loss=f"{before:.4f} before, {after:.4f} after",
        )

    def _token_file(
        self, kind: str, encode: Callable[..., Any], split: str, rows: int, **options: Any
    ) -> TokenFile:
        """The student's tokens of the first `rows` documents of a split, written once and
        memory-mapped.
        """
        tokenizer = pretrained.fingerprint(self.profile.student.model)
        inputs = {
            "corpus": self.corpus.fingerprint,
            "split": split,
            "rows": rows,
            "tokenizer": tokenizer,
            **options,
        }

        def build(folder: Path) -> None:
            write_tokens(folder / TOKENS, self.corpus.texts(split, rows), encode, total=rows)

        return TokenFile(self.workspace.artefact(kind, inputs, build).path / TOKENS)


def make_objective(student: Student, key: RunKey, widths: Mapping[str, int]) -> Objective:
    """The objective of a run (widths: by teacher).

    Its projections draw from torch's global generator.
    """
    p, training = key.profile.parameters, key.training
    teachings = []
    of_contextual: Any = {
        "delta": p.delta,
        "beta": p.beta,
        "reduction": training.sdl,
        "ridge": training.ridge,
    }

    def add(
        name: str, role: Any, loss: str, given: Any, specs: tuple[str, str], weight: float = 1.0
    ) -> None:
        """given: the options of a structural loss; specs: the projections of student and teacher."""
        f, g = Projection(specs[0], student.dim), Projection(specs[1], widths[name])
        if role == "structural":
            made = structural_loss(
                loss, distance=given.distance, gamma=given.gamma, temperature=given.temperature
            )
        else:
            made = contextual_loss(loss, f.out_features, **of_contextual)
        teachings.append(
            Teaching(name, role, made, student_projection=f, teacher_projection=g, weight=weight)
        )

    if p.structural_loss is not None:
        add("structural", "structural", p.structural_loss, p, ("-", "-"))
    if p.contextual_teacher is not None:
        add(
            "contextual",
            "contextual",
            p.contextual_loss,
            p,
            (p.student_projection, p.contextual_projection),
        )
    for t in key.profile.further_teachers:
        add(t.name, t.role, t.loss, t, (t.student_projection, t.teacher_projection), t.weight)
    return Objective(student, teachings, weighting=weighting_of(p), group_size=training.batch_size)


def weighting_of(p: Parameters) -> Weighting:
    return Weighting(
        lam=p.lam, max_structural_len=p.max_structural_len, lam_by_length=p.lam_by_length
    )


def _widths(documents: TrainingDocuments) -> dict[str, int]:
    return {name: embeddings.shape[1] for name, embeddings in documents.teachers.items()}

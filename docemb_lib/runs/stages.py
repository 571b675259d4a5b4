"""The first two stages of a run: the corpus, and the teachers with their embeddings.

A stage is an object over artefacts of the workspace: an artefact is loaded, or built if it is
missing, when it is first accessed. Large libraries are imported where they are used, so that access
to a finished artefact is fast.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, partial
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.corpus.build import build_corpus, digest
from docemb_lib.corpus.sources import read_documents, source_fingerprint, streamed
from docemb_lib.runs.key import RunKey
from docemb_lib.settings.profile import Profile, local_config
from docemb_lib.settings.sections import (
    FurtherTeacher,
    Long,
    ParagraphVectorSettings,
    StructuralTeacher,
    TextSource,
)
from docemb_lib.teachers import LSA, SBERT, Compound, ParagraphVector, Teacher, Words
from docemb_lib.teachers.store import open_embeddings, write_embeddings
from docemb_lib.teachers.words import Preprocessing, write_words
from docemb_lib.workspace import Artefact, Workspace

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

DATASET = "dataset"  # folder of a finished corpus
PARTS = "parts"  # folder of a corpus that is being built; an interrupted build continues from it
# installed documentation repeats one object under several paths: compare so many first words
DOCS_COPY_WORDS = 60
HELD_OUT = ("validation", "tasks")  # splits that nothing is trained on
TEACHER_SEED = 0  # runs of every seed share their teachers


class CorpusStage:
    """The corpus of a profile: splits train, validation and tasks (held out from all training)."""

    def __init__(self, profile: Profile, workspace: Workspace) -> None:
        self.profile, self.workspace = profile, workspace

    @cached_property
    def artefact(self) -> Artefact:
        return self.workspace.artefact("corpus", self._inputs, self._write, resumable=True)

    @property
    def fingerprint(self) -> str:
        return self.artefact.fingerprint

    @property
    def is_built(self) -> bool:
        with suppress(InputError):  # of files that are missing
            return self.workspace.is_built("corpus", self._inputs)
        return False

    @cached_property
    def _splits(self) -> DatasetDict:
        return _load(self.artefact)

    def split(self, name: str) -> Dataset:
        """A split, memory-mapped: id, text, source, n_words, n_student_tokens, n_structural_tokens."""
        return self._splits[name]

    def texts(self, split: str, rows: int | None = None) -> Sequence[str]:
        """The texts of the first `rows` documents of a split (None: of all), read when they are
        accessed.
        """
        return _texts(self.split(split), rows)

    @cached_property
    def for_teachers(self) -> Artefact:
        """The corpus that contextual teachers are fitted on: this one, or their own without any
        held-out document.
        """
        if (own := self.profile.contextual_teachers.corpus) is None:
            return self.artefact
        inputs = self._inputs_for_teachers(own)
        return self.workspace.artefact(
            "teacher-corpus", inputs, self._write_for_teachers, resumable=True
        )

    def _inputs_for_teachers(self, own: TextSource) -> dict[str, Any]:
        # Of the students' corpus only the held-out documents matter, not the token counts.
        inputs = {
            "source": source_fingerprint(own),
            "held out by": source_fingerprint(self.profile.corpus),
        }
        return {**inputs, "student": pretrained.fingerprint(self.profile.student.model)}

    @cached_property
    def teacher_texts(self) -> Sequence[str]:
        """The texts that contextual teachers are fitted on, read when they are accessed."""
        return _texts(_load(self.for_teachers)["train"], self.profile.contextual_teachers.documents)

    def check_hub(self, *, teachers: bool) -> None:
        """Refuse to stream a corpus from a hub that does not answer. teachers: also that of
        contextual teachers.
        """
        corpora: list[tuple[str, TextSource, bool]] = [
            ("corpus", self.profile.corpus, self.is_built)
        ]
        if teachers and (own := self.profile.contextual_teachers.corpus) is not None:
            is_built = self.workspace.is_built("teacher-corpus", self._inputs_for_teachers(own))
            corpora.append(("contextual_teachers.corpus", own, is_built))
        for field, source, is_built in corpora:
            if (
                (names := streamed(source))
                and not is_built
                and (silent := pretrained.hub_silence())
            ):
                mend = f"connect, or name local files or folders in {field}.datasets"
                problem = f"{', '.join(names)} cannot be streamed, because {silent}"
                raise InputError(f"{field}.datasets: {problem}; {mend}")

    @cached_property
    def _inputs(self) -> dict[str, Any]:
        student, structural = self.profile.student.model, self.profile.structural_teacher.model
        models = {
            "student": pretrained.fingerprint(student),
            "structural": pretrained.fingerprint(structural),
        }
        return {"source": source_fingerprint(self.profile.corpus), **models}

    def _write(self, folder: Path) -> None:
        profile, settings = self.profile, self.profile.corpus
        for model in profile.models:
            pretrained.require(model, stay_online=settings.source == "hub")
        counters = {
            "n_student_tokens": self._count_student,
            "n_structural_tokens": self._count_student,
        }
        if profile.structural_teacher.model != profile.student.model:
            counters["n_structural_tokens"] = sbert_of(
                profile.structural_teacher, "truncate"
            ).count_tokens
        dataset = self._build(
            settings, folder, counters, validation=settings.validation, tasks=settings.tasks
        )
        _save(dataset, folder)

    def _write_for_teachers(self, folder: Path) -> None:
        from datasets import DatasetDict

        words = _copy_words(
            self.profile.corpus
        )  # as the students' corpus compares: no held-out document has a copy
        held_out = {digest(text, words) for split in HELD_OUT for text in self.texts(split)}
        settings = self.profile.contextual_teachers.corpus or self.profile.corpus
        dataset = self._build(
            settings, folder, {}, lambda text: digest(text, words) not in held_out
        )
        _save(DatasetDict(train=dataset["train"]), folder)

    def _build(
        self,
        settings: TextSource,
        folder: Path,
        counters: Any,
        wanted: Callable[[str], bool] = lambda text: True,
        *,
        validation: int = 0,
        tasks: int = 0,
    ) -> DatasetDict:
        read = read_documents(settings, count_tokens=self._count_student)
        options: Any = {
            "counters": counters,
            "validation": validation,
            "tasks": tasks,
            "seed": settings.seed,
        }
        wanted_ones = (document for document in read if wanted(document.text))
        return build_corpus(
            wanted_ones, copy_words=_copy_words(settings), folder=folder / PARTS, **options
        )

    @cached_property
    def _count_student(self) -> Any:
        from docemb_lib.student import count_tokens

        return partial(count_tokens, pretrained.resolve(self.profile.student.model))


def check_student(key: RunKey, corpus: CorpusStage) -> None:
    """Refuse layers that the encoder lacks, and more documents, or a wider lexical half, than the
    corpus allows.
    """
    student, given, asked = (
        key.profile.student,
        key.profile.corpus,
        {"documents": key.profile.parameters.documents},
    )
    layers = local_config(pretrained.resolve(student.model)).get("num_hidden_layers", inf)
    if max(student.layers or [0]) >= layers:
        there = f"{student.model} has the layers 0 to {layers - 1}"
        problem = f"student.layers: got {student.layers}, but {there}"
        raise InputError(f"{problem}; name some of these, or null for all")
    lexical = {"student.lexical": student.lexical} if key.has_lexical_half else {}
    most = (
        len(corpus.split("train"))
        if corpus.is_built
        else (given.documents or inf) - given.validation - given.tasks
    )
    for name, number in (asked | lexical).items():
        if number > most:
            held = "those of corpus.validation and corpus.tasks"
            problem = f"{name}: {number} are asked for, but besides {held} "
            mend = "ask for fewer, or add documents"
            raise InputError(f"{problem}the corpus has {most} documents; {mend}")


class TeacherStage:
    """The structural and contextual teachers of a profile, and their embeddings of the corpus."""

    def __init__(self, profile: Profile, workspace: Workspace, corpus: CorpusStage) -> None:
        self.profile, self.workspace, self.corpus = profile, workspace, corpus
        self._loaded: dict[
            Path, ParagraphVector
        ] = {}  # by folder: the processes of each model take seconds to start

    @cached_property
    def of_student(self) -> dict[str, Teacher]:
        """A student's teachers by name: `structural` and `contextual` where there are such, then
        the further ones.
        """
        p = self.profile.parameters
        found: dict[str, Teacher] = (
            {} if p.structural_loss is None else {"structural": self.structural}
        )
        if p.contextual_teacher is not None:
            found["contextual"] = self.contextual(p.contextual_teacher)
        return found | {
            further.name: self._further(further) for further in self.profile.further_teachers
        }

    @cached_property
    def structural(self) -> SBERT:
        """The structural teacher as students learn from it."""
        return self.sbert(self.profile.structural_teacher.long)

    def sbert(self, long: Long) -> SBERT:
        """The structural teacher, which truncates long documents or averages over their chunks."""
        return sbert_of(self.profile.structural_teacher, long)

    def contextual(self, name: str) -> Teacher:
        """DM, DBOW, PV (their concatenation) or LSA, fitted on the teachers' corpus."""
        if name == "LSA":
            return self._lsa()
        members = self.profile.contextual_teachers.members(name)
        fitted = [self.paragraph_vector(member, seed=TEACHER_SEED) for member in members]
        return fitted[0] if len(fitted) == 1 else Compound(fitted)

    def paragraph_vector(self, settings: ParagraphVectorSettings, *, seed: int) -> ParagraphVector:
        """One Paragraph Vector, fitted on the teachers' corpus; an interrupted fit continues after
        its last epoch.
        """

        def build(folder: Path) -> None:
            ParagraphVector(**settings.model_dump(), seed=seed).fit_words(
                self.words(settings.preprocess), folder
            )

        inputs = self.vector_inputs(settings, seed=seed)
        folder = self.workspace.artefact("paragraph-vector", inputs, build, resumable=True).path
        if folder not in self._loaded:
            self._loaded[folder] = ParagraphVector.load(folder)
        return self._loaded[folder]

    def vector_inputs(self, settings: ParagraphVectorSettings, *, seed: int) -> dict[str, Any]:
        """What identifies the artefact of `paragraph_vector`; builds the teachers' corpus."""
        words, versions = self._words_inputs(settings.preprocess), {"gensim": version("gensim")}
        return {
            "words": words,
            "settings": settings.model_dump(),
            "seed": seed,
            "versions": versions,
        }

    def words(self, preprocess: Preprocessing) -> Words:
        """The words of the teachers' corpus, shared by all Paragraph Vectors with this
        preprocessing.
        """

        def build(folder: Path) -> None:
            write_words(folder, self.corpus.teacher_texts, preprocess)

        return Words.open(
            self.workspace.artefact("words", self._words_inputs(preprocess), build).path
        )

    def embeddings(self, teacher: Teacher, split: str, rows: int) -> np.ndarray:
        """The teacher's embeddings of the first `rows` documents of a split: float32 (rows, dim),
        memory-mapped.
        """
        block = (
            256 if isinstance(teacher, SBERT) else 4096
        )  # seconds of work, which is what a kill costs

        def build(folder: Path) -> None:
            write_embeddings(
                folder, self.corpus.texts(split, rows), teacher.embed, teacher.dim, block=block
            )

        inputs = {
            "corpus": f"{self.corpus.fingerprint}/{split}",
            "teacher": teacher.fingerprint,
            "rows": rows,
        }
        return open_embeddings(
            self.workspace.artefact("teacher-embeddings", inputs, build, resumable=True).path
        )

    def _further(self, further: FurtherTeacher) -> Teacher:
        if further.teacher is not None:
            return self.contextual(further.teacher)
        bf16 = self.profile.structural_teacher.bf16
        return SBERT(
            str(further.model), max_tokens=further.max_tokens, long=further.long, bf16=bf16
        )

    def _words_inputs(self, preprocess: Preprocessing) -> dict[str, Any]:
        return {**self._fitted_on("nltk"), "preprocess": preprocess}

    def _fitted_on(self, package: str) -> dict[str, Any]:
        documents = self.profile.contextual_teachers.documents
        corpus, versions = self.corpus.for_teachers.fingerprint, {package: version(package)}
        return {"corpus": corpus, "documents": documents, "versions": versions}

    def _lsa(self) -> LSA:
        dim = self.profile.contextual_teachers.lsa_dim

        def build(folder: Path) -> None:
            LSA(dim=dim).fit(self.corpus.teacher_texts).save(folder)

        inputs = {**self._fitted_on("scikit-learn"), "dim": dim}
        return LSA.load(self.workspace.artefact("lsa", inputs, build).path)


def sbert_of(settings: StructuralTeacher, long: Long) -> SBERT:
    return SBERT(settings.model, max_tokens=settings.max_tokens, long=long, bf16=settings.bf16)


def _copy_words(settings: TextSource) -> int | None:
    return DOCS_COPY_WORDS if settings.source == "installed-docs" else None


def _load(corpus: Artefact) -> DatasetDict:
    from datasets import DatasetDict

    return DatasetDict.load_from_disk(str(corpus.path / DATASET))


def _texts(documents: Dataset, rows: int | None) -> Sequence[str]:
    return documents.select(range(len(documents) if rows is None else min(rows, len(documents))))[
        "text"
    ]


def _save(dataset: DatasetDict, folder: Path) -> None:
    """Save the data set, then remove the parts it was made of."""
    from datasets import disable_progress_bars

    disable_progress_bars()  # as widgets, they would be blank in a saved notebook
    dataset.save_to_disk(str(folder / DATASET))
    shutil.rmtree(folder / PARTS)

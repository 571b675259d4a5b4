"""The first two stages of a run: the corpus, and the teachers with their embeddings.

A stage gives access to artefacts of the store. An artefact is loaded when it is first accessed, and
built if it is missing. Large libraries are imported where they are used, so that access to a
finished artefact is fast.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.files import Inputs
from docemb_lib.corpus.build import build_corpus, digest
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.sources import CountTokens, read_documents, source_fingerprint
from docemb_lib.runs.embeddings import embed_once, teacher_embedder
from docemb_lib.runs.store import cached, folder_of, is_whole
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.sections import (
    Long,
    ParagraphVectorSettings,
    StructuralTeacher,
    TextSource,
)
from docemb_lib.teachers import LSA, SBERT, Compound, ParagraphVector, Teacher, Words
from docemb_lib.teachers.words import Preprocessing, write_words

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

DATASET = "dataset"  # folder of a finished corpus
PARTS = "parts"  # folder of a corpus that is being built; an interrupted build continues from it
# Installed documentation repeats one object under several paths: compare so many first words.
DOCS_COPY_WORDS = 60
HELD_OUT = ("validation", "tasks")  # splits that nothing is trained on
TEACHER_SEED = 0  # runs of every seed share their teachers


@dataclass(eq=False)
class Corpus:
    """The corpus of a profile: splits train, validation and tasks (held out from all training)."""

    profile: Profile

    @cached_property
    def folder(self) -> Path:
        return cached("corpus", self._inputs, self._write, resumable=True)

    @property
    def fingerprint(self) -> str:
        return self.folder.name

    @property
    def is_built(self) -> bool:
        """Whether the corpus is there; False also where the files of its texts are missing."""
        with suppress(InputError):
            return is_whole(folder_of("corpus", self._inputs))
        return False

    @cached_property
    def _splits(self) -> DatasetDict:
        return _load(self.folder)

    def split(self, name: str) -> Dataset:
        """A split, memory-mapped.

        Its columns are id, text, source, n_words, n_student_tokens and n_structural_tokens.
        """
        return self._splits[name]

    def texts(self, split: str, rows: int | None = None) -> Sequence[str]:
        """The texts of the first `rows` documents of a split, read when they are accessed.

        rows: None for all documents.
        """
        return _texts(self.split(split), rows)

    @cached_property
    def for_teachers(self) -> Path:
        """The corpus that contextual teachers are fitted on.

        It is the students' corpus, or a corpus of the teachers' own, without any document that the
        students' corpus holds out.
        """
        source = self.profile.contextual_teachers.corpus
        if source is None:
            return self.folder
        # Only the held-out documents of the students' corpus matter here, not its token counts.
        inputs = {
            "source": source_fingerprint(source),
            "held out by": source_fingerprint(self.profile.corpus),
            "student": pretrained.fingerprint(self.profile.student.model),
        }

        def build(folder: Path) -> None:
            # Documents are compared as the students' corpus compares them, so that no held-out
            # document has a copy here.
            words = _copy_words(self.profile.corpus)
            held_out = {digest(text, words) for split in HELD_OUT for text in self.texts(split)}
            documents = (
                document
                for document in read_documents(source, count_tokens=self._count_student)
                if digest(document.text, words) not in held_out
            )
            _build(documents, source, folder, counters={}, validation=0, tasks=0)

        return cached("teacher-corpus", inputs, build, resumable=True)

    @cached_property
    def teacher_texts(self) -> Sequence[str]:
        """The texts that contextual teachers are fitted on, read when they are accessed."""
        return _texts(_load(self.for_teachers)["train"], self.profile.contextual_teachers.documents)

    @cached_property
    def _inputs(self) -> Inputs:
        return {
            "source": source_fingerprint(self.profile.corpus),
            "student": pretrained.fingerprint(self.profile.student.model),
            "structural": pretrained.fingerprint(self.profile.structural_teacher.model),
        }

    def _write(self, folder: Path) -> None:
        profile = self.profile
        settings = profile.corpus
        for model in profile.models:
            pretrained.require(model, stay_online=settings.source == "hub")
        count_structural = self._count_student
        if profile.structural_teacher.model != profile.student.model:
            count_structural = sbert_of(profile.structural_teacher, "truncate").count_tokens
        counters = {
            "n_student_tokens": self._count_student,
            "n_structural_tokens": count_structural,
        }
        documents = read_documents(settings, count_tokens=self._count_student)
        sizes = {"validation": settings.validation, "tasks": settings.tasks}
        _build(documents, settings, folder, counters=counters, **sizes)

    @cached_property
    def _count_student(self) -> CountTokens:
        from docemb_lib.student import count_tokens

        return partial(count_tokens, pretrained.resolve(self.profile.student.model))


@dataclass(eq=False)
class Teachers:
    """The structural and contextual teachers of a profile, and their embeddings of the corpus."""

    profile: Profile
    corpus: Corpus
    # By folder: the processes of each model take seconds to start.
    _loaded: dict[Path, ParagraphVector] = field(default_factory=dict)

    @cached_property
    def of_student(self) -> dict[str, Teacher]:
        """A student's teachers by role, structural and contextual, as the parameters name them."""
        p = self.profile.parameters
        teachers: dict[str, Teacher] = {}
        if p.structural_loss is not None:
            teachers["structural"] = self.structural
        if p.contextual_teacher is not None:
            teachers["contextual"] = self.contextual(p.contextual_teacher)
        return teachers

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
        return self.paragraph_vectors(members, seed=TEACHER_SEED)

    def paragraph_vectors(
        self, members: Sequence[ParagraphVectorSettings], *, seed: int
    ) -> ParagraphVector | Compound:
        """One Paragraph Vector, or several side by side."""
        fitted = [self.paragraph_vector(member, seed=seed) for member in members]
        return fitted[0] if len(fitted) == 1 else Compound(fitted)

    def paragraph_vector(self, settings: ParagraphVectorSettings, *, seed: int) -> ParagraphVector:
        """One Paragraph Vector, fitted on the teachers' corpus.

        An interrupted fit continues after its last epoch.
        """

        def build(folder: Path) -> None:
            model = ParagraphVector(**settings.model_dump(), seed=seed)
            model.fit_words(self.words(settings.preprocess), folder)

        inputs = self._inputs("gensim", "nltk", settings=settings.model_dump(), seed=seed)
        folder = cached("paragraph-vector", inputs, build, resumable=True)
        if folder not in self._loaded:
            self._loaded[folder] = ParagraphVector.load(folder)
        return self._loaded[folder]

    def words(self, preprocess: Preprocessing) -> Words:
        """The words of the teachers' corpus.

        All Paragraph Vectors with this preprocessing share them.
        """

        def build(folder: Path) -> None:
            write_words(folder, self.corpus.teacher_texts, preprocess)

        return Words.open(cached("words", self._inputs("nltk", preprocess=preprocess), build))

    def embeddings(self, teacher: Teacher, split: str, rows: int) -> np.ndarray:
        """The teacher's embeddings of the first `rows` documents of a split, float32 (N, dim)."""
        return embed_once(teacher_embedder(teacher), self.corpus.texts(split, rows))

    def structural_lengths(self, split: str, rows: int) -> np.ndarray:
        """Lengths of the first `rows` documents of a split, (rows,), as the weighting takes them.

        They are counted in tokens of the structural teacher, special tokens included, as its
        `max_tokens` is: a document is masked exactly where the teacher truncates it.
        """
        text_tokens = np.asarray(self.corpus.split(split)["n_structural_tokens"][:rows])
        return text_tokens + self.sbert("truncate").special_tokens

    def of_documents(self, split: str, rows: int) -> dict[str, np.ndarray]:
        """The embeddings that the student learns from, (rows, dim) of each teacher by role."""
        return {
            role: self.embeddings(teacher, split, rows) for role, teacher in self.of_student.items()
        }

    def _inputs(self, *packages: str, **settings: object) -> Inputs:
        """What a contextual teacher depends on: its corpus, these packages and its settings."""
        return {
            "corpus": self.corpus.for_teachers.name,
            "documents": self.profile.contextual_teachers.documents,
            "versions": {package: version(package) for package in packages},
            **settings,
        }

    def _lsa(self) -> LSA:
        dim = self.profile.contextual_teachers.lsa_dim

        def build(folder: Path) -> None:
            LSA(dim=dim).fit(self.corpus.teacher_texts).save(folder)

        return LSA.load(cached("lsa", self._inputs("scikit-learn", dim=dim), build))


def sbert_of(settings: StructuralTeacher, long: Long) -> SBERT:
    """The SBERT of the settings, with another treatment of long documents."""
    return SBERT(settings.model, max_tokens=settings.max_tokens, long=long)


def _copy_words(settings: TextSource) -> int | None:
    return DOCS_COPY_WORDS if settings.source == "installed-docs" else None


def _load(corpus: Path) -> DatasetDict:
    from datasets import DatasetDict

    return DatasetDict.load_from_disk(str(corpus / DATASET))


def _texts(documents: Dataset, rows: int | None) -> Sequence[str]:
    if rows is not None and rows < len(documents):
        documents = documents.select(range(rows))
    return documents["text"]


def _build(
    documents: Iterable[Document], settings: TextSource, folder: Path, **options: Any
) -> None:
    """Save these documents as a data set; `options` are those of `build_corpus`."""
    from datasets import DatasetDict, disable_progress_bars

    splits = build_corpus(
        documents,
        seed=settings.seed,
        folder=folder / PARTS,
        copy_words=_copy_words(settings),
        **options,
    )
    disable_progress_bars()  # as widgets, they would be blank in a saved notebook
    filled = {name: split for name, split in splits.items() if len(split)}
    DatasetDict(filled).save_to_disk(str(folder / DATASET))
    shutil.rmtree(folder / PARTS)

"""The corpus stage: documents read, counted in both models' tokens, split, and enough of them for the plan; and, where
contextual teachers have a corpus of their own, that one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from importlib.metadata import version
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from docemb_lib import pretrained
from docemb_lib.corpus.sources import read_documents, source_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.settings import SINGLE, ParagraphVectorSettings, TextSource, members_of
from docemb_lib.settings.profile import TRAINING, Profile
from docemb_lib.workspace import Artefact, Workspace

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict

    from docemb_lib.teachers import SBERT, ParagraphVector, Words
    from docemb_lib.teachers.sbert import Long
    from docemb_lib.teachers.store import Teacher
    from docemb_lib.teachers.words import Preprocessing


# ---- the corpus stage


DATASET = "dataset"
PARTS = "parts"  # of a corpus that is being built: what a killed build goes on from
DOCS_COPY_WORDS = 60  # packages document one object under several paths


def write_corpus(folder: Path, profile: Profile, count_structural: Callable[[list[str]], list[int]]) -> None:
    """Build the profile's corpus into `folder`. Raises InputError where the plan asks for more than there is.

    count_structural: texts to their numbers of structural tokens.
    """
    from docemb_lib.corpus.build import build_corpus
    from docemb_lib.student import count_tokens

    settings, p = profile.corpus, profile.parameters
    count_student = partial(count_tokens, pretrained.resolve(profile.student.model))
    dataset = build_corpus(
        read_documents(settings, count_tokens=count_student),
        counters={"n_student_tokens": count_student, "n_structural_tokens": count_structural},
        validation=settings.validation,
        tasks=settings.tasks,
        seed=settings.seed,
        copy_words=_copy_words(settings),
        folder=folder / PARTS,
    )
    trained = [line for line in profile.plan if not line.profile and (line.grid or line.notebook in TRAINING)]
    planned = [line.parameters.get("documents", "profile") for line in trained]
    check_documents([p.documents if n == "profile" else n for n in planned], available=len(dataset["train"]))
    _save(dataset, folder)


def write_teacher_corpus(folder: Path, profile: Profile, held_out: Iterable[str]) -> None:
    """Build the corpus of the profile's contextual teachers into `folder`: its split `train`, and no document that
    repeats one of `held_out`, the texts that the students' corpus keeps from all training."""
    from datasets import DatasetDict

    from docemb_lib.corpus.build import build_corpus, digest
    from docemb_lib.student import count_tokens

    settings = profile.contextual_teachers.corpus
    assert settings is not None  # the caller's own check
    words = _copy_words(profile.corpus)
    kept_out = {digest(text, words) for text in held_out}
    documents = read_documents(settings, count_tokens=partial(count_tokens, pretrained.resolve(profile.student.model)))
    dataset = build_corpus(
        (document for document in documents if digest(document.text, words) not in kept_out),
        counters={},
        validation=0,
        tasks=0,
        seed=settings.seed,
        copy_words=_copy_words(settings),
        folder=folder / PARTS,
    )
    _save(DatasetDict(train=dataset["train"]), folder)


def _save(dataset: DatasetDict, folder: Path) -> None:
    """Whole, or nothing of it, as where the disk is full; then the parts it is made of are not needed any more."""
    from datasets import disable_progress_bars

    disable_progress_bars()  # widgets, of which a saved notebook keeps nothing to read
    try:
        dataset.save_to_disk(str(folder / DATASET))
    except BaseException:
        shutil.rmtree(folder / DATASET, ignore_errors=True)
        raise
    shutil.rmtree(folder / PARTS)


def _copy_words(settings: TextSource) -> int | None:
    return DOCS_COPY_WORDS if settings.source == "installed-docs" else None


def check_documents(asked: Sequence[int], *, available: int) -> None:
    """Refuse runs of more documents than the train split has."""
    most = max(asked, default=0)
    if most > available:
        raise InputError(
            f"documents: {most} asked for, the corpus leaves {available} for training besides those of "
            "corpus.validation and corpus.tasks; ask for fewer, or add documents"
        )


# ---- the first stages


RECIPE = 2  # raised whenever the same inputs would give other artefacts
TEACHER_SEED = 0  # runs of every seed share their teachers
LSA_BY_THE_WAY = 20_000  # documents
HELD_OUT = ("validation", "tasks")  # splits of a corpus that nothing is trained on
PV_NAMES = ("DM", "DBOW", "PV")  # contextual teachers made of Paragraph Vectors


class TeacherStages:
    """The corpus and the teachers of one profile with one set of parameters."""

    def __init__(self, profile: Profile, workspace: Workspace | None = None) -> None:
        self.profile = profile
        self.workspace = workspace or Workspace()

    # ---- corpus

    @cached_property
    def corpus(self) -> Artefact:
        """The corpus on disk: splits train, validation and (held out from all training) tasks."""
        return self.workspace.artefact("corpus", self._corpus_inputs, self._write_corpus, resumable=True)

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

    @property
    def has_corpus(self) -> bool:
        """Whether the corpus is built already."""
        return self.workspace.is_built("corpus", self._corpus_inputs)

    def check_documents(self) -> None:
        """Refuse a run of more documents than the corpus leaves for training, if the corpus is built already."""
        if self.has_corpus:
            check_documents([self.profile.parameters.documents], available=len(self.split("train")))

    # ---- teachers

    @cached_property
    def teacher_corpus(self) -> Artefact:
        """What contextual teachers are fitted on: the students' corpus, or their own without anything held out."""
        if self.profile.contextual_teachers.corpus is None:
            return self.corpus
        inputs = self._teacher_corpus_inputs
        return self.workspace.artefact("teacher-corpus", inputs, self._write_teacher_corpus, resumable=True)

    def _write_teacher_corpus(self, folder: Path) -> None:
        write_teacher_corpus(folder, self.profile, chain(*(self.split(name)["text"] for name in HELD_OUT)))

    @cached_property
    def _teacher_corpus_inputs(self) -> dict[str, Any]:
        settings = self.profile.contextual_teachers.corpus
        assert settings is not None  # the callers' own check
        return {
            "recipe": RECIPE,
            "source": source_fingerprint(settings),
            "student": self._pretrained_fingerprint(self.profile.student.model),
            "held out by": source_fingerprint(self.profile.corpus),  # not by what else its corpus counts
        }

    def _has_teacher_corpus(self) -> bool:
        if not self.has_corpus or self.profile.contextual_teachers.corpus is None:
            return self.has_corpus
        return self.workspace.is_built("teacher-corpus", self._teacher_corpus_inputs)

    @cached_property
    def _teacher_texts(self) -> Sequence[str]:
        """The texts that contextual teachers are fitted on, read as they are asked for."""
        from datasets import load_from_disk

        documents = load_from_disk(str(self.teacher_corpus.path / DATASET))["train"]
        return self._first(documents, self.profile.contextual_teachers.documents)

    @cached_property
    def structural_teacher(self) -> SBERT:
        """The structural teacher as students learn from it."""
        return self.sbert(self.profile.structural_teacher.long)

    def contextual_teacher(self, name: str) -> Teacher:
        """DM, DBOW, PV (their concatenation) or LSA, fitted on the teachers' corpus."""
        from docemb_lib.teachers import LSA, Compound

        if name == "LSA":
            return LSA.load(self._lsa().path)
        fitted = [self.paragraph_vector(member, seed=TEACHER_SEED) for member in self.members(name)]
        return fitted[0] if len(fitted) == 1 else Compound(fitted)

    def contextual_width(self, name: str) -> int:
        """The width of a contextual teacher, known before it is fitted."""
        if name == "LSA":
            return self.profile.contextual_teachers.lsa_dim
        return sum(member.vector_size for member in self.members(name))

    def members(self, name: str) -> list[ParagraphVectorSettings]:
        """The Paragraph Vectors that a contextual teacher is made of: one of DM and DBOW, those of PV, none of LSA."""
        settings = self.profile.contextual_teachers
        if name == "PV":
            return settings.PV
        return [getattr(settings, name)] if name in PV_NAMES else []

    def paragraph_vector(self, settings: ParagraphVectorSettings, *, seed: int) -> ParagraphVector:
        """One Paragraph Vector, fitted on its corpus; an interrupted training goes on after its last epoch."""
        from docemb_lib.teachers import ParagraphVector

        inputs = {
            "recipe": RECIPE,
            "words": self._words_inputs(settings.preprocess),
            "settings": settings.model_dump(),
            "seed": seed,
            "versions": {"gensim": version("gensim")},
        }

        def build(folder: Path) -> None:
            model = ParagraphVector(**settings.model_dump(), seed=seed)
            model.fit_words(self.words(settings.preprocess), folder)

        return ParagraphVector.load(self.workspace.artefact("paragraph-vector", inputs, build, resumable=True).path)

    def asked_paragraph_vectors(self) -> list[ParagraphVectorSettings]:
        """The model of notebook 02, or the members of its compound; what the parameters leave open is as in the
        profile's DM or DBOW."""
        p, settings = self.profile.parameters, self.profile.contextual_teachers
        asked = members_of(p.compound) if p.compound else [{name: getattr(p, name) for name in SINGLE}]
        return [(settings.DM if member["dm"] else settings.DBOW).model_copy(update=member) for member in asked]

    def words(self, preprocess: Preprocessing) -> Words:
        """The words of the teachers' corpus, shared by all Paragraph Vectors with this preprocessing."""
        from docemb_lib.teachers import Words, write_words

        def build(folder: Path) -> None:
            write_words(folder, self._teacher_texts, preprocess)

        return Words.open(self.workspace.artefact("words", self._words_inputs(preprocess), build).path)

    def has_words(self, preprocess: Preprocessing) -> bool:
        """Whether the words are written already."""
        return self._has_teacher_corpus() and self.workspace.is_built("words", self._words_inputs(preprocess))

    def check_vocabulary(self, asked: Sequence[ParagraphVectorSettings]) -> None:
        """Refuse models that would keep no word, as far as the words are counted already."""
        for settings in asked:
            if self.has_words(settings.preprocess):
                self.words(settings.preprocess).vocabulary(settings.min_count)

    def _words_inputs(self, preprocess: Preprocessing) -> dict[str, Any]:
        return {
            "recipe": RECIPE,
            "corpus": self.teacher_corpus.fingerprint,
            "documents": self.profile.contextual_teachers.documents,
            "preprocess": preprocess,
            "versions": {"nltk": version("nltk")},
        }

    @staticmethod
    def _first(documents: Dataset, rows: int | None) -> Sequence[str]:
        """The texts of the first `rows` documents (None: of all), read as they are asked for."""
        return documents.select(range(len(documents) if rows is None else min(rows, len(documents))))["text"]

    def teacher_embeddings(self, teacher: Teacher, split: str, rows: int) -> np.ndarray:
        """The teacher's embeddings of the first `rows` documents of a split: float32 (rows, dim), memory-mapped."""
        from docemb_lib.teachers import SBERT, open_embeddings, write_embeddings

        corpus, maker = f"{self.corpus.fingerprint}/{split}", teacher.fingerprint
        block = (
            256 if isinstance(teacher, SBERT) else 4096
        )  # seconds of work: what a kill costs, and a pause for workers

        def build(folder: Path) -> None:
            texts = self._first(self.split(split), rows)
            write_embeddings(folder, texts, teacher.embed, teacher.dim, corpus=corpus, teacher=maker, block=block)

        inputs = {"recipe": RECIPE, "corpus": corpus, "teacher": maker, "rows": rows}
        artefact = self.workspace.artefact("teacher-embeddings", inputs, build, resumable=True)
        return open_embeddings(artefact.path, corpus=corpus, teacher=maker)

    def sbert(self, long: Long) -> SBERT:
        """The structural teacher, truncating long documents or averaging over their chunks."""
        from docemb_lib.teachers import SBERT

        settings = self.profile.structural_teacher
        return SBERT(settings.model, max_tokens=settings.max_tokens, long=long, bf16=settings.bf16)

    @property
    def lsa_takes_seconds(self) -> bool:
        """Whether there are documents enough to fit LSA on, and not too many for doing so by the way."""
        return self.profile.contextual_teachers.lsa_dim <= len(self._teacher_texts) <= LSA_BY_THE_WAY

    def _lsa(self) -> Artefact:
        from docemb_lib.teachers import LSA

        settings = self.profile.contextual_teachers
        inputs = {
            "recipe": RECIPE,
            "corpus": self.teacher_corpus.fingerprint,
            "dim": settings.lsa_dim,
            "documents": settings.documents,
            "versions": {"scikit-learn": version("scikit-learn")},
        }

        def build(folder: Path) -> None:
            model = LSA(dim=settings.lsa_dim)
            model.fit(self._teacher_texts)
            model.save(folder)

        return self.workspace.artefact("lsa", inputs, build)

    def _pretrained_fingerprint(self, name: str) -> str:
        return pretrained.fingerprint(pretrained.resolve(name))

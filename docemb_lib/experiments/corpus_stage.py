"""The corpus stage: documents read, counted in both models' tokens, split, and enough of them for the plan; and, where
contextual teachers have a corpus of their own, that one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from docemb_lib import pretrained
from docemb_lib.corpus.origin import read_documents
from docemb_lib.errors import InputError
from docemb_lib.profile import TRAINING, Profile
from docemb_lib.settings import TextSource

if TYPE_CHECKING:
    from datasets import DatasetDict

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

    from docemb_lib.corpus.build import build_corpus
    from docemb_lib.corpus.parts import digest
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

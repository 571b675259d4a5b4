"""The corpus stage: documents read, counted in both models' tokens, split, and enough of them for the plan."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from docemb_lib import pretrained
from docemb_lib.corpus.origin import read_documents
from docemb_lib.errors import InputError
from docemb_lib.profile import TRAINING, Profile

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
    student = pretrained.resolve(profile.student.model)

    def count_student(texts: list[str]) -> list[int]:
        return count_tokens(student, texts)

    dataset = build_corpus(
        read_documents(settings, count_tokens=count_student),
        counters={"n_student_tokens": count_student, "n_structural_tokens": count_structural},
        validation=settings.validation,
        tasks=settings.tasks,
        seed=settings.seed,
        copy_words=DOCS_COPY_WORDS if settings.source == "installed-docs" else None,
        folder=folder / PARTS,
    )
    planned = [run.parameters.get("documents", "profile") for run in profile.plan if run.notebook in TRAINING]
    check_documents([p.documents if n == "profile" else n for n in planned], available=len(dataset["train"]))
    dataset.save_to_disk(str(folder / DATASET))
    shutil.rmtree(folder / PARTS)


def check_documents(asked: Sequence[int], *, available: int) -> None:
    """Refuse runs of more documents than the train split has."""
    most = max(asked, default=0)
    if most > available:
        raise InputError(
            f"documents: {most} asked for, the corpus leaves {available} for training besides those of "
            "corpus.validation and corpus.tasks; ask for fewer, or add documents"
        )

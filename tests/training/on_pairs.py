"""A small training on pairs, also in a process to be killed: see `distil.py`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distil
import numpy as np
import torch
from distil import DIM, TOKENS, WORDS, make_student

from docemb_lib.losses import (
    Cosine,
    InfoNCE,
    MaskedLanguageHead,
    Objective,
    PairObjective,
    Teaching,
)
from docemb_lib.training.batches import TrainingDocuments
from docemb_lib.training.pairs import END, PairedDocuments, train_on_pairs
from docemb_lib.training.run import History

SETTINGS = distil.SETTINGS.model_copy(update={"batch_tokens": 60})  # several passes a batch


class Tokenizer(SimpleNamespace):
    """As much of one as pairs need."""

    mask_token_id = 3

    def __call__(self, text: str) -> dict[str, list[int]]:
        assert text == ""
        return {"input_ids": [0, 2]}

    def __len__(self) -> int:
        return WORDS


def make_objective(
    dropout: float = 0.1, *, taught: bool = False, mlm: bool = True
) -> PairObjective:
    torch.manual_seed(3)
    student = make_student(dropout)
    head = MaskedLanguageHead(DIM, WORDS) if mlm else None
    options: dict[str, Any] = {}
    if taught:
        teachers = [Teaching("structural", "structural", Cosine())]
        options = {"distillation": Objective(student, teachers, group_size=4), "weight": 0.5}
    return PairObjective(student, contrast=InfoNCE(0.05), head=head, **options)


def make_documents(
    n: int, seed: int, *, pairs: Any = "halves"
) -> tuple[PairedDocuments, TrainingDocuments]:
    """Every tenth of a single sentence."""
    rng = np.random.default_rng(seed)
    sentences, whole = [], []
    for row in range(n):
        lengths = rng.integers(1, 9, 1 if row % 10 == 9 else rng.integers(2, 12))
        document = [rng.integers(4, WORDS, length) for length in lengths]
        sentences.append(
            np.concatenate([part for sentence in document for part in (sentence, [END])])
        )
        whole.append(np.concatenate([[0], *document, [2]])[:TOKENS])
    ids = [f"{seed}-{row}" for row in range(n)]
    paired = PairedDocuments(
        sentences, ids=ids, tokenizer=Tokenizer(), max_tokens=TOKENS, pairs=pairs, seed=5
    )
    teacher = rng.standard_normal((n, DIM)).astype("float32")
    return paired, TrainingDocuments(
        whole, [len(ids) for ids in whole], teachers={"structural": teacher}
    )


def train(
    folder: Path,
    *,
    dropout: float = 0.1,
    n: int = 50,
    pairs: str = "halves",
    taught: bool = False,
    mlm: bool = True,
    **changes: Any,
) -> tuple[PairObjective, History]:
    objective = make_objective(dropout, taught=taught, mlm=mlm)
    documents, of_training = make_documents(n, 1, pairs=pairs)
    validation, of_validation = make_documents(10, 2, pairs=pairs)
    history = train_on_pairs(
        objective,
        documents,
        validation,
        taught=[of_training, of_validation] if taught else [],
        settings=SETTINGS.model_copy(update=changes),
        seed=5,
        folder=folder,
    )
    return objective, history

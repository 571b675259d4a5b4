"""A small training on pairs, also in a process to be killed: see `distil.py`."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import distil
import numpy as np
import torch
from distil import DIM, TOKENS, WORDS, make_student

from docemb_lib.losses import (
    InfoNCE,
    MaskedLanguageHead,
    PairObjective,
)
from docemb_lib.training.pairs import END, PairedDocuments
from docemb_lib.training.run import History, train_objective

SETTINGS = distil.SETTINGS.model_copy(update={"batch_tokens": 60})  # several passes a batch


class Tokenizer(SimpleNamespace):
    """As much of one as pairs need."""

    mask_token_id = 3

    def __call__(self, text: str) -> dict[str, list[int]]:
        assert text == ""
        return {"input_ids": [0, 2]}

    def __len__(self) -> int:
        return WORDS


def make_objective(dropout: float = 0.1, *, mlm: bool = True) -> PairObjective:
    torch.manual_seed(3)
    student = make_student(dropout)
    head = MaskedLanguageHead(DIM, WORDS) if mlm else None
    return PairObjective(student, contrast=InfoNCE(0.05), head=head)


def make_documents(n: int, seed: int, *, pairs: Any = "halves") -> PairedDocuments:
    """Every tenth of a single sentence."""
    rng = np.random.default_rng(seed)
    sentences = []
    for row in range(n):
        lengths = rng.integers(1, 9, 1 if row % 10 == 9 else rng.integers(2, 12))
        document = [rng.integers(4, WORDS, length) for length in lengths]
        sentences.append(
            np.concatenate([part for sentence in document for part in (sentence, [END])])
        )
    ids = [f"{seed}-{row}" for row in range(n)]
    return PairedDocuments(
        sentences, ids=ids, tokenizer=Tokenizer(), max_tokens=TOKENS, pairs=pairs, seed=5
    )


def train(
    folder: Path,
    *,
    dropout: float = 0.1,
    n: int = 50,
    pairs: str = "halves",
    mlm: bool = True,
    **changes: Any,
) -> tuple[PairObjective, History]:
    objective = make_objective(dropout, mlm=mlm)
    documents = make_documents(n, 1, pairs=pairs)
    validation = make_documents(10, 2, pairs=pairs)
    history = train_objective(
        objective,
        documents,
        validation,
        settings=SETTINGS.model_copy(update=changes),
        seed=5,
        folder=folder,
    )
    return objective, history

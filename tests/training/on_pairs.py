"""A small SimDE training as a program of its own, to be killed and run again:
`python on_pairs.py FOLDER WEIGHTS [SETTINGS]`, the last one JSON.

Prints a line per update, so that whoever started it can choose when to kill it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import LongformerConfig, LongformerModel

from docemb_lib.losses import Cosine, InfoNCE, MaskedLanguageHead, Objective, PairObjective, Teaching
from docemb_lib.settings import Training
from docemb_lib.student import Student
from docemb_lib.training import History, PairedDocuments, Taught, TrainingDocuments, train_on_pairs
from docemb_lib.training.pairs import END

sys.path.insert(0, str(Path(__file__).resolve().parent))
from distil import announce_updates, save_trained

DIM, TOKENS, WORDS = 16, 40, 200
BUDGET = 60  # tokens in a pass: several passes a batch
SETTINGS = Training(
    batch_size=4, accumulation=2, epochs=2, save_every=2, precision="fp32", learning_rate=1e-3, log_every=1,
    batch_tokens=BUDGET,
)  # fmt: skip


class Tokenizer(SimpleNamespace):
    """As much of one as pairs need."""

    mask_token_id = 3

    def __call__(self, text: str) -> dict[str, list[int]]:
        assert text == ""
        return {"input_ids": [0, 2]}

    def __len__(self) -> int:
        return WORDS


def make_objective(dropout: float = 0.1, *, taught: bool = False, mlm: bool = True) -> PairObjective:
    torch.manual_seed(3)
    config = LongformerConfig(
        vocab_size=WORDS, hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=TOKENS + 2, attention_window=[8, 8], pad_token_id=1, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    student = Student(LongformerModel(config, add_pooling_layer=False), SimpleNamespace(model_max_length=TOKENS))
    return PairObjective(
        student,
        contrast=InfoNCE(0.05),
        head=MaskedLanguageHead(DIM, WORDS) if mlm else None,
        distillation=Objective(student, [Teaching("structural", "structural", Cosine())], group_size=4)
        if taught
        else None,
        weight=0.5 if taught else 1.0,
    )


def make_documents(n: int, seed: int, *, pairs: Any = "halves") -> tuple[PairedDocuments, TrainingDocuments]:
    """Every tenth of a single sentence."""
    rng = np.random.default_rng(seed)
    sentences, whole = [], []
    for row in range(n):
        lengths = rng.integers(1, 9, 1 if row % 10 == 9 else rng.integers(2, 12))
        document = [rng.integers(4, WORDS, length) for length in lengths]
        sentences.append(np.concatenate([part for sentence in document for part in (sentence, [END])]))
        whole.append(np.concatenate([[0], *document, [2]])[:TOKENS])
    paired = PairedDocuments(
        sentences,
        ids=[f"{seed}-{row}" for row in range(n)],
        tokenizer=Tokenizer(),
        max_tokens=TOKENS,
        pairs=pairs,
        seed=5,
    )
    teacher = rng.standard_normal((n, DIM)).astype("float32")
    return paired, TrainingDocuments(whole, [len(ids) for ids in whole], teachers={"structural": teacher})


def train(
    folder: Path, *, dropout: float = 0.1, n: int = 50, pairs: str = "halves", taught: bool = False, mlm: bool = True,
    **changes: Any,
) -> tuple[PairObjective, History]:  # fmt: skip
    objective = make_objective(dropout, taught=taught, mlm=mlm)
    (train, train_taught), (validation, validation_taught) = (
        make_documents(size, seed, pairs=pairs) for size, seed in ((n, 1), (10, 2))
    )
    history = train_on_pairs(
        objective,
        train,
        validation,
        taught=Taught(train_taught, validation_taught) if taught else None,
        settings=SETTINGS.model_copy(update=changes),
        seed=5,
        folder=folder,
    )
    return objective, history


if __name__ == "__main__":
    torch.set_num_threads(1)
    announce_updates()
    trained, history = train(Path(sys.argv[1]), **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"))
    save_trained(trained, history, Path(sys.argv[2]))

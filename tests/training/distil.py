"""A small distillation, also in a process to be killed, and in two processes."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from transformers import LongformerConfig, LongformerModel

from docemb_lib.losses import (
    Cosine,
    InfoNCE,
    MaxMargin,
    Objective,
    Projection,
    SoftCCA,
    Teaching,
    Weighting,
)
from docemb_lib.settings.sections import Training
from docemb_lib.student import Student
from docemb_lib.training import trainer
from docemb_lib.training.batches import TrainingDocuments
from docemb_lib.training.run import History, train_objective

DIM, TOKENS, WORDS = 16, 40, 200
# The last two teachers are there where a test asks for `more`.
WIDTHS = {"structural": 16, "contextual": 10, "far": 8, "topics": 6}
SMALL = {
    "batch_size": 4,
    "accumulation": 2,
    "epochs": 2,
    "save_every": 2,
    "learning_rate": 1e-3,
    "log_every": 1,
}
SETTINGS = Training(precision="fp32", **SMALL)


def make_student(dropout: float, *, window: int = 8, pooling: Any = "mean") -> Student:
    config = LongformerConfig(
        vocab_size=WORDS,
        hidden_size=DIM,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=TOKENS + 2,
        attention_window=[window, window],
        pad_token_id=1,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )
    tokenizer = SimpleNamespace(model_max_length=TOKENS)
    return Student(LongformerModel(config, add_pooling_layer=False), tokenizer, pooling=pooling)


def make_objective(
    dropout: float = 0.1, *, more: bool = False, statistics: bool = True
) -> Objective:
    """Dropout, both losses, projections and running statistics: all that a checkpoint must hold.

    The delta of the first SoftCCA is balanced. `more` has four teachers, two of each role. Without
    `statistics`, InfoNCE is in the place of SoftCCA.
    """
    torch.manual_seed(3)
    student = make_student(dropout)
    teachers = [Teaching("structural", "structural", Cosine())]
    contextual = SoftCCA(12, "balance") if statistics else InfoNCE()
    for name, role, loss, weight, student_spec, teacher_spec in (
        ("contextual", "contextual", contextual, 1.0, "12(ReLU)x12", "12"),
        ("far", "structural", MaxMargin("cosine", 0.5), 0.5, "8", "-"),
        ("topics", "contextual", SoftCCA(6), 2.0, "6", "-"),
    )[: 3 if more else 1]:
        f, g = Projection(student_spec, DIM), Projection(teacher_spec, WIDTHS[name])
        teachers.append(
            Teaching(name, role, loss, weight=weight, student_projection=f, teacher_projection=g)
        )
    return Objective(
        student, teachers, weighting=Weighting(lam=0.5, max_structural_len=30), group_size=4
    )


def make_documents(n: int, seed: int, *, more: bool = False) -> TrainingDocuments:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(2, WORDS, rng.integers(1, TOKENS)).tolist() for _ in range(n)]
    names = list(WIDTHS) if more else ["structural", "contextual"]
    teachers = {name: rng.standard_normal((n, WIDTHS[name])).astype("float32") for name in names}
    return TrainingDocuments(tokens, [len(ids) for ids in tokens], teachers=teachers)


def train(
    folder: Path,
    *,
    dropout: float = 0.1,
    n: int = 50,
    more: bool = False,
    statistics: bool = True,
    **changes: Any,
) -> tuple[Objective, History]:
    objective = make_objective(dropout, more=more, statistics=statistics)
    documents = make_documents(n, 1, more=more)
    validation = make_documents(25, 2, more=more)  # enough to measure `cca`
    settings = SETTINGS.model_copy(update=changes)
    history = train_objective(
        objective, documents, validation, settings=settings, seed=5, folder=folder
    )
    return objective, history


def after_updates(act: Callable[[int], object]) -> None:
    """Call a function with the number of each update that this process computes, as it ends."""
    original = trainer.Flow.on_step_end

    def noticed(self: Any, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        original(self, args, state, control, **kwargs)
        act(state.global_step)

    trainer.Flow.on_step_end = noticed


def announce_updates(train: Any, folder: Path, settings: dict[str, Any], pipe: Any) -> None:
    """Train, and send the number of each update that is done.

    The training waits for an answer after each update, so that it is never two ahead.
    """
    torch.set_num_threads(1)
    after_updates(lambda update: (pipe.recv(), pipe.send(update)))
    train(folder, **settings)


def train_as_one_of_two(
    rank: int, port: int, folder: Path, settings: dict[str, Any], dies_at: int
) -> None:
    """Train in the environment that torchrun gives a process, and die at an update, if it comes.

    Both processes write what they have.
    """
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "localhost",
        "MASTER_PORT": str(port),
    }
    torch.set_num_threads(1)
    after_updates(lambda update: update == dies_at and os.kill(os.getpid(), signal.SIGKILL))
    trained, history = train(folder, **settings)
    torch.save((trained.state_dict(), list(history)), folder / f"trained-{rank}.pt")

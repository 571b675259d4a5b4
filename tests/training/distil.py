"""A small distillation as a program of its own, to be killed and run again, alone or under torchrun:
`python distil.py FOLDER WEIGHTS [SETTINGS]`, the last one JSON.

Prints a line per update, so that whoever started it can choose when to kill it.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import LongformerConfig, LongformerModel

from docemb_lib.losses import Cosine, MaxMargin, Objective, Projection, SoftCCA, Teaching, Weighting
from docemb_lib.settings import Training
from docemb_lib.student import Student
from docemb_lib.training import History, TrainingDocuments, callbacks, train_objective

DIM, TOKENS = 16, 40
WIDTHS = {"structural": 16, "contextual": 10, "far": 8, "topics": 6}  # the last two: where there are `more` teachers
SETTINGS = Training(
    batch_size=4, accumulation=2, epochs=2, save_every=2, precision="fp32", learning_rate=1e-3, log_every=1
)


def make_objective(dropout: float = 0.1, *, more: bool = False) -> Objective:
    """Two layers with dropout, both losses, projections and running statistics: all that a checkpoint must hold.

    more: four teachers, two of each role, and a bank of negatives.
    """
    torch.manual_seed(3)
    config = LongformerConfig(
        vocab_size=200, hidden_size=DIM, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32,
        max_position_embeddings=TOKENS + 2, attention_window=[8, 8], pad_token_id=1, hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
    )  # fmt: skip
    student = Student(LongformerModel(config, add_pooling_layer=False), SimpleNamespace(model_max_length=TOKENS))

    def through(ours: str, name: str, theirs: str) -> dict[str, Any]:
        return {
            "student_projection": Projection(ours, DIM),
            "teacher_projection": Projection(theirs, WIDTHS[name]),
        }

    teachers = [
        Teaching("structural", "structural", Cosine()),
        Teaching("contextual", "contextual", SoftCCA(12), **through("12(ReLU)x12", "contextual", "12")),
    ]
    if more:
        teachers += [
            Teaching("far", "structural", MaxMargin("cosine", 0.5), weight=0.5, **through("8", "far", "-")),
            Teaching("topics", "contextual", SoftCCA(6), weight=2.0, **through("6", "topics", "-")),
        ]
    return Objective(
        student,
        teachers,
        weighting=Weighting(lam=0.5, max_structural_len=30),
        group_size=4,
        negatives=5 if more else 0,
    )


def make_documents(n: int, seed: int, *, more: bool = False) -> TrainingDocuments:
    rng = np.random.default_rng(seed)
    tokens = [rng.integers(2, 200, rng.integers(1, TOKENS)).tolist() for _ in range(n)]
    names = list(WIDTHS) if more else ["structural", "contextual"]
    return TrainingDocuments(
        tokens,
        [len(ids) for ids in tokens],
        teachers={name: rng.standard_normal((n, WIDTHS[name])).astype("float32") for name in names},
    )


def distil(
    folder: Path, *, dropout: float = 0.1, n: int = 50, more: bool = False, **changes: Any
) -> tuple[Objective, History]:
    objective = make_objective(dropout, more=more)
    history = train_objective(
        objective,
        make_documents(n, 1, more=more),
        make_documents(9, 2, more=more),
        settings=SETTINGS.model_copy(update=changes),
        seed=5,
        folder=folder,
    )
    return objective, history


def announce_updates():
    """Print the number of each update when it is done: whoever kills this process waits for one."""
    silent = callbacks.Bar.on_step_end

    def announced(self, args, state, control, **kwargs):
        silent(self, args, state, control, **kwargs)
        print(state.global_step, flush=True)

    callbacks.Bar.on_step_end = announced


def save_trained(trained, history, file: Path):
    """The weights, and beside them the rows of the history without what differs between equal runs."""
    timed = ("second", "runtime", "share_of_peak")
    rows = [{k: row[k] for k in row if not any(t in k for t in timed)} for part in history for row in part]
    file.with_suffix(".json").write_text(json.dumps(rows, sort_keys=True))
    save_file({name: tensor.contiguous() for name, tensor in trained.state_dict().items()}, file)


if __name__ == "__main__":
    torch.set_num_threads(1)
    announce_updates()
    trained, history = distil(Path(sys.argv[1]), **json.loads(sys.argv[3] if len(sys.argv) > 3 else "{}"))
    if os.environ.get("RANK", "0") != "0":
        sys.exit()
    save_trained(trained, history, Path(sys.argv[2]))

"""Distillation as one `transformers.Trainer` run: the objective is the model, so a checkpoint holds the student, the
projections, the running statistics of SoftCCA, the optimiser and the place in the order of documents.

Several processes (torchrun, accelerate launch) share every update and end where one would.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import cast

import numpy as np

from docemb_lib.losses import Objective
from docemb_lib.settings import Training
from docemb_lib.student import Student
from docemb_lib.training.documents import Bank, TrainingDocuments
from docemb_lib.training.running import History, check_fills_a_batch, run
from docemb_lib.training.trainer import DistillationTrainer


def train_objective(
    objective: Objective,
    train: TrainingDocuments,
    validation: TrainingDocuments,
    *,
    settings: Training,
    seed: int,
    folder: Path,
    validations: int = 3,
    title: str = "student",
) -> History:
    """Train `objective` in place on `train`, resuming from the last whole checkpoint in `folder/checkpoints`.

    The objective ends on the device it was trained on. The validation loss is measured before the first update, after
    the last, and at even steps between (`validations` in all, at least two). `title` is what watchers are told is
    trained. The checkpoints stay: whoever has saved the result removes them. Raises InputError for fewer documents than
    one batch, more negatives than there are documents for, fewer batches in an update than processes, and a checkpoint
    of another run; FloatingPointError for a loss (naming its documents) or a gradient that is not finite.
    """
    check_fills_a_batch(len(train), settings)
    bank = Bank(train, objective, batch_size=settings.batch_size, seed=seed) if objective.negatives else None
    return run(
        DistillationTrainer,
        objective,
        student=cast(Student, objective.student),
        parts=[teaching.name for teaching in objective.teachings],
        train=train,
        validation=validation,
        documents={"documents": [digest(train), digest(validation)]},
        settings=settings,
        seed=seed,
        folder=folder,
        validations=validations,
        title=title,
        together=settings.batch_size,
        bank=bank,
    )


def digest(documents: TrainingDocuments) -> str:
    """What tells these documents from others: their names, lengths and some of the teachers' numbers."""
    digest = hashlib.sha256(json.dumps(list(documents.ids)).encode())
    digest.update(np.asarray(documents.n_structural_tokens, dtype=np.int64).tobytes())
    for name, rows in sorted(documents.teachers.items()):
        digest.update(name.encode())
        digest.update(np.asarray(rows[: min(8, len(documents))], dtype=np.float32).tobytes())
    return digest.hexdigest()

"""Distillation as one `transformers.Trainer` run: the objective is the model, so a checkpoint holds the student, the
projections, the running statistics of SoftCCA, the optimiser and the place in the order of documents.

A run killed anywhere continues from its last whole checkpoint and ends in bit-identical weights (on a GPU, but for
kernels that add in another order every time); one told to stop (SIGTERM) writes a checkpoint first. Several processes
(torchrun, accelerate launch) share every update and end where one would.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
import torch
from transformers import PrinterCallback

from docemb_lib.errors import InputError
from docemb_lib.hardware import matmul_peak
from docemb_lib.losses import Objective
from docemb_lib.settings import UNDECISIVE, Training
from docemb_lib.student import Student
from docemb_lib.student.flops import forward_flops
from docemb_lib.training.callbacks import Bar, Checkpoints, Stop
from docemb_lib.training.checkpoints import CHECKPOINTS, Identity
from docemb_lib.training.documents import Bank, TrainingDocuments
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.precision import AUTOCAST, Precision, device_at_hand, precision_of
from docemb_lib.training.preparation import agreed_budget, agreed_checkpoint, set_up, training_arguments
from docemb_lib.training.trainer import DistillationTrainer
from docemb_lib.workspace import fingerprint_of


class History(NamedTuple):
    """What a training run logged; every row is flat and has the update as `step`.

    train, means since the row before: loss, and that of each teacher by its name; grad_norm and learning_rate of the
    update itself; norm, spread (see `validate`) and cca (mean canonical correlation of the two views' leading
    components over the last 100 documents, for the first contextual teacher); documents_per_second,
    tokens_per_second, share_of_peak (of measured matrix products).
    validation: loss, that of each teacher, norm, spread.
    """

    train: list[dict[str, float]]
    validation: list[dict[str, float]]


def train_objective(
    objective: Objective,
    train: TrainingDocuments,
    validation: TrainingDocuments,
    *,
    settings: Training,
    seed: int,
    folder: Path,
    validations: int = 3,
) -> History:
    """Train `objective` in place on `train`, resuming from the last whole checkpoint in `folder/checkpoints`.

    The objective ends on the device it was trained on. The validation loss is measured before the first update, after
    the last, and at even steps between (`validations` in all, at least two). The checkpoints stay: whoever has saved
    the result removes them. Raises InputError for fewer documents than one batch, more negatives than there are
    documents for, fewer batches in an update than processes, and a checkpoint of another run; FloatingPointError for a
    loss (naming its documents) or a gradient that is not finite.
    """
    if len(train) < settings.batch_size:
        raise InputError(
            f"documents: {len(train)} training documents do not fill one batch; at least training.batch_size = "
            f"{settings.batch_size} are needed"
        )
    bank = Bank(train, objective, batch_size=settings.batch_size, seed=seed) if objective.negatives else None
    precision = precision_of(settings.precision, device_at_hand())
    updates = count_updates(len(train), settings)
    checkpoints = folder / CHECKPOINTS
    args = training_arguments(
        settings, precision, seed=seed, updates=updates, folder=checkpoints, validations=validations
    )
    if settings.accumulation < args.world_size:
        raise InputError(
            f"training.accumulation: an update of {settings.accumulation} batches leaves some of {args.world_size} "
            f"processes idle; set it to {args.world_size} or more, or start fewer processes"
        )
    identity = Identity(_configuration(objective, train, validation, settings, precision, seed), args.world_size)
    last = agreed_checkpoint(checkpoints, identity, args)
    args.eval_on_start = last is None  # a resumed run has that row already
    objective.to(args.device)
    student = cast(Student, objective.student)
    set_up(student, settings, precision, args)
    budget = settings.batch_tokens or (last.batch_tokens if last else agreed_budget(student, precision, args))
    monitor = Monitor(
        [teaching.name for teaching in objective.teachings],
        dim=student.dim,
        device=args.device,
        processes=args.world_size,
        flops=lambda micro: 3 * forward_flops(student.config, micro.batch.sizes),
        peak=args.world_size * matmul_peak(args.device, AUTOCAST[precision] or torch.float32),
    )
    stop = Stop()
    bar = Bar(updates)
    with stop.listening(), contextlib.closing(bar):
        trainer = DistillationTrainer(
            model=objective,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            settings=settings,
            budget=budget,
            monitor=monitor,
            bank=bank,
            callbacks=[bar, Checkpoints(identity, budget, monitor, resumed=last), stop],
        )
        trainer.remove_callback(PrinterCallback)
        torch.manual_seed(seed + args.process_index)  # the Trainer seeds all processes alike: one dropout for all
        trainer.train(resume_from_checkpoint=None if last is None else str(last.path))
    rows = trainer.state.log_history
    return History(
        train=[row for row in rows if "learning_rate" in row],
        validation=[
            {name.removeprefix("eval_"): value for name, value in row.items()} for row in rows if "eval_loss" in row
        ],
    )


def count_updates(documents: int, settings: Training) -> int:
    """Optimiser updates of a run: whole batches only, `accumulation` of them an update, the rest in a last one."""
    batches = documents // settings.batch_size
    return settings.epochs * math.ceil(batches / settings.accumulation)


def _configuration(
    objective: Objective,
    train: TrainingDocuments,
    validation: TrainingDocuments,
    settings: Training,
    precision: Precision,
    seed: int,
) -> str:
    """What two runs must share so that one can go on from the other's checkpoint."""
    return fingerprint_of(
        {
            "settings": settings.model_dump(exclude={*UNDECISIVE, "precision"}),
            "precision": precision,
            "seed": seed,
            "documents": [_digest(train), _digest(validation)],
            "objective": repr(objective),
            "weights": {name: list(tensor.shape) for name, tensor in objective.state_dict().items()},
            "torch": torch.__version__,
        }
    )


def _digest(documents: TrainingDocuments) -> str:
    """What tells these documents from others: their names, lengths and some of the teachers' numbers."""
    digest = hashlib.sha256(json.dumps(list(documents.ids)).encode())
    digest.update(np.asarray(documents.n_structural_tokens, dtype=np.int64).tobytes())
    for name, rows in sorted(documents.teachers.items()):
        digest.update(name.encode())
        digest.update(np.asarray(rows[: min(8, len(documents))], dtype=np.float32).tobytes())
    return digest.hexdigest()

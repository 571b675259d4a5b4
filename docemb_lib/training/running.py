"""A training run: a module and its documents in a `transformers.Trainer`, with what every run of ours has.

A run killed anywhere continues from its last whole checkpoint and ends in bit-identical weights (on a GPU, but for
kernels that add in another order every time); one told to stop (SIGTERM) writes a checkpoint first.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import PrinterCallback

from docemb_lib.errors import InputError
from docemb_lib.hardware import matmul_peak
from docemb_lib.settings import UNDECISIVE, Training
from docemb_lib.student import Student
from docemb_lib.training.callbacks import Bar, Checkpoints, Log, Stop
from docemb_lib.training.checkpoints import CHECKPOINTS, Identity
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.precision import AUTOCAST, device_at_hand, precision_of
from docemb_lib.training.preparation import agreed_budget, agreed_checkpoint, set_up, training_arguments
from docemb_lib.training.trainer import UpdateTrainer
from docemb_lib.workspace import fingerprint_of


class History(NamedTuple):
    """What a training run logged; every row is flat and has the update as `step`.

    train, means since the row before: loss, and its parts by name; grad_norm and learning_rate of the update itself;
    norm, spread (see `validate`) and, with a contextual teacher, cca (mean canonical correlation of the two views'
    leading components over the last 100 documents); documents_per_second, tokens_per_second, share_of_peak (of measured
    matrix products).
    validation: loss, its parts, norm, spread.
    """

    train: list[dict[str, float]]
    validation: list[dict[str, float]]


def run(
    trainer_class: type[UpdateTrainer],
    model: nn.Module,
    *,
    student: Student,
    parts: Sequence[str],
    train: Sized,
    validation: Sized,
    documents: Mapping[str, Any],
    settings: Training,
    seed: int,
    folder: Path,
    validations: int,
    title: str,
    together: int,
    **options: Any,
) -> History:
    """Train `model` in place by a trainer of this class, resuming from the last whole checkpoint in
    `folder/checkpoints`.

    student: the part of the model that is one; parts: of the loss, by name; documents: what tells train and validation
    from others; together: how many of a batch's documents one pass must hold; options: of the trainer. See
    `train_objective` for the rest, and for what is raised.
    """
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
    configuration = {
        "settings": settings.model_dump(exclude={*UNDECISIVE, "precision"}),
        "precision": precision,
        "seed": seed,
        "objective": repr(model),
        "weights": {name: list(tensor.shape) for name, tensor in model.state_dict().items()},
        "torch": torch.__version__,
        **documents,
    }
    identity = Identity(fingerprint_of(configuration), args.world_size)
    last = agreed_checkpoint(checkpoints, identity, args)
    args.eval_on_start = last is None  # a resumed run has that row already
    model.to(args.device)
    set_up(student, settings, precision, args, together=together)
    budget = settings.batch_tokens or (last.batch_tokens if last else agreed_budget(student, precision, args))
    monitor = Monitor(
        parts,
        dim=student.dim,
        device=args.device,
        processes=args.world_size,
        peak=args.world_size * matmul_peak(args.device, AUTOCAST[precision] or torch.float32),
    )
    stop = Stop()
    bar = Bar(updates)
    with stop.listening(), contextlib.closing(bar):
        trainer = trainer_class(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            settings=settings,
            budget=budget,
            monitor=monitor,
            callbacks=[
                bar,
                Log(checkpoints, title, updates),
                Checkpoints(identity, budget, monitor, resumed=last),
                stop,
            ],
            **options,
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


def check_fills_a_batch(documents: int, settings: Training) -> None:
    """Raises InputError where no update could be made."""
    if documents < settings.batch_size:
        raise InputError(
            f"documents: {documents} training documents do not fill one batch; at least training.batch_size = "
            f"{settings.batch_size} are needed"
        )


def count_updates(documents: int, settings: Training) -> int:
    """Optimiser updates of a run: whole batches only, `accumulation` of them an update, the rest in a last one."""
    batches = documents // settings.batch_size
    return settings.epochs * math.ceil(batches / settings.accumulation)

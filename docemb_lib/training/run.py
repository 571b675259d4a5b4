"""What a training run is started with: how the student computes, what fits, and what all processes agree on."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
from collections.abc import Mapping, Sequence, Sized
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from transformers import PrinterCallback, TrainingArguments

from docemb_lib.errors import InputError
from docemb_lib.hardware import matmul_peak
from docemb_lib.losses import Objective
from docemb_lib.private import use_one_gpu
from docemb_lib.settings import NOT_IN_FINGERPRINT, Training
from docemb_lib.student import Student
from docemb_lib.training.callbacks import Bar, Checkpoints, Log, Stop
from docemb_lib.training.checkpoints import CHECKPOINTS, Identity, Last, last_whole, remove_torn
from docemb_lib.training.documents import Bank, TrainingDocuments
from docemb_lib.training.memory import (
    AUTOCAST,
    Precision,
    activation_bytes,
    batch_tokens_for,
    device_at_hand,
    needs_checkpointing,
    precision_of,
)
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.trainer import DistillationTrainer, UpdateTrainer
from docemb_lib.workspace import fingerprint_of

# ---- what a training run is started with


logger = logging.getLogger(__name__)


def training_arguments(
    settings: Training, precision: Precision, *, seed: int, updates: int, folder: Path, validations: int
) -> TrainingArguments:
    """The Trainer's own settings, for a run of so many updates whose checkpoints go to `folder`."""
    logging.getLogger("transformers.trainer_utils").addFilter(_not_of_mtime)
    on_cpu = device_at_hand().type == "cpu"
    args = TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        num_train_epochs=settings.epochs,
        per_device_train_batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and "LOCAL_RANK" in os.environ else None,  # set by torchrun and accelerate
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,  # every process computes the same statistics
        remove_unused_columns=False,
        logging_steps=settings.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,  # a loss that is not finite stops the run
        eval_strategy="steps",
        eval_steps=max(1, math.ceil(updates / max(1, validations - 1))),
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=2,  # the older one is whole while the newer is being written
        report_to=settings.report_to or "none",
        run_name=folder.parent.name,
        disable_tqdm=True,
    )
    use_one_gpu(args)  # several GPUs are for several processes, never for nn.DataParallel in one
    return args


def set_up(
    student: Student, settings: Training, precision: Precision, args: TrainingArguments, *, together: int
) -> None:
    """How the student computes; nothing of it changes what comes out, but for rounding and `varlen`'s dropout.

    together: documents that one pass must hold, however long they are.
    """
    dtype = AUTOCAST[precision]
    student.attention, student.compiled, student.checkpointing = settings.attention, False, False
    if settings.checkpointing is None:
        student.checkpointing = needs_checkpointing(
            student, batch_size=together, dtype=dtype, processes=_on_this_machine(args)
        )
    else:
        student.checkpointing = settings.checkpointing
    if settings.compile is None and args.device.type == "cuda":
        student.compiled = _compiles(student, dtype)
    else:
        student.compiled = bool(settings.compile)


def _compiles(student: Student, dtype: torch.dtype | None) -> bool:
    """Whether torch.compile works here: it needs Triton and a C compiler, and says so late otherwise."""
    student.compiled = True
    try:
        activation_bytes(student, dtype=dtype)
    except Exception as error:  # compilers fail in many ways
        logger.warning("training without torch.compile: %s", str(error).strip().split("\n")[0])
        return False
    return True


def _on_this_machine(args: TrainingArguments) -> int:
    return int(os.environ.get("LOCAL_WORLD_SIZE", args.world_size))


def agreed_checkpoint(folder: Path, identity: Identity, args: TrainingArguments) -> Last | None:
    """Where all processes go on: the first one looks, since a shared file system may show another its own past."""
    found: list[Any] = [None]
    if args.process_index == 0:
        try:
            found = [last_whole(folder, identity)]
        except InputError as error:
            found = [error]
    if args.world_size > 1:
        dist.broadcast_object_list(found)
    if isinstance(found[0], InputError):
        raise found[0]
    if args.process_index == 0:
        remove_torn(folder)
    return found[0]


def agreed_budget(student: Student, precision: Precision, args: TrainingArguments) -> int:
    """Tokens in a pass, the same for all processes: the least of what each has room for."""
    budget = batch_tokens_for(student, dtype=AUTOCAST[precision], processes=_on_this_machine(args))
    if args.world_size > 1:
        least = torch.tensor(budget, device=args.device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        budget = int(least)
    return budget


def _not_of_mtime(record: logging.LogRecord) -> bool:
    """Drops the remark that checkpoints are sorted by their numbers, which is what is wanted; it tears bars apart."""
    return "mtime may not be reliable" not in record.getMessage()


# ---- a training run


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
        "settings": settings.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
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


# ---- distillation as one `transformers


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

"""What a training run is started with: how the student computes, what fits, and what all processes agree on."""

from __future__ import annotations

import logging
import math
import os
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from transformers import TrainingArguments

from docemb_lib.errors import InputError
from docemb_lib.settings import Training
from docemb_lib.student import Student
from docemb_lib.training.budget import activation_bytes, batch_tokens_for, needs_checkpointing
from docemb_lib.training.checkpoints import Identity, Last, last_whole, remove_torn
from docemb_lib.training.precision import AUTOCAST, Precision, device_at_hand

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
    _ = args.device  # which counts the GPUs
    args._n_gpu = min(args._n_gpu, 1)  # several are for several processes, never for nn.DataParallel in one
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

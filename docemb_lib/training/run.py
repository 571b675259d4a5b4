"""A training run: the Trainer's arguments, what fits the device, resuming, and distillation by `train_objective`."""

from __future__ import annotations

import contextlib
import logging
import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from transformers import PrinterCallback, TrainingArguments

from docemb_lib.errors import InputError
from docemb_lib.hardware import matmul_peak
from docemb_lib.losses import Objective, PairObjective
from docemb_lib.private import use_one_gpu
from docemb_lib.settings import NOT_IN_FINGERPRINT, Training
from docemb_lib.student import Student
from docemb_lib.training.checkpoints import CHECKPOINTS, Checkpoints, Identity, find_checkpoint
from docemb_lib.training.distributed import all_reduced
from docemb_lib.training.documents import Bank, TrainingDocuments
from docemb_lib.training.memory import (
    AUTOCAST,
    Precision,
    activation_bytes,
    batch_tokens_for,
    needs_checkpointing,
    precision_of,
    training_device,
)
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.trainer import Bar, DistillationTrainer, Log, Stop, UpdateTrainer
from docemb_lib.workspace import fingerprint_of

logger = logging.getLogger(__name__)

VALIDATIONS = 3  # before the first update, after the last, and at even steps between


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


def train_objective(
    objective: Objective,
    train: TrainingDocuments,
    validation: TrainingDocuments,
    *,
    settings: Training,
    seed: int,
    folder: Path,
    title: str = "student",
) -> History:
    """Train `objective` in place on `train`, resuming from the last complete checkpoint in `folder/checkpoints`.

    The objective ends on the device it was trained on. The checkpoints stay: call `remove_checkpoints` once the result
    is saved. title: of the training, for progress displays.

    Raises InputError for fewer documents than one batch, more negatives than there are documents for, fewer batches in
    an update than processes, and a checkpoint of another run; FloatingPointError for a loss (naming its documents) or a
    gradient that is not finite.
    """
    bank = Bank(train, objective, batch_size=settings.batch_size, seed=seed) if objective.negatives else None
    return run(
        DistillationTrainer,
        objective,
        (train, validation),
        settings=settings,
        seed=seed,
        folder=folder,
        title=title,
        pass_documents=settings.batch_size,
        bank=bank,
    )


def run(
    trainer_class: type[UpdateTrainer],
    model: Objective | PairObjective,
    documents: Sequence[Any],
    *,
    settings: Training,
    seed: int,
    folder: Path,
    title: str,
    pass_documents: int,
    **options: Any,
) -> History:
    """Train `model` in place by a trainer of this class; see `train_objective`.

    documents: for training, for validation, and any others whose digest identifies the run; pass_documents: number of
    documents that one pass must hold, however long they are; options: of the trainer.
    """
    train, validation = documents[:2]
    if len(train) < settings.batch_size:
        raise InputError(
            f"documents: {len(train)} training documents do not fill one batch; at least training.batch_size = "
            f"{settings.batch_size} are needed"
        )
    precision = precision_of(settings.precision, training_device())
    dtype = AUTOCAST[precision]
    updates = count_updates(len(train), settings)
    checkpoints = folder / CHECKPOINTS
    args = training_arguments(settings, precision, seed=seed, updates=updates, folder=checkpoints)
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
        "documents": [each.digest() for each in documents],
    }
    identity = Identity(fingerprint_of(configuration), args.world_size)
    last = find_checkpoint(checkpoints, identity)
    args.eval_on_start = last is None  # a resumed run has that row already
    student: Student = model.student
    model.to(args.device)
    local_processes = int(os.environ.get("LOCAL_WORLD_SIZE", args.world_size))  # which share the memory of a machine
    set_up(student, settings, dtype, processes=local_processes, pass_documents=pass_documents)
    budget = settings.batch_tokens or (last and last.batch_tokens)
    if not budget:  # the least of what each process has room for
        room = torch.tensor(batch_tokens_for(student, dtype=dtype, processes=local_processes), device=args.device)
        budget = int(all_reduced(room, dist.ReduceOp.MIN))
    peak = args.world_size * matmul_peak(args.device, dtype or torch.float32)
    monitor = Monitor(model.parts, dim=student.dim, device=args.device, peak=peak)
    stop, bar = Stop(), Bar(updates)
    with stop.listening(), contextlib.closing(bar):
        callbacks = [bar, Log(checkpoints, title, updates), Checkpoints(identity, budget, monitor, resumed=last), stop]
        trainer = trainer_class(
            model=model, args=args, train_dataset=train, eval_dataset=validation, settings=settings, budget=budget,
            monitor=monitor, callbacks=callbacks, **options,
        )  # fmt: skip
        trainer.remove_callback(PrinterCallback)
        torch.manual_seed(seed + args.process_index)  # the Trainer seeds all processes alike: the same dropout in each
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


def training_arguments(
    settings: Training, precision: Precision, *, seed: int, updates: int, folder: Path
) -> TrainingArguments:
    """The Trainer's own settings, for a run of `updates` whose checkpoints go to `folder`."""
    logging.getLogger("transformers.trainer_utils").addFilter(_is_not_mtime_warning)
    on_cpu = training_device().type == "cpu"
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
        eval_steps=max(1, math.ceil(updates / (VALIDATIONS - 1))),
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=2,  # the older one is complete while the newer is being written
        report_to=settings.report_to or "none",
        run_name=folder.parent.name,
        disable_tqdm=True,
    )
    use_one_gpu(args)  # several GPUs are for several processes, never for nn.DataParallel in one
    return args


def set_up(
    student: Student, settings: Training, dtype: torch.dtype | None, *, processes: int, pass_documents: int
) -> None:
    """Choose attention, checkpointing and compilation; results are the same but for rounding and `varlen`'s dropout."""
    student.attention, student.compiled, student.checkpointing = settings.attention, False, False
    checkpointing, compiled = settings.checkpointing, settings.compile
    if checkpointing is None:
        checkpointing = needs_checkpointing(student, batch_size=pass_documents, dtype=dtype, processes=processes)
    student.checkpointing = checkpointing
    student.compiled = (
        compiles(student, dtype) if compiled is None and student.device.type == "cuda" else bool(compiled)
    )


def compiles(student: Student, dtype: torch.dtype | None) -> bool:
    """Whether torch.compile works here: it needs Triton and a C compiler, and fails only at the first pass."""
    student.compiled = True
    try:
        activation_bytes(student, dtype=dtype)
    except Exception as error:  # compilers fail in many ways
        logger.warning("training without torch.compile: %s", str(error).strip().split("\n")[0])
        return False
    return True


def _is_not_mtime_warning(record: logging.LogRecord) -> bool:
    """The Trainer warns that it sorts checkpoints by number, as intended here, in the middle of the progress bar."""
    return "mtime may not be reliable" not in record.getMessage()

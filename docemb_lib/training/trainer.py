"""Distillation as one `transformers.Trainer` run: the objective is the model, so a checkpoint holds the student, the
projections, the running statistics of SoftCCA, the optimiser and the place in the order of documents.

One batch of the Trainer is one update, run as several packed passes where memory asks for it. A run killed anywhere
continues from its last whole checkpoint and ends in bit-identical weights (on a GPU, but for kernels that add in
another order every time); one told to stop (SIGTERM) writes a
checkpoint first. Several processes (torchrun, accelerate launch) share every update and end where one would.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import time
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import PrinterCallback, Trainer, TrainerControl, TrainingArguments

from docemb_lib.errors import InputError
from docemb_lib.hardware import matmul_peak
from docemb_lib.losses import Objective, ObjectiveOutput
from docemb_lib.settings import UNDECISIVE, Training
from docemb_lib.student import Student
from docemb_lib.student.flops import forward_flops
from docemb_lib.training.batches import Collate, Micro, TrainingDocuments, Updates
from docemb_lib.training.budget import activation_bytes, batch_tokens_for, needs_checkpointing
from docemb_lib.training.callbacks import Bar, Checkpoints, EpochOrder, Stop
from docemb_lib.training.checkpoints import CHECKPOINTS, Identity, Last, last_whole, remove_torn
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.precision import AUTOCAST, Precision, device_at_hand, precision_of
from docemb_lib.training.validation import validate
from docemb_lib.workspace import fingerprint_of

logger = logging.getLogger(__name__)


class History(NamedTuple):
    """What a training run logged; every row is flat and has the update as `step`.

    train, means since the row before: loss, structural, contextual; grad_norm and learning_rate of the update itself;
    norm, spread (see `validate`) and cca (mean canonical correlation of the two views' leading components over the
    last 100 documents); documents_per_second, tokens_per_second, share_of_peak (of measured matrix products).
    validation: loss, structural, contextual, norm, spread.
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
    the result removes them. Raises InputError for fewer documents than one batch, fewer batches in an update than
    processes, and a checkpoint of another run; FloatingPointError for a loss (naming its documents) or a gradient that
    is not finite.
    """
    if len(train) < settings.batch_size:
        raise InputError(
            f"documents: {len(train)} training documents do not fill one batch; at least training.batch_size = "
            f"{settings.batch_size} are needed"
        )
    precision = precision_of(settings.precision, device_at_hand())
    updates = count_updates(len(train), settings)
    checkpoints = folder / CHECKPOINTS
    args = _arguments(settings, precision, seed=seed, updates=updates, folder=checkpoints, validations=validations)
    if settings.accumulation < args.world_size:
        raise InputError(
            f"training.accumulation: an update of {settings.accumulation} batches leaves some of {args.world_size} "
            f"processes idle; set it to {args.world_size} or more, or start fewer processes"
        )
    identity = Identity(_configuration(objective, train, validation, settings, precision, seed), args.world_size)
    last = _agreed_checkpoint(checkpoints, identity, args)
    args.eval_on_start = last is None  # a resumed run has that row already
    objective.to(args.device)
    student = cast(Student, objective.student)
    _set_up(student, settings, precision, args)
    budget = settings.batch_tokens or (last.batch_tokens if last else _agreed_budget(student, precision, args))
    monitor = Monitor(
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


class DistillationTrainer(Trainer):
    """The stock Trainer, told how an update is made of passes, how it is ordered, logged and validated."""

    control: TrainerControl

    def __init__(self, *, settings: Training, budget: int, monitor: Monitor, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.settings, self.budget, self.monitor = settings, budget, monitor

    def get_train_dataloader(self) -> DataLoader:
        """Every process goes through the same updates and reads the documents that are its own."""
        documents, settings = self.train_dataset, self.settings
        updates = Updates(
            documents,
            batch_size=settings.batch_size,
            accumulation=settings.accumulation,
            order=settings.order,
            seed=self.args.seed,
        )
        self.add_callback(EpochOrder(updates))
        collate = Collate(
            documents,
            batch_size=settings.batch_size,
            budget=self.budget,
            rank=self.args.process_index,
            processes=self.args.world_size,
        )
        return DataLoader(
            range(len(documents)),  # type: ignore[arg-type]  # a sequence of rows, which `collate` turns into documents
            batch_sampler=updates,
            collate_fn=collate,
            pin_memory=self.args.device.type == "cuda",
        )

    def training_step(self, model: Any, inputs: list[Micro], num_items_in_batch: Any = None) -> Tensor:
        """The gradients of one update. Returns this process' share of its loss, times the number of processes."""
        model.train()
        processes = self.args.world_size
        losses = []
        for number, part in enumerate(inputs, 1):
            micro = part.to(self.args.device)
            # Processes exchange gradients once, in the last backward pass of the update.
            with self.accelerator.no_sync(model) if number < len(inputs) else contextlib.nullcontext():
                with self.compute_loss_context_manager():
                    output: ObjectiveOutput = model(micro.batch, **micro.known, peers=micro.peers)
                loss = output.loss * (micro.share * processes)
                self.accelerator.backward(loss)
            self.monitor.add(micro, output)
            losses.append(loss.detach())
        parts = torch.stack(losses)
        self._check_finite(inputs, parts)
        return parts.sum()

    def _check_finite(self, inputs: list[Micro], parts: Tensor) -> None:
        """Raise in all processes together: one that went on alone would wait for the others."""
        wrong = (~parts.isfinite()).any().int()
        if self.args.world_size > 1:
            dist.all_reduce(wrong, dist.ReduceOp.MAX)
        if not wrong:
            return
        own = [micro for micro, finite in zip(inputs, parts.isfinite().tolist(), strict=True) if not finite]
        names = ", ".join(str(self.train_dataset.ids[row]) for row in own[0].rows) if own else "of another process"
        raise FloatingPointError(
            f"update {self.state.global_step + 1}: the loss is not finite, with documents {names}; look at these, "
            "or lower training.learning_rate"
        )

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> Any:
        """The norm, which must be finite too, unless a gradient scaler skips such updates by itself."""
        norm = super()._get_grad_norm(model, grad_norm=grad_norm)
        if norm is not None and self.accelerator.scaler is None and not math.isfinite(norm):
            raise FloatingPointError(
                f"update {self.state.global_step + 1}: the gradient is not finite, though the loss is; lower "
                "training.learning_rate, or set training.precision to fp32"
            )
        return norm

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        start = time.perf_counter()
        super()._save_checkpoint(*args, **kwargs)
        self.monitor.started += time.perf_counter() - start

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "learning_rate" in logs:
            logs |= self.monitor.row()
        super().log(logs, start_time)

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        """Validation loss by part in place of the Trainer's padded prediction loop."""
        start = time.perf_counter()
        means = validate(
            self.model,
            self.eval_dataset,
            batch_size=self.settings.batch_size,
            dtype=AUTOCAST[precision_of(self.settings.precision, self.args.device)],
            budget=self.budget,
            rank=self.args.process_index,
            processes=self.args.world_size,
        )
        self.monitor.started += time.perf_counter() - start
        metrics = {f"eval_{name}": value for name, value in means.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


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
            "weighting": repr(objective.weighting),
            "weights": {name: list(tensor.shape) for name, tensor in objective.state_dict().items()},
            "torch": torch.__version__,
        }
    )


def _digest(documents: TrainingDocuments) -> str:
    """What tells these documents from others: their names, lengths and some of the teachers' numbers."""
    digest = hashlib.sha256(json.dumps(list(documents.ids)).encode())
    digest.update(np.asarray(documents.n_structural_tokens, dtype=np.int64).tobytes())
    for rows in documents.teachers.values():
        if rows is not None:
            digest.update(np.asarray(rows[: min(8, len(documents))], dtype=np.float32).tobytes())
    return digest.hexdigest()


def _set_up(student: Student, settings: Training, precision: Precision, args: TrainingArguments) -> None:
    """How the student computes; nothing of it changes what comes out, but for rounding and `varlen`'s dropout."""
    dtype = AUTOCAST[precision]
    student.attention, student.compiled, student.checkpointing = settings.attention, False, False
    if settings.checkpointing is None:
        student.checkpointing = needs_checkpointing(
            student, batch_size=settings.batch_size, dtype=dtype, processes=_on_this_machine(args)
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


def _agreed_checkpoint(folder: Path, identity: Identity, args: TrainingArguments) -> Last | None:
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


def _agreed_budget(student: Student, precision: Precision, args: TrainingArguments) -> int:
    """Tokens in a pass, the same for all processes: the least of what each has room for."""
    budget = batch_tokens_for(student, dtype=AUTOCAST[precision], processes=_on_this_machine(args))
    if args.world_size > 1:
        least = torch.tensor(budget, device=args.device)
        dist.all_reduce(least, dist.ReduceOp.MIN)
        budget = int(least)
    return budget


def _arguments(
    settings: Training, precision: Precision, *, seed: int, updates: int, folder: Path, validations: int
) -> TrainingArguments:
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

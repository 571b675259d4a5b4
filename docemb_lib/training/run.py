"""A training run: the Trainer's arguments, resuming, and the precision and passes that fit here."""

import contextlib
import logging
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor
from transformers import PrinterCallback, TrainingArguments

from docemb_lib.base.files import fingerprint_of
from docemb_lib.base.hardware import asked_precision, devices_at_hand, free_memory, uses_bf16
from docemb_lib.base.private import use_one_gpu
from docemb_lib.losses import Objective, PairObjective
from docemb_lib.settings.sections import NOT_IN_FINGERPRINT, Training
from docemb_lib.student import Student, pack
from docemb_lib.training.batches import Autocast, Cut, Updates
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.pairs import Documents, PairedDocuments, check_pairs
from docemb_lib.training.trainer import (
    CHECKPOINTS,
    Flow,
    StudentTrainer,
    find_checkpoint,
)

logger = logging.getLogger(__name__)
Precision = Literal["bf16", "fp16", "fp32"]
PROBE = 160  # tokens of the document that measures the memory of a token
# The share of the free memory for activations. Gradients, a layer's working set and fragments need
# the rest.
SHARE = 0.5
LARGEST = {"cpu": 2**14, "cuda": 2**17}  # the most tokens of a pass; more is no faster


class History(NamedTuple):
    """What a training run logged; every row is flat and has the update as `step`.

    A row of `train` has means since the row before: the loss and its parts by name, grad_norm,
    learning_rate, norm, spread, documents_per_second and tokens_per_second. A row of `validation`
    has the loss, its parts, norm, spread, collapsed (1 where the spread is below a twentieth of
    that in the first row, else 0), and cca and cca_embeddings where there are enough documents for
    them (see `validate`).
    """

    train: list[dict[str, float]]
    validation: list[dict[str, float]]


def train_objective(
    model: Objective | PairObjective,
    train: Documents,
    validation: Documents,
    *,
    settings: Training,
    seed: int,
    folder: Path,
) -> History:
    """Train `model` in place, resuming from the last complete checkpoint in `folder/checkpoints`.

    The checkpoints stay: call `remove_checkpoints` once the result is saved. Raises InputError for
    too few documents, for pairs that cannot be learnt from, and for a checkpoint of another run;
    FloatingPointError for a loss that is not finite, naming its documents; Stopped after Ctrl-C,
    with a checkpoint.
    """
    processes = int(os.environ.get("WORLD_SIZE", 1))
    student: Student = model.student
    pass_documents = settings.batch_size
    if isinstance(train, PairedDocuments):
        check_pairs(student, train, processes)
        pass_documents = 1  # a pass may hold a single text
    settings.check_fills_a_batch(len(train) // processes)
    precision = precision_of(settings.precision)
    configuration = {
        "processes": processes,
        "settings": settings.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
        "precision": precision,
        "seed": seed,
        "objective": repr(model),
        "torch": torch.__version__,
        "documents": [train.identity(), validation.identity()],
    }
    identity = fingerprint_of(configuration)
    checkpoints = folder / CHECKPOINTS
    args = training_arguments(settings, precision, seed=seed, folder=checkpoints)
    with args.main_process_first(local=False):  # it removes what others must not find
        last, budget_of_last = find_checkpoint(checkpoints, identity)
    args.eval_on_start = last is None  # a resumed run has that row already
    model.to(args.device)
    autocast = autocast_of(precision, args.device)
    set_up(student, settings, autocast, pass_documents=pass_documents)
    budget = settings.batch_tokens or budget_of_last or batch_tokens_for(student, autocast)
    monitor = Monitor()
    marker = {"configuration": identity, "batch_tokens": budget}
    of_epoch = Updates(len(train), settings, seed=seed, epoch=int, processes=processes)
    updates = settings.epochs * len(of_epoch)
    flow = Flow(settings, marker, monitor, updates, resumed=last)
    with contextlib.closing(flow), flow.listening(processes):
        trainer = StudentTrainer(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            settings=settings,
            # A student whose forward pass is padded counts its padding among the tokens of a pass.
            cut=Cut(settings.batch_size, budget, student.padded),
            autocast=autocast,
            monitor=monitor,
            callbacks=[flow],
        )
        trainer.remove_callback(PrinterCallback)
        # The Trainer gives all processes one seed, and so equal dropout.
        torch.manual_seed(seed + args.process_index)
        try:
            trainer.train(resume_from_checkpoint=last and str(last))
        finally:
            # Reference cycles keep the Trainer until the next full collection, and a notebook keeps
            # its last traceback.
            if trainer.optimizer is not None:
                trainer.optimizer.state.clear()
    history = History(train=[], validation=[])
    for row in trainer.state.log_history:
        if "learning_rate" in row:
            history.train.append(row)
        if "eval_loss" in row:
            history.validation.append({name.removeprefix("eval_"): row[name] for name in row})
    return history


def leave_group() -> None:
    """End the group of torchrun's processes, if there is one.

    A process that exits while the threads of its group are at work is aborted.
    """
    if dist.is_initialized():
        dist.destroy_process_group()


def training_arguments(
    settings: Training, precision: Precision, *, seed: int, folder: Path
) -> TrainingArguments:
    """The Trainer's arguments; the order of documents and the batches are our own, see `Flow`."""
    on_cpu = devices_at_hand() == ["cpu"]
    args = TrainingArguments(
        output_dir=str(folder),
        seed=seed,
        num_train_epochs=settings.epochs,
        learning_rate=settings.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=settings.warmup,
        weight_decay=settings.weight_decay,
        max_grad_norm=settings.max_grad_norm,
        bf16=precision == "bf16",
        fp16=precision == "fp16",
        use_cpu=on_cpu,
        ddp_backend="gloo" if on_cpu and "LOCAL_RANK" in os.environ else None,
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=True,  # the running statistics of the first process are everyone's
        remove_unused_columns=False,
        disable_tqdm=True,
        logging_strategy="no",  # `Flow` decides
        logging_nan_inf_filter=False,  # a loss that is not finite stops the run
        save_strategy="no",
        save_total_limit=2,  # the older one is complete while the newer is being written
        report_to=settings.report_to or "none",
        run_name=folder.parent.name,
    )
    use_one_gpu(args)  # several GPUs are for several processes, never for nn.DataParallel in one
    return args


def set_up(
    student: Student, settings: Training, autocast: Autocast, *, pass_documents: int
) -> None:
    """Choose checkpointing and compilation.

    The results are the same but for rounding and the draws of dropout. pass_documents: the number
    of documents that one pass must hold, however long they are.
    """
    student.compiled = False
    student.checkpointing = bool(settings.checkpointing)
    if settings.checkpointing is None:
        longest = pass_documents * student.padded(student.max_tokens)  # tokens of a pass
        needed = longest * activation_bytes(student, autocast)
        student.checkpointing = needed > _room(student.device)
    if settings.compile is None and student.device.type == "cuda":
        student.compile_if_possible(lambda: activation_bytes(student, autocast))
    else:
        student.compiled = bool(settings.compile)


def precision_of(asked: Precision | None) -> Precision:
    """The precision of training on this machine: as asked here, or as DOCEMB_PRECISION asks.

    Where neither does, it is bf16 on hardware that is fast at it, else fp16 (with a gradient
    scaler) on GPUs and fp32 on CPUs.
    """
    if asked is not None:
        return asked
    device = torch.device(devices_at_hand()[0])
    if uses_bf16(device):
        return "bf16"
    return "fp16" if device.type == "cuda" and asked_precision() == "auto" else "fp32"


def autocast_of(precision: Precision, device: torch.device) -> Autocast:
    """The context of a forward pass in a precision."""
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(precision)
    return partial(torch.autocast, device.type, dtype=dtype, enabled=dtype is not None)


def batch_tokens_for(student: Student, autocast: Autocast) -> int:
    """Tokens of a pass, with padding, that half of the free memory holds.

    They are a power of two, but at least the longest text.
    """
    fitting = int(_room(student.device) / activation_bytes(student, autocast))
    power = 1 << max(fitting.bit_length() - 1, 0)  # the largest that is at most `fitting`
    longest = student.padded(student.max_tokens)
    return max(min(power, LARGEST[student.device.type]), longest)


def activation_bytes(student: Student, autocast: Autocast) -> float:
    """Bytes per token, or padding, that a forward pass in training saves for the backward pass.

    They are measured as the difference of two passes, in which the weights that are saved cancel.
    """
    n = min(student.padded(PROBE), student.max_tokens)
    student.train()
    one, two = (_saved(student, [n] * count, autocast) for count in (1, 2))
    return (two - one) / student.padded(n)


def _room(device: torch.device) -> float:
    """Bytes for activations; a GPU belongs to one process, a machine to those of torchrun on it."""
    sharing = int(os.environ.get("LOCAL_WORLD_SIZE", 1)) if device.type == "cpu" else 1
    return SHARE * free_memory(device) / sharing


def _saved(student: Student, sizes: Sequence[int], autocast: Autocast) -> int:
    """Bytes saved for the backward pass over documents of `sizes` tokens.

    Each storage is counted once.
    """
    batch = pack([[0] * size for size in sizes]).to(student.device)
    # By address; the reference to the tensor prevents that an address is used again.
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    with autocast(), torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
        student(batch)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())

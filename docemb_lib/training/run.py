"""A training run: the Trainer's arguments, resuming, distillation, and the precision and passes
that fit the device.
"""

import contextlib
import logging
import os
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from transformers import PrinterCallback, TrainingArguments

from docemb_lib.base.hardware import asked_precision, devices_at_hand, fast_bf16, free_memory
from docemb_lib.base.private import use_one_gpu
from docemb_lib.losses import Objective, PairObjective
from docemb_lib.settings.sections import NOT_IN_FINGERPRINT, Training
from docemb_lib.student import Student, pack
from docemb_lib.student.longformer import fits_varlen
from docemb_lib.training.distributed import all_reduced
from docemb_lib.training.monitor import Monitor
from docemb_lib.training.trainer import (
    CHECKPOINTS,
    Bar,
    Checkpoints,
    DistillationTrainer,
    Log,
    Stop,
    find_checkpoint,
)
from docemb_lib.workspace import fingerprint_of

logger = logging.getLogger(__name__)
Precision = Literal["bf16", "fp16", "fp32"]
AUTOCAST: dict[str, torch.dtype | None] = {
    "bf16": torch.bfloat16,
    "fp16": torch.float16,
    "fp32": None,
}
VALIDATIONS = 3  # before the first update, after the last, and at even steps between
PROBE = (32, 160)  # tokens of the documents that measure the memory of a token
SHARE = 0.5  # of the free memory; gradients, a layer's working set and fragments need the rest
LARGEST = {"cpu": 2**14, "cuda": 2**17}  # tokens of a pass; more is no faster


class History(NamedTuple):
    """What a training run logged; every row is flat and has the update as `step`.

    train, means since the row before: loss and its parts by name; grad_norm, learning_rate; norm,
    spread; documents_per_second, tokens_per_second. validation: loss, its parts, norm, spread, and
    cca where there are enough documents for it (see `validate`).
    """

    train: list[dict[str, float]]
    validation: list[dict[str, float]]


def train_objective(
    model: Objective | PairObjective,
    *documents: Any,
    settings: Training,
    seed: int,
    folder: Path,
    title: str = "student",
    trainer_class: type[DistillationTrainer] = DistillationTrainer,
    pass_documents: int | None = None,
    **options: Any,
) -> History:
    """Train `model` in place, resuming from the last complete checkpoint in `folder/checkpoints`.

    documents: for training, for validation, and any others whose digest identifies the run; title:
    for progress displays; trainer_class: made with `options`; pass_documents: number of documents
    that one pass must hold, however long they are (None: a batch). The checkpoints stay: call
    `remove_checkpoints` once the result is saved.
    Raises InputError for too few documents, and for a checkpoint of another run; FloatingPointError
    for a loss that is not finite, naming its documents.
    """
    train, validation = documents[:2]
    settings.check_fills_a_batch(len(train))
    dtype, checkpoints = (
        AUTOCAST[precision := precision_of(settings.precision)],
        folder / CHECKPOINTS,
    )
    args = training_arguments(settings, precision, seed=seed, folder=checkpoints)
    configuration = {
        "processes": args.world_size,
        "settings": settings.model_dump(exclude={*NOT_IN_FINGERPRINT, "precision"}),
        "precision": precision,
        "seed": seed,
        "objective": repr(model),
        "torch": torch.__version__,
        "weights": {name: list(tensor.shape) for name, tensor in model.state_dict().items()},
        "documents": [each.digest() for each in documents],
    }
    last, last_budget = find_checkpoint(checkpoints, identity := fingerprint_of(configuration))
    args.eval_on_start = last is None  # a resumed run has that row already
    student: Student = model.student
    model.to(args.device)
    local_processes = int(
        os.environ.get("LOCAL_WORLD_SIZE", args.world_size)
    )  # which share the memory of a machine
    pass_documents = pass_documents or settings.batch_size
    set_up(student, settings, dtype, processes=local_processes, pass_documents=pass_documents)
    budget = settings.batch_tokens or last_budget
    if not budget:  # the least of what each process has room for
        room = torch.tensor(
            batch_tokens_for(student, dtype=dtype, processes=local_processes), device=args.device
        )
        budget = int(all_reduced(room, dist.ReduceOp.MIN))
    monitor = Monitor(model.parts, dim=student.dim, device=args.device)
    stop, bar = Stop(), Bar()
    with stop.listening(), contextlib.closing(bar):
        saved = Checkpoints(
            {"configuration": identity, "batch_tokens": budget}, monitor, resumed=last
        )
        trainer = trainer_class(
            model=model,
            args=args,
            train_dataset=train,
            eval_dataset=validation,
            settings=settings,
            budget=budget,
            dtype=dtype,
            monitor=monitor,
            callbacks=[bar, Log(checkpoints, title), saved, stop],
            **options,
        )
        trainer.remove_callback(PrinterCallback)
        torch.manual_seed(
            seed + args.process_index
        )  # the Trainer gives all one seed, and so equal dropout
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        # reference cycles keep the Trainer until the next full collection
        trainer.optimizer.state.clear()
    rows = trainer.state.log_history
    validations = [
        {k.removeprefix("eval_"): value for k, value in row.items()}
        for row in rows
        if "eval_loss" in row
    ]
    return History([row for row in rows if "learning_rate" in row], validations)


def training_arguments(
    settings: Training, precision: Precision, *, seed: int, folder: Path
) -> TrainingArguments:
    on_cpu = devices_at_hand()[0] == "cpu"
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
        ddp_backend="gloo"
        if on_cpu and "LOCAL_RANK" in os.environ
        else None,  # set by torchrun and accelerate
        ddp_find_unused_parameters=False,
        ddp_broadcast_buffers=False,  # every process computes the same statistics
        remove_unused_columns=False,
        disable_tqdm=True,
        logging_steps=settings.log_every,
        logging_first_step=True,
        logging_nan_inf_filter=False,  # a loss that is not finite stops the run
        eval_strategy="steps",
        eval_steps=1 / (VALIDATIONS - 1),  # as a share of the updates
        save_strategy="steps",
        save_steps=settings.save_every,
        save_total_limit=2,  # the older one is complete while the newer is being written
        report_to=settings.report_to or "none",
        run_name=folder.parent.name,
    )
    use_one_gpu(args)  # several GPUs are for several processes, never for nn.DataParallel in one
    return args


def set_up(
    student: Student,
    settings: Training,
    dtype: torch.dtype | None,
    *,
    processes: int,
    pass_documents: int,
) -> None:
    """Choose attention, checkpointing and compilation; results are the same but for rounding and
    `varlen`'s dropout.
    """
    student.attention, student.compiled, student.checkpointing = settings.attention, False, False
    longest = (
        pass_documents * student.padded(student.max_tokens) * activation_bytes(student, dtype=dtype)
    )
    fits = longest <= _room(student.device, processes)
    student.checkpointing = not fits if settings.checkpointing is None else settings.checkpointing
    detect = settings.compile is None and student.device.type == "cuda"
    student.compiled = compiles(student, dtype) if detect else bool(settings.compile)


def compiles(student: Student, dtype: torch.dtype | None) -> bool:
    """Whether torch.compile works here: it needs Triton and a C compiler, and fails only at the
    first pass.
    """
    student.compiled = True
    try:
        activation_bytes(student, dtype=dtype)
    except Exception as error:  # compilers fail in many ways
        logger.warning("training without torch.compile: %s", str(error).strip().split("\n")[0])
        return False
    return True


def precision_of(asked: Precision | None, device: torch.device | None = None) -> Precision:
    """The precision of training on `device`: as asked here, or as DOCEMB_PRECISION asks.

    Where neither does, it is bf16 on hardware that is fast at it, else fp16 (with a gradient
    scaler) on GPUs and fp32 on CPUs.
    """
    if asked is not None:
        return asked
    in_general = asked_precision()
    if in_general != "auto":
        return in_general
    device = device or torch.device(devices_at_hand()[0])
    if fast_bf16(device):
        return "bf16"
    return "fp32" if device.type == "cpu" else "fp16"


def chosen_here(settings: Training, *, packed: bool) -> dict[str, str]:
    """The precision of training and its backend of attention on this machine, for heads of a usual
    width.
    """
    precision, device = precision_of(settings.precision), torch.device(devices_at_hand()[0])
    best = (
        "varlen"
        if fits_varlen(device, AUTOCAST[precision] or torch.float32, head_dim=64)
        else "blocks"
    )
    attention = settings.attention or best if packed else "of transformers"
    return {"training.precision": precision, "training.attention": attention}


def batch_tokens_for(student: Student, *, dtype: torch.dtype | None, processes: int) -> int:
    """Tokens of a pass, with padding, that half of the free memory holds: a power of two, at least
    the longest text.
    """
    fitting = int(_room(student.device, processes) / activation_bytes(student, dtype=dtype))
    rounded = 1 << max(fitting.bit_length() - 1, 0)
    return max(min(rounded, LARGEST[student.device.type]), student.padded(student.max_tokens))


def activation_bytes(student: Student, *, dtype: torch.dtype | None) -> float:
    """Bytes per token, or padding, that a forward pass saves for the backward pass: the difference
    of two passes.
    """
    if not student.packed:  # documents of different lengths may be padded to the same one
        n = min(student.padded(PROBE[1]), student.max_tokens)
        return (_saved(student, [n, n], dtype) - _saved(student, [n], dtype)) / student.padded(n)
    few, many = (min(size, student.max_tokens) for size in PROBE)
    return max(_saved(student, [many, few], dtype) - _saved(student, [few, few], dtype), 1) / max(
        many - few, 1
    )


def _room(device: torch.device, processes: int) -> float:
    """Bytes for activations; a GPU belongs to one process."""
    return SHARE * free_memory(device) / (processes if device.type == "cpu" else 1)


def _saved(student: Student, sizes: list[int], dtype: torch.dtype | None) -> int:
    """Bytes saved for the backward pass over documents of `sizes` tokens, each storage counted
    once.
    """
    batch = pack([[0] * size for size in sizes]).to(student.device)
    saved: dict[
        int, torch.Tensor
    ] = {}  # by address; the reference prevents that an address is reused

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    was_training = student.training
    student.train()
    with (
        torch.random.fork_rng(
            [student.device] if student.device.type == "cuda" else []
        ),  # dropout draws
        torch.autocast(student.device.type, dtype=dtype, enabled=dtype is not None),
        torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
    ):
        student(batch)
    student.train(was_training)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())

"""Device and precision of training, and how many tokens fit into one forward and backward pass."""

from __future__ import annotations

from typing import Literal

import torch

from docemb_lib.errors import InputError
from docemb_lib.hardware import devices_at_hand, fast_bf16, free_memory
from docemb_lib.student import Student, pack

Precision = Literal["bf16", "fp16", "fp32"]
AUTOCAST: dict[str, torch.dtype | None] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}
PROBE = (32, 160)  # tokens of the documents that measure the memory of a token
SHARE = 0.5  # of the free memory; gradients, a layer's working set and fragments need the rest
LARGEST = {"cpu": 2**14, "cuda": 2**17}  # tokens of a pass; more is no faster


def training_device() -> torch.device:
    return torch.device(devices_at_hand()[0])


def precision_of(asked: Precision | None, device: torch.device | None = None) -> Precision:
    """The precision of training on `device`: as asked, or bf16 where the hardware is fast at it, then fp16 (with
    a gradient scaler) on GPUs, then fp32.

    Raises InputError for fp16 on a CPU and for bf16 on a GPU without it.
    """
    device = training_device() if device is None else device
    if asked == "fp16" and device.type == "cpu":
        raise InputError("training.precision: fp16 needs a GPU; write bf16, fp32, or null for the best at hand")
    if asked == "bf16" and device.type == "cuda" and not fast_bf16(device):
        raise InputError("training.precision: this GPU has no bf16; write fp16, fp32, or null for the best at hand")
    if asked is not None:
        return asked
    if fast_bf16(device):
        return "bf16"
    return "fp32" if device.type == "cpu" else "fp16"


def needs_checkpointing(student: Student, *, batch_size: int, dtype: torch.dtype | None, processes: int) -> bool:
    """Whether a batch of the longest documents only fits with checkpointing. dtype, processes: as below."""
    longest = batch_size * student.max_tokens
    return longest * activation_bytes(student, dtype=dtype) > _room(student.device, processes)


def batch_tokens_for(student: Student, *, dtype: torch.dtype | None, processes: int) -> int:
    """Tokens of a training pass that half of the free memory holds: a power of two, at least one longest document.

    dtype: of autocast, None without; processes: of this machine, which share its memory.
    """
    fitting = int(_room(student.device, processes) / activation_bytes(student, dtype=dtype))
    rounded = 1 << max(fitting.bit_length() - 1, 0)
    return max(min(rounded, LARGEST.get(student.device.type, LARGEST["cuda"])), student.max_tokens)


def activation_bytes(student: Student, *, dtype: torch.dtype | None) -> float:
    """Bytes per token that a forward pass saves for the backward pass: the difference of two passes' lengths."""
    few, many = (min(size, student.max_tokens) for size in PROBE)
    return max(_saved(student, [many, few], dtype) - _saved(student, [few, few], dtype), 1) / max(many - few, 1)


def _room(device: torch.device, processes: int) -> float:
    """Bytes for activations; a GPU belongs to one process."""
    return SHARE * free_memory(device) / (processes if device.type == "cpu" else 1)


def _saved(student: Student, sizes: list[int], dtype: torch.dtype | None) -> int:
    """Bytes saved for the backward pass over documents of `sizes` tokens, each storage counted once."""
    batch = pack([[0] * size for size in sizes]).to(student.device)
    saved: dict[int, torch.Tensor] = {}  # by address; the reference prevents that an address is reused

    def save(tensor: torch.Tensor) -> torch.Tensor:
        saved[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    was_training = student.training
    student.train()
    with (
        torch.random.fork_rng([student.device] if student.device.type == "cuda" else []),  # dropout draws
        torch.autocast(student.device.type, dtype=dtype, enabled=dtype is not None),
        torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor),
    ):
        student(batch)
    student.train(was_training)
    return sum(tensor.untyped_storage().nbytes() for tensor in saved.values())

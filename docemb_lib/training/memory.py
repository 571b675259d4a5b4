"""Which device training runs on, and in which number format."""

from __future__ import annotations

from typing import Literal

import torch

from docemb_lib.errors import InputError
from docemb_lib.hardware import devices_at_hand, fast_bf16, free_memory
from docemb_lib.student import Student, pack

# ---- Which device training runs on, and in which number format.


Precision = Literal["bf16", "fp16", "fp32"]
AUTOCAST: dict[str, torch.dtype | None] = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": None}


def device_at_hand() -> torch.device:
    """The kind of device that training runs on."""
    return torch.device(devices_at_hand()[0])


def precision_of(asked: Precision | None, device: torch.device | None = None) -> Precision:
    """The precision that training has on `device`: as asked, or bf16 where the hardware is fast at it, then fp16 (with
    a gradient scaler) on GPUs, then fp32. Raises InputError for fp16 on a CPU and for bf16 on a GPU without
    it."""
    device = device_at_hand() if device is None else device
    if asked == "fp16" and device.type == "cpu":
        raise InputError("training.precision: fp16 needs a GPU; write bf16, fp32, or null for the best at hand")
    if asked == "bf16" and device.type == "cuda" and not fast_bf16(device):
        raise InputError("training.precision: this GPU has no bf16; write fp16, fp32, or null for the best at hand")
    if asked is not None:
        return asked
    if fast_bf16(device):
        return "bf16"
    return "fp32" if device.type == "cpu" else "fp16"


# ---- how many tokens fit into one forward and backward pass of the device at hand


PROBE = (32, 160)  # tokens of the documents that are run to see what a token costs
SHARE = 0.5  # of the free memory; gradients, a layer's working set and fragments need the rest
LARGEST = {"cpu": 2**14, "cuda": 2**17}  # beyond, nothing gets faster


def needs_checkpointing(student: Student, *, batch_size: int, dtype: torch.dtype | None, processes: int) -> bool:
    """Whether a batch of the longest documents would not fit otherwise. dtype, processes: as below."""
    longest = batch_size * student.max_tokens
    return longest * activation_bytes(student, dtype=dtype) > _room(student.device, processes)


def batch_tokens_for(student: Student, *, dtype: torch.dtype | None, processes: int) -> int:
    """Tokens in a training pass that half of the free memory holds: a power of two, at least one longest document.

    dtype: of autocast, None without; processes: of this machine, which share its memory.
    """
    fitting = int(_room(student.device, processes) / activation_bytes(student, dtype=dtype))
    rounded = 1 << max(fitting.bit_length() - 1, 0)
    return max(min(rounded, LARGEST.get(student.device.type, LARGEST["cuda"])), student.max_tokens)


def _room(device: torch.device, processes: int) -> float:
    """Bytes for activations; a GPU belongs to one process."""
    return SHARE * free_memory(device) / (processes if device.type == "cpu" else 1)


def activation_bytes(student: Student, *, dtype: torch.dtype | None) -> float:
    """Bytes a token that a training pass keeps for its backward pass: what a longer one keeps beyond a shorter one."""
    few, many = (min(size, student.max_tokens) for size in PROBE)
    return max(_kept(student, [many, few], dtype) - _kept(student, [few, few], dtype), 1) / max(many - few, 1)


def _kept(student: Student, sizes: list[int], dtype: torch.dtype | None) -> int:
    """Bytes that are kept for the backward pass over documents of `sizes` tokens, each storage counted once."""
    batch = pack([[0] * size for size in sizes]).to(student.device)
    kept: dict[int, torch.Tensor] = {}  # by address; held on to, so that no address is given out twice

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor
        return tensor

    was_training = student.training
    student.train()
    with (
        torch.random.fork_rng([student.device] if student.device.type == "cuda" else []),  # dropout's draws
        torch.autocast(student.device.type, dtype=dtype, enabled=dtype is not None),
        torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor),
    ):
        student(batch)
    student.train(was_training)
    return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())

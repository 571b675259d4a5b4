"""Which device training runs on, and in which number format."""

from __future__ import annotations

from typing import Literal

import torch

from docemb_lib.errors import InputError
from docemb_lib.hardware import devices_at_hand, fast_bf16

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

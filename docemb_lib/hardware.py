"""What the machine at hand is fast at."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def fast_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether matrix products in bfloat16 are faster than in float32 there: by the processor's own instructions."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))

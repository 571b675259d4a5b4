"""What the machine is fast at is read from the processor, not guessed."""

from __future__ import annotations

import torch

from docemb_lib.hardware import fast_bf16


def test_fast_bfloat16_follows_the_processors_flags(monkeypatch):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "amx_bf16": False})
    assert not fast_bf16("cpu")
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"avx2": True, "amx_bf16": True})
    assert fast_bf16(torch.device("cpu"))

"""The two sides of the student's benchmark: stock Longformer on padded batches, the student on packed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from transformers import LongformerModel

from docemb_lib.hardware import free_memory
from docemb_lib.student.packing import pack, token_batches
from docemb_lib.student.student import Student


class Batch(NamedTuple):
    """What one forward pass takes, on the device."""

    documents: Tensor  # (B,) indices of the documents, in the order of the embeddings
    inputs: Any


class Stock:
    """The peer: documents of similar length padded to the longest of a batch, mean pooling over the mask."""

    def __init__(self, model: LongformerModel) -> None:
        self.model: Any = model

    def batches(self, documents: Sequence[np.ndarray], budget: int) -> list[Batch]:
        """Batches of at most `budget` padded tokens, longest documents first."""
        rows = padded_batches([len(one) for one in documents], budget, step=max(self.model.config.attention_window))
        return [
            Batch(torch.tensor(some).to(self.model.device), self._pad([documents[k] for k in some])) for some in rows
        ]

    def embed(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        """(B, D)."""
        input_ids, mask = inputs
        hidden = self.model(input_ids, attention_mask=mask).last_hidden_state.float()  # (B, T, D)
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)

    def _pad(self, documents: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        rows = [torch.from_numpy(one) for one in documents]
        pad = partial(torch.nn.utils.rnn.pad_sequence, batch_first=True)
        input_ids = pad(rows, padding_value=self.model.config.pad_token_id)
        return input_ids.to(self.model.device), pad([torch.ones_like(row) for row in rows]).to(self.model.device)


class Ours:
    """The student, over documents packed without padding."""

    def __init__(self, model: LongformerModel, longest: int) -> None:
        self.model: Any = Student(model, SimpleNamespace(model_max_length=longest))

    def batches(self, documents: Sequence[np.ndarray], budget: int) -> list[Batch]:
        """Batches of at most `budget` tokens, longest documents first."""
        rows = token_batches([len(one) for one in documents], budget)
        device = self.model.device
        return [Batch(torch.tensor(some).to(device), pack([documents[k] for k in some]).to(device)) for some in rows]

    def embed(self, inputs: Any) -> Tensor:
        """(B, D)."""
        return self.model(inputs)


def padded_batches(lengths: Sequence[int], budget: int, *, step: int) -> list[list[int]]:
    """Indices of `lengths`, longest first, in batches of at most `budget` tokens when each document is padded to the
    longest of its batch, which stock rounds up to a multiple of `step`."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not batches or (len(batches[-1]) + 1) * math.ceil(lengths[batches[-1][0]] / step) * step > budget:
            batches.append([])
        batches[-1].append(index)
    return batches


def token_budget(device: torch.device, side: Stock | Ours) -> int:
    """Tokens of one batch that keep the device busy and fit into half of its memory.

    Training longformer-base in fp32 takes about 0.6 MB a token of the student and 1.8 MB of stock.
    """
    if device.type == "cpu":
        return 8192
    most, bytes_per_token = (65536, 2**20) if isinstance(side, Ours) else (16384, 2**22)
    return max(4096, min(most, free_memory(device) // bytes_per_token))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """fp32, or bfloat16 in the operations that torch lists as safe."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def forward(side: Any, batches: Sequence[Batch], *, precision: str, device: torch.device) -> None:
    """Embed all batches."""
    side.model.eval()
    with torch.inference_mode(), autocast(device, precision):
        for batch in batches:
            side.embed(batch.inputs)


def forward_backward(
    side: Any, batches: Sequence[Batch], *, targets: Tensor, precision: str, device: torch.device
) -> None:
    """Leave the gradients of the embeddings' products with `targets`, (N, D), in the parameters."""
    side.model.train()
    side.model.zero_grad(set_to_none=True)
    for batch in batches:
        with autocast(device, precision):
            embeddings = side.embed(batch.inputs)
        (embeddings.float() * targets[batch.documents]).sum().backward()

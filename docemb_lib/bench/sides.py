"""The two sides: stock `transformers.LongformerModel` on padded batches, and our student on packed ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor
from transformers import LongformerModel

from docemb_lib.student.packing import pack, token_batches
from docemb_lib.student.student import Student


class Batch(NamedTuple):
    """What one forward pass takes, on the device already."""

    documents: Tensor  # (B,) which of the sequences, in the order of the embeddings
    inputs: Any


class Side(Protocol):
    model: Any

    def batches(self, sequences: Sequence[np.ndarray], budget: int) -> list[Batch]:
        """Documents in batches of at most `budget` tokens, longest first."""

    def embed(self, inputs: Any) -> Tensor:
        """Embeddings (B, D), the mean of each document's last hidden states."""


class Stock:
    """The peer: documents of similar length padded to the longest of a batch, mean pooling over the mask."""

    def __init__(self, model: LongformerModel) -> None:
        self.model: Any = model

    def batches(self, sequences: Sequence[np.ndarray], budget: int) -> list[Batch]:
        return [
            Batch(
                torch.tensor(documents, device=self.model.device), self._pad([sequences[index] for index in documents])
            )
            for documents in padded_batches(
                [len(sequence) for sequence in sequences], budget, step=max(self.model.config.attention_window)
            )
        ]

    def embed(self, inputs: tuple[Tensor, Tensor]) -> Tensor:
        input_ids, mask = inputs
        hidden = self.model(input_ids, attention_mask=mask).last_hidden_state.float()  # (B, T, D)
        return (hidden * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True)

    def _pad(self, sequences: Sequence[np.ndarray]) -> tuple[Tensor, Tensor]:
        T = max(len(sequence) for sequence in sequences)
        input_ids = torch.full((len(sequences), T), self.model.config.pad_token_id)
        mask = torch.zeros_like(input_ids)
        for row, sequence in enumerate(sequences):
            input_ids[row, : len(sequence)] = torch.from_numpy(sequence)
            mask[row, : len(sequence)] = 1
        return input_ids.to(self.model.device), mask.to(self.model.device)


class Ours:
    """The student, over documents packed without padding."""

    def __init__(self, model: LongformerModel, longest: int) -> None:
        self.model: Any = Student(model, SimpleNamespace(model_max_length=longest))

    def batches(self, sequences: Sequence[np.ndarray], budget: int) -> list[Batch]:
        return [
            Batch(
                torch.tensor(documents, device=self.model.device),
                pack([sequences[index] for index in documents]).to(self.model.device),
            )
            for documents in token_batches([len(sequence) for sequence in sequences], budget)
        ]

    def embed(self, inputs: Any) -> Tensor:
        return self.model(inputs)


def padded_batches(lengths: Sequence[int], budget: int, *, step: int) -> list[list[int]]:
    """Indices of `lengths`, longest first, in batches of at most `budget` tokens when padded to their longest, which
    stock rounds up to a multiple of `step`."""
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not batches or (len(batches[-1]) + 1) * math.ceil(lengths[batches[-1][0]] / step) * step > budget:
            batches.append([])
        batches[-1].append(index)
    return batches


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """fp32, or bfloat16 where torch thinks it safe."""
    return torch.autocast(device.type, dtype=torch.bfloat16, enabled=precision == "bf16")


def forward(side: Side, batches: Sequence[Batch], precision: str, device: torch.device) -> None:
    """Embed all batches."""
    side.model.eval()
    with torch.inference_mode(), autocast(device, precision):
        for batch in batches:
            side.embed(batch.inputs)


def forward_backward(
    side: Side, batches: Sequence[Batch], targets: Tensor, precision: str, device: torch.device
) -> None:
    """The gradients of the embeddings' products with `targets`, (N, D), over all batches; left in the parameters."""
    side.model.train()
    side.model.zero_grad(set_to_none=True)
    for batch in batches:
        with autocast(device, precision):
            embeddings = side.embed(batch.inputs)
        (embeddings.float() * targets[batch.documents]).sum().backward()

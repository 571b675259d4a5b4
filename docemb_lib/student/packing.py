"""Documents concatenated to batches without padding (attention: `longformer`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from docemb_lib.base.errors import InputError


class PackedBatch(NamedTuple):
    """B documents of T tokens together, one after the other."""

    input_ids: Tensor  # (T,) int64
    lengths: Tensor  # (B,) int64, tokens of each document, at least 1
    sizes: tuple[int, ...]  # `lengths` as plain numbers, read without waiting for a GPU

    @property
    def document(self) -> Tensor:
        """(T,) int64, the index of each token's document, ascending."""
        rows = torch.arange(len(self.sizes), device=self.lengths.device)
        return torch.repeat_interleave(rows, self.lengths, output_size=len(self.input_ids))

    @property
    def first(self) -> Tensor:
        """(B,) int64, the index of each document's first token."""
        return self.lengths.cumsum(0) - self.lengths

    def to(self, device: torch.device | str) -> PackedBatch:
        input_ids, lengths = (tensor.to(device, non_blocking=True) for tensor in self[:2])
        return PackedBatch(input_ids, lengths, self.sizes)


def pack(sequences: Sequence[Sequence[int] | np.ndarray]) -> PackedBatch:
    """The token ids of B documents as one batch."""
    sizes = tuple(len(sequence) for sequence in sequences)
    if not sizes or 0 in sizes:
        raise InputError("sequences: give one document or more, each of one token or more")
    input_ids = np.concatenate([np.asarray(sequence, dtype=np.int64) for sequence in sequences])
    return PackedBatch(torch.from_numpy(input_ids), torch.tensor(sizes), sizes)


def token_batches(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Indices of `lengths` in batches of at most `budget` tokens, longest documents first, ties in
    their order.

    A document longer than the budget is a batch of its own.
    """
    batches: list[list[int]] = []
    room = 0  # tokens that still fit into the last batch
    for index in sorted(range(len(lengths)), key=lambda index: (-lengths[index], index)):
        if not batches or lengths[index] > room:
            batches.append([])
            room = budget
        batches[-1].append(index)
        room -= lengths[index]
    return batches

"""Documents concatenated to batches without padding; the attention keeps them apart.

The documents [7, 8, 9], [5] and [4, 4] are one batch of B = 3 documents and T = 6 tokens::

    input_ids   7 8 9 5 4 4
    document    0 0 0 1 2 2    the document of each token
    first       0     3 4      the first token of each document
    lengths     3     1 2

A padded batch would hold B times the longest document's tokens, here 9.
"""

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
        """The index of each token's document, ascending, (T,) int64."""
        rows = torch.arange(len(self.sizes), device=self.lengths.device)
        # With the size of the result, a GPU need not sum the lengths before it goes on.
        return torch.repeat_interleave(rows, self.lengths, output_size=len(self.input_ids))

    @property
    def first(self) -> Tensor:
        """The index of each document's first token, (B,) int64."""
        return self.lengths.cumsum(0) - self.lengths

    def to(self, device: torch.device | str) -> PackedBatch:
        """Send the tensors to a device without waiting for it; the sizes stay."""
        input_ids = self.input_ids.to(device, non_blocking=True)
        lengths = self.lengths.to(device, non_blocking=True)
        return PackedBatch(input_ids, lengths, self.sizes)


def pack(sequences: Sequence[Sequence[int] | np.ndarray]) -> PackedBatch:
    """Make one batch of the token ids of B documents.

    Raises InputError for no document and for a document without tokens, whose mean is undefined.
    """
    sizes = tuple(map(len, sequences))
    if not sizes or 0 in sizes:
        raise InputError("sequences: give one document or more, each of one token or more")
    input_ids = np.concatenate([np.asarray(ids, dtype=np.int64) for ids in sequences])  # (T,)
    return PackedBatch(torch.from_numpy(input_ids), torch.tensor(sizes), sizes)


def token_batches(lengths: Sequence[int], budget: int, *, padded: bool = False) -> list[list[int]]:
    """Share documents out to batches of at most `budget` tokens, longest documents first.

    The batches hold indices of `lengths`; documents of one length stay in their order. A document
    longer than the budget is a batch of its own. Documents of similar length share a batch, and a
    device that runs out of memory does so at the first one. padded: each document counts as many
    tokens as the longest of its batch.
    """
    batches: list[list[int]] = []
    cost = room = 0  # tokens of the next document, and those that still fit into the last batch
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        if not padded:
            cost = lengths[index]
        if not batches or cost > room:
            batches.append([])
            room = budget
            cost = lengths[index]
        batches[-1].append(index)
        room -= cost
    return batches

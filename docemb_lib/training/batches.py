"""Training batches: documents tokenised beforehand, teachers looked up by row, packed without padding."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import Dataset, Sampler

from docemb_lib.student.packing import pack


class Row(NamedTuple):
    """One document: its tokens, what the teachers say of it, its length in structural tokens."""

    tokens: list[int]
    structural: np.ndarray | None  # (S,)
    contextual: np.ndarray | None  # (C,)
    n_structural_tokens: int


class TrainingDocuments(Dataset[Row]):
    """The first `len(tokens)` documents of a corpus split beside the teacher embeddings of the same rows."""

    def __init__(
        self,
        tokens: Sequence[list[int]],
        n_structural_tokens: Sequence[int],
        *,
        structural: np.ndarray | None = None,  # (N', S) with N' >= N: row i is document i
        contextual: np.ndarray | None = None,  # (N', C)
    ) -> None:
        for name, rows in (("structural", structural), ("contextual", contextual)):
            if rows is not None and len(rows) < len(tokens):
                raise ValueError(f"{name} embeddings hold {len(rows)} rows for {len(tokens)} documents")
        if len(n_structural_tokens) != len(tokens):
            raise ValueError(f"{len(n_structural_tokens)} lengths for {len(tokens)} documents")
        self.tokens, self.n_structural_tokens = tokens, n_structural_tokens
        self.structural, self.contextual = structural, contextual

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> Row:
        return Row(
            self.tokens[index],
            None if self.structural is None else np.asarray(self.structural[index]),
            None if self.contextual is None else np.asarray(self.contextual[index]),
            int(self.n_structural_tokens[index]),
        )


def collate(rows: Sequence[Row]) -> dict[str, Tensor]:
    """B rows as tensors: the fields of a PackedBatch, `structural` (B, S), `contextual` (B, C) where there are
    such teachers, and `n_structural_tokens` (B,)."""
    batch: dict[str, Tensor] = dict(pack([row.tokens for row in rows])._asdict())
    for name in ("structural", "contextual"):
        vectors = [getattr(row, name) for row in rows]
        if vectors[0] is not None:
            batch[name] = torch.from_numpy(np.stack(vectors).astype(np.float32))
    batch["n_structural_tokens"] = torch.tensor([row.n_structural_tokens for row in rows])
    return batch


class Shuffled(Sampler[int]):
    """All rows in an order that depends on `seed` and epoch alone, so a resumed run continues the same order."""

    def __init__(self, n: int, seed: int) -> None:
        self.n, self.seed, self.epoch = n, seed, 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.n

    def __iter__(self) -> Iterator[int]:
        order = np.random.default_rng((self.seed, self.epoch)).permutation(self.n)
        return iter(order.tolist())

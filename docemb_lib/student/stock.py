"""The stock forward of a transformers model over packed documents: padded, for students that have no packed one.

These are ModernBERT, and the Longformer whose first token attends to all tokens and is seen by all, which the thesis
tried and rejected (4.2).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from docemb_lib.student.packing import PackedBatch

STEP = 64  # lengths are rounded up to multiples: shorter documents cost no less
FULLNESS = 0.75  # a padded batch holds documents from this share of its longest: at most a quarter of it is padding


def hidden_states(
    model: Any, batch: PackedBatch, *, global_first_token: bool = False, checkpointing: bool = False
) -> Tensor:
    """Last hidden states (T, D): what the stock model computes on each document alone.

    global_first_token: a Longformer's global attention on the first token of each document. checkpointing: keep only
    the input of each layer and compute the rest again in the backward pass.
    """
    _checkpoint_layers(model, checkpointing)
    padding = model.config.pad_token_id
    windows = getattr(model.config, "attention_window", None)
    step = STEP if windows is None else max(windows)  # a stock Longformer would pad to the same, with a warning
    documents = batch.input_ids.split(batch.sizes)
    hidden: dict[int, Tensor] = {}
    for rows in padded_batches(batch.sizes, step):
        length = _rounded(batch.sizes[rows[0]], step)
        input_ids = batch.input_ids.new_full((len(rows), length), padding)
        for line, row in zip(input_ids, rows, strict=True):
            line[: batch.sizes[row]] = documents[row]
        is_text = torch.arange(length, device=input_ids.device) < batch.lengths[rows][:, None]
        options = {}
        if global_first_token:
            options["global_attention_mask"] = torch.zeros_like(input_ids)
            options["global_attention_mask"][:, 0] = 1
        output = model(input_ids, attention_mask=is_text.long(), **options).last_hidden_state  # (rows, length, D)
        hidden |= {row: document[: batch.sizes[row]] for row, document in zip(rows, output, strict=True)}
    return torch.cat([hidden[row] for row in range(len(documents))])


def padded_batches(sizes: Sequence[int], step: int) -> list[list[int]]:
    """Indices of documents of `sizes` tokens that are padded together, longest first."""
    batches: list[list[int]] = []
    for index in sorted(range(len(sizes)), key=lambda index: (-sizes[index], index)):
        if not batches or _rounded(sizes[index], step) < FULLNESS * _rounded(sizes[batches[-1][0]], step):
            batches.append([])
        batches[-1].append(index)
    return batches


def _rounded(length: int, step: int) -> int:
    return -(-length // step) * step


def _checkpoint_layers(model: Any, on: bool) -> None:
    """What `gradient_checkpointing_enable` does, a name that transformers is about to change."""
    for module in model.modules():
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = on
            module._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)

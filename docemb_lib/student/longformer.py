"""The packed forward of a stock `transformers.LongformerModel`: its own weights and layers, without padding."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import LongformerModel

from docemb_lib.student.attention import Backend, banded_attention, choose_backend
from docemb_lib.student.packing import PackedBatch

logger = logging.getLogger(__name__)


def hidden_states(
    model: LongformerModel,
    batch: PackedBatch,
    *,
    attention: Backend | None = None,
    checkpointing: bool = False,
    compiled: bool = False,
) -> Tensor:
    """Last hidden states (T, D): what the stock model computes on each document alone, without global attention.

    attention: None is the faster backend. checkpointing: keep only the input of each layer and compute the rest again
    in the backward pass. compiled: run what lies between the attentions through `torch.compile`.
    """
    hidden = _embedded(model.embeddings, batch.input_ids, _positions(model, batch))
    starts = torch.nn.functional.pad(batch.lengths.cumsum(0), (1, 0)).to(torch.int32)  # (B + 1,)
    for layer in model.encoder.layer:
        if checkpointing and torch.is_grad_enabled():
            hidden = checkpoint(_layer, layer, hidden, batch.sizes, starts, attention, compiled, use_reentrant=False)
        else:
            hidden = _layer(layer, hidden, batch.sizes, starts, attention, compiled)
    return hidden


def _embedded(embeddings: Any, input_ids: Tensor, positions: Tensor) -> Tensor:
    """(T, D) of (T,): the stock sum, but the one token type is a row that is added, not a table that is looked up: on
    GPUs the gradient of looking up the same row T times is slow."""
    hidden = embeddings.word_embeddings(input_ids) + embeddings.position_embeddings(positions)
    return embeddings.dropout(embeddings.LayerNorm(hidden + embeddings.token_type_embeddings.weight[0]))


def _layer(
    layer: Any, hidden: Tensor, lengths: Sequence[int], starts: Tensor, backend: Backend | None, compiled: bool
) -> Tensor:
    before, after = (_compile(_before), _compile(_after)) if compiled else (_before, _after)
    query, key, value = before(layer, hidden)
    attention = layer.attention.self
    backend = backend or choose_backend(query.device, query.dtype, attention.head_dim)
    dropout = attention.dropout if attention.training else 0.0
    if dropout and backend == "varlen":
        _warn_of_dropout(dropout)
        dropout = 0.0
    window = attention.one_sided_attn_window_size
    context = banded_attention(query, key, value, lengths, window, starts=starts, dropout=dropout, backend=backend)
    return after(layer, context.flatten(1), hidden)


def _before(layer: Any, hidden: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values, (T, H, head_dim) each."""
    attention = layer.attention.self
    heads = (-1, attention.num_heads, attention.head_dim)
    if torch.is_autocast_enabled(hidden.device.type):  # once, rather than in each of the three
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return attention.query(hidden).view(heads), attention.key(hidden).view(heads), attention.value(hidden).view(heads)


def _after(layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
    """The rest of a layer. context: (T, D)"""
    return layer.ff_chunk(layer.attention.output(context, hidden))


@lru_cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


@lru_cache
def _warn_of_dropout(share: float) -> None:
    logger.warning(
        "attention dropout %s is left out: flash attention for packed documents has none; training.attention: blocks "
        "has it, and is slower. Dropout of hidden states is as it was",
        share,
    )


def _positions(model: LongformerModel, batch: PackedBatch) -> Tensor:
    """Rows of the position table as Longformer counts: from the padding id + 1, a padding token that stands in
    a text (somebody writes of "[PAD]") left out of the count. (T,)"""
    padding = model.config.pad_token_id
    is_text = batch.input_ids != padding
    seen = is_text.cumsum(0)
    first = batch.lengths.cumsum(0) - batch.lengths  # (B,) a document's first token
    before = (seen - is_text.long())[first]  # tokens of the documents before
    return torch.where(is_text, padding + seen - before[batch.document], padding)

"""Arithmetic of a forward pass over packed documents: what a measured speed is compared with the machine's peak by."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import LongformerModel
from transformers.modeling_layers import GradientCheckpointingLayer

from docemb_lib.private import set_checkpointing
from docemb_lib.student.attention import Backend, banded_attention, choose_backend
from docemb_lib.student.packing import PackedBatch

# ---- arithmetic of a forward pass over packed documents


def forward_flops(config: Any, lengths: Sequence[int]) -> float:
    """Floating-point operations of an encoder over documents of `lengths` tokens; a multiply-add counts as two.

    config: of a transformers model. For a Longformer: the matrix products of its layers, and attention over the keys
    that each token sees, the ends of documents counted exactly. For any other encoder an estimate: every linear layer
    once per token, and each token attends to its whole document, which is too much for local attention. Embeddings,
    norms, activations, softmax, poolers and heads are left out. Training takes three times as much: the backward pass
    computes two products for each of the forward pass, and what is computed again there is no progress.
    """
    D, layers = int(config.hidden_size), int(config.num_hidden_layers)
    tokens = sum(lengths)
    if hasattr(config, "attention_window"):
        windows = config.attention_window
        windows = [windows] * layers if isinstance(windows, int) else windows
        weights = layers * (4 * D * D + 2 * D * config.intermediate_size)
        pairs = sum(sum(visible_pairs(length, window // 2) for length in lengths) for window in windows)
    else:
        weights = _linear_weights(config.to_json_string())
        pairs = layers * sum(length**2 for length in lengths)
    return 2.0 * weights * tokens + 4.0 * D * pairs  # scores and their product with the values: two products of D


def visible_pairs(length: int, window: int) -> int:
    """Pairs of tokens (i, j) of a document with |i - j| <= window."""
    reach = min(window, length - 1)
    return length * (2 * reach + 1) - reach * (reach + 1)


@lru_cache
def _linear_weights(json_config: str) -> int:
    """Weights of all linear layers of an encoder but its pooler's, which sees one token of a document."""
    import torch
    from transformers import AutoConfig, AutoModel

    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(**json.loads(json_config)))
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    return sum(module.weight.numel() for name, module in linear.items() if "pooler" not in name)


# ---- the packed forward of a stock `transformers


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


# ---- the stock forward of a transformers model over packed documents


STEP = 64  # lengths are rounded up to multiples: shorter documents cost no less
FULLNESS = 0.75  # a padded batch holds documents from this share of its longest: at most a quarter of it is padding


def stock_hidden_states(
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
            set_checkpointing(module, partial(checkpoint, use_reentrant=False))

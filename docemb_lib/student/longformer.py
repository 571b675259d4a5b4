"""Forward pass of an encoder over a packed batch, each document as if it were alone, and its floating-point operations.

A Longformer without global attention runs packed: the layers of the stock `transformers.LongformerModel`, but on all
tokens at once and with `banded_attention`. Any other encoder runs its stock forward on padded documents.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from transformers import AutoConfig, AutoModel, LongformerModel
from transformers.modeling_layers import GradientCheckpointingLayer

from docemb_lib.private import set_checkpointing
from docemb_lib.student.attention import Backend, banded_attention, choose_backend
from docemb_lib.student.packing import PackedBatch

logger = logging.getLogger(__name__)

STEP = 64  # padded lengths are multiples of it; shorter documents would cost as much
FULLNESS = 0.75  # documents padded together have at least this share of the longest: at most a quarter is padding


def hidden_states(
    model: LongformerModel,
    batch: PackedBatch,
    *,
    attention: Backend | None = None,
    checkpointing: bool = False,
    compiled: bool = False,
) -> Tensor:
    """Last hidden states (T, D) of a Longformer without global attention, packed.

    attention: None is the faster backend. checkpointing: keep only the input of each layer and compute the rest again
    in the backward pass. compiled: run all but the attention through `torch.compile`.
    """
    hidden = _embed(model.embeddings, batch.input_ids, _positions(model, batch))
    starts = torch.nn.functional.pad(batch.lengths.cumsum(0), (1, 0)).to(torch.int32)  # (B + 1,)
    for layer in model.encoder.layer:
        if checkpointing and torch.is_grad_enabled():
            hidden = checkpoint(_layer, layer, hidden, batch.sizes, starts, attention, compiled, use_reentrant=False)
        else:
            hidden = _layer(layer, hidden, batch.sizes, starts, attention, compiled)
    return hidden


def _positions(model: LongformerModel, batch: PackedBatch) -> Tensor:
    """Rows of the position table as Longformer counts them, (T,): from the padding id + 1 on, without counting padding
    tokens that stand in a text (a literal "[PAD]")."""
    padding = model.config.pad_token_id
    is_text = batch.input_ids != padding
    seen = is_text.cumsum(0)
    first = batch.lengths.cumsum(0) - batch.lengths  # (B,) first token of each document
    before = (seen - is_text.long())[first]  # (B,) tokens of the documents before
    return torch.where(is_text, padding + seen - before[batch.document], padding)


def _embed(embeddings: Any, input_ids: Tensor, positions: Tensor) -> Tensor:
    """(T, D) of (T,): the stock sum, except that the only token type is added as a row instead of looked up T times,
    whose gradient is slow on GPUs."""
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
    """The part of a layer before the attention: queries, keys and values, (T, H, head_dim) each."""
    attention = layer.attention.self
    heads = (-1, attention.num_heads, attention.head_dim)
    if torch.is_autocast_enabled(hidden.device.type):  # cast once instead of in each of the three projections
        hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
    return attention.query(hidden).view(heads), attention.key(hidden).view(heads), attention.value(hidden).view(heads)


def _after(layer: Any, context: Tensor, hidden: Tensor) -> Tensor:
    """The part of a layer after the attention. context, hidden: (T, D)."""
    return layer.ff_chunk(layer.attention.output(context, hidden))


@lru_cache
def _compile(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=True)


@lru_cache  # warn once
def _warn_of_dropout(share: float) -> None:
    logger.warning(
        "attention dropout %s is left out: flash attention for packed documents has none; training.attention: blocks "
        "has it, and is slower. Dropout of hidden states is unchanged",
        share,
    )


def stock_hidden_states(
    model: Any, batch: PackedBatch, *, global_first_token: bool = False, checkpointing: bool = False
) -> Tensor:
    """Last hidden states (T, D) of any encoder, by its stock forward on padded documents of similar length.

    global_first_token: use a Longformer's global attention on the first token of each document. checkpointing: keep
    only the input of each layer and compute the rest again in the backward pass.
    """
    for module in model.modules():  # `gradient_checkpointing_enable` does the same, but transformers will rename it
        if isinstance(module, GradientCheckpointingLayer):
            module.gradient_checkpointing = checkpointing
            set_checkpointing(module, partial(checkpoint, use_reentrant=False))
    windows = getattr(model.config, "attention_window", None)
    step = STEP if windows is None else max(windows)  # a stock Longformer would pad to the same, with a warning
    documents = batch.input_ids.split(batch.sizes)
    hidden: dict[int, Tensor] = {}
    for rows in padded_batches(batch.sizes, step):
        length = _rounded(batch.sizes[rows[0]], step)
        input_ids = batch.input_ids.new_full((len(rows), length), model.config.pad_token_id)
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


def forward_flops(config: Any, lengths: Sequence[int]) -> float:
    """Floating-point operations of an encoder over documents of `lengths` tokens; a multiply-add counts as two.

    config: of a transformers model. For a Longformer, the matrix products of its layers and the attention over the keys
    that each token sees, exact at the ends of documents. For any other encoder an estimate: every linear layer once per
    token, and attention over the whole document, which is too much for local attention. Embeddings, norms, activations,
    softmax, poolers and heads are left out. A training step takes three times as many: the backward pass computes two
    products for each one of the forward pass; recomputed activations do not count.
    """
    D, layers = int(config.hidden_size), int(config.num_hidden_layers)
    if hasattr(config, "attention_window"):
        windows = config.attention_window
        windows = [windows] * layers if isinstance(windows, int) else windows
        weights = layers * (4 * D * D + 2 * D * config.intermediate_size)
        pairs = sum(sum(visible_pairs(length, window // 2) for length in lengths) for window in windows)
    else:
        weights = _linear_weights(config.to_json_string())
        pairs = layers * sum(length**2 for length in lengths)
    return 2.0 * weights * sum(lengths) + 4.0 * D * pairs  # two products of D per pair: scores, weighted values


def visible_pairs(length: int, window: int) -> int:
    """Pairs of tokens (i, j) of a document with |i - j| <= window."""
    reach = min(window, length - 1)
    return length * (2 * reach + 1) - reach * (reach + 1)


@lru_cache
def _linear_weights(json_config: str) -> int:
    """Weights of all linear layers of an encoder except its pooler, which sees one token per document."""
    with torch.device("meta"):
        model = AutoModel.from_config(AutoConfig.for_model(**json.loads(json_config)))
    linear = {name: module for name, module in model.named_modules() if isinstance(module, torch.nn.Linear)}
    return sum(module.weight.numel() for name, module in linear.items() if "pooler" not in name)

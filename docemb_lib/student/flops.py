"""Arithmetic of a forward pass over packed documents: what a measured speed is compared with the machine's peak by."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import Any


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

"""Pretrained weights in, a long encoder out: short ones become Longformers, whose positions repeat the learnt ones
(Beltagy et al. 2020, section 5); long ones keep what they have."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import LongformerConfig, LongformerModel

from docemb_lib.errors import InputError
from docemb_lib.student.loading import LONG, SHORT_FAMILY, load_config, load_weights, positions

# The short encoders differ in the number of positions before the first alone; all keep the same module names.
RELATIVE = ("mpnet", "deberta", "deberta-v2", "t5", "mt5")  # learnt biases per distance, shared by all layers
SHARED_FIELDS = [
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
]
DROPOUTS = {
    "longformer": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "modernbert": ("embedding_dropout", "mlp_dropout", "attention_dropout"),
}
DEFAULT_WINDOW = 512  # two-sided, as in longformer-base-4096


def convert(
    path_or_id: str,
    *,
    subfolder: str = "",
    layers: Sequence[int] | None = None,
    max_tokens: int,
    attention_window: int | None = None,
    dropout: float | None = None,
) -> Any:
    """A Longformer with the weights of a BERT- or RoBERTa-like encoder or of a Longformer; a ModernBERT as it is.

    layers: which to keep, in this order; None: all. max_tokens: positions, learnt ones repeated or cut. Both directions
    of `attention_window` together; None: a Longformer's own, else 512. dropout: of hidden states and attention; None:
    as the encoder has it. Projections for global attention start as copies of the local ones where there were none.
    Raises InputError for an encoder without absolute positions and for values out of range.
    """
    if max_tokens < 8:
        raise InputError(f"max_tokens: got {max_tokens}, give at least 8")
    if attention_window is not None and (attention_window < 4 or attention_window % 2):  # stock Longformer fails at 2
        raise InputError(f"attention_window: got {attention_window}, give an even number from 4 on (both directions)")
    if dropout is not None and not 0 <= dropout < 1:
        raise InputError(f"dropout: got {dropout}, give a share from 0 to below 1, or None to keep the encoder's")
    config = load_config(path_or_id, subfolder=subfolder)
    if config.model_type == "modernbert":
        for name, value in (("layers", layers), ("attention_window", attention_window)):
            if value is not None:
                raise InputError(f"{name}: got {value}, which is for encoders that are converted; {path_or_id}: None")
        if max_tokens > positions(config):
            raise InputError(f"max_tokens: got {max_tokens}, {path_or_id} has positions for {positions(config)}")
        _set_dropout(config, dropout)
        return load_weights(path_or_id, config, subfolder=subfolder)

    _check_architecture(path_or_id, config)
    keep = list(range(config.num_hidden_layers)) if layers is None else list(layers)
    if not keep or not all(0 <= layer < config.num_hidden_layers for layer in keep):
        raise InputError(f"layers: got {keep}, {path_or_id} has layers 0 to {config.num_hidden_layers - 1}")
    source = load_weights(path_or_id, config, subfolder=subfolder).state_dict()
    target_config = LongformerConfig(
        **{field: getattr(config, field) for field in SHARED_FIELDS},
        num_hidden_layers=len(keep),
        sep_token_id=getattr(config, "sep_token_id", None),
        max_position_embeddings=max_tokens + config.pad_token_id + 1,
        attention_window=_windows(config, keep, attention_window),
    )
    _set_dropout(target_config, dropout)
    weights = {name: tensor for name, tensor in source.items() if name.startswith("embeddings.")}
    table = "embeddings.position_embeddings.weight"
    weights[table] = _tile_positions(source[table], config, max_tokens)
    for new, old in enumerate(keep):
        old_layer, new_layer = f"encoder.layer.{old}.", f"encoder.layer.{new}."
        weights |= {name.replace(old_layer, new_layer): source[name] for name in source if name.startswith(old_layer)}
    model = LongformerModel(target_config, add_pooling_layer=False)
    names = list(model.state_dict())
    model.load_state_dict({name: weights.get(name, weights.get(name.replace("_global.", "."))) for name in names})
    return model


def _check_architecture(path_or_id: str, config: Any) -> None:
    fitting = f"use one of type {', '.join((*SHORT_FAMILY, *LONG))}"
    if config.model_type in RELATIVE:
        raise InputError(
            f"{path_or_id}: a model of type {config.model_type} has relative position biases, for which a Longformer "
            f"has no place; {fitting}"
        )
    if config.model_type not in (*SHORT_FAMILY, "longformer"):
        raise InputError(
            f"{path_or_id}: a model of type {config.model_type} does not convert to a Longformer; {fitting}"
        )
    kind = getattr(config, "position_embedding_type", "absolute")
    if kind != "absolute":
        raise InputError(f"{path_or_id}: position embeddings of type {kind} do not tile; use an encoder with absolute")


def _set_dropout(config: Any, dropout: float | None) -> None:
    """Before the model is built: a ModernBERT without dropout has no modules for it."""
    if dropout is not None:
        for field in DROPOUTS[config.model_type]:
            setattr(config, field, dropout)


def _windows(config: Any, keep: Sequence[int], attention_window: int | None) -> list[int]:
    own = getattr(config, "attention_window", DEFAULT_WINDOW)
    if attention_window is not None or isinstance(own, int):
        return [attention_window or own] * len(keep)
    return [own[layer] for layer in keep]


def _tile_positions(source: Tensor, config: Any, max_tokens: int) -> Tensor:
    """The rows that no document's position has, then the learnt ones again and again: (pad + 1 + max_tokens, D).

    BERT counts positions from row 0, the others from the row after the padding id's, as a Longformer does.
    """
    unused = config.pad_token_id + 1
    if config.model_type == "bert":
        before, learnt = source.new_zeros(unused, source.shape[1]), source
    else:
        before, learnt = source[:unused], source[unused:]
    return torch.cat([before, learnt[torch.arange(max_tokens) % len(learnt)]])

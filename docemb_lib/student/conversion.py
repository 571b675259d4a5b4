"""Pretrained weights in, a Longformer out: short encoders get tiled positions (Beltagy et al. 2020, section 5)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from transformers import AutoConfig, AutoModel, AutoTokenizer, LongformerConfig, LongformerModel

from docemb_lib.errors import InputError
from docemb_lib.teachers.pretrained import quiet_loading

# What differs between these encoders is the number of positions before the first; all keep the same module names.
SHORT_FAMILY = ("bert", "roberta", "xlm-roberta", "camembert")
CONVERTIBLE = (*SHORT_FAMILY, "longformer")
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
DEFAULT_WINDOW = 512  # two-sided, as in longformer-base-4096
SLICE = 256  # texts tokenised at a time: a tokenizer's output takes a hundred bytes per token


def convert(
    path_or_id: str,
    *,
    subfolder: str = "",
    layers: Sequence[int] | None = None,
    max_tokens: int,
    attention_window: int | None = None,
    dropout: float | None = None,
) -> LongformerModel:
    """A Longformer with the weights of a BERT- or RoBERTa-like encoder, or of a Longformer.

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
    config = _pretrained(AutoConfig, path_or_id, subfolder=subfolder)
    _check_architecture(path_or_id, config)
    keep = list(range(config.num_hidden_layers)) if layers is None else list(layers)
    if not keep or not all(0 <= layer < config.num_hidden_layers for layer in keep):
        raise InputError(f"layers: got {keep}, {path_or_id} has layers 0 to {config.num_hidden_layers - 1}")

    source = _load_weights(AutoModel, path_or_id, subfolder=subfolder).state_dict()
    target_config = LongformerConfig(
        **{field: getattr(config, field) for field in SHARED_FIELDS},
        num_hidden_layers=len(keep),
        sep_token_id=getattr(config, "sep_token_id", None),
        max_position_embeddings=max_tokens + config.pad_token_id + 1,
        attention_window=_windows(config, keep, attention_window),
    )
    if dropout is not None:
        target_config.hidden_dropout_prob = target_config.attention_probs_dropout_prob = dropout
    weights = {name: tensor for name, tensor in source.items() if name.startswith("embeddings.")}
    positions = "embeddings.position_embeddings.weight"
    weights[positions] = _tile_positions(source[positions], config, max_tokens)
    for new, old in enumerate(keep):
        old_layer, new_layer = f"encoder.layer.{old}.", f"encoder.layer.{new}."
        weights |= {name.replace(old_layer, new_layer): source[name] for name in source if name.startswith(old_layer)}
    model = LongformerModel(target_config, add_pooling_layer=False)
    names = list(model.state_dict())
    model.load_state_dict({name: weights.get(name, weights.get(name.replace("_global.", "."))) for name in names})
    return model


def load_longformer(path_or_id: str, *, subfolder: str = "") -> LongformerModel:
    """A Longformer as it was saved. Raises InputError for any other model."""
    config = _pretrained(AutoConfig, path_or_id, subfolder=subfolder)
    if config.model_type != "longformer":
        raise InputError(f"{path_or_id}: a model of type {config.model_type}; convert it with Student.from_encoder")
    return _load_weights(LongformerModel, path_or_id, subfolder=subfolder)


def _load_weights(auto: Any, path_or_id: str, *, subfolder: str = "") -> Any:
    """`auto.from_pretrained` without its pooler, in float32, from safetensors only. Raises InputError."""
    with _quiet():
        model, info = _pretrained(
            auto,
            path_or_id,
            subfolder=subfolder,
            use_safetensors=True,
            add_pooling_layer=False,
            dtype=torch.float32,
            output_loading_info=True,
        )
    if info["missing_keys"]:
        raise InputError(f"{path_or_id}: its weights lack {min(info['missing_keys'])}; give a complete checkpoint")
    return model


def load_tokenizer(path_or_id: str, *, subfolder: str = "", max_tokens: int) -> Any:
    """The encoder's tokenizer with room for `max_tokens`, special ones included, and no other limit or padding.

    A tokenizer's own file may carry both, MiniLM's 128 each. Raises InputError where there is no fast tokenizer.
    """
    tokenizer = _pretrained(AutoTokenizer, path_or_id, subfolder=subfolder, model_max_length=max_tokens)
    if not tokenizer.is_fast:
        raise InputError(f"{path_or_id}: has no fast tokenizer (tokenizer.json); save it with one")
    without_limits(tokenizer)
    for field in ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of"):
        tokenizer.init_kwargs.pop(field, None)
    return tokenizer


def without_limits(tokenizer: Any) -> None:
    """Undo what a call with truncation or padding leaves behind in the tokenizer, and would be saved with it."""
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()


def count_tokens(path_or_id: str, texts: Sequence[str]) -> list[int]:
    """Tokens of each text for the tokenizer of that encoder, without special tokens and without truncation."""
    tokenizer = _counting_tokenizer(path_or_id)
    counts: list[int] = []
    for start in range(0, len(texts), SLICE):
        slice_ = list(texts[start : start + SLICE])
        counts += map(len, tokenizer.encode_batch_fast(slice_, add_special_tokens=False))
    return counts


@lru_cache(maxsize=4)
def _counting_tokenizer(path_or_id: str) -> Any:
    return load_tokenizer(path_or_id, max_tokens=2**30).backend_tokenizer


def _check_architecture(path_or_id: str, config: Any) -> None:
    if config.model_type not in CONVERTIBLE:
        raise InputError(
            f"{path_or_id}: a model of type {config.model_type} does not convert to a Longformer; "
            f"use one of type {', '.join(CONVERTIBLE)}"
        )
    kind = getattr(config, "position_embedding_type", "absolute")
    if kind != "absolute":
        raise InputError(f"{path_or_id}: position embeddings of type {kind} do not tile; use an encoder with absolute")


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


def _pretrained(auto: Any, path_or_id: str, **options: Any) -> Any:
    """`from_pretrained`, never with code from the model, with its many errors as one line."""
    try:
        return auto.from_pretrained(path_or_id, trust_remote_code=False, **options)
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise InputError(f"{path_or_id}: cannot be loaded as a model with safetensors weights: {reason}") from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the report on weights, which the caller checks itself, and without bars."""
    reporter = logging.getLogger("transformers.modeling_utils")
    reporter.addFilter(_no_report)
    try:
        with quiet_loading():
            yield
    finally:
        reporter.removeFilter(_no_report)


def _no_report(record: logging.LogRecord) -> bool:
    return "LOAD REPORT" not in record.getMessage()

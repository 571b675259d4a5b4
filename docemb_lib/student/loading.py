"""Pretrained encoders, tokenizers and what a saved student says of itself: from safetensors only, never with code from
the model, every fault of a checkpoint as one line."""

from __future__ import annotations

import json
import logging
import re
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from transformers import AutoConfig, AutoModel, AutoModelForMaskedLM, AutoTokenizer
from transformers.utils import cached_file

from docemb_lib.errors import InputError
from docemb_lib.pretrained import quiet_loading

Pooling = Literal["mean", "first", "cls"]
SHORT_FAMILY = ("bert", "roberta", "xlm-roberta", "camembert")  # encoders that convert to a Longformer
LONG = ("longformer", "modernbert")  # encoders that are a student as they are
# Heads and buffers that a checkpoint carries beside its encoder: poolers, masked language models, classifiers.
BESIDE = re.compile(
    r"(\w+\.)?(pooler|lm_head|cls|classifier|qa_outputs|head)\.|decoder\.(weight|bias)$|.*\b(position|token_type)_ids$"
)
# The masked-language heads of BERT, of RoBERTa and Longformer, and of ModernBERT, but for the words' own embeddings.
HEAD = re.compile(
    r"(?:cls\.predictions\.(?:transform\.)?|lm_head\.|head\.|decoder\.(?=bias))"
    r"(?:(?P<layer>dense|LayerNorm|layer_norm|norm)\.)?(?P<kind>weight|bias)"
)
GLOBAL_TASK = "sequence-classification"  # what tells a folder whose first tokens have global attention: see export
STUDENT, CENTRING = ["Transformer", "Pooling"], "Dense"  # modules of a sentence-transformers folder
SLICE = 256  # texts tokenised at a time: a tokenizer's output takes a hundred bytes per token


def load_config(path_or_id: str, *, subfolder: str = "") -> Any:
    """A model's configuration. Raises InputError where there is none that transformers knows."""
    with _one_line(path_or_id, "its config.json cannot be used"):
        return AutoConfig.from_pretrained(path_or_id, subfolder=subfolder, trust_remote_code=False)


def load_weights(path_or_id: str, config: Any, *, subfolder: str = "") -> Any:
    """The encoder of a checkpoint, without pooler or head, in float32. Raises InputError for weights that are not the
    configuration's: missing ones, of another size, or of other layers."""
    pooler = {} if config.model_type == "modernbert" else {"add_pooling_layer": False}
    with _quiet(), _one_line(path_or_id, "cannot be loaded as a model with safetensors weights"):
        model, info = AutoModel.from_pretrained(
            path_or_id,
            config=config,
            subfolder=subfolder,
            use_safetensors=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # named below, instead of a report of many lines
            output_loading_info=True,
            trust_remote_code=False,
            **pooler,
        )
    if info["missing_keys"]:
        raise InputError(f"{path_or_id}: its weights lack {min(info['missing_keys'])}; give a complete checkpoint")
    if info["mismatched_keys"]:
        name, found, expected = min(info["mismatched_keys"])
        raise InputError(
            f"{path_or_id}: {name} is {list(found)} in its weights and {list(expected)} by its config.json; "
            "give files that belong together"
        )
    strange = sorted(name for name in info["unexpected_keys"] if not BESIDE.match(name))
    if strange:
        raise InputError(
            f"{path_or_id}: its weights hold {strange[0]}, which the model of its config.json does not have "
            f"({config.model_type}, {config.num_hidden_layers} layers); give files that belong together"
        )
    return model


def load_masked_head(path_or_id: str, *, subfolder: str = "") -> dict[str, torch.Tensor] | None:
    """The head that a checkpoint guesses hidden words with: a layer and a norm, `dense` and `norm` with weight and
    bias each, and the `bias` of the words. None where it has none, as sentence encoders do not."""
    with _quiet(), _one_line(path_or_id, "cannot be loaded as a masked language model"):
        model, info = AutoModelForMaskedLM.from_pretrained(
            path_or_id,
            subfolder=subfolder,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            trust_remote_code=False,
        )
    ours: dict[str, torch.Tensor] = {}
    for theirs, tensor in model.state_dict().items():
        if (name := HEAD.fullmatch(theirs)) is None:
            continue
        if theirs in info["missing_keys"]:
            return None
        layer = {"dense": "dense.", "LayerNorm": "norm.", "layer_norm": "norm.", "norm": "norm."}.get(name["layer"], "")
        ours[layer + name["kind"]] = tensor
    if "dense.bias" not in ours:  # a ModernBERT's layer and norm have none
        ours |= {f"{layer}.bias": torch.zeros(len(ours[f"{layer}.weight"])) for layer in ("dense", "norm")}
    return ours


def load_long(path_or_id: str, *, subfolder: str = "") -> Any:
    """A Longformer or ModernBERT as it was saved. Raises InputError for any other model."""
    config = load_config(path_or_id, subfolder=subfolder)
    if config.model_type in SHORT_FAMILY:
        raise InputError(f"{path_or_id}: a model of type {config.model_type}; convert it with Student.from_encoder")
    if config.model_type not in LONG:
        raise InputError(f"{path_or_id}: a model of type {config.model_type}; a student is one of {', '.join(LONG)}")
    return load_weights(path_or_id, config, subfolder=subfolder)


def positions(config: Any) -> int:
    """Tokens that a long encoder can number; a Longformer's position table has rows up to the padding id's besides."""
    reserved = config.pad_token_id + 1 if config.model_type == "longformer" else 0
    return int(config.max_position_embeddings - reserved)


def transformer_subfolder(path_or_id: str) -> str:
    """Where a sentence-transformers model keeps its transformer; "" for a plain model."""
    modules = read_json(path_or_id, "modules.json")
    return modules[0]["path"] if modules else ""


def saved_pooling(path_or_id: str) -> Pooling:
    """The pooling of a saved student; "mean" for a plain transformers model.

    Raises InputError for a sentence-transformers model that is anything but a transformer, the mean of its tokens or
    the first of them, which may have global attention ("cls") or none ("first"), and centring where there is some (see
    `saved_mean`).
    """
    modules = read_json(path_or_id, "modules.json")
    if modules is None:
        return "mean"
    kinds = [_kind(module) for module in modules]
    if kinds not in (STUDENT, [*STUDENT, CENTRING]):
        raise InputError(
            f"{path_or_id}: modules {', '.join(kinds)}; a student is a Transformer, a Pooling and, centred, a Dense"
        )
    config = read_json(path_or_id, "config.json", subfolder=modules[1]["path"]) or {}
    flags = {name.removeprefix("pooling_mode_") for name, on in config.items() if on is True and "_mode_" in name}
    mode = config.get("pooling_mode") or "+".join(flags).replace("_tokens", "").replace("_token", "") or "mean"
    settings = read_json(path_or_id, "sentence_bert_config.json", subfolder=modules[0]["path"]) or {}
    is_global = settings.get("transformer_task") == GLOBAL_TASK
    if mode == "mean" and not is_global:
        return "mean"
    if mode == "cls":
        return "cls" if is_global else "first"
    raise InputError(
        f"{path_or_id}: pooling is {mode} {'with' if is_global else 'without'} global attention; a student's is the "
        "mean without it, or cls with it or without"
    )


def saved_mean(path_or_id: str) -> torch.Tensor | None:
    """The mean embedding that a saved student subtracts, (D,); None where it subtracts none.

    It is minus the bias of a Dense module that does nothing else. Raises InputError for any other Dense module.
    """
    folders = [module["path"] for module in read_json(path_or_id, "modules.json") or [] if _kind(module) == CENTRING]
    if not folders:
        return None
    (folder,) = folders
    config = read_json(path_or_id, "config.json", subfolder=folder) or {}
    file = find_file(path_or_id, "model.safetensors", subfolder=folder)
    if file is None:
        raise InputError(f"{path_or_id}: {folder} has no model.safetensors; save the model with safetensors weights")
    with _one_line(path_or_id, f"{folder}/model.safetensors cannot be used"):
        weights = load_file(file)
    identity, bias = weights.get("linear.weight"), weights.get("linear.bias")
    activation = str(config.get("activation_function")).rpartition(".")[2]
    plain = activation == "Identity" and not config.get("use_residual", False)
    if not plain or bias is None or identity is None or not torch.equal(identity.float(), torch.eye(len(bias))):
        raise InputError(f"{path_or_id}: {folder} does more than subtract a mean, which is all a student's Dense does")
    return -bias.float()


def saved_max_tokens(path_or_id: str, *, positions: int) -> int:
    """The limit that a model sets below its positions, if any. Raises InputError for a limit beyond them."""
    subfolder = transformer_subfolder(path_or_id)
    settings = read_json(path_or_id, "sentence_bert_config.json", subfolder=subfolder) or {}
    limit = settings.get("max_seq_length")
    if limit is None:  # sentence-transformers leaves it to the tokenizer, whose limit may be 10^30
        tokenizer = read_json(path_or_id, "tokenizer_config.json", subfolder=subfolder) or {}
        return int(min(positions, tokenizer.get("model_max_length") or positions))
    if limit > positions:
        raise InputError(
            f"{path_or_id}: sentence_bert_config.json: max_seq_length {limit}, but the model has positions for "
            f"{positions}; write at most that"
        )
    return int(limit)


def load_tokenizer(path_or_id: str, *, subfolder: str = "", max_tokens: int, rows: int | None = None) -> Any:
    """The encoder's tokenizer with room for `max_tokens`, special ones included, and no other limit or padding.

    A tokenizer's own file may carry both, MiniLM's 128 each. rows: of the model's word embeddings. Raises InputError
    where there is no fast tokenizer and for one with more tokens than rows.
    """
    with _one_line(path_or_id, "its tokenizer cannot be used"):
        tokenizer = AutoTokenizer.from_pretrained(
            path_or_id, subfolder=subfolder, model_max_length=max_tokens, trust_remote_code=False
        )
    if not tokenizer.is_fast:
        raise InputError(f"{path_or_id}: has no fast tokenizer (tokenizer.json); save it with one")
    vocabulary = tokenizer.get_vocab()
    if set(vocabulary) <= set(tokenizer.all_special_tokens):  # what transformers makes of no files at all
        raise InputError(f"{path_or_id}: no tokenizer; put its tokenizer.json, or vocab and merges, beside the weights")
    size = max(vocabulary.values()) + 1
    if rows is not None and size > rows:
        raise InputError(
            f"{path_or_id}: its tokenizer has {size} tokens, its model embeddings for {rows}; "
            "give the tokenizer that belongs to the model"
        )
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


def find_file(path_or_id: str, name: str, *, subfolder: str = "") -> Path | None:
    """A file of a folder or of a model on a hub; None where there is none. Raises InputError for an unknown model."""
    try:
        file = cached_file(path_or_id, name, subfolder=subfolder, _raise_exceptions_for_missing_entries=False)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path_or_id}: no such folder, and not found on the hub: {reason}") from error
    return None if file is None else Path(file)


def read_json(path_or_id: str, name: str, *, subfolder: str = "") -> Any:
    """The content of a JSON file as `find_file` finds it; None where there is none."""
    file = find_file(path_or_id, name, subfolder=subfolder)
    if file is None:
        return None
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{file}: not valid JSON ({error}); restore the file") from error


def _kind(module: dict[str, Any]) -> str:
    """The class of an entry of modules.json; releases of sentence-transformers differ in its package."""
    return str(module["type"]).rpartition(".")[2]


@contextmanager
def _one_line(path_or_id: str, problem: str) -> Iterator[None]:
    """Whatever goes wrong inside as one line: transformers, safetensors and tokenizers share no class of errors."""
    try:
        yield
    except Exception as error:
        reason = textwrap.shorten(str(error), width=250, placeholder=" …")
        raise InputError(f"{path_or_id}: {problem}: {reason}") from error


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
    return not any(said in record.getMessage() for said in ("LOAD REPORT", "tied weights mapping"))

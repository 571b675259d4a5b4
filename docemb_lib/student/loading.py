"""Pretrained encoders, heads and tokenizers are read as tensors and JSON, and converted.

Code from a model never runs. A short encoder becomes a Longformer whose positions repeat the learnt
ones (Beltagy et al. 2020, section 5), up to the encoder's own limit; a long one stays as it is. The
biases of MPNet, which depend on the offset of two tokens, are those of a `RelativeLongformer`.
`path_or_id` is a folder or hub id of a transformers or sentence-transformers model. Each fault of a
checkpoint raises InputError with one line.
"""

import logging
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from shlex import quote
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoTokenizer,
    LongformerConfig,
    LongformerModel,
    PretrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, WEIGHTS_NAME, cached_file
from transformers.utils import logging as hf_logging

from docemb_lib.base import files, tokenizing
from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import one_line, require
from docemb_lib.packed.forward import SHORT
from docemb_lib.packed.relative import FARTHEST, RelativeLongformer, RelativeLongformerConfig

AutoConfig.register(RelativeLongformerConfig.model_type, RelativeLongformerConfig)
AutoModel.register(RelativeLongformerConfig, RelativeLongformer)
logger = logging.getLogger(__name__)
CONVERTED = (*SHORT, "mpnet", "distilbert")  # become a Longformer
LONGFORMERS = ("longformer", RelativeLongformerConfig.model_type)
LONG = (*LONGFORMERS, "modernbert")  # are students as they are
SHARED_FIELDS = [
    "vocab_size",
    "hidden_size",
    "num_attention_heads",
    "intermediate_size",
    "hidden_act",
    "type_vocab_size",
    "initializer_range",
    "layer_norm_eps",
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
]
DROPOUTS = ("hidden_dropout_prob", "attention_probs_dropout_prob")
MODERNBERT_DROPOUTS = ("embedding_dropout", "mlp_dropout", "attention_dropout")
# A Longformer's names in DistilBERT, and what it and MPNet have no name for.
OTHER_FIELDS = {
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "attention_probs_dropout_prob": "attention_dropout",
}
FIXED_FIELDS = {"type_vocab_size": 1, "layer_norm_eps": 1e-12}
# Modules of MPNet and of DistilBERT, and a Longformer's names of them.
OTHER_MODULES = {
    "attention.LayerNorm.": "attention.output.LayerNorm.",
    "attn.q.": "self.query.",
    "attn.k.": "self.key.",
    "attn.v.": "self.value.",
    "attn.o.": "output.dense.",
    "transformer.": "encoder.",
    "q_lin.": "self.query.",
    "k_lin.": "self.key.",
    "v_lin.": "self.value.",
    "out_lin.": "output.dense.",
    "sa_layer_norm.": "attention.output.LayerNorm.",
    "ffn.lin1.": "intermediate.dense.",
    "ffn.lin2.": "output.dense.",
    "output_layer_norm.": "output.LayerNorm.",
}
STUDENT = "docemb.json"  # the manifest of a saved student
# Of a sentence-transformers folder; the second has the prompt, and versions of libraries.
MODULES = "modules.json"
GENERAL = "config_sentence_transformers.json"
# What to do, in an error.
GIVE_STUDENT = (
    "Give the folder of a student; `docemb adapt MODEL CORPUS -o OUT` makes one of an encoder"
    f" of type {', '.join(CONVERTED[:-1])} or {CONVERTED[-1]}."
)
DEFAULT_WINDOW = 512  # both directions together, as in longformer-base-4096
LEAST_TOKENS = 3  # a word between two special tokens
POSITIONS = "embeddings.position_embeddings.weight"
TOKEN_TYPES = "embeddings.token_type_embeddings.weight"
STRIP = "encoder.offset_bias"  # of a RelativeLongformer
SETTINGS = "sentence_bert_config.json"
# The names of the masked-language heads of BERT, RoBERTa, MPNet and Longformer, ModernBERT, and
# DistilBERT, without their word embeddings.
HEAD = re.compile(
    r"(?:cls\.predictions\.(?:transform\.)?|lm_head\.|head\.|decoder\.(?=bias)|vocab_)"
    r"(?:projector\.(?=bias))?"
    r"(?:(?P<layer>dense|transform|LayerNorm|layer_norm|norm)\.)?(?P<kind>weight|bias)"
)


def no_student(name: str, kind: str) -> InputError:
    """Return the error for a model that is no student, with the command that makes one.

    name: as the user gave it; kind: its `model_type`.
    """
    if kind in CONVERTED:
        return InputError(
            f"The model {name} is a short encoder and no student. Make a student of it with "
            f"`docemb adapt {quote(name)} CORPUS -o OUT`, then give that folder."
        )
    problem = f"The model {name} is of type {kind}, and a student is {' or '.join(LONG)}"
    return InputError(f"{problem}. {GIVE_STUDENT}")


def convert(
    path_or_id: str,
    layers: Sequence[int] | None,
    max_tokens: int,
    attention_window: int | None,
    dropout: float | None,
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Make a Longformer of a short encoder of `CONVERTED`; others of `LONG` stay as they are.

    A Longformer is converted, too, to other layers, positions or windows. The arguments and errors
    are those of `Student.from_encoder`. Learnt positions are repeated or cut; missing projections
    for global attention are copies of the local ones. A Longformer counts positions from the
    padding id on, which is that of the tokenizer: a BERT with the tokenizer of XLM-R has another
    one in its configuration. Returns the model with its tokenizer.
    """
    config = load_config(path_or_id)
    if config.model_type == "modernbert":
        most = positions(config)
        if layers is not None or attention_window is not None or max_tokens > most:
            raise InputError(
                f"{path_or_id}: a ModernBERT becomes a student as it is, so layers "
                f"and attention_window must be None, and max_tokens at most {most}; change them"
            )
        tokenizer = load_tokenizer(path_or_id, max_tokens=max_tokens)
        return load_weights(path_or_id, _with_dropout(config, dropout)), tokenizer

    kind = f"a model of type {config.model_type}"
    positions_of_config = getattr(config, "position_embedding_type", "absolute")
    if positions_of_config != "absolute":
        kind += f" with positions of type {positions_of_config}"
    is_known = config.model_type in (*CONVERTED, *LONGFORMERS)
    if not is_known or positions_of_config != "absolute":
        raise InputError(
            f"{path_or_id}: {kind} cannot become a student, which has BERT's layers and learnt "
            f"absolute positions; give one of type {', '.join((*CONVERTED, *LONG))}"
        )
    keep = list(range(config.num_hidden_layers)) if layers is None else list(layers)
    if not all(0 <= layer < config.num_hidden_layers for layer in keep):
        raise InputError(
            f"layers: got {keep}, but {path_or_id} has the layers 0 to "
            f"{config.num_hidden_layers - 1}; name some of these, or None for all"
        )
    windows: int | list[int] = getattr(config, "attention_window", DEFAULT_WINDOW)
    if attention_window is not None:
        windows = attention_window
    if isinstance(windows, int):
        windows = [windows] * config.num_hidden_layers
    shared: dict[str, Any] = dict(FIXED_FIELDS)
    for name in (*SHARED_FIELDS, *DROPOUTS):
        other = OTHER_FIELDS.get(name, name) if config.model_type == "distilbert" else name
        if hasattr(config, other):
            shared[name] = getattr(config, other)
    tokenizer = load_tokenizer(path_or_id, max_tokens=max_tokens)
    if tokenizer.pad_token_id is not None:
        shared["pad_token_id"] = tokenizer.pad_token_id
    is_relative = config.model_type in ("mpnet", RelativeLongformerConfig.model_type)
    target = (RelativeLongformerConfig if is_relative else LongformerConfig)(
        **shared,
        num_hidden_layers=len(keep),
        sep_token_id=getattr(config, "sep_token_id", None),
        max_position_embeddings=max_tokens + shared["pad_token_id"] + 1,
        attention_window=[windows[layer] for layer in keep],
    )
    encoder = load_weights(path_or_id, config)
    source = {}
    for name, tensor in encoder.state_dict().items():
        for other, ours in OTHER_MODULES.items():
            name = name.replace(other, ours)
        source[name] = tensor
    unused = shared["pad_token_id"] + 1
    source[POSITIONS] = _tile_positions(path_or_id, source[POSITIONS], config, max_tokens, unused)
    source.setdefault(TOKEN_TYPES, torch.zeros(1, target.hidden_size))
    if config.model_type == "mpnet":
        example = torch.empty(1, 2 * FARTHEST + 1, 0)  # a document whose middle has all offsets
        source[STRIP] = encoder.encoder.compute_position_bias(example)[0, :, FARTHEST]
    target = _with_dropout(target, dropout)
    new = RelativeLongformer if is_relative else LongformerModel
    model = new(target, add_pooling_layer=False)
    weights = {}
    for name in model.state_dict():
        parts = name.split(".")
        if parts[1] == "layer":  # as in encoder.layer.0.output.dense.weight
            parts[2] = str(keep[int(parts[2])])
        old = ".".join(parts)
        weights[name] = source[old if old in source else old.replace("_global.", ".")]
    model.load_state_dict(weights)
    return model, tokenizer


def positions(config: PretrainedConfig) -> int:
    """Return the largest number of tokens of a long encoder.

    A Longformer also has position rows up to the padding id's.
    """
    reserved = config.pad_token_id + 1 if config.model_type in LONGFORMERS else 0
    return int(config.max_position_embeddings - reserved)


def saved_max_tokens(path_or_id: str, *, positions: int) -> int:
    """Return the token limit of a saved model, at most its `positions`.

    Raises InputError for one that is no number, or leaves no room for a word.
    """
    folder = transformer_subfolder(path_or_id)
    limit = read_json(path_or_id, SETTINGS, subfolder=folder).get("max_seq_length")
    if limit is None:  # sentence-transformers leaves it to the tokenizer, whose limit may be 10^30
        tokenizer = read_json(path_or_id, "tokenizer_config.json", subfolder=folder)
        limit = tokenizer.get("model_max_length")
    limit = positions if limit is None else limit
    if not isinstance(limit, int | float) or not limit >= LEAST_TOKENS:
        raise InputError(
            f"{path_or_id}: {SETTINGS} or tokenizer_config.json gives a limit of {limit!r} tokens; "
            f"write a number from {LEAST_TOKENS} on"
        )
    return int(min(positions, limit))


def load_config(path_or_id: str) -> PretrainedConfig:
    """Load the configuration of a model. Raises InputError where it cannot be used."""
    with one_line(path_or_id, "its config.json cannot be used"):
        folder = transformer_subfolder(path_or_id)
        config = AutoConfig.from_pretrained(path_or_id, subfolder=folder, trust_remote_code=False)
    padding = getattr(config, "pad_token_id", None)
    if config.model_type in (*CONVERTED, *LONGFORMERS) and not isinstance(padding, int):
        mend = "write the id of the tokenizer's padding token"
        raise InputError(f"{path_or_id}: config.json: pad_token_id is {padding!r}; {mend}")
    return config


def load_weights(path_or_id: str, config: PretrainedConfig) -> PreTrainedModel:
    """Load the encoder of a checkpoint, without pooler or head, in float32.

    Raises InputError for weights of another one.
    """
    # Sizes are checked below, instead of by transformers with a report of many lines.
    options = {"config": config, "ignore_mismatched_sizes": True}
    if config.model_type not in ("modernbert", "distilbert"):
        options["add_pooling_layer"] = False
    model, info = _load(AutoModel, path_or_id, "its weights cannot be loaded", **options)
    resized = [name for name, *_ in info["mismatched_keys"]]
    further = [name for name in info["unexpected_keys"] if ".layer." in name]
    misfits = [*info["missing_keys"], *resized, *further]
    if misfits:
        raise InputError(
            f"{path_or_id}: its weights and its config.json disagree about {min(misfits)}; "
            "give files that belong together"
        )
    return model


def load_masked_head(path_or_id: str) -> dict[str, Tensor] | None:
    """Load the masked-language head of an encoder; None: there is none.

    Returns weight and bias of `dense` and `norm`, and the words' `bias`.
    """
    problem = "cannot be loaded as a masked language model"
    model, info = _load(AutoModelForMaskedLM, path_or_id, problem)
    weights: dict[str, Tensor] = {}
    for full_name, tensor in model.state_dict().items():
        name = HEAD.fullmatch(full_name)
        if name is None:
            continue
        if full_name in info["missing_keys"]:
            return None
        layer = name["layer"]
        if layer:
            layer = "dense" if layer in ("dense", "transform") else "norm"
        weights[f"{layer}.{name['kind']}" if layer else name["kind"]] = tensor
    if "dense.bias" not in weights:  # the dense layer and the norm of a ModernBERT have no bias
        for layer in ("dense", "norm"):
            weights[f"{layer}.bias"] = torch.zeros(len(weights[f"{layer}.weight"]))
    return weights


def load_tokenizer(path_or_id: str, *, max_tokens: int) -> PreTrainedTokenizerFast:
    """Load the encoder's fast tokenizer for `max_tokens`, special ones included.

    Truncation and padding that are set in its file, as in MiniLM's, are removed. Raises InputError
    for a model without one.
    """
    with one_line(path_or_id, "its tokenizer cannot be used"):
        folder = transformer_subfolder(path_or_id)
        tokenizer = AutoTokenizer.from_pretrained(
            path_or_id, subfolder=folder, model_max_length=max_tokens, trust_remote_code=False
        )
    # Without files, transformers makes a tokenizer of the special tokens alone.
    if not tokenizer.is_fast or set(tokenizer.get_vocab()) <= set(tokenizer.all_special_tokens):
        raise InputError(
            f"{path_or_id}: the model has no fast tokenizer; "
            "put its tokenizer.json beside the weights"
        )
    remove_limits(tokenizer)
    for field in ("max_length", "stride", "truncation_strategy", "pad_to_multiple_of"):
        tokenizer.init_kwargs.pop(field, None)
    return tokenizer


def check_tokens(name: str, model: PreTrainedModel, tokenizer: PreTrainedTokenizerFast) -> None:
    """Check that every token has an embedding. name: the model in messages. Raises InputError."""
    rows = model.get_input_embeddings().num_embeddings
    largest = max(tokenizer.get_vocab().values())
    if largest >= rows:
        problem = f"its tokenizer gives ids up to {largest}, and its encoder has {rows} embeddings"
        mend = "give files that belong together, tokenizer_config.json among them"
        raise InputError(f"{name}: {problem}; {mend}")


def remove_limits(tokenizer: PreTrainedTokenizerFast) -> None:
    """Remove the truncation and padding that a call leaves in a tokenizer.

    They would be saved with it.
    """
    tokenizer.backend_tokenizer.no_truncation()
    tokenizer.backend_tokenizer.no_padding()


def count_tokens(path_or_id: str, texts: Sequence[str]) -> list[int]:
    """Count an encoder's tokens of each text, without special tokens and truncation."""
    return tokenizing.count_tokens(_counting_tokenizer(path_or_id), texts)


@lru_cache(maxsize=4)
def _counting_tokenizer(path_or_id: str) -> Tokenizer:
    return load_tokenizer(path_or_id, max_tokens=2**30).backend_tokenizer


def check_files(folder: Path) -> None:
    """Check that a saved student is as docemb has saved it.

    A folder without a manifest, or whose list of modules no longer names the manifest, is that of
    another program: sentence-transformers writes the list anew when it saves a model there. Raises
    InputError.
    """
    modules = folder / MODULES
    if not (folder / STUDENT).is_file():
        return
    if modules.is_file() and STUDENT.encode() not in modules.read_bytes():
        said = "files are not compared with it, and a half of words is used only if it is named"
        files.warn_once("%s does not name %s: %s", modules, STUDENT, said)
        return
    damage = files.damaged(folder, STUDENT)
    if damage:
        raise InputError(
            f"{files.fault(damage[0])}; "
            f"restore it, or remove {folder / STUDENT} if it was changed on purpose"
        )


def read_modules(path_or_id: str) -> list[tuple[str, str]]:
    """Return class name and folder of each module of a sentence-transformers model.

    The list is empty for a plain model. Releases differ in the package of a class.
    """
    modules = read_json(path_or_id, MODULES, kind=list)
    with one_line(path_or_id, "a module in its modules.json is no mapping with `type` and `path`"):
        return [
            (module["type"].rpartition(".")[2], str(Path(module["path"]))) for module in modules
        ]


def read_json(path_or_id: str, name: str, *, subfolder: str = "", kind: type = dict) -> Any:
    """Return the content of a JSON file as `find_file` finds it, of type `kind`.

    It is empty where there is no file. Raises InputError for content of another type.
    """
    file = find_file(path_or_id, name, subfolder=subfolder)
    content = kind() if file is None else files.read_json(file, "restore it")
    if not isinstance(content, kind):
        raise InputError(
            f"{file}: the file holds a {type(content).__name__} and must hold a {kind.__name__}; "
            "restore it"
        )
    return content


def find_file(path_or_id: str, name: str, *, subfolder: str = "") -> Path | None:
    """Find a file of a folder or of a model on a hub; None where there is none.

    Raises InputError for an unknown model.
    """
    require(path_or_id)
    with one_line(path_or_id, f"{name} cannot be fetched"):
        file = cached_file(
            path_or_id, name, subfolder=subfolder, _raise_exceptions_for_missing_entries=False
        )
    return None if file is None else Path(file)


def transformer_subfolder(path_or_id: str) -> str:
    """Return where a sentence-transformers model keeps its transformer; "" for a plain model."""
    modules = read_modules(path_or_id)
    return modules[0][1] if modules else ""


def _load(
    auto: type[AutoModel | AutoModelForMaskedLM], path_or_id: str, problem: str, **options: Any
) -> tuple[PreTrainedModel, dict[str, Any]]:
    """Load a model, and return with it how its weights match.

    transformers shows neither progress bars nor its report on weights. Without safetensors, a
    pickle is read, from which torch accepts tensors only.
    """
    options |= {
        "dtype": torch.float32,
        "weights_only": True,
        "trust_remote_code": False,
        "output_loading_info": True,
    }
    verbosity = hf_logging.get_verbosity()
    hf_logging.set_verbosity_error()
    hf_logging.disable_progress_bar()  # a widget in a notebook
    try:
        with one_line(path_or_id, problem):
            folder = transformer_subfolder(path_or_id)
            find = partial(find_file, path_or_id, subfolder=folder)
            pickled = None
            if not find(SAFE_WEIGHTS_NAME) and not find(SAFE_WEIGHTS_INDEX_NAME):
                pickled = find(WEIGHTS_NAME)
            if pickled is None:
                options |= {"subfolder": folder, "use_safetensors": True}
                return auto.from_pretrained(path_or_id, **options)
            message = "%s has no safetensors, and of its %s only tensors are read"
            logger.warning(message, path_or_id, WEIGHTS_NAME)
            # By its id, transformers would ask a service of the hub to convert it.
            return auto.from_pretrained(str(pickled.parent), use_safetensors=False, **options)
    finally:
        hf_logging.set_verbosity(verbosity)


def _with_dropout(config: PretrainedConfig, dropout: float | None) -> PretrainedConfig:
    """Set `dropout` in a configuration; None leaves it.

    It is set before the model is built: ModernBERT has no layers for dropout 0.
    """
    if dropout is not None:
        is_longformer = config.model_type in LONGFORMERS
        for field in DROPOUTS if is_longformer else MODERNBERT_DROPOUTS:
            setattr(config, field, dropout)
    return config


def _tile_positions(
    path_or_id: str, source: Tensor, config: PretrainedConfig, max_tokens: int, unused: int
) -> Tensor:
    """Repeat the learnt positions of an encoder up to `max_tokens`: (unused + max_tokens, D).

    The `unused` rows, which no position of the Longformer has, come first. A sentence encoder was
    tuned on texts up to its own limit alone: with its further rows (MiniLM: 512 of 256), a student
    is worse on validation splits. BERT and DistilBERT count positions from row 0, the others from
    the row after the padding id's, as a Longformer does.
    """
    first = 0 if config.model_type in ("bert", "distilbert") else config.pad_token_id + 1
    learnt = len(source) - first
    if config.model_type in CONVERTED:
        learnt = saved_max_tokens(path_or_id, positions=learnt)
    before = source.new_zeros(unused, source.shape[1])
    if first == unused:
        before = source[:unused]
    return torch.cat([before, source[first + torch.arange(max_tokens) % learnt]])

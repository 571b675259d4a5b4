"""A student as a plain sentence-transformers folder, written and read: the encoder, pooling, centring and a model card.

Every release of sentence-transformers reads the folder, and so do stock `AutoModel` and `AutoTokenizer`. One student
needs release 5.4: the Longformer with global attention on its first token. Its folder asks for the last hidden state of
a `LongformerForSequenceClassification`, which sets that attention itself; older releases refuse the folder.
"""

from __future__ import annotations

import copy
import json
import logging
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
import transformers
import yaml
from huggingface_hub import metadata_load
from safetensors.torch import load_file, save
from torch import Tensor

from docemb_lib import __version__
from docemb_lib.errors import InputError
from docemb_lib.pretrained import resolve
from docemb_lib.student.lexical import CODE, FOLDER, write_lexical_half
from docemb_lib.student.loading import (
    find_file,
    one_line,
    read_json,
    read_modules,
    remove_limits,
    transformer_subfolder,
)

if TYPE_CHECKING:
    from docemb_lib.student.student import Student

Pooling = Literal["mean", "first", "cls"]
logger = logging.getLogger(__name__)
STOCK: list[tuple[str, ...]] = [("Transformer", "Pooling"), ("Transformer", "Pooling", "Dense")]
LEXICAL = CODE.removesuffix(".py")
KINDS = [*STOCK, *(("TextTransformer", *kinds[1:], "LexicalHalf") for kinds in STOCK)]  # of a student's modules
POOLING, CENTRING = "1_Pooling", "2_Dense"
SETTINGS, WEIGHTS, README = "sentence_bert_config.json", "model.safetensors", "README.md"
GLOBAL_ATTENTION = {
    "transformer_task": "sequence-classification",  # marks a folder whose first tokens have global attention
    "modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", -1]}},
    "module_output_name": "token_embeddings",
}


def write_folder(student: Student, folder: Path, card: str | None) -> None:
    """Write model, tokenizer and card (None: a plain one) into `folder`; other files there are kept."""
    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer, pooling, mean = student.model, student.tokenizer, student.pooling, student.mean
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    D = config.hidden_size
    # Stock classes have a pooler or a classifier, unused here. Zeros in the file keep loading from warning of missing
    # weights and from drawing random ones.
    unused = {"pooler.dense": D} if config.model_type == "longformer" else {}  # rows of D weights, and a bias
    if pooling == "cls":
        config.architectures, config.num_labels = ["LongformerForSequenceClassification"], 1
        weights = {f"longformer.{name}": tensor for name, tensor in weights.items()}
        unused = {"classifier.dense": D, "classifier.out_proj": 1}
    for layer, rows in unused.items():
        weights |= {f"{layer}.weight": torch.zeros(rows, D), f"{layer}.bias": torch.zeros(rows)}
    _write_weights(folder, weights)
    config.save_pretrained(folder)
    remove_limits(tokenizer)
    tokenizer.save_pretrained(folder)
    types = {"sentence_transformers.models.Transformer": "", "sentence_transformers.models.Pooling": POOLING}
    types |= {} if mean is None else {"sentence_transformers.models.Dense": CENTRING}
    if student.lexical is not None:  # its first module hands the texts to its last
        types = {f"{LEXICAL}.TextTransformer": "", **dict(list(types.items())[1:]), f"{LEXICAL}.LexicalHalf": FOLDER}
        write_lexical_half(student.lexical, folder)
    modules = [{"idx": i, "name": str(i), "path": path, "type": of} for i, (of, path) in enumerate(types.items())]
    versions = {"sentence_transformers": version("sentence-transformers"), "transformers": transformers.__version__}
    versions["pytorch"] = torch.__version__
    general = {"model_type": "SentenceTransformer", "__version__": versions, "prompts": {}}
    limits = {"max_seq_length": student.max_tokens, "do_lower_case": False}
    _write_json(folder / "modules.json", modules)
    _write_json(folder / SETTINGS, limits | (GLOBAL_ATTENTION if pooling == "cls" else {}))
    _write_json(folder / "config_sentence_transformers.json", general | {"similarity_fn_name": "cosine"})
    modes = {"word_embedding_dimension": D, "pooling_mode_cls_token": pooling != "mean"}
    modes["pooling_mode_mean_tokens"] = pooling == "mean"
    modes |= {"pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
    _write_json(folder / POOLING / "config.json", modes)
    if mean is not None:  # a stock module that computes Ix - mean
        linear = {"in_features": D, "out_features": D, "bias": True}
        activation = {"activation_function": f"{torch.nn.Identity.__module__}.{torch.nn.Identity.__name__}"}
        _write_json(folder / CENTRING / "config.json", linear | activation)
        _write_weights(folder / CENTRING, {"linear.weight": torch.eye(D), "linear.bias": -mean.detach().float().cpu()})
    if card is None:
        card = _card(student, "A docemb student", [f"{D} dimensions, up to {student.max_tokens} tokens."])
    (folder / README).write_text(card, encoding="utf-8")


def _write_weights(folder: Path, weights: dict[str, Tensor]) -> None:
    # `save_file` would create a file that only its owner can read.
    (folder / WEIGHTS).write_bytes(save(weights, metadata={"format": "pt"}))


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def saved_pooling(path_or_id: str) -> Pooling:
    """The pooling of a saved student; "mean" for a plain transformers model. Raises InputError for others."""
    modules = read_modules(path_or_id)
    if not modules:
        return "mean"
    kinds, folders = zip(*modules, strict=True)
    if kinds not in KINDS:
        is_one = "a student is a Transformer, a Pooling and, centred, a Dense, perhaps with a lexical half"
        raise InputError(f"{path_or_id}: modules {', '.join(kinds)}; {is_one}")
    mode = _pooling_mode(path_or_id, folders[1])
    settings = read_json(path_or_id, SETTINGS, subfolder=folders[0])
    is_global = settings.get("transformer_task") == GLOBAL_ATTENTION["transformer_task"]
    if mode == "mean" and not is_global:
        return "mean"
    if mode == "cls":
        return "cls" if is_global else "first"
    found = f"pooling is {mode} {'with' if is_global else 'without'} global attention"
    raise InputError(f"{path_or_id}: {found}; a student's is mean without it, or cls with or without it")


def encoder_pooling(name: str) -> Pooling:
    """The pooling of a short sentence encoder, "mean" for a plain transformers model. Raises InputError for others."""
    modules = dict(read_modules(source := resolve(name)))
    mode = _pooling_mode(source, modules["Pooling"]) if "Pooling" in modules else "mean"
    if mode not in ("mean", "cls") or not {*modules} <= {"Transformer", "Pooling", "Normalize"}:
        problem = f"modules {', '.join(modules)} with pooling {mode}; take an encoder with pooling mean or cls"
        raise InputError(f"{name}: {problem} and nothing behind it but Normalize")
    return "first" if mode == "cls" else "mean"


def _pooling_mode(path_or_id: str, folder: str) -> str:
    config = read_json(path_or_id, "config.json", subfolder=folder)
    flags = {name.removeprefix("pooling_mode_") for name, on in config.items() if on is True and "_mode_" in name}
    mode = config.get("pooling_mode") or "+".join(flags).replace("_tokens", "").replace("_token", "")
    if not mode:
        logger.warning("%s: %s/config.json names no pooling; the mean over tokens is taken", path_or_id, folder)
    return mode or "mean"


def saved_mean(path_or_id: str) -> Tensor | None:
    """The mean embedding that a saved student subtracts, (D,), or None: minus the bias of an identity Dense module."""
    folder = dict(read_modules(path_or_id)).get("Dense")
    if folder is None:
        return None
    config = read_json(path_or_id, "config.json", subfolder=folder)
    file = find_file(path_or_id, WEIGHTS, subfolder=folder)
    if file is None:
        raise InputError(f"{path_or_id}: {folder} has no {WEIGHTS}; save the model with safetensors weights")
    with one_line(path_or_id, f"{folder}/{WEIGHTS} cannot be used"):
        weights = load_file(file)
    identity, bias = weights.get("linear.weight"), weights.get("linear.bias")
    activation = str(config.get("activation_function")).rpartition(".")[2]
    plain = activation == "Identity" and not config.get("use_residual", False)
    if not plain or bias is None or identity is None or not torch.equal(identity.float(), torch.eye(len(bias))):
        raise InputError(f"{path_or_id}: {folder} does more than subtract a mean, the only Dense that a student has")
    return -bias.float()


def saved_max_tokens(path_or_id: str, *, positions: int) -> int:
    """The token limit of a saved model, at most its `positions`."""
    subfolder = transformer_subfolder(path_or_id)
    limit = read_json(path_or_id, SETTINGS, subfolder=subfolder).get("max_seq_length")
    if limit is None:  # sentence-transformers leaves it to the tokenizer, whose limit may be 10^30
        tokenizer = read_json(path_or_id, "tokenizer_config.json", subfolder=subfolder)
        with one_line(path_or_id, "tokenizer_config.json: model_max_length is no number"):
            return int(min(positions, tokenizer.get("model_max_length") or positions))
    if not isinstance(limit, int) or limit < 1:
        raise InputError(f"{path_or_id}: {SETTINGS}: max_seq_length: got {limit!r}, write a whole number from 1")
    if limit > positions:
        problem = f"max_seq_length {limit}, but the model has positions for {positions}"
        raise InputError(f"{path_or_id}: {SETTINGS}: {problem}; write at most that")
    return int(limit)


POOLING_SENTENCE = {
    "mean": "An embedding is the mean over all tokens, not normalised.",
    "first": "An embedding is the hidden state of the first token, not normalised.",
    "cls": "An embedding is the hidden state of the first token, not normalised. It has global attention, which stock "
    "`AutoModel` leaves out and sentence-transformers sets from release 5.4 on; older releases refuse this folder.",
}
CENTRED = "The mean embedding of training documents is subtracted from it (the Dense module)."
PAIRS = {
    "halves": "trained to tell two halves of a document's sentences from those of other documents (SimDE)",
    "dropout": "trained to know a document again under another dropout (SimCSE)",
}
USAGE = """```python
from sentence_transformers import SentenceTransformer

embeddings = SentenceTransformer("this/folder"{trust}).encode(["a long document"])
```"""
TRUST = ", trust_remote_code=True"
BEHIND = "Behind the dense half stands a lexical one of"
LEXICAL_SENTENCE = (
    BEHIND + " {width} dimensions, a sum of one vector per word of the whole text, fitted on {documents}; refit it on "
    "others with `docemb adapt`. Its code is `" + CODE + "`, which sentence-transformers runs with "
    "`trust_remote_code=True`."
)
SCORES, END = "<!-- scores, written by docemb -->", "<!-- end of scores -->"

Score = tuple[str, str, float, float | None]  # task, metric, value, spread (None: of one measurement)


def model_card(
    student: Student, *, profile: str, encoder: str, structural_teacher: str | None, contextual_teacher: str | None,
    parameters: Mapping[str, object], documents: int, corpus: str, validation_before: float, validation_after: float,
    pairs: str | None = None, licence: str | None = None,
) -> str:  # fmt: skip
    """The origin of a trained student, as a README with front matter.

    parameters: the objective's, named as in the profile; validation_before, validation_after: mean validation loss;
    pairs: a key of PAIRS, None for a student of teachers alone; licence: the encoder's, see `licence_of`.
    """
    learnt, teachers = [PAIRS[pairs]] if pairs else [], []
    if structural_teacher:
        teachers.append(f"structure from {structural_teacher} (loss {parameters['structural_loss']})")
    if contextual_teacher:
        teachers.append(f"context from a {contextual_teacher} model (loss {parameters['contextual_loss']})")
    if teachers:
        learnt.append(f"distilled with {' and '.join(teachers)}")
    origin = f"{encoder} as a {student.config.model_type}, {' and '.join(learnt)}"
    rows = [f"| `{name}` | `{json.dumps(value)}` |" for name, value in parameters.items()]
    paragraphs = [
        f"Embeds long documents: {origin}, on {documents} documents of {corpus}.",
        f"Mean validation loss: {validation_before:.4f} before, {validation_after:.4f} after.",
        "\n".join(["| parameter | value |", "|---|---|", *rows]),
    ]
    return _card(student, f"A docemb student (profile {profile})", paragraphs, licence)


def encoder_card(encoder: str, student: Student, documents: str) -> str:
    """The card of a student that is a short encoder with a lexical half. Arguments as in `with_lexical_half`."""
    origin = f"{encoder} as a {student.config.model_type} that reads {student.max_tokens:,} tokens, not trained further"
    paragraphs = [f"Embeds long documents: {origin}."]
    return _card(student, f"{encoder} for long documents", paragraphs, licence_of(resolve(encoder)), documents)


def add_scores(folder: str | Path, rows: Sequence[Score]) -> None:
    """Write a table of scores into the card of a saved student, replacing an earlier table, in one atomic step.

    rows: (task, metric, value, spread); a spread of None is not shown. Raises InputError where there is no card.
    """
    from docemb_lib.workspace import write_text  # imported here: students also run where pydantic is not installed

    file = Path(folder) / README
    if not file.is_file():
        raise InputError(f"{file}: missing; give the folder of a saved student")
    lines = [SCORES, "", "## Scores", "", "| task | metric | score |", "|---|---|---|"]
    for task, metric, value, spread in rows:
        lines.append(f"| {task} | {metric} | {value:.4f}{'' if spread is None else f' ± {spread:.4f}'} |")
    table = "\n".join([*lines, "", END])
    card = file.read_text(encoding="utf-8", errors="replace")
    earlier = re.compile(rf"{re.escape(SCORES)}.*?{re.escape(END)}", re.DOTALL)
    write_text(file, earlier.sub(lambda _: table, card) if earlier.search(card) else f"{card.rstrip()}\n\n{table}\n")


def licence_of(path_or_id: str) -> str | None:
    """The licence that a model's own card declares; None without a card, a declaration, or access to the hub."""
    try:
        file = find_file(path_or_id, README)
        matter = None if file is None else metadata_load(file)
    except Exception:  # of a card that is no UTF-8 or no YAML, and of the hub
        return None
    licence = (matter or {}).get("license")
    return licence if isinstance(licence, str) else None


def with_lexical_half(path_or_id: str, student: Student, documents: str) -> str | None:
    """The card of a saved student for the same student with a lexical half; None where it has no card.

    documents: what the half was fitted on, as in "300 documents of reports".
    """
    file = find_file(path_or_id, README)
    if file is None:
        return None
    card = re.sub(f" {BEHIND}.*", "", file.read_text(encoding="utf-8", errors="replace"))  # of an earlier half
    sentence = f" {LEXICAL_SENTENCE.format(width=student.width - student.dim, documents=documents)}\n\nMade with"
    return card.replace(USAGE.format(trust=""), USAGE.format(trust=TRUST)).replace("\n\nMade with", sentence)


def _card(
    student: Student, title: str, paragraphs: list[str], licence: str | None = None, documents: str = "a collection"
) -> str:
    model_type = student.config.model_type
    front: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": ["sentence-transformers", "sentence-similarity", "feature-extraction", model_type, "docemb"],
    } | ({} if licence is None else {"license": licence})
    packages = {"docemb": __version__, "torch": torch.__version__, "transformers": transformers.__version__}
    packages["sentence-transformers"] = version("sentence-transformers")
    made_with = f"Made with {', '.join(map(' '.join, packages.items()))}."
    embedding = POOLING_SENTENCE[student.pooling] + ("" if student.mean is None else f" {CENTRED}")
    usage = USAGE.format(trust="" if student.lexical is None else TRUST)
    if student.lexical is not None:
        embedding += " " + LEXICAL_SENTENCE.format(width=student.width - student.dim, documents=documents)
    body = "\n\n".join([f"# {title}", *paragraphs, usage, embedding, made_with])
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{body}\n"

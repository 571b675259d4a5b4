"""A student as a plain sentence-transformers folder: the encoder at the root, pooling and centring beside it, a card.

Written in the layout that every release of sentence-transformers reads, with stock `AutoModel` and `AutoTokenizer` too.
One student needs release 5.4: the Longformer with global attention on its first token. Its folder asks for the last
hidden state of a `LongformerForSequenceClassification`, which sets that attention by itself; older releases refuse it.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
import transformers
import yaml
from safetensors.torch import save

from docemb_lib import __version__
from docemb_lib.errors import InputError
from docemb_lib.student.loading import GLOBAL_TASK, Pooling, find_file, without_limits

POOLING, CENTRING = "1_Pooling", "2_Dense"
MODULES = "sentence_transformers.models"
GLOBAL_ATTENTION = {
    "transformer_task": GLOBAL_TASK,
    "modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", -1]}},
    "module_output_name": "token_embeddings",
}
README = "README.md"
TAGS = ["sentence-transformers", "sentence-similarity", "feature-extraction"]
EMBEDDING_IS = {
    "mean": "An embedding is the mean over all tokens, not normalised.",
    "first": "An embedding is the hidden state of the first token, not normalised.",
    "cls": "An embedding is the hidden state of the first token, not normalised. It has global attention, which stock "
    "`AutoModel` leaves out and sentence-transformers sets from release 5.4 on; older releases refuse this folder.",
}
CENTRED = "The mean embedding of training documents is subtracted from it (the Dense module)."
SCORES, END = "<!-- scores, written by docemb -->", "<!-- end of scores -->"
FRONT_MATTER = re.compile(r"\A---\n(.*?)\n---\n", re.DOTALL)

PAIRS = {
    "halves": "trained to tell two halves of a document's sentences from those of other documents (SimDE)",
    "dropout": "trained to know a document again under another dropout (SimCSE)",
}

Score = tuple[str, str, float, float | None]  # task, metric, value, spread (None: of one measurement)


def write_folder(
    folder: Path,
    model: Any,
    tokenizer: Any,
    *,
    pooling: Pooling,
    max_tokens: int,
    mean: torch.Tensor | None = None,
    card: str,
) -> None:
    """Write model, tokenizer and card into `folder`, beside whatever else is there. mean: (D,), see `Student.mean`."""
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    D = config.hidden_size
    # Stock classes have a pooler or a classifier that nothing here uses: stored as zeros, so that loading neither warns
    # of missing weights nor draws random ones.
    if pooling == "cls":
        config.architectures, config.num_labels = ["LongformerForSequenceClassification"], 1
        weights = {f"longformer.{name}": tensor for name, tensor in weights.items()} | _zeros("classifier.dense", D, D)
        weights |= _zeros("classifier.out_proj", 1, D)
    elif config.model_type == "longformer":
        weights |= _zeros("pooler.dense", D, D)
    # Not `save_file`, which leaves a file that its owner alone can read.
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    config.save_pretrained(folder)
    without_limits(tokenizer)
    tokenizer.save_pretrained(folder)
    paths = {"Transformer": "", "Pooling": POOLING} | ({} if mean is None else {"Dense": CENTRING})
    modules = enumerate(paths.items())
    _write_json(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": f"{MODULES}.{kind}"} for i, (kind, path) in modules],
    )
    limits = {"max_seq_length": max_tokens, "do_lower_case": False}
    _write_json(folder / "sentence_bert_config.json", limits | (GLOBAL_ATTENTION if pooling == "cls" else {}))
    _write_json(
        folder / "config_sentence_transformers.json",
        {
            "model_type": "SentenceTransformer",
            "__version__": {
                "sentence_transformers": version("sentence-transformers"),
                "transformers": transformers.__version__,
                "pytorch": torch.__version__,
            },
            "prompts": {},
            "similarity_fn_name": "cosine",
        },
    )
    (folder / POOLING).mkdir(exist_ok=True)
    _write_json(
        folder / POOLING / "config.json",
        {
            "word_embedding_dimension": D,
            "pooling_mode_cls_token": pooling != "mean",
            "pooling_mode_mean_tokens": pooling == "mean",
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    if mean is not None:
        _write_centring(folder / CENTRING, mean.detach().float().cpu())
    (folder / README).write_text(card, encoding="utf-8")


def plain_card(config: Any, *, pooling: Pooling, max_tokens: int, centred: bool = False) -> str:
    """A card for a student of which nothing more is said."""
    sizes = f"{config.hidden_size} dimensions, up to {max_tokens} tokens."
    kind = config.model_type
    return _card("A docemb student", [sizes], licence=None, model_type=kind, pooling=pooling, centred=centred)


def model_card(
    *,
    profile: str,
    encoder: str,
    structural_teacher: str | None,
    contextual_teacher: str | None,
    parameters: Mapping[str, object],
    documents: int,
    corpus: str,
    validation_before: float,
    validation_after: float,
    pairs: str | None = None,
    licence: str | None = None,
    model_type: str = "longformer",
    pooling: Pooling = "mean",
    centred: bool = False,
    scores: Sequence[Score] = (),
) -> str:
    """Where a trained student comes from, as a README with front matter.

    parameters: the objective's, named as in the profile; validation_before, validation_after: mean validation loss;
    pairs: of PAIRS, None: it has learnt from teachers alone; licence: the encoder's, see `licence_of`; scores: as in
    `add_scores`.
    """
    learnt, teachers = [PAIRS[pairs]] if pairs else [], []
    if structural_teacher:
        teachers.append(f"structure from {structural_teacher} (loss {parameters['structural_loss']})")
    if contextual_teacher:
        teachers.append(f"context from a {contextual_teacher} model (loss {parameters['contextual_loss']})")
    if teachers:
        learnt.append(f"distilled with {' and '.join(teachers)}")
    origin = f"{encoder} as a {model_type}, {' and '.join(learnt)}"
    rows = [f"| `{name}` | `{json.dumps(value)}` |" for name, value in parameters.items()]
    card = _card(
        f"A docemb student (profile {profile})",
        [
            f"Embeds long documents: {origin}, on {documents} documents of {corpus}.",
            f"Mean validation loss: {validation_before:.4f} before, {validation_after:.4f} after.",
            "\n".join(["| parameter | value |", "|---|---|", *rows]),
        ],
        licence=licence,
        model_type=model_type,
        pooling=pooling,
        centred=centred,
    )
    return _with_scores(card, scores) if scores else card


def add_scores(folder: str | Path, rows: Sequence[Score]) -> None:
    """Write a table of scores into the card of a saved student, in place of an earlier one; the rest is kept.

    rows: (task, metric, value, spread); values as they are shown, spread None where there is none. The card is replaced
    in one step. Raises InputError where there is no card.
    """
    from docemb_lib.workspace import write_text  # what it needs, a student does not

    file = Path(folder) / README
    if not file.is_file():
        raise InputError(f"{file}: missing; give the folder of a saved student")
    write_text(file, _with_scores(file.read_text(encoding="utf-8"), rows))


def licence_of(path_or_id: str) -> str | None:
    """The licence that a model's own card declares; None where it has no card or says nothing."""
    try:
        file = find_file(path_or_id, README)
    except InputError:  # the hub is out of reach
        return None
    matter = FRONT_MATTER.match(file.read_text(encoding="utf-8")) if file is not None else None
    try:
        front = yaml.safe_load(matter[1]) if matter else None
    except yaml.YAMLError:
        return None
    licence = front.get("license") if isinstance(front, dict) else None
    return licence if isinstance(licence, str) else None


def _zeros(layer: str, rows: int, columns: int) -> dict[str, torch.Tensor]:
    return {f"{layer}.weight": torch.zeros(rows, columns), f"{layer}.bias": torch.zeros(rows)}


def _write_centring(folder: Path, mean: torch.Tensor) -> None:
    """A stock module that subtracts `mean`, (D,), and does nothing else: the identity with a bias."""
    D = len(mean)
    folder.mkdir(exist_ok=True)
    activation = f"{torch.nn.Identity.__module__}.{torch.nn.Identity.__name__}"
    _write_json(
        folder / "config.json",
        {"in_features": D, "out_features": D, "bias": True, "activation_function": activation},
    )
    weights = {"linear.weight": torch.eye(D), "linear.bias": -mean}
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _with_scores(card: str, rows: Sequence[Score]) -> str:
    lines = [
        f"| {task} | {metric} | {value:.4f}{'' if spread is None else f' ± {spread:.4f}'} |"
        for task, metric, value, spread in rows
    ]
    table = "\n".join([SCORES, "", "## Scores", "", "| task | metric | score |", "|---|---|---|", *lines, "", END])
    earlier = re.compile(rf"{re.escape(SCORES)}.*?{re.escape(END)}", re.DOTALL)
    if earlier.search(card):
        return earlier.sub(lambda _: table, card)
    return f"{card.rstrip()}\n\n{table}\n"


def _card(
    title: str, paragraphs: list[str], *, licence: str | None, model_type: str, pooling: Pooling, centred: bool
) -> str:
    front: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": [*TAGS, model_type, "docemb"],
    }
    if licence is not None:
        front["license"] = licence
    usage = (
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'embeddings = SentenceTransformer("this/folder").encode(["a long document"])\n```'
    )
    made_with = (
        f"Made with docemb {__version__}, torch {torch.__version__}, transformers "
        f"{transformers.__version__}, sentence-transformers {version('sentence-transformers')}."
    )
    embedding_is = f"{EMBEDDING_IS[pooling]} {CENTRED}" if centred else EMBEDDING_IS[pooling]
    body = "\n\n".join([f"# {title}", *paragraphs, usage, embedding_is, made_with])
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{body}\n"

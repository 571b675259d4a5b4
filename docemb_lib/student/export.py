"""A student as a plain sentence-transformers folder: Longformer at the root, mean pooling beside it, a model card.

Written in the layout that every release of sentence-transformers reads, with stock `AutoModel` and `AutoTokenizer` too.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml
from safetensors.torch import save
from transformers import LongformerModel
from transformers.utils import cached_file

from docemb_lib.errors import InputError
from docemb_lib.student.conversion import without_limits

POOLING = "1_Pooling"
TAGS = ["sentence-transformers", "sentence-similarity", "feature-extraction", "longformer", "docemb"]


def write_folder(folder: Path, longformer: LongformerModel, tokenizer: Any, *, max_tokens: int, card: str) -> None:
    """Write model, tokenizer and card into `folder`, beside whatever else is there.

    Stock LongformerModel has a pooler on its first token, which nothing here uses; it is stored as zeros, so that
    loading neither warns of missing weights nor draws random ones.
    """
    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in longformer.state_dict().items()}
    D = longformer.config.hidden_size
    weights |= {"pooler.dense.weight": torch.zeros(D, D), "pooler.dense.bias": torch.zeros(D)}
    # Not `save_file`, which leaves a file that its owner alone can read.
    (folder / "model.safetensors").write_bytes(save(weights, metadata={"format": "pt"}))
    longformer.config.architectures = ["LongformerModel"]
    longformer.config.save_pretrained(folder)
    without_limits(tokenizer)
    tokenizer.save_pretrained(folder)
    _write_json(
        folder / "modules.json",
        [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": POOLING, "type": "sentence_transformers.models.Pooling"},
        ],
    )
    _write_json(folder / "sentence_bert_config.json", {"max_seq_length": max_tokens, "do_lower_case": False})
    _write_json(folder / "config_sentence_transformers.json", {"similarity_fn_name": "cosine", "prompts": {}})
    (folder / POOLING).mkdir(exist_ok=True)
    _write_json(
        folder / POOLING / "config.json",
        {
            "word_embedding_dimension": D,
            "pooling_mode_cls_token": False,
            "pooling_mode_mean_tokens": True,
            "pooling_mode_max_tokens": False,
            "pooling_mode_mean_sqrt_len_tokens": False,
        },
    )
    (folder / "README.md").write_text(card, encoding="utf-8")


def transformer_subfolder(path_or_id: str) -> str:
    """Where a sentence-transformers model keeps its transformer; "" for a plain model."""
    modules = _read_json(path_or_id, "modules.json")
    return modules[0]["path"] if modules else ""


def check_mean_pooling(path_or_id: str) -> None:
    """Raises InputError for a sentence-transformers model that is anything but a transformer with mean pooling."""
    modules = _read_json(path_or_id, "modules.json")
    if modules is None:
        return
    kinds = [module["type"].rpartition(".")[2] for module in modules]
    if kinds != ["Transformer", "Pooling"]:
        raise InputError(f"{path_or_id}: modules {', '.join(kinds)}; a student is a Transformer and a mean Pooling")
    pooling = _read_json(path_or_id, "config.json", subfolder=modules[1]["path"]) or {}
    flags = {name.removeprefix("pooling_mode_") for name, on in pooling.items() if on is True and "_mode_" in name}
    if pooling.get("pooling_mode", "mean") != "mean" or not flags <= {"mean_tokens"}:
        raise InputError(f"{path_or_id}: pooling is not the mean of all tokens, as a student's is")


def saved_max_tokens(path_or_id: str) -> int | None:
    """The limit that a sentence-transformers model sets below its positions, if any."""
    settings = _read_json(path_or_id, "sentence_bert_config.json") or {}
    return settings.get("max_seq_length")


def plain_card(*, dim: int, max_tokens: int) -> str:
    """A card for a student of which nothing more is said."""
    return _card("A docemb student", [f"{dim} dimensions, up to {max_tokens} tokens."], licence=None)


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
    licence: str | None = None,
) -> str:
    """Where a trained student comes from, as a README with front matter.

    parameters: the objective's, named as in the profile; validation_before, validation_after: mean validation loss.
    """
    teachers = [
        f"structure from {structural_teacher}" if structural_teacher else "",
        f"context from a {contextual_teacher} model" if contextual_teacher else "",
    ]
    origin = f"{encoder}, converted to a Longformer and distilled with {' and '.join(filter(None, teachers))}"
    rows = [f"| `{name}` | `{json.dumps(value)}` |" for name, value in parameters.items()]
    return _card(
        f"A docemb student (profile {profile})",
        [
            f"Embeds long documents: {origin}, on {documents} documents of {corpus}.",
            f"Mean validation loss: {validation_before:.4f} before, {validation_after:.4f} after.",
            "\n".join(["| parameter | value |", "|---|---|", *rows]),
        ],
        licence=licence,
    )


def _card(title: str, paragraphs: list[str], *, licence: str | None) -> str:
    front: dict[str, Any] = {
        "library_name": "sentence-transformers",
        "pipeline_tag": "sentence-similarity",
        "tags": TAGS,
    }
    if licence is not None:
        front["license"] = licence
    usage = (
        "```python\nfrom sentence_transformers import SentenceTransformer\n\n"
        'embeddings = SentenceTransformer("this/folder").encode(["a long document"])\n```'
    )
    body = "\n\n".join(
        [f"# {title}", *paragraphs, usage, "Embeddings are the mean over all tokens and are not normalised."]
    )
    return f"---\n{yaml.safe_dump(front, sort_keys=False)}---\n\n{body}\n"


def _read_json(path_or_id: str, name: str, *, subfolder: str = "") -> Any:
    """A file of a folder or of a model on a hub; None where there is none."""
    try:
        file = cached_file(path_or_id, name, subfolder=subfolder, _raise_exceptions_for_missing_entries=False)
    except OSError as error:
        reason = str(error).splitlines()[0]
        raise InputError(f"{path_or_id}: no such folder, and not found on the hub: {reason}") from error
    return None if file is None else json.loads(Path(file).read_text(encoding="utf-8"))


def _write_json(path: Path, content: object) -> None:
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

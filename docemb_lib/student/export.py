"""A student as a sentence-transformers folder, written and read: the encoder, pooling and a model
card.

Every release of sentence-transformers reads the folder, and so do stock `AutoModel` and
`AutoTokenizer`. Two kinds need more. A lexical half and pooling "lead" are a file of code in the
folder (`lexical_module`), which release 6 runs where it is allowed to. The Longformer with global
attention on its first token needs release 5.4: its folder asks for the last hidden state of a
`LongformerForSequenceClassification`, which sets that attention itself.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import torch
from huggingface_hub import ModelCard, ModelCardData
from safetensors.torch import save

from docemb_lib.base import __version__
from docemb_lib.base.errors import InputError
from docemb_lib.base.pretrained import resolve
from docemb_lib.student.lexical import CODE, FOLDER
from docemb_lib.student.loading import (
    GIVE_STUDENT,
    SETTINGS,
    find_file,
    is_short,
    no_student,
    read_json,
    read_modules,
    remove_limits,
)
from docemb_lib.workspace import write_bytes, write_text

if TYPE_CHECKING:
    from docemb_lib.student.lexical_module import LexicalHalf

Pooling = Literal["mean", "lead", "first", "cls"]
MEANS = ("mean", "lead")
# The modules of sentence-transformers folders, as regular expressions.
STUDENT_MODULES = "(Text|Weighted)?Transformer Pooling( LexicalHalf)?"
ENCODER_MODULES = "Transformer Pooling( Normalize)?"
STOCK, MODULE = "sentence_transformers.models", CODE.removesuffix(".py")
POOLING, README = "1_Pooling", "README.md"
STATE = "docemb.json"  # what docemb knows of a student beyond the files of sentence-transformers
GLOBAL_ATTENTION = {
    # marks a folder whose first tokens have global attention
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", -1]}},
    "module_output_name": "token_embeddings",
}


class Writable(Protocol):
    """What a folder is written from; `Student` is one."""

    model: Any
    tokenizer: Any
    pooling: Pooling
    lexical: LexicalHalf | None
    trained_on: str | None

    @property
    def config(self) -> Any: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def width(self) -> int:
        """The width of an embedding, with a lexical half."""


def write_folder(student: Writable, folder: Path, card: str | None) -> None:
    """Write model, tokenizer and card (None: a plain one) into `folder`; other files there are
    kept.
    """
    folder.mkdir(parents=True, exist_ok=True)
    model, tokenizer, pooling = student.model, student.tokenizer, student.pooling
    weights = {
        name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()
    }
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    D = config.hidden_size
    # Stock classes have a pooler or a classifier, unused here. Zeros in the file keep loading from
    # warning of missing weights and from drawing random ones.
    unused = (
        {"pooler.dense": D} if config.model_type == "longformer" else {}
    )  # rows of D weights, and a bias
    if pooling == "cls":
        config.architectures, config.num_labels = ["LongformerForSequenceClassification"], 1
        weights = {f"longformer.{name}": tensor for name, tensor in weights.items()}
        unused = {"classifier.dense": D, "classifier.out_proj": 1}
    for layer, rows in unused.items():
        weights |= {f"{layer}.weight": torch.zeros(rows, D), f"{layer}.bias": torch.zeros(rows)}
    # `save_file` would create a file that only its owner can read. A loaded student maps the old
    # file into its memory: it must be replaced, not written to.
    write_bytes(folder / "model.safetensors", save(weights, metadata={"format": "pt"}))
    config.save_pretrained(folder)
    remove_limits(tokenizer)
    tokenizer.save_pretrained(folder)
    first = f"{STOCK}.Transformer"
    if pooling == "lead" or student.lexical is not None:
        first = f"{MODULE}.{'WeightedTransformer' if pooling == 'lead' else 'TextTransformer'}"
        (folder / CODE).write_bytes((Path(__file__).parent / CODE).read_bytes())
    types = {first: "", f"{STOCK}.Pooling": POOLING}
    if student.lexical is not None:  # reads the texts that the first module hands on
        types[f"{MODULE}.LexicalHalf"] = FOLDER
        (folder / FOLDER).mkdir(exist_ok=True)
        student.lexical.save(str(folder / FOLDER))
    modules = [
        {"idx": i, "name": str(i), "path": path, "type": of}
        for i, (of, path) in enumerate(types.items())
    ]
    versions = {
        "sentence_transformers": version("sentence-transformers"),
        "transformers": version("transformers"),
    }
    versions["pytorch"] = torch.__version__
    general = {"model_type": "SentenceTransformer", "__version__": versions, "prompts": {}}
    limits = {"max_seq_length": student.max_tokens, "do_lower_case": False}
    _write_json(folder / STATE, {"trained_on": student.trained_on})
    _write_json(folder / "modules.json", modules)
    _write_json(folder / SETTINGS, limits | (GLOBAL_ATTENTION if pooling == "cls" else {}))
    _write_json(
        folder / "config_sentence_transformers.json", general | {"similarity_fn_name": "cosine"}
    )
    mean = pooling in MEANS
    modes = {
        "word_embedding_dimension": D,
        "pooling_mode_cls_token": not mean,
        "pooling_mode_mean_tokens": mean,
    }
    modes |= {"pooling_mode_max_tokens": False, "pooling_mode_mean_sqrt_len_tokens": False}
    _write_json(folder / POOLING / "config.json", modes)
    if card is None:
        card = student_card(student)
        card = card if student.lexical is None else with_lexical_half(card, student, "a collection")
    (folder / README).write_text(
        card.replace(*WITH_CODE) if first.startswith(MODULE) else card, encoding="utf-8"
    )


def _write_json(path: Path, content: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def saved_pooling(path_or_id: str) -> Pooling:
    """The pooling of a saved student; "mean" for a plain transformers model.

    Raises InputError for others.
    """
    return _pooling(path_or_id, "a student", STUDENT_MODULES, GIVE_STUDENT)


def encoder_pooling(name: str) -> Pooling:
    """The pooling of a short sentence encoder, "mean" for a plain transformers model.

    Raises InputError for others.
    """
    return _pooling(name, "a short encoder", ENCODER_MODULES, "Give another encoder.")


def _pooling(name: str, kind: str, expected: str, mend: str) -> Pooling:
    """expected: a regular expression of the names of the modules; kind, mend: for errors."""
    path_or_id = resolve(name)
    if not (modules := read_modules(path_or_id)):
        return "mean"
    names = " ".join(name for name, _ in modules)
    if not re.fullmatch(expected, names):
        if re.fullmatch(ENCODER_MODULES, names) and is_short(path_or_id):
            raise no_student(name, path_or_id)
        plain = (
            expected.removeprefix("(Text|Weighted)?")
            .replace("( ", " and perhaps ")
            .removesuffix(")?")
        )
        needed = f"{kind} has {plain}"
        raise InputError(f"The model {name} has the modules {names}, and {needed}. {mend}")
    config = read_json(path_or_id, "config.json", subfolder=modules[1][1])
    flags = [
        name.removeprefix("pooling_mode_")
        for name, on in config.items()
        if on is True and "_mode_" in name
    ]
    given = config.get("pooling_mode") or flags  # several are a list
    mode = (
        given
        if isinstance(given, str)
        else "+".join(given).replace("_tokens", "").replace("_token", "") or "mean"
    )
    task = read_json(path_or_id, SETTINGS, subfolder=modules[0][1]).get("transformer_task")
    is_global = task == GLOBAL_ATTENTION["transformer_task"]
    mean: Pooling = "lead" if names.startswith("Weighted") else "mean"
    poolings: dict[Any, Pooling] = {
        ("mean", False): mean,
        ("cls", False): "first",
        ("cls", True): "cls",
    }
    if (mode, is_global) not in poolings:
        attention = f"{'with' if is_global else 'without'} global attention"
        found = f"The model {name} pools by {mode} {attention}"
        needed = f"{kind} pools by mean without it, or by cls with or without it"
        raise InputError(f"{found}, and {needed}. {mend}")
    return poolings[mode, is_global]


POOLINGS = {
    "mean": "mean over all tokens",
    "lead": "mean over all tokens, of which the first 256 count four times and more; needs `trust_remote_code=True`",
    "first": "hidden state of the first token",
    "cls": "hidden state of the first token, which has global attention; needs sentence-transformers 5.4",
}
USAGE = """Embeds long documents:

```python
from sentence_transformers import SentenceTransformer

embeddings = SentenceTransformer("this/folder").encode(["a long document"])
```"""
WITH_CODE = (
    '"this/folder")',
    '"this/folder", trust_remote_code=True)',
)  # in a card, of a folder without code and with
LEXICAL, SCORES = "## Lexical half", "## Scores"
BY_HAND = " The weight of the lexical half was chosen by hand."
LEXICAL_SENTENCE = (
    "After the dense half comes a lexical half of {dim} dimensions, a sum of one vector per word of the whole text, "
    "fitted on {documents}; refit it on others with `docemb adapt`. An embedding has {width} dimensions. "
    "sentence-transformers runs the code of the half, `" + CODE + "`, with "
    "`SentenceTransformer(folder, trust_remote_code=True)`."
)


def student_card(student: Writable, encoder: str | None = None, **facts: object) -> str:
    """A README with front matter: how a student is used, and a table of facts about it and its
    origin.

    encoder: the model that the student was made of; its licence applies to the student.
    """
    model_type = student.config.model_type
    tags = [
        "sentence-transformers",
        "sentence-similarity",
        "feature-extraction",
        model_type,
        "docemb",
    ]
    front = ModelCardData(
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=tags,
        license=licence_of(resolve(encoder)) if encoder else None,
    )
    about = ({"encoder": encoder} if encoder else {}) | {
        "model": model_type,
        "max_tokens": student.max_tokens,
    }
    about |= facts | {"embedding": POOLINGS[student.pooling]}
    rows = [f"| `{name}` | {value} |" for name, value in about.items()]
    table = "\n".join([f"Made with docemb {__version__}.", "", "| | |", "|---|---|", *rows])
    return f"---\n{front.to_yaml()}\n---\n\n# A docemb student\n\n{USAGE}\n\n{table}\n"


def with_lexical_half(card: str, student: Writable, documents: str) -> str:
    """The card of a student with what its lexical half was fitted on, as in "300 documents of
    reports".

    What the card says of an earlier half, and the scores of the student before, are left out.
    """
    half = student.lexical
    dim = half.vectors.shape[1] if half else 0
    sentence = LEXICAL_SENTENCE.format(dim=dim, width=student.width, documents=documents)
    if half is not None and half.weight_given:
        sentence += BY_HAND
    return f"{_before(card, LEXICAL, SCORES)}\n\n{LEXICAL}\n\n{sentence}\n"


def saved_training(path_or_id: str) -> str | None:
    """What a saved student was trained on; None for a converted encoder and for older folders."""
    trained_on: str | None = read_json(path_or_id, STATE).get("trained_on")
    return trained_on


def saved_card(path_or_id: str) -> str:
    """The card of a saved model; "" where there is none."""
    file = find_file(path_or_id, README)
    return "" if file is None else file.read_text(encoding="utf-8", errors="replace")


def add_scores(folder: str | Path, rows: Sequence[tuple[str, str, float, float | None]]) -> None:
    """Write a table of scores at the end of a saved student's card, replacing an earlier table, in
    one atomic step.

    rows: (task, metric, value, spread); the spread is None, and not shown, where there is a single
    measurement.
    """
    lines = ["| task | metric | score |", "|---|---|---|"]
    for task, metric, value, spread in rows:
        lines.append(
            f"| {task} | {metric} | {value:.4f}{'' if spread is None else f' ± {spread:.4f}'} |"
        )
    card = _before(saved_card(str(folder)), SCORES)
    write_text(Path(folder) / README, "\n".join([card, "", SCORES, "", *lines, ""]))


def _before(card: str, *headings: str) -> str:
    """The card up to the first of these headings."""
    return re.split(f"^({'|'.join(headings)})$", card, flags=re.MULTILINE)[0].rstrip()


def licence_of(path_or_id: str) -> str | None:
    """The licence that a model's own card declares; None without a card, a declaration, or access
    to the hub.
    """
    with suppress(Exception):  # of a card that is not there, no UTF-8 or no YAML, and of the hub
        if (file := find_file(path_or_id, README)) is not None:
            return ModelCard.load(file).data.license
    return None

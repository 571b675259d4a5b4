"""A student as a sentence-transformers folder: the encoder, pooling and a model card.

Every release of sentence-transformers reads the folder, and so do stock `AutoModel` and
`AutoTokenizer`. Two kinds need more. A half of words and pooling "lead" are a file of code in the
folder (`words_module`), which release 6 runs where it is allowed to. The biases of MPNet are one,
too (`relative`), which stock transformers runs. The Longformer with global attention on its first
token needs release 5.4: its folder asks for the last hidden state of a
`LongformerForSequenceClassification`, which sets that attention itself.

The checksums of all other files are in `docemb.json`. The text of the card decides nothing.
"""

from __future__ import annotations

import copy
import json
import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from huggingface_hub import ModelCardData
from safetensors.torch import save
from torch import Tensor

from docemb_lib.base import __version__
from docemb_lib.base.errors import InputError
from docemb_lib.base.files import CARD, sealed, warn_once, write_bytes, write_text
from docemb_lib.base.pretrained import PACKAGED, one_line, resolve
from docemb_lib.base.prompts import Prompts, Query
from docemb_lib.packed import relative
from docemb_lib.packed.relative import RelativeLongformerConfig
from docemb_lib.student.encoder import MEANS, Encoder, Pooling
from docemb_lib.student.loading import (
    GENERAL,
    GIVE_STUDENT,
    LONGFORMERS,
    MODULES,
    SETTINGS,
    STUDENT,
    find_file,
    read_json,
    read_modules,
    remove_limits,
)
from docemb_lib.student.words import CODE, FOLDER

if TYPE_CHECKING:
    from docemb_lib.student.words_module import WordsHalf

# The modules of sentence-transformers folders, as regular expressions.
STUDENT_MODULES = "(Text|Weighted)?Transformer Pooling( WordsHalf)?"
ENCODER_MODULES = "Transformer Pooling( Normalize)?"
# By the mode of the pooling, and whether the first token has global attention.
BY_MODE: dict[tuple[str, bool], Pooling] = {
    ("mean", False): "mean",
    ("cls", False): "first",
    ("cls", True): "cls",
}
STOCK = "sentence_transformers.models"
MODULE = CODE.removesuffix(".py")
# The classes of `relative.py` for stock transformers.
RELATIVE = {
    "AutoConfig": "relative.RelativeLongformerConfig",
    "AutoModel": "relative.RelativeLongformer",
}
WEIGHTS = "model.safetensors"
POOLING = "1_Pooling"
PROMPT = "document"  # the name of the prompt that stands before a text unless it is a query
# These settings mark a folder whose first tokens have global attention.
GLOBAL_ATTENTION = {
    "transformer_task": "sequence-classification",
    "modality_config": {"text": {"method": "forward", "method_output_name": ["hidden_states", -1]}},
    "module_output_name": "token_embeddings",
}


def write_folder(
    student: Encoder,
    words: WordsHalf | None,
    folder: Path,
    card: str | None,
) -> None:
    """Write both halves, tokenizer and card (None: a plain one), and keep other files."""
    folder.mkdir(parents=True, exist_ok=True)
    _write_model(student, folder)
    remove_limits(student.tokenizer)
    files = [folder / WEIGHTS, folder / "config.json"]
    files += map(Path, student.tokenizer.save_pretrained(folder))

    is_relative = student.config.model_type == RelativeLongformerConfig.model_type
    if is_relative:
        files.append(shutil.copyfile(relative.__file__, folder / "relative.py"))
    first = f"{STOCK}.Transformer"
    if student.pooling == "lead" or words is not None:
        kind = "WeightedTransformer" if student.pooling == "lead" else "TextTransformer"
        first = f"{MODULE}.{kind}"
        files.append(shutil.copyfile(Path(__file__).with_name(CODE), folder / CODE))
    folders = {first: "", f"{STOCK}.Pooling": POOLING}  # of each module
    if words is not None:  # it reads the texts that the first module hands on
        folders[f"{MODULE}.WordsHalf"] = FOLDER
        (folder / FOLDER).mkdir(exist_ok=True)
        words.save(str(folder / FOLDER))
        files += (folder / FOLDER).iterdir()
    modules: list[dict[str, object]] = []
    for place, (kind, path) in enumerate(folders.items()):
        modules.append({"idx": place, "name": str(place), "path": path, "type": kind})
    modules[0]["checksums"] = STUDENT  # see `loading.check_files`

    settings: dict[str, object] = {"max_seq_length": student.max_tokens}
    if student.pooling == "cls":
        settings |= GLOBAL_ATTENTION
    prompts = student.prompts
    general = {
        "model_type": "SentenceTransformer",
        "prompts": {PROMPT: prompts.document, "query": prompts.of(Query())},
        "default_prompt_name": PROMPT if prompts.document else None,
    }
    pooling = {
        "word_embedding_dimension": student.model.config.hidden_size,
        "pooling_mode_cls_token": student.pooling not in MEANS,
        "pooling_mode_mean_tokens": student.pooling in MEANS,
    }
    contents = {
        MODULES: modules,
        SETTINGS: settings,
        GENERAL: general,
        f"{POOLING}/config.json": pooling,
    }
    for name, content in contents.items():
        write_text(folder / name, json.dumps(content, indent=2) + "\n")
        files.append(folder / name)

    if card is None:
        card = student_card(student)
        if words is not None:
            card = with_words(card, words, "a collection")
    runs_code = is_relative or first != f"{STOCK}.Transformer"
    write_text(folder / CARD, card.replace(*WITH_CODE) if runs_code else card)
    names = [file.relative_to(folder) for file in files if file.is_file()]
    write_text(folder / STUDENT, sealed(folder, {}, STUDENT, names))


def _write_model(student: Encoder, folder: Path) -> None:
    """Write the weights and the configuration as a stock class of transformers reads them."""
    model = student.model
    weights: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        weights[name] = tensor.detach().cpu().contiguous()
    config = copy.deepcopy(model.config)
    config.architectures = [type(model).__name__]
    config.dtype = model.dtype  # transformers sets it when it loads a model
    D = config.hidden_size
    # Stock classes have a pooler or a classifier, unused here. Zeros in the file keep loading from
    # warning of missing weights and from drawing random ones. A row has D weights and a bias.
    unused = {"pooler.dense": D} if config.model_type in LONGFORMERS else {}
    if config.model_type == RelativeLongformerConfig.model_type:
        config.auto_map = RELATIVE
    if student.pooling == "cls":
        config.architectures = ["LongformerForSequenceClassification"]
        config.num_labels = 1
        weights = {f"longformer.{name}": tensor for name, tensor in weights.items()}
        unused = {"classifier.dense": D, "classifier.out_proj": 1}
    for layer, rows in unused.items():
        weights[f"{layer}.weight"] = torch.zeros(rows, D)
        weights[f"{layer}.bias"] = torch.zeros(rows)
    # `save_file` would create a file that only its owner can read. A loaded student maps the old
    # file into its memory: it must be replaced, not written to.
    write_bytes(folder / WEIGHTS, save(weights, metadata={"format": "pt"}))
    config.save_pretrained(folder)


def saved_pooling(path_or_id: str) -> Pooling:
    """Return the pooling of a saved student; "mean" for a plain transformers model.

    Raises InputError for others.
    """
    modules = "Transformer Pooling and perhaps WordsHalf"
    return _pooling(path_or_id, STUDENT_MODULES, f"a student has {modules}. {GIVE_STUDENT}")


def encoder_pooling(name: str) -> Pooling:
    """Return the pooling of a short sentence encoder; "mean" for a plain transformers model.

    Raises InputError for others.
    """
    modules = "Transformer Pooling and perhaps Normalize"
    mend = "Give another encoder."
    return _pooling(name, ENCODER_MODULES, f"a short encoder has {modules}. {mend}")


def _pooling(name: str, expected: str, needed: str) -> Pooling:
    """Read the pooling of a model whose module names match the regular expression `expected`.

    needed: what such a model has, and the mend, for errors.
    """
    path_or_id = resolve(name)
    modules = read_modules(path_or_id)
    if not modules:
        return "mean"
    names = " ".join(class_name for class_name, _ in modules)
    if not re.fullmatch(expected, names):
        raise InputError(f"The model {name} has the modules {names}, and {needed}")

    # Recent releases name the mode, or several in a list; earlier ones have a flag for each.
    config = read_json(path_or_id, "config.json", subfolder=modules[1][1])
    flags = [flag for flag, is_on in config.items() if is_on is True and "_mode_" in flag]
    modes = config.get("pooling_mode") or flags
    mode = modes if isinstance(modes, str) else "+".join(modes)
    mode = re.sub("pooling_mode_|_tokens?", "", mode) or "mean"
    task = read_json(path_or_id, SETTINGS, subfolder=modules[0][1]).get("transformer_task")
    is_global = task == GLOBAL_ATTENTION["transformer_task"]
    pooling = BY_MODE.get((mode, is_global))
    if pooling is None:
        attention = f"{'with' if is_global else 'without'} global attention"
        problem = f"The model {name} pools by {mode} {attention}"
        raise InputError(f"{problem}, and not by mean or cls; {needed}")
    return "lead" if pooling == "mean" and names.startswith("Weighted") else pooling


POOLINGS = {
    "mean": "mean over all tokens",
    "lead": (
        "mean over all tokens, of which the first 256 count four times and more; "
        "needs `trust_remote_code=True`"
    ),
    "first": "hidden state of the first token",
    "cls": (
        "hidden state of the first token, which has global attention; "
        "needs sentence-transformers 5.4"
    ),
}
USAGE = """Embeds long documents:

```python
from sentence_transformers import SentenceTransformer

embeddings = SentenceTransformer("this/folder").encode(["a long document"])
```"""
# A card names the folder so where there is no code in it, and so where there is.
WITH_CODE = ('"this/folder")', '"this/folder", trust_remote_code=True)')
WORDS = "## Words"
SCORES = "## Scores"
BY_HAND = " The weight of the half of words was chosen by hand."
WORDS_SENTENCE = (
    "After the half of meaning comes a half of words of {dim} dimensions, a sum of one vector per "
    "word of the whole text, fitted on {documents}; refit it on others with `docemb adapt`. "
    "An embedding has {width} dimensions. "
    "sentence-transformers runs the code of the half, `" + CODE + "`, with "
    "`SentenceTransformer(folder, trust_remote_code=True)`."
)


def student_card(
    student: Encoder,
    encoder: str | None = None,
    datasets: Sequence[str] = (),
    **facts: object,
) -> str:
    """Write a README with front matter: how a student is used, and a table of facts about it.

    encoder: the model that the student was made of; datasets: on a hub, that it was trained on.
    """
    model_type = student.model.config.model_type
    tags = ["sentence-transformers", "sentence-similarity", "feature-extraction"]
    front = ModelCardData(
        base_model=_hub_id(encoder),
        datasets=list(datasets) or None,
        library_name="sentence-transformers",
        pipeline_tag="sentence-similarity",
        tags=[*tags, model_type, "docemb"],
    )
    about: dict[str, object] = {"encoder": encoder} if encoder else {}
    about |= {"model": model_type, "max_tokens": student.max_tokens, **facts}
    about["embedding"] = POOLINGS[student.pooling]
    rows = [f"| `{name}` | {value} |" for name, value in about.items()]
    table = "\n".join([f"Made with docemb {__version__}.", "", "| | |", "|---|---|", *rows])
    return f"---\n{front.to_yaml()}\n---\n\n# A docemb student\n\n{USAGE}\n\n{table}\n"


def _hub_id(encoder: str | None) -> str | None:
    """Return the id of an encoder on the hub; None for a folder of this machine."""
    if encoder is None or Path(encoder).is_dir():
        return None
    return f"sentence-transformers/{Path(encoder).name}" if encoder in PACKAGED else encoder


def with_words(card: str, half: WordsHalf | None, documents: str) -> str:
    """Add to a card what the half of words was fitted on, as in "300 documents of reports".

    What the card says of an earlier half, and the scores of the student before, are left out.
    """
    assert half is not None  # of an adapted student
    dim = half.vectors.shape[1]
    sentence = WORDS_SENTENCE.format(dim=dim, width=half.dim, documents=documents)
    if half.weight_given:
        sentence += BY_HAND
    return f"{_before(card, WORDS, SCORES)}\n\n{WORDS}\n\n{sentence}\n"


def saved_prompts(name: str) -> Prompts:
    """Return what a model wants before a text, as in "passage: ", and say so.

    Raises InputError for a model whose pooling leaves prompts out.
    """
    path_or_id = resolve(name)
    with one_line(path_or_id, f"the prompts in its {GENERAL} must be texts by name"):
        prompts = Prompts.among(read_json(path_or_id, GENERAL))
        if not "".join(prompts):  # an error if one is no text
            return prompts
    modules = read_modules(path_or_id)
    folder = modules[1][1] if len(modules) > 1 else ""
    if read_json(path_or_id, "config.json", subfolder=folder).get("include_prompt") is False:
        problem = f"The model {name} leaves its prompts {[*prompts]} out of the mean"
        raise InputError(f"{problem}, which a student does not. Give another encoder.")
    message = "%s: %r stands before a document, and %r before a query"
    warn_once(message, name, prompts.document, prompts.of(Query()))
    return prompts


def saved_card(path_or_id: str) -> str:
    """Return the card of a saved model; "" where there is none."""
    file = find_file(path_or_id, CARD)
    return "" if file is None else file.read_text(encoding="utf-8", errors="replace")


def add_scores(folder: str | Path, rows: Sequence[tuple[str, str, float, float | None]]) -> None:
    """Write a table of scores at the end of a saved student's card, in one atomic step.

    They replace earlier ones. rows: (task, metric, value, spread); the spread is None, and left
    out, where there is a single measurement.
    """
    lines = ["| task | metric | score |", "|---|---|---|"]
    for task, metric, value, spread in rows:
        deviation = "" if spread is None else f" ± {spread:.4f}"
        lines.append(f"| {task} | {metric} | {value:.4f}{deviation} |")
    before = _before(saved_card(str(folder)), SCORES)
    write_text(Path(folder) / CARD, "\n".join([before, "", SCORES, "", *lines, ""]))


def _before(card: str, *headings: str) -> str:
    """Return the card up to the first of these headings."""
    return re.split(f"^({'|'.join(headings)})$", card, flags=re.MULTILINE)[0].rstrip()

"""What `docemb init` makes: a working folder, and a profile sized to one's own documents."""

import json
import os
import shutil
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from typing import NamedTuple

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import progress
from docemb_lib.corpus.reader import (
    IDS,
    Problems,
    field_in,
    local_documents,
    local_paths,
    read_rows,
    well_formed,
)
from docemb_lib.settings.profile import SHIPPED
from docemb_lib.teachers import preprocess

FOLDERS = ("notebooks", "params")  # a working folder is known by `params`, which is made last
TEMPLATE = SHIPPED / "params" / "own.yaml"
LEAST = 60  # documents from which a student is trained, and measured on others
TOKENS_PER_WORD = 1.4  # of MiniLM, in English
# Characters of a mean word; beyond that, words are written without spaces, as in Thai.
LONG_WORDS = 25
LEAST_ENGLISH = 0.02  # share of the word `the`
READ_ROWS = 1000  # rows of data files in which the fields are searched


class Fields(NamedTuple):
    """The fields of data files that hold text and id, and what is done with bad rows."""

    text: str | Sequence[str]
    id: str | None
    ids: str  # says where the ids come from; "" where there are no data files
    skip_bad: bool


class Sizes(NamedTuple):
    """How a collection of documents is divided."""

    documents: int  # different ones
    train: int
    tasks: int
    validation: int


def check_folder(root: Path) -> None:
    """Raise InputError if something else has the names of the folders that `copy_shipped` makes."""
    for name in FOLDERS:
        there = {path.name for path in (root / name).glob("*")}  # empty for a plain file
        if (root / name).exists() and there.isdisjoint(os.listdir(SHIPPED / name)):
            problem = "something that is not docemb's has this name already"
            raise InputError(f"{root / name}: {problem}; give the command in a new folder")


def copy_shipped(root: Path) -> list[str]:
    """Copy docemb's notebooks and params to a folder where they are missing; return their names."""
    copied = []
    for name in FOLDERS:
        if (root / name).exists():
            continue
        partial_copy = root / f".{name}.partial"
        shutil.rmtree(partial_copy, ignore_errors=True)  # of an interrupted copy
        unwanted = shutil.ignore_patterns("__pycache__", ".*")
        shutil.copytree(
            SHIPPED / name, partial_copy, copy_function=shutil.copyfile, ignore=unwanted
        )
        partial_copy.rename(root / name)
        copied.append(name)
    return copied


def initial_profile(
    source: Path,
    out: Path,
    *,
    text_field: Sequence[str] | None = None,
    id_field: str | None = None,
    skip_bad: bool = False,
) -> tuple[str, dict[str, str]]:
    """The text of a profile for the documents of `source`, and what was found there, by name.

    The profile is the template `params/own.yaml`, filled in. The options are those of
    `local_documents`; None: the fields are searched. Raises InputError for a collection from which
    no student can be trained.
    """
    names = f"{source.resolve()}, -o {out}"
    if names != well_formed(names):
        problem = "this name is not valid UTF-8, so a profile cannot hold it"
        raise InputError(f"{names}: {problem}; rename the file")
    fields = _find_fields(path for path in local_paths(source) if path.is_file())
    fields = fields._replace(
        text=text_field or fields.text, id=id_field or fields.id, skip_bad=skip_bad
    )
    words, letters, articles = _count(source, fields)
    mean_word = letters.sum() / words.sum()
    if mean_word > LONG_WORDS:
        problem = f"a word, from space to space, has {mean_word:.0f} characters on average"
        raise InputError(f"{source}: {problem}; put spaces between words")
    sizes = _divide(len(words))
    max_tokens = 4096 if np.quantile(TOKENS_PER_WORD * words, 0.9) > 2048 else 2048
    command = f"docemb run --profile {quote(out.as_posix())}"
    text = _fill_in(source, out, fields, sizes, max_tokens, command)
    divided = (
        f"{sizes.documents} different: {sizes.train} to train on, {sizes.tasks} to measure with"
    )
    is_english = articles.sum() > LEAST_ENGLISH * words.sum()
    other = "seems not to be English: name multilingual models in the profile"
    findings = {
        "documents": f"{divided}, {sizes.validation} to watch the training",
        "words": f"{np.median(words):.0f} in the median, {words.max()} at most",
        "language": "English" if is_english else other,
    }
    if fields.ids:
        findings["ids"] = fields.ids
    findings["next"] = command
    return text, findings


def _find_fields(files: Iterable[Path]) -> Fields:
    """The fields of data files: `text` or the longest one, and the first unique one of `IDS`."""
    characters: Counter[str] = Counter()  # of each field
    ids: dict[str, set[str]] = {name: set() for name in IDS}
    count = 0
    # Bad rows are reported where the documents are read.
    rows = chain.from_iterable(read_rows(file, Problems(skip_bad=True)) for file in files)
    for row in islice(rows, READ_ROWS):
        count += 1
        for name, value in row.fields.items():
            if isinstance(value, str):
                characters[name] += len(value)
        for name in IDS:
            field = field_in(row.fields, name)
            if field is not None and row.fields[field] is not None:
                ids[name].add(str(row.fields[field]))
    text_field = "text"
    if characters and field_in(characters, "text") is None:
        text_field = characters.most_common(1)[0][0]
    id_field = next((name for name in IDS if count and len(ids[name]) == count), None)
    said = f"of field {id_field}" if id_field else ""
    if count and not any(ids.values()):
        said = f"numbers of rows, which have none of {', '.join(IDS)}"
    return Fields(text_field, id_field, said, skip_bad=False)


def _count(source: Path, fields: Fields) -> np.ndarray:
    """Words, letters and words `the` of each different document, as three rows.

    Raises InputError if there are fewer documents than `LEAST`.
    """
    # By the hash of a text, because a corpus keeps one of equal texts.
    counts: dict[int, tuple[int, int, int]] = {}
    documents = local_documents(
        source, text_field=fields.text, id_field=fields.id, skip_bad=fields.skip_bad
    )
    for document in progress(documents, desc="reading", unit="documents"):
        words = preprocess(document.text, "lowercase")
        text = " ".join(words)
        counts[hash(text)] = (len(words), len(text), words.count("the"))
    if len(counts) < LEAST:
        problem = f"it holds {len(counts)} different documents, and a student needs {LEAST} or more"
        raise InputError(f"{source}: {problem}; add some")
    return np.array([*counts.values()]).T


def _divide(documents: int) -> Sizes:
    """A third of the documents for tasks, a tenth for validation, up to the template's numbers."""
    tasks = min(300, documents // 3)
    validation = min(100, documents // 10)
    return Sizes(documents, documents - tasks - validation, tasks, validation)


def _fill_in(
    source: Path, out: Path, fields: Fields, sizes: Sizes, max_tokens: int, command: str
) -> str:
    """The template with the values of a collection. Raises InputError for a changed template."""
    train = sizes.train
    compared = min(150, train, max(LEAST, train // 3))  # documents of runs that compare losses
    # YAML does not join the surrogate pairs of JSON's escapes.
    quoted = partial(json.dumps, ensure_ascii=False)
    filled_in = {
        "name: own": f"name: {quoted(out.stem)}",
        "path: CHANGE-ME": f"path: {quoted(str(source.resolve()))}",
        "text_field: text ": f"text_field: {quoted(fields.text)} ",
        "id_field: null ": f"id_field: {quoted(fields.id)} ",
        "skip_bad: false ": f"skip_bad: {quoted(fields.skip_bad)} ",
        "validation: 100 ": f"validation: {sizes.validation} ",
        "tasks: 300 ": f"tasks: {sizes.tasks} ",
        "max_tokens: 2048 ": f"max_tokens: {max_tokens} ",
        "documents: 150": f"documents: {compared}",
        "lexical: 256 ": f"lexical: {min(256, train // 3)} ",
        "documents: 1000 ": f"documents: {min(1000, train)} ",
        "docemb run --profile params/own.yaml": command,
        "Your own documents: fill in `corpus.path`, then run": (
            "Written by `docemb init`. To use it, run"
        ),
    }
    text = TEMPLATE.read_text(encoding="utf-8")
    for old, new in filled_in.items():
        if old not in text:
            raise InputError(f"{TEMPLATE}: this template has no {old!r}; restore the file")
        # Where a comment follows, it stays in its column.
        text = text.replace(old, new.ljust(len(old)) if old.endswith(" ") else new)
    return text

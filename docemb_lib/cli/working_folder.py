"""What `docemb init` makes: a working folder, and a profile sized to one's own documents."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from shlex import quote
from typing import Any

import numpy as np
import yaml

from docemb_lib.base.errors import InputError
from docemb_lib.base.files import write_text
from docemb_lib.base.progress import progress
from docemb_lib.cli.terminal import written_whole
from docemb_lib.corpus.reader import local_documents
from docemb_lib.settings.files import SHIPPED
from docemb_lib.settings.notebooks import PROJECTIONS, STRUCTURAL, WEIGHTING
from docemb_lib.teachers import preprocess

FOLDERS = ("notebooks", "params")  # a working folder is known by `params`, which is made last
TEMPLATE = Path("params", "own.yaml")
LEAST = 60  # documents from which a student is trained, and measured on others
LONG = 1460  # words, some 2,048 tokens of MiniLM in English


def copy_shipped(root: Path) -> str:
    """Copy docemb's notebooks and params to a folder where they are missing; say which were.

    Raises InputError, before anything is copied, if something else has the name of one of them.
    """
    missing = [name for name in FOLDERS if not (root / name).exists()]
    for name in FOLDERS:
        there = {path.name for path in (root / name).glob("*")}  # empty for a plain file
        if name not in missing and there.isdisjoint(os.listdir(SHIPPED / name)):
            problem = "something that is not docemb's has this name already"
            raise InputError(f"{root / name}: {problem}; give the command in a new folder")
    unwanted = shutil.ignore_patterns("__pycache__", ".*")
    for name in missing:
        with written_whole(root / name) as folder:
            shutil.copytree(SHIPPED / name, folder, copy_function=shutil.copyfile, ignore=unwanted)
    (root / "outputs").mkdir(exist_ok=True)  # papermill writes into it and does not make it
    state = (
        f"{' and '.join(missing)} copied" if missing else "notebooks and params are there already"
    )
    return f"{root}: {state}"


def initial_profile(file: Path, out: Path, corpus: Mapping[str, Any], root: Path) -> dict[str, str]:
    """Write a profile for the documents of a corpus, and return what was found there, by name.

    The profile is based on the template `params/own.yaml` of the working folder. Raises InputError
    for a collection from which no student can be trained.

    file: to write; out: the place that it will have; corpus: the arguments of `local_documents`.
    """
    # By the hash of a text, because a corpus keeps one of equal texts.
    counts: dict[int, int] = {}
    for document in progress(local_documents(**corpus), desc="reading", unit="documents"):
        words = preprocess(document.text, "lowercase")
        counts[hash(" ".join(words))] = len(words)
    if len(counts) < LEAST:
        problem = f"it holds {len(counts)} different documents, and a student needs {LEAST} or more"
        raise InputError(f"{corpus['path']}: {problem}; add some")
    tasks = min(300, len(counts) // 3)
    validation = min(100, len(counts) // 10)
    train = len(counts) - tasks - validation
    compared = min(150, train, max(LEAST, train // 3))  # documents of runs of several losses
    lengths = [*counts.values()]
    settings = {
        "base": os.path.relpath(root / TEMPLATE, out.parent),
        "corpus": {**corpus, "validation": validation, "tasks": tasks},
        "student": {
            "max_tokens": 4096 if np.quantile(lengths, 0.9) > LONG else 2048,
            "words": min(256, train // 3),
        },
        "parameters": {"documents": min(1000, train)},
        "notebooks": {
            each.name: {"documents": compared} for each in (STRUCTURAL, PROJECTIONS, WEIGHTING)
        },
    }
    command = f"docemb run --profile {quote(out.as_posix())}"
    text = yaml.safe_dump(settings, allow_unicode=True, sort_keys=False)
    comment = f"# Written by `docemb init`; {TEMPLATE} has all other settings. To use it, run"
    write_text(file, f"{comment}\n#\n#     {command}\n#\n{text}")
    divided = f"{train} to train on, {tasks} to measure with, {validation} to watch the training"
    return {
        "documents": f"{len(counts)} different: {divided}",
        "words": f"{np.median(lengths):.0f} in the median, {max(lengths)} at most",
        "next": command,
    }

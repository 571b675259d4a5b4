"""What the commands `init`, `train`, `embed`, `adapt` and `evaluate` do."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import yaml

from docemb_lib import pretrained
from docemb_lib.corpus.rows import read_rows
from docemb_lib.corpus.sources import local_documents, local_paths
from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.execution import is_done
from docemb_lib.experiments.models import (
    ADAPTED,
    DENSE,
    SBERT_CHUNKS,
    UNTRAINED,
    Model,
    lexical_models,
    published_model,
    scored_model,
)  # fmt: skip
from docemb_lib.experiments.plan import Step
from docemb_lib.experiments.records import LATER
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.scores import Final
from docemb_lib.experiments.students import student_at
from docemb_lib.hardware import devices_at_hand
from docemb_lib.progress import progress
from docemb_lib.settings.profile import SHIPPED, Profile, folder_above, parse_yaml
from docemb_lib.workspace import Artefact, Workspace, write_text

NOTEBOOK = "06_evaluation"  # the notebook whose parameters a student has, and which reuses the student
ROWS = 10_000  # rows of embeddings in a group of a parquet file
TEMPLATE = SHIPPED / "params" / "own.yaml"
WINDOW = 256  # of the attention of a student that `adapt` makes from an encoder; 512 was no better on validation
LEAST = 60  # documents from which a student is trained, and measured on others
LOOKED_AT = 1000  # first rows or documents that show the fields and the language
ENGLISH = {"the", "of", "and", "to", "in", "a", "is", "that", "for", "it"}  # every fourth word of English
LEAST_ENGLISH = 0.12  # share of these words; other languages have fewer
TOKENS_PER_WORD = 1.4  # of MiniLM, in English


def make_working_folder() -> str:
    """Copy docemb's `notebooks` and `params` to the current folder, or to the working folder that it lies in.

    What is there stays as it is. Returns what was done, in words. Raises InputError for a folder of others in the way.
    """
    root = folder_above() or Path.cwd()
    if not (missing := _missing(root)):
        return f"{root}: notebooks and params are there already"
    with TemporaryDirectory(prefix=".docemb.", dir=root) as folder:
        for name in missing:  # whole or not at all; `params`, by which a working folder is known, is the last
            unwanted = shutil.ignore_patterns("__pycache__", ".*")
            made = shutil.copytree(SHIPPED / name, Path(folder, name), copy_function=shutil.copyfile, ignore=unwanted)
            Path(made).rename(root / name)
    return f"{root}: {' and '.join(missing)} copied"


def _missing(root: Path) -> list[str]:
    """Which folders a working folder still needs. Raises InputError for one of the same name without docemb's files."""
    missing = [name for name in ("notebooks", "params") if not (root / name).exists()]
    for name in {"notebooks", "params"}.difference(missing):
        files = os.listdir(root / name) if (root / name).is_dir() else []
        if not {*files}.intersection(os.listdir(SHIPPED / name)):
            raise InputError(f"{root / name}: is in the way, it is not docemb's; give the command in a new folder")
    return missing


def initial_profile(
    source: Path, out: Path, *, text_field: str | None = None, id_field: str | None = None
) -> dict[str, str]:
    """Write a profile for one's own documents: `params/own.yaml`, filled in and sized to them.

    text_field, id_field: of data files; None: `text` and `id`, or for the text the field that holds most of it.
    Returns what was found, by name. Raises InputError for documents that cannot be read or are too few, and for an
    `out` that exists.
    """
    if out.suffix not in {".yaml", ".yml"} or out.exists():
        mend = "exists; name a new file" if out.exists() else "name a .yaml file"
        raise InputError(f"-o {out}: {mend}")
    _missing(root := folder_above() or Path.cwd())
    if source.is_dir() and root.is_relative_to(source.resolve()):
        raise InputError(f"{source}: {root} would work inside it, and read what it writes; give the command elsewhere")
    fields = {"text_field": text_field or _text_field(source), "id_field": id_field or "id"}
    words: list[int] = []
    texts: set[bytes] = set()  # digests: a corpus keeps one of equal texts
    english = seen = 0
    for number, document in enumerate(progress(local_documents(source, **fields), desc="reading", unit="documents")):
        found = document.text.lower().split()
        if (digest := hashlib.sha256(" ".join(found).encode()).digest()) in texts:
            continue
        texts.add(digest)
        words.append(len(found))
        if number < LOOKED_AT:
            english, seen = english + sum(word in ENGLISH for word in found), seen + len(found)
    if (N := len(words)) < LEAST:
        raise InputError(f"{source}: {N} different documents; a student needs {LEAST} or more: add some")
    tokens = TOKENS_PER_WORD * np.array(words)
    tasks, validation = min(300, N // 3), min(100, N // 10)
    train = N - tasks - validation
    few = min(150, train, max(LEAST, train // 3))  # of the runs that only compare losses
    longest = 4096 if np.quantile(tokens, 0.9) > 2048 else 2048
    sizes = {
        "name: own": f"name: {json.dumps(out.stem)}",
        "path: CHANGE-ME": f"path: {json.dumps(str(source.resolve()), ensure_ascii=False)}",
        "text_field: text ": f"text_field: {json.dumps(fields['text_field'], ensure_ascii=False)} ",
        "id_field: id ": f"id_field: {json.dumps(fields['id_field'], ensure_ascii=False)} ",
        "validation: 100 ": f"validation: {validation} ", "tasks: 300 ": f"tasks: {tasks} ",
        "max_tokens: 2048 ": f"max_tokens: {longest} ", "lexical: 256 ": f"lexical: {min(256, train // 3)} ",
        "documents: 1000 ": f"documents: {min(1000, train)} ", "documents: 150": f"documents: {few}",
        "Your own documents: fill in `corpus.path`, then run": "Written by `docemb init`. To use it, run",
        "docemb run --profile params/own.yaml": f"docemb run --profile {out}",
    }  # fmt: skip
    text = TEMPLATE.read_text(encoding="utf-8")
    for old, new in sizes.items():
        if old not in text:
            raise InputError(f"{TEMPLATE}: has no {old!r}; restore the file")
        text = text.replace(old, new.ljust(len(old)))  # comments stay where they are
    folder = make_working_folder()
    write_text(out, text)
    Profile.load(out)
    foreign = {"language": "seems not to be English, the default models are: name multilingual ones in the profile"}
    return {
        "documents": f"{N}: {train} to train on, {tasks} to measure with, {validation} to watch the training",
        "words": f"{np.median(words):.0f} in the median, {max(words)} at most",
        "long documents": f"about {(tokens > 256).mean():.0%} are longer than SBERT reads at once",
        **(foreign if english < LEAST_ENGLISH * seen else {}),
        "working folder": folder,
        "profile": str(out),
        "next": f"docemb run --profile {out}",
    }


def _text_field(source: Path) -> str:
    """The field of a data file that holds the text: `text`, or the one with most characters."""
    sizes: Counter[str] = Counter()
    for path in local_paths(source):
        for row in islice(read_rows(path) if path.is_file() else (), LOOKED_AT):
            sizes.update({name: len(value) for name, value in row.fields.items() if isinstance(value, str)})
    return "text" if "text" in sizes or not sizes else sizes.most_common(1)[0][0]


def distil(profile: str | Path, parameters: dict[str, Any]) -> str | None:
    """Train the student of a profile, unless it is there. Returns a line about it, in the first process that trains."""
    from docemb_lib.training.distributed import is_first, together

    stages = Stages(RunKey.of(NOTEBOOK, Profile.load(profile), **parameters))
    stages.check()
    with together():
        student = stages.students.trained
    if not is_first():
        return None
    losses = stages.students.history()[1]["loss"]
    link = stages.workspace.shown(stages.workspace.link("students", stages.key.slug, student.path))
    return f"{link}: mean validation loss {losses.iloc[0]:.4f} → {losses.iloc[-1]:.4f}"


def described_runs(steps: Sequence[Step], workspace: Workspace) -> list[dict[str, Any]]:
    """A row for each run of a sweep before it starts: notebook, label, parameters, fingerprint, done."""
    names = ("notebook", "label", "parameters", "fingerprint")
    known = [run for step in steps for run in step.known]
    rows = [{name: getattr(run, name) for name in names} | {"done": is_done(run, workspace)} for run in known]
    unknown: dict[str, Any] = {"label": LATER, "parameters": {}, "fingerprint": None, "done": False}
    return rows + [{"notebook": run.notebook, **unknown} for step in steps for run in step.later]


def parse_parameters(given: list[str]) -> dict[str, Any]:
    """`NAME=VALUE` each, once; values as in YAML, and None as papermill reads it. Raises InputError for other texts."""
    parameters: dict[str, Any] = {}
    for text in given:
        name, _, value = map(str.strip, text.partition("="))
        if not name or not value:
            raise InputError(f"-p {text}: write NAME=VALUE, as in -p lam=0.5; None switches off")
        if name == "profile":
            raise InputError(f"-p {text}: give the profile as --profile")
        if name in parameters:
            raise InputError(f"-p {text}: {name} is given twice; leave one out")
        try:
            parsed = None if value == "None" else parse_yaml(value)
        except yaml.YAMLError:
            parsed = value
        parameters[name] = parsed if isinstance(parsed, str | int | float | None) else value  # "-" is a projection
    return parameters


def embed_documents(
    model: str, source: Path, out: Path, *, text_field: str = "text", id_field: str = "id", force: bool = False
) -> tuple[int, int]:
    """Embed the documents of `source` into `out`, whole or not at all; returns their number and their dimensions.

    `.parquet`: columns id and embedding (a list of float32); `.npy`: the embeddings alone, in the same order. Raises
    InputError for an `out` that exists, unless `force` is true, and for embeddings that are not finite.
    """
    if out.suffix not in {".parquet", ".npy"}:
        raise InputError(f"-o {out}: write .parquet (ids and embeddings) or .npy (embeddings alone)")
    if not out.parent.is_dir():
        raise InputError(f"-o {out}: the folder {out.parent} does not exist; create it first")
    if out.exists() and not (force and out.is_file()):
        mend = "give --force to write over it, or another name" if out.is_file() else "give the name of a file"
        raise InputError(f"-o {out}: exists; {mend}")
    documents = list(local_documents(source, text_field=text_field, id_field=id_field))

    import pyarrow as pa
    from pyarrow import parquet

    from docemb_lib.student import Student

    student = Student.load(model)
    texts = (document.text for document in documents)
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        written = Path(folder, "embeddings.npy")
        embeddings = student.embed(texts, out=written, devices=devices_at_hand())  # on disk as they come
        if out.suffix == ".parquet":
            written = Path(folder, "embeddings.parquet")
            column = pa.FixedSizeListArray.from_arrays(pa.array(embeddings.reshape(-1)), student.width)  # no copy
            table = pa.table({"id": [document.id for document in documents], "embedding": column})
            parquet.write_table(table, written, row_group_size=ROWS)
        written.replace(out)
    return len(documents), student.width


def adapt_student(
    model: str, source: Path, out: Path, *, text_field: str = "text", id_field: str = "id", **options: Any
) -> tuple[int, int, float]:
    """Fit a student's lexical half on the documents of `source` and save it in the folder `out`, whole or not at all.

    model: a student, or a short encoder, which becomes one without training, with the encoder's own pooling.
    options: of `Student.adapt`. Returns the number of documents, the width of the embeddings and the weight of the
    lexical half. Raises InputError if `out` exists or the documents are too few.
    """
    if out.exists():
        raise InputError(f"-o {out}: exists; name a new folder")
    local_paths(source)  # raises where there is none; the documents are read after the model
    documents = local_documents(source, text_field=text_field, id_field=id_field)

    from docemb_lib.student import Student
    from docemb_lib.student.export import encoder_pooling, saved_card, student_card, with_lexical_half
    from docemb_lib.student.loading import is_short

    if is_short(model):
        student = Student.from_encoder(model, pooling=encoder_pooling(model), attention_window=WINDOW)
        card = student_card(student, model)
    else:
        student = Student.load(model)
        card = saved_card(model) or student_card(student)
    student.adapt(texts := [document.text for document in documents], **options)
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        written = Path(folder, out.name)
        student.save(written, card=with_lexical_half(card, student, f"{len(texts)} documents of {source.name}"))
        written.replace(out)
    return len(texts), student.width, 0.0 if student.lexical is None else float(student.lexical.weight)


class Evaluated(NamedTuple):
    final: Final  # of the model and the baselines beside it
    standing: str  # the model in words; "" if not all references are beside it


def evaluate_model(name: str, profile: str | Path, tasks: Sequence[str] = ()) -> Evaluated:
    """Score a model (a folder or a hub id) on test splits, beside the baselines that are scored already."""
    loaded = Profile.load(profile)
    stages = Stages(RunKey(NOTEBOOK, loaded.with_tasks(tasks, source="--task") if tasks else loaded))
    stages.scores.check(("test",))
    models = models_of(name, stages.workspace)
    beside = [one for one in recorded_baselines(loaded, stages.workspace) if stages.scores.is_scored(one)]
    labels = [one.label for one in beside]
    final = stages.scores.evaluate([*models, *beside], student=models[-1].label, references=labels)
    return Evaluated(final, final.standing() if {SBERT_CHUNKS, UNTRAINED} <= {*labels} else "")


def models_of(name: str, workspace: Workspace) -> list[Model]:
    """A student as docemb runs it, in all its forms (`lexical_models`); any other model as sentence-transformers does.

    Raises InputError for no model.
    """
    from docemb_lib.student import loading

    source = pretrained.resolve(name)
    if not any(loading.find_file(source, file) for file in ("modules.json", "config.json")):
        raise InputError(f"{name}: no folder or hub id with a modules.json or config.json; give one of a model")
    label = Path(name).absolute().name if Path(name).is_dir() else name
    if not _is_student(source):
        return [published_model(source)._replace(label=label)]
    # What the notebooks have scored of a student trained here is found again by its artefact.
    here = student_at(Path(source)) or Artefact("student", pretrained.fingerprint(source), Path(source))
    return lexical_models(label, here, workspace)


def recorded_baselines(profile: Profile, workspace: Workspace) -> list[Model]:
    """The baselines of the newest comparable final evaluation, without weights: their scores are artefacts."""
    found = records.comparable(RunKey(NOTEBOOK, profile), workspace)
    rows = records.table_of(workspace, found[0], "models").to_dict("records") if found else []
    own = {f"{found[0].label}{form}" for form in ("", DENSE, ADAPTED)} if found else set()
    return [
        scored_model(row["model"], row["fingerprint"])._replace(
            fitted_on=row["fitted on"], ranks_only=row["ranks_only"]
        )
        for row in rows
        if row["model"] not in own
    ]


def _is_student(source: str) -> bool:
    """Whether `Student.load` reads it: a Longformer or ModernBERT with the pooling of a student."""
    from docemb_lib.student import export, loading

    try:
        export.saved_pooling(source)
        return loading.load_config(source).model_type in loading.LONG
    except InputError:
        return False

"""The `docemb` command: its entry point, and the commands on one's own documents and on single
models.
"""

import json
import os
import shutil
import sys
from collections import Counter
from functools import partial
from itertools import chain, islice
from pathlib import Path
from shlex import quote
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import progress
from docemb_lib.cli.commands import (
    AsJson,
    Parameter,
    ProfileName,
    app,
    command,
    console,
    parse_parameters,
)

TextField = Annotated[str, typer.Option(help="The field of a data file that holds the text.")]
IdField = Annotated[str, typer.Option(help="The field of a data file that holds the id.")]
DOCUMENTS = "A folder of .txt/.md files, or a data file: .jsonl, .json, .csv, .tsv (each also .gz) or .parquet."
NOTEBOOK = (
    "06_evaluation"  # the notebook whose parameters a student has, and which reuses the student
)
# of the attention of a student that `adapt` makes from an encoder; 512 was no better on validation
WINDOW = 256
LEAST = 60  # documents from which a student is trained, and measured on others
TOKENS_PER_WORD = 1.4  # of MiniLM, in English
LONG_WORDS = (
    25  # characters of a mean word; beyond that, words are written without spaces, as in Thai
)
IDS = ("id", "doc_id", "_id", "docid", "uid", "uuid")  # fields that may hold the id of a document
LEAST_ENGLISH = 0.02  # share of the word `the`


@command
def init(
    source: Annotated[Path | None, typer.Argument(metavar="[INPUT]", help=DOCUMENTS)] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The profile; default: INPUT's name, here.")
    ] = None,
) -> None:
    """Make this folder a working folder, with notebooks and params; with INPUT, also write a
    profile sized to it.
    """
    from docemb_lib.corpus.sources import stem
    from docemb_lib.settings.profile import SHIPPED, folder_above
    from docemb_lib.workspace import write_text

    root, copied, given = folder_above() or Path.cwd(), [], out
    out = out or Path(f"{stem((source or root).resolve()).strip('.')}.yaml")
    if source is None and given:
        problem = "this option names the profile of an INPUT, and no INPUT is given"
        raise InputError(f"-o {out}: {problem}; give `docemb init INPUT -o {quote(str(out))}`")
    if source and (out.suffix != ".yaml" or out.exists()):
        taken, other = "this exists already; name a new file", "a profile is a .yaml file; name one"
        raise InputError(f"-o {out}: {taken if out.exists() else other}")
    if source and source.is_dir() and root.is_relative_to(source.resolve()):
        inside = f"the working folder {root} lies in it, and its outputs would be read as documents"
        raise InputError(f"{source}: {inside}; give the command in a folder outside of it")
    for name in ("notebooks", "params"):
        there = {path.name for path in (root / name).glob("*")}  # empty for a plain file
        if (root / name).exists() and there.isdisjoint(os.listdir(SHIPPED / name)):
            problem = "something that is not docemb's has this name already"
            raise InputError(f"{root / name}: {problem}; give the command in a new folder")
    text, found = (
        _initial_profile(source, out) if source else ("", {})
    )  # before anything is written
    for name in (
        "notebooks",
        "params",
    ):  # `params`, by which a working folder is known, is the last
        shipped, here, unwanted = (
            SHIPPED / name,
            root / name,
            shutil.ignore_patterns("__pycache__", ".*"),
        )
        if not here.exists():
            shutil.rmtree(
                partial := root / f".{name}.partial", ignore_errors=True
            )  # of an interrupted copy
            shutil.copytree(
                shipped, partial, copy_function=shutil.copyfile, ignore=unwanted
            ).rename(here)
            copied.append(name)
    console.print(
        f"{root}:",
        f"{' and '.join(copied)} copied" if copied else "notebooks and params are there already",
    )
    (root / "outputs").mkdir(exist_ok=True)  # papermill writes into it and does not make it
    if source:
        write_text(out, text)
    for name, value in found.items():
        console.print(f"{name + ':':<16}{value}")


def _initial_profile(source: Path, out: Path) -> tuple[str, dict[str, object]]:
    """`params/own.yaml`, filled in and sized to the documents of `source`; what was found, by name."""
    import numpy as np

    from docemb_lib.corpus.rows import read_rows, well_formed
    from docemb_lib.corpus.sources import local_documents, local_paths
    from docemb_lib.settings.profile import SHIPPED
    from docemb_lib.teachers import preprocess

    if (named := f"{source.resolve()}, -o {out}") != well_formed(named):
        problem = "this name is not valid UTF-8, so a profile cannot hold it"
        raise InputError(f"{named}: {problem}; rename the file")
    characters: Counter[str] = Counter()  # of each field of data files
    paths = [path for path in local_paths(source) if path.is_file()]
    rows = [row.fields for row in islice(chain.from_iterable(map(read_rows, paths)), 1000)]
    for fields in rows:
        characters.update(
            {name: len(value) for name, value in fields.items() if isinstance(value, str)}
        )
    given = {
        name: {str(fields[name]) for fields in rows if fields.get(name) is not None} for name in IDS
    }
    id_field = next((name for name, ids in given.items() if len(ids) == len(rows)), "id")
    ids = (
        f"of field {id_field}"
        if given[id_field]
        else f"numbers of rows, which have none of {', '.join(IDS)}"
    )
    text_field = (
        "text" if "text" in characters or not characters else characters.most_common(1)[0][0]
    )
    counts: dict[
        int, tuple[int, ...]
    ] = {}  # of each text by its hash, because a corpus keeps one of equal texts
    documents = local_documents(source, text_field=text_field, id_field=id_field)
    for document in progress(documents, desc="reading", unit="documents"):
        text = " ".join(words := preprocess(document.text, "lowercase"))
        counts[hash(text)] = len(words), len(text), words.count("the")
    if (N := len(counts)) < LEAST:
        problem = f"it holds {N} different documents, and a student needs {LEAST} or more"
        raise InputError(f"{source}: {problem}; add some")
    sizes, letters, articles = np.array([*counts.values()]).T
    if (long := letters.sum() / sizes.sum()) > LONG_WORDS:
        problem = f"a word, from space to space, has {long:.0f} characters on average"
        raise InputError(f"{source}: {problem}; put spaces between words")
    longest = 4096 if np.quantile(TOKENS_PER_WORD * sizes, 0.9) > 2048 else 2048
    tasks, validation = min(300, N // 3), min(100, N // 10)
    train = N - tasks - validation
    few = min(150, train, max(LEAST, train // 3))  # of the runs that only compare losses
    quoted = partial(
        json.dumps, ensure_ascii=False
    )  # YAML does not join the surrogate pairs of JSON's escapes
    filled_in = {
        "name: own": f"name: {quoted(out.stem)}",
        "path: CHANGE-ME": f"path: {quoted(str(source.resolve()))}",
        "text_field: text ": f"text_field: {quoted(text_field)} ",
        "id_field: id ": f"id_field: {id_field} ",
        "validation: 100 ": f"validation: {validation} ",
        "tasks: 300 ": f"tasks: {tasks} ",
        "max_tokens: 2048 ": f"max_tokens: {longest} ",
        "documents: 150": f"documents: {few}",
        "lexical: 256 ": f"lexical: {min(256, train // 3)} ",
        "documents: 1000 ": f"documents: {min(1000, train)} ",
        "docemb run --profile params/own.yaml": f"docemb run --profile {quote(out.as_posix())}",
        "Your own documents: fill in `corpus.path`, then run": "Written by `docemb init`. To use it, run",
    }
    text = (SHIPPED / "params" / "own.yaml").read_text(encoding="utf-8")
    for old, new in filled_in.items():
        if old not in text:
            problem = f"this template has no {old!r}"
            raise InputError(f"{SHIPPED / 'params' / 'own.yaml'}: {problem}; restore the file")
        text = text.replace(
            old, new.ljust(len(old)) if old.endswith(" ") else new
        )  # comments stay where they are
    english = articles.sum() > LEAST_ENGLISH * sizes.sum()
    found: dict[str, object] = {
        "documents": f"{N}: {train} to train on, {tasks} to measure with, {validation} to watch the training",
        "words": f"{np.median(sizes):.0f} in the median, {sizes.max()} at most",
        "language": "English"
        if english
        else "seems not to be English: name multilingual models in the profile",
        **({"ids": ids} if rows else {}),
        "next": f"docemb run --profile {quote(out.as_posix())}",
    }
    return text, found


@command
def train(profile: ProfileName = "tiny-final", parameter: Parameter = None) -> None:
    """Distil one student without a notebook; under torchrun or accelerate launch, by all their
    processes together.
    """
    from docemb_lib.runs.key import RunKey
    from docemb_lib.runs.pipeline import Stages
    from docemb_lib.settings.profile import Profile
    from docemb_lib.training.distributed import is_first, together

    stages = Stages(RunKey.of(NOTEBOOK, Profile.load(profile), **parse_parameters(parameter or [])))
    stages.check()
    with together():
        student = stages.students.trained
    if is_first():
        losses = stages.students.history()[1]["loss"]
        link = stages.workspace.shown(
            stages.workspace.link("students", stages.key.slug, student.path)
        )
        console.print(f"{link}: mean validation loss {losses.iloc[0]:.4f} → {losses.iloc[-1]:.4f}")


@command
def embed(
    model: Annotated[
        str, typer.Argument(help="A student's folder, e.g. outputs/students/<label>, or a hub id.")
    ],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help=DOCUMENTS)],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", help="Where to write: .parquet (id and embedding) or .npy."),
    ],
    text_field: TextField = "text",
    id_field: IdField = "id",
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
) -> None:
    """Turn documents into embeddings with a trained student.

    The file is written whole or not at all.
    """
    from docemb_lib.base.hardware import devices_at_hand
    from docemb_lib.corpus.sources import local_documents

    if out.suffix not in {".parquet", ".npy"}:
        problem = "this is neither .parquet (ids and embeddings) nor .npy (embeddings alone)"
        raise InputError(f"-o {out}: {problem}; name such a file")
    if out.is_dir():
        raise InputError(f"-o {out}: this is a folder; name a file")
    if out.exists() and not force:
        mend = "give --force to write over it, or another name"
        raise InputError(f"-o {out}: this file exists already; {mend}")
    documents = list(local_documents(source, text_field=text_field, id_field=id_field))

    import pandas as pd

    from docemb_lib.student import Student

    student, texts = Student.load(model), [document.text for document in documents]
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        written = Path(folder, "embeddings.npy")
        embeddings = student.embed(
            texts, out=written, devices=devices_at_hand()
        )  # on disk as they come
        if out.suffix == ".parquet":
            table = pd.DataFrame(
                {"id": [document.id for document in documents], "embedding": list(embeddings)}
            )
            table.to_parquet(written := Path(folder, "embeddings.parquet"), index=False)
        written.replace(out)
    console.print(f"{len(documents)} documents, {student.width} dimensions each: {out}")


@command
def adapt(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A student, or a short encoder: a folder or a hub id."
        ),
    ],
    source: Annotated[Path, typer.Argument(metavar="CORPUS", help=DOCUMENTS)],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder of the adapted student; must not exist.")
    ],
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Width of the lexical half; default: as it is, or up to 512."),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Weight of the lexical half; default: fitted."),
    ] = None,
    text_field: TextField = "text",
    id_field: IdField = "id",
) -> None:
    """Fit a student's lexical half, mean and weight on a collection; a short encoder becomes a
    student first.
    """
    from docemb_lib.base.hardware import devices_at_hand
    from docemb_lib.base.pretrained import resolve
    from docemb_lib.corpus.sources import local_documents, local_paths
    from docemb_lib.student import Student
    from docemb_lib.student.export import (
        encoder_pooling,
        saved_card,
        student_card,
        with_lexical_half,
    )
    from docemb_lib.student.loading import SHORT, load_config

    if out.exists():
        raise InputError(f"-o {out}: this exists already; name a new folder")
    if any(
        out.resolve().is_relative_to(path.resolve()) for path in local_paths(source)
    ):  # raises where there is none
        mend = "name a folder elsewhere"
        raise InputError(f"-o {out}: this lies in {source} and would be read with it; {mend}")
    if load_config(resolve(model)).model_type in SHORT:  # converted, not trained
        pooling = encoder_pooling(model)
        pooling = "lead" if pooling == "mean" else pooling
        student = Student.from_encoder(model, pooling=pooling, attention_window=WINDOW)
        card = student_card(student, model)
    else:
        student = Student.load(model)
        card = saved_card(model) or student_card(student)
    texts = [
        document.text
        for document in local_documents(source, text_field=text_field, id_field=id_field)
    ]
    student.adapt(texts, dim=dim, weight=weight, devices=devices_at_hand())
    out.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent) as folder:
        written = Path(folder, out.name)
        documents = f"{len(texts)} documents of {source.resolve().name}"
        student.save(written, card=with_lexical_half(card, student, documents))
        written.replace(out)
    share = 0.0 if student.lexical is None else float(student.lexical.weight)
    fitted = f"fitted on {len(texts)} documents, {student.width} dimensions"
    by_hand = "" if weight is None else ", chosen by hand"
    console.print(f"{out}: {fitted}, {share:.2f} of the cosine is lexical{by_hand}")


@command
def evaluate(
    model: Annotated[
        str, typer.Argument(help="A sentence-transformers model or student: a folder or a hub id.")
    ],
    profile: ProfileName = "tiny-final",
    task: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Only this task, or several.")
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Score the model without references.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on the tasks of a profile, beside references.

    References are the models that the profile's final evaluation has scored; before there is one,
    SBERT and what is fitted on the texts of each task, without training.
    """
    from docemb_lib.cli.terminal import SCORES, print_table
    from docemb_lib.runs.key import RunKey
    from docemb_lib.runs.models import SBERT_CHUNKS, models_of
    from docemb_lib.runs.pipeline import Stages
    from docemb_lib.runs.references import references_of
    from docemb_lib.settings.profile import Profile

    loaded = Profile.load(profile)
    stages = Stages(RunKey(NOTEBOOK, loaded.with_tasks(task, source="--task") if task else loaded))
    stages.scores.check(("test",))
    models = models_of(model, stages.workspace)
    own = {one.label for one in models}  # a model may be a reference, too: it is scored once
    beside = [] if alone else [one for one in references_of(stages, loaded) if one.label not in own]
    labels = [one.label for one in beside]
    final = stages.scores.evaluate([*models, *beside], student=models[-1].label, references=labels)
    if as_json:
        frames = {"scores": final.scores, **final.tables}
        rows = {name: json.loads(frame.to_json(orient="records")) for name, frame in frames.items()}
        sys.stdout.write(json.dumps({"model": model, **rows}, ensure_ascii=False, indent=1) + "\n")
        return
    print_table(final.board.reset_index(), console, f"{SCORES} with 95% intervals")
    if SBERT_CHUNKS in labels:
        console.print(final.standing(), soft_wrap=not console.is_terminal)


if __name__ == "__main__":
    app()

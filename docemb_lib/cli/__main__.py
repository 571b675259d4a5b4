"""The `docemb` command, with the commands on one's own documents and on single models."""

import json
import os
import sys
from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from docemb_lib.base.errors import InputError, spreadsheet_cell
from docemb_lib.base.files import write_text
from docemb_lib.cli.commands import (
    AsJson,
    Parameter,
    ProfileName,
    app,
    command,
    command_in_workspace,
    console,
    parse_parameters,
)
from docemb_lib.cli.output import check_output, given_path, written_beside

if TYPE_CHECKING:
    pass

TextField = Annotated[
    list[str] | None,
    typer.Option(
        help="The field of a data file that holds the text (default: text); several are joined."
    ),
]
IdField = Annotated[
    str | None,
    typer.Option(
        help="The field of a data file that holds the id; default: id, _id, doc_id, docid, uid or "
        "uuid, or else the number of the row."
    ),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Leave out bad rows and files, and say so.")
]
DOCUMENTS = (
    "A folder of .txt/.md files, or a data file: .jsonl, .ndjson, .json, .csv, .tsv (each also "
    ".gz) or .parquet."
)
# The attention window of a student that `adapt` makes from an encoder; 512 was no better on
# validation.
WINDOW = 256


@command
def init(
    given: Annotated[str | None, typer.Argument(metavar="[INPUT]", help=DOCUMENTS)] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The profile; default: INPUT's name, here.")
    ] = None,
    text_field: TextField = None,
    id_field: IdField = None,
    skip_bad: SkipBad = False,
) -> None:
    """Make this folder a working folder, with notebooks and params.

    With INPUT, also write a profile sized to it.
    """
    from docemb_lib.cli.working_folder import check_folder, copy_shipped, initial_profile
    from docemb_lib.corpus.reader import stem
    from docemb_lib.settings.profile import folder_above

    source = None if given is None else given_path(given, "INPUT")
    root = folder_above() or Path.cwd()
    if source is None and out is not None:
        problem = "this option names the profile of an INPUT, and no INPUT is given"
        raise InputError(f"-o {out}: {problem}; give `docemb init INPUT -o {quote(str(out))}`")
    profile = out or Path(f"{stem((source or root).resolve()).strip('.')}.yaml")
    if source and profile.exists():
        raise InputError(f"-o {profile}: this exists already; name a new file")
    if source and profile.suffix != ".yaml":
        raise InputError(f"-o {profile}: a profile is a .yaml file; name one")
    if source and source.is_dir() and root.is_relative_to(source.resolve()):
        inside = f"the working folder {root} lies in it, and its outputs would be read as documents"
        raise InputError(f"{source}: {inside}; give the command in a folder outside of it")
    check_folder(root)
    text = ""
    findings: dict[str, str] = {}
    if source:  # before anything is written
        text, findings = initial_profile(
            source, profile, text_field=text_field, id_field=id_field, skip_bad=skip_bad
        )
    copied = copy_shipped(root)
    state = f"{' and '.join(copied)} copied" if copied else "notebooks and params are there already"
    console.print(f"{root}: {state}")
    (root / "outputs").mkdir(exist_ok=True)  # papermill writes into it and does not make it
    if source:
        write_text(profile, text)
    for name, value in findings.items():
        console.print(f"{name + ':':<16}{value}")


@command_in_workspace
def train(profile: ProfileName = "tiny", parameter: Parameter = None) -> None:
    """Distil one student without a notebook.

    Under torchrun or accelerate launch, all their processes train it.
    """
    from docemb_lib.runs.run import Run
    from docemb_lib.settings.notebooks import EVALUATION
    from docemb_lib.settings.profile import Profile

    parameters = parse_parameters(parameter or [])
    run = Run.of(EVALUATION.name, Profile.load(profile), **parameters)
    run.check()
    if int(os.environ.get("RANK", 0)):
        run.students.train_along()
        return
    link = run.link_student()
    _, validation = run.history()
    losses = validation.set_index("step")["loss"]
    change = f"mean validation loss {losses[0]:.4f} → {losses[losses.index.max()]:.4f}"
    console.print(f"{link}: {change}")


def _check_embeddings_file(out: Path, passages: int | None, *, force: bool) -> None:
    """Raise InputError for a file that embeddings must not be written to."""
    if out.suffix not in {".parquet", ".npy"}:
        problem = "this is neither .parquet (ids and embeddings) nor .npy (embeddings alone)"
        raise InputError(f"-o {out}: {problem}; name such a file")
    if passages is not None and out.suffix == ".npy":
        raise InputError(f"-o {out}: passages need a .parquet file; name one")
    if out.is_dir() or (out.exists() and not force):
        mend = "name a new file, or give --force to write over one"
        raise InputError(f"-o {out}: this exists already; {mend}")


@command
def embed(
    model: Annotated[
        str, typer.Argument(help="A student's folder, e.g. outputs/students/<label>, or a hub id.")
    ],
    given: Annotated[str, typer.Argument(metavar="INPUT", help=DOCUMENTS)],
    out: Annotated[
        Path,
        typer.Option("-o", "--out", help="Where to write: .parquet (id and embedding) or .npy."),
    ],
    text_field: TextField = None,
    id_field: IdField = None,
    skip_bad: SkipBad = False,
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    passages: Annotated[
        int | None,
        typer.Option(min=8, help="Also write texts and passages of at most so many tokens."),
    ] = None,
) -> None:
    """Turn documents into embeddings with a trained student.

    The file is written whole or not at all.
    """
    import numpy as np

    from docemb_lib.base.hardware import devices_at_hand
    from docemb_lib.base.pretrained import fingerprint, resolve
    from docemb_lib.corpus.reader import local_documents, local_paths
    from docemb_lib.runs.models import student_embeddings
    from docemb_lib.student import Student
    from docemb_lib.student.embeddings_file import write_embeddings

    source = given_path(given, "INPUT")
    _check_embeddings_file(out, passages, force=force)
    check_output(out, local_paths(source))
    documents = list(
        local_documents(
            source, text_field=text_field or "text", id_field=id_field, skip_bad=skip_bad
        )
    )
    ids = [document.id for document in documents]
    texts = [document.text for document in documents]
    with written_beside(out) as folder:
        of_documents = None
        if passages is None:
            embeddings = student_embeddings(Path(resolve(model)), texts, scratch=folder)
        else:
            student = Student.load(model)
            embeddings, of_documents = student.embed_documents(
                texts, devices=devices_at_hand(), passages=passages
            )
        written = folder / out.name
        if out.suffix == ".npy":
            np.save(written, embeddings)
        else:
            write_embeddings(
                written,
                ids,
                embeddings,
                student=fingerprint(model),
                texts=texts,
                passages=of_documents,
            )
        written.replace(out)
    console.print(f"{len(documents)} documents, {embeddings.shape[1]} dimensions each: {out}")


@command
def search(
    model: Annotated[str, typer.Argument(help="The student that EMBEDDINGS are of.")],
    embeddings: Annotated[
        Path, typer.Argument(help="A .parquet file of `docemb embed`; --passages shows passages.")
    ],
    query: Annotated[str | None, typer.Argument(help="A text, or a text file.")] = None,
    like: Annotated[
        str | None, typer.Option(metavar="ID", help="Search for more like this document instead.")
    ] = None,
    count: Annotated[int, typer.Option("-k", min=1, help="Documents to show.")] = 10,
    by_passages: Annotated[
        bool,
        typer.Option("--by-passages", help="Rank documents by their nearest passage and words."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Find the documents nearest to a text, and the passage of each that is nearest.

    The cosines are exact, with all documents.
    """
    if (query is None) == (like is None):
        raise InputError("give either a QUERY or --like ID")
    from docemb_lib.base.pretrained import fingerprint
    from docemb_lib.cli.similarity import given_text, hits_table, show
    from docemb_lib.student import Student
    from docemb_lib.student.embeddings_file import EmbeddingsFile

    file = EmbeddingsFile(embeddings)
    row = None if like is None else file.row_of(like)
    text = "" if query is None else given_text(query)
    student = Student.load(model)
    file.check_student(fingerprint(model), model, student.width)
    vector = student.embed([text])[0] if row is None else file.document(row)["embedding"]
    nearest = file.nearest(vector, count, without=row, by_passages=by_passages)
    show(hits_table(file, nearest, vector), console, as_json=as_json)


@command
def explain(
    model: Annotated[str, typer.Argument(metavar="STUDENT", help="A folder or a hub id.")],
    first: Annotated[str, typer.Argument(metavar="A", help="A text, or a text file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    count: Annotated[int, typer.Option("-k", min=1, help="Contributions to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show which passages and words of two documents make them similar.

    The contributions of all pairs of passages and of all words sum to the cosine.
    """
    from docemb_lib.cli.similarity import given_text, show
    from docemb_lib.student import Student

    texts = (given_text(first), given_text(second))
    parts = Student.load(model).explain(*texts)
    strongest = parts if as_json else parts.head(count).round(4)
    title = f"cosine {parts['contribution'].sum():.3f}, the greatest of {len(parts)} contributions"
    show(strongest, console, title, as_json=as_json)


@command
def adapt(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL", help="A student, or a short encoder: a folder or a hub id."
        ),
    ],
    given: Annotated[str, typer.Argument(metavar="CORPUS", help=DOCUMENTS)],
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
    text_field: TextField = None,
    id_field: IdField = None,
    skip_bad: SkipBad = False,
) -> None:
    """Fit a student's lexical half, mean and weight on a collection; a short encoder becomes a
    student first.
    """
    from docemb_lib.base.pretrained import resolve
    from docemb_lib.corpus.reader import local_documents, local_paths
    from docemb_lib.packed.forward import SHORT
    from docemb_lib.runs.embeddings import embed_once, root_of
    from docemb_lib.runs.kinds import Form
    from docemb_lib.runs.models import student_model
    from docemb_lib.student import Student
    from docemb_lib.student.export import (
        encoder_pooling,
        saved_card,
        student_card,
        with_lexical_half,
    )
    from docemb_lib.student.loading import load_config

    source = given_path(given, "CORPUS")
    if out.exists():
        raise InputError(f"-o {out}: this exists already; name a new folder")
    paths = local_paths(source)  # raises where there is none
    if any(out.resolve().is_relative_to(path.resolve()) for path in paths):
        mend = "name a folder elsewhere"
        raise InputError(f"-o {out}: this lies in {source} and would be read with it; {mend}")
    with written_beside(out) as folder:
        documents = local_documents(
            source, text_field=text_field or "text", id_field=id_field, skip_bad=skip_bad
        )
        texts = [document.text for document in documents]
        count = len(texts)
        if load_config(resolve(model)).model_type in SHORT:  # converted, not trained
            pooling = encoder_pooling(model)
            pooling = "lead" if pooling == "mean" else pooling
            student = Student.from_encoder(model, pooling=pooling, attention_window=WINDOW)
            card = student_card(student, model)
        else:
            student = Student.load(model)
            card = saved_card(model) or student_card(student, model)
        limit = f"{student.max_tokens:,} tokens"
        longer = f"{student.count_longer(texts)} of {count} documents are longer than {limit}"
        console.print(f"{longer}: of them the dense half reads {limit}, the lexical half all words")
        different = len(set(texts))
        if different < count:
            repeated = f"{count - different} of {count} documents have the text of an earlier one"
            console.print(f"{repeated}, and its embedding")
        written = folder / out.name
        student.save(written, words=False)  # embeddings are kept under the fingerprint of its files
        dense = student_model(out.name, written, Form.DENSE).of_any_text
        once = partial(embed_once, dense, root=root_of(out))
        student.adapt(texts, dim=dim, weight=weight, embed=once)
        fitted_on = f"{count} documents of {source.resolve().name}"
        student.save(written, card=with_lexical_half(card, student.lexical, fitted_on))
        written.replace(out)
    share = 0.0 if student.lexical is None else float(student.lexical.weight)
    fitted = f"fitted on {count} documents, {student.width} dimensions"
    by_hand = "" if weight is None else ", chosen by hand"
    console.print(f"{out}: {fitted}, {share:.2f} of the cosine is lexical{by_hand}")


@command
def export(
    model: Annotated[
        str, typer.Argument(metavar="STUDENT", help="A student's folder, or a hub id.")
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="The .onnx file to write; must not exist.")
    ],
) -> None:
    """Write the dense half of a student as an ONNX file, for programs without torch."""
    from docemb_lib.student import Student
    from docemb_lib.student.onnx import write_onnx

    if out.exists():
        raise InputError(f"-o {out}: this exists already; name a new file")
    if out.suffix != ".onnx":
        raise InputError(f"-o {out}: the name of the file must end in .onnx; name it so")
    student = Student.load(model)
    with written_beside(out) as folder:
        written = folder / out.name
        write_onnx(student, written)
        written.replace(out)
    without = "" if student.lexical is None else "; its half of words is left out"
    console.print(f"{out}: the dense half, {student.dim} dimensions{without}")


@command_in_workspace
def evaluate(
    model: Annotated[
        str, typer.Argument(help="A sentence-transformers model or student: a folder or a hub id.")
    ],
    profile: ProfileName = "tiny",
    task: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME",
            help="Only this task, or several; NAME=FOLDER: a folder of BEIR's layout, with "
            "corpus.jsonl, queries.jsonl and qrels.",
        ),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Score the model without references.")
    ] = False,
    metric: Annotated[
        Literal["map", "mrr", "ndcg@10", "recall@100"],
        typer.Option(help="The metric of retrieval that decides."),
    ] = "map",
    further: Annotated[
        bool, typer.Option("--further", help="Also show the other metrics of retrieval.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Score a model on the tasks of a profile, beside references.

    References are the models that the profile's final evaluation has scored; before there is one,
    SBERT and what is fitted on the texts of each task, without training. Tests compare the model as
    it is given with them, and a student also with itself, refitted to the texts of each task.
    """
    from docemb_lib.cli.report import TERMS, typeset_models
    from docemb_lib.cli.terminal import SCORES, print_table
    from docemb_lib.evaluation.scoreboard import METRIC_NAMES, test_board
    from docemb_lib.runs.kinds import Kind
    from docemb_lib.runs.models import forms_at
    from docemb_lib.runs.references import references_of
    from docemb_lib.runs.run import Run
    from docemb_lib.runs.store import outputs, relative
    from docemb_lib.settings.notebooks import EVALUATION
    from docemb_lib.settings.profile import Profile

    loaded = Profile.load(profile)
    scored = loaded.with_tasks(task, source="--task") if task else loaded
    run = Run(EVALUATION.name, scored)
    run.scorer.check()
    forms = forms_at(model)
    references = []
    if not alone:
        labels = {row.label for row in forms.models}  # a model may be a reference, too
        references = [row for row in references_of(run, loaded) if row.label not in labels]
    refitted = [forms.adapted] if references and forms.adapted else []
    final = run.scorer.evaluate(
        [*forms.models, *references],
        student=forms.saved,
        references=[*references, *refitted],
        metric=metric,
    )
    frames = {"scores": final.scores, **final.tables}
    if as_json:
        rows = {name: json.loads(frame.to_json(orient="records")) for name, frame in frames.items()}
        sys.stdout.write(json.dumps({"model": model, **rows}, ensure_ascii=False, indent=1) + "\n")
        return
    final = typeset_models(final, {})
    title = f"{SCORES.format(METRIC_NAMES[metric])} with 95% intervals"
    print_table(final.board.reset_index(), console, title)
    console.print(TERMS)
    if len(final.comparison):
        tests = final.comparison.query("model == @final.student")
        title = f"Paired tests of {final.student} (Holm-corrected p; no word: no difference shown)"
        print_table(test_board(tests).reset_index(), console, title)
    if further:
        title = f"Other metrics of retrieval, of which none decides ({METRIC_NAMES[metric]} does)"
        print_table(final.further_board.reset_index(), console, title)
    if any(row.kind == Kind.SBERT_CHUNKS for row in references):
        console.print(final.standing(), soft_wrap=not console.is_terminal)
    folder = outputs() / "evaluations" / scored.name / Path(model).name
    for name, frame in frames.items():
        write_text(folder / f"{name}.csv", frame.map(spreadsheet_cell).to_csv(index=False))
    console.print(f"{relative(folder)}: all scores, intervals and paired tests")


if __name__ == "__main__":
    app()

"""The `docemb` command: each command declares its arguments and calls the library."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal

import typer

from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import PRECISION, asked_precision
from docemb_lib.cli.commands import (
    DEFAULTS,
    AsCsv,
    AsJson,
    DryRun,
    HowRead,
    Parameters,
    ProfileName,
    app,
    command,
    given_path,
    parse_parameters,
)
from docemb_lib.cli.terminal import (
    console,
    errors,
    print_json,
    print_lines,
    print_table,
    rows_of,
    written_whole,
)
from docemb_lib.settings.files import find_root, working_folder

Out = Annotated[
    Path,
    # Shells leave the `~` of --out=~/name.
    typer.Option(
        "-o", "--out", help="What to write; must not exist.", parser=lambda o: Path(o).expanduser()
    ),
]
StudentName = Annotated[
    str, typer.Argument(metavar="STUDENT", help="A student's folder, or a hub id.")
]
DOCUMENTS = (
    "A folder of .txt/.md files, or a data file: .jsonl, .ndjson, .json, .csv, .tsv (each also "
    ".gz) or .parquet."
)
Corpus = Annotated[str, typer.Argument(help=DOCUMENTS)]
AnyModel = Annotated[
    str, typer.Argument(help="A sentence-transformers model: a folder or a hub id.")
]
# The attention window of a student that `adapt` makes from an encoder; 512 was no better on
# validation.
WINDOW = 256


@command("docemb run 05 -p lam=0.7")
def run(
    notebook: Annotated[
        str | None, typer.Argument(help="Only this notebook, e.g. 05; default: the plan.")
    ] = None,
    parameter: Parameters = None,
    profile: ProfileName = "tiny",
    from_: Annotated[
        str | None, typer.Option("--from", help="Start at this notebook, e.g. 03.")
    ] = None,
    dry_run: DryRun = False,
) -> None:
    """Execute the plan of a profile, and show what was found, with the models that decide it.

    With NOTEBOOK, execute the runs of this notebook in the plan, or with -p one run of it with
    these parameters, and show what it concludes.
    """
    from docemb_lib.cli.report import print_plan, print_report
    from docemb_lib.runs.plan import resolve_plan, resolve_run, runs_of
    from docemb_lib.runs.sweep import execute_plan
    from docemb_lib.settings.profile import Profile

    if from_ if notebook else parameter:
        mend = "give NOTEBOOK with -p, as in docemb run 05 -p lam=0.5, or --from alone"
        raise InputError(f"parameters are those of one notebook, and --from starts a plan; {mend}")
    loaded = Profile.load(profile)
    if notebook and parameter:
        steps = resolve_run(notebook, parse_parameters(parameter), loaded)
    else:
        steps = resolve_plan(loaded, first=from_, only=notebook)
    if dry_run:
        print_plan(steps)
        return
    failures = execute_plan(steps)
    print_report(runs_of(steps), whole_plan=notebook is None)
    _end(failures)


@command("docemb sweep --grid weighting-cosine --workers 2")
def sweep(
    notebook: Annotated[
        str | None, typer.Argument(help="E.g. 05_weighting or 05; default: that of the grid.")
    ] = None,
    *,
    grid: Annotated[
        str, typer.Option(help="A grid in params/grids/ by name, or the path of a .yaml file.")
    ],
    profile: ProfileName = "tiny",
    workers: Annotated[
        int | None, typer.Option(help="Processes here; default: as many as there is room for.")
    ] = None,
    scheduler: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS|FILE", help="Address or file of a running Dask cluster."),
    ] = None,
    parameter: Parameters = None,
    dry_run: DryRun = False,
) -> None:
    """Execute the runs of a grid side by side.

    Finished runs are recognised, and a failing run stops no other.
    """
    from docemb_lib.cli.report import print_plan, print_runs
    from docemb_lib.runs.plan import resolve_sweep, runs_of
    from docemb_lib.runs.sweep import comparison_paths, execute_plan, recorded

    given = parse_parameters(parameter)
    steps = resolve_sweep(notebook, grid, profile=profile, parameters=given)
    if dry_run:
        print_plan(steps)
        return
    failures = execute_plan(steps, workers=workers, scheduler=scheduler)
    planned = runs_of(steps)
    print_runs(recorded(planned))
    runs = f"outputs/runs/{planned[0].notebook}"
    print_lines({"runs": runs, **dict(comparison_paths(planned))})
    _end(failures)


def _end(failures: list[str]) -> None:
    """Say which runs failed."""
    for failure in failures:
        errors.print(f"Failed: {failure}")
    if failures:
        raise typer.Exit(1)


@command("docemb train --profile my_texts.yaml -p documents=2000")
def train(profile: ProfileName = "tiny", parameter: Parameters = None) -> None:
    """Distil one student without a notebook.

    Under torchrun or accelerate launch, all their processes train it.
    """
    from docemb_lib.runs.run import Run
    from docemb_lib.settings.notebooks import EVALUATION
    from docemb_lib.settings.profile import Profile

    run = Run.of(EVALUATION.name, Profile.load(profile), **parse_parameters(parameter))
    run.check()
    if int(os.environ.get("RANK", 0)):
        run.students.train_along()
        return
    link = run.link_student()
    _, validation = run.history()
    losses = validation.set_index("step")["loss"]
    change = f"mean validation loss {losses[0]:.4f} → {losses[losses.index.max()]:.4f}"
    console.print(f"{link}: {change}")


@command("docemb results 05 --csv")
def results(
    notebook: Annotated[
        str | None, typer.Argument(help="Only the runs of this notebook, e.g. 05.")
    ] = None,
    as_csv: AsCsv = False,
) -> None:
    """Show the recorded runs, oldest first."""
    from docemb_lib.cli.report import print_runs
    from docemb_lib.runs import records

    frame = records.frame(notebook, failed=True)
    if as_csv:
        sys.stdout.write(frame.to_csv(index=False))
    else:
        print_runs(frame)


def _read(source: Path, how: HowRead) -> dict[str, str]:
    """Return the texts of a folder or a data file by id."""
    from docemb_lib.corpus.reader import local_documents

    return {document.id: document.text for document in local_documents(source, **how)}


@command("docemb adapt all-MiniLM-L6-v2 my_texts/ -o my_student")
def adapt(
    model: Annotated[
        str, typer.Argument(help="A student, or a short encoder: a folder or a hub id.")
    ],
    corpus: Corpus,
    out: Out,
    dim: Annotated[
        int | None,
        typer.Option(min=1, help="Width of the half of words; default: as it is, or up to 512."),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(min=0, max=1, help="Weight of the half of words; default: fitted."),
    ] = None,
    how: HowRead = DEFAULTS,
) -> None:
    """Fit a student's half of words, mean and weight on a collection; a short encoder becomes a
    student first.
    """
    from docemb_lib.base.pretrained import resolve
    from docemb_lib.corpus.reader import local_paths
    from docemb_lib.runs.kinds import Form
    from docemb_lib.runs.models import student_model
    from docemb_lib.runs.store import kept_beside
    from docemb_lib.student import Student
    from docemb_lib.student.export import (
        encoder_pooling,
        saved_card,
        student_card,
        with_words,
    )
    from docemb_lib.student.loading import CONVERTED, load_config

    source = given_path(corpus, "CORPUS")
    if any(out.resolve().is_relative_to(path.resolve()) for path in local_paths(source)):
        mend = "name a folder elsewhere"
        raise InputError(f"-o {out}: this lies in {source} and would be read with it; {mend}")
    with written_whole(out) as written, kept_beside(out):
        is_short = load_config(resolve(model)).model_type in CONVERTED  # before the texts are read
        texts = [*_read(source, how).values()]
        if is_short:  # converted, not trained
            pooling = encoder_pooling(model)
            pooling = "lead" if pooling == "mean" else pooling
            student = Student.from_encoder(model, pooling=pooling, attention_window=WINDOW)
            card = student_card(student, model)
        else:
            student = Student.load(model)
            card = saved_card(model) or student_card(student, model)
        student.save(written, words=False)  # embeddings are kept under the fingerprint of its files
        meaning = student_model(out.name, written, Form.MEANING)
        student.adapt(texts, dim=dim, weight=weight, embed=meaning.embed)
        fitted_on = f"{len(texts)} documents of {source.resolve().name}"
        student.save(written, card=with_words(card, student.words, fitted_on))
    share = student.words.weight if student.words else 0.0
    fitted = f"fitted on {len(texts)} documents, {student.width} dimensions"
    console.print(f"{out}: {fitted}, {share:.2f} of the cosine comes from words")


@command("docemb embed my_student my_texts/ -o embeddings.parquet --passages 256")
def embed(
    model: Annotated[
        str, typer.Argument(help="A student's folder, e.g. outputs/students/<label>, or a hub id.")
    ],
    input_: Annotated[str, typer.Argument(metavar="INPUT", help=DOCUMENTS)],
    out: Out,
    how: HowRead = DEFAULTS,
    passages: Annotated[
        int | None,
        typer.Option(min=8, help="Also write texts and passages of at most so many tokens."),
    ] = None,
) -> None:
    """Turn documents into embeddings with a trained student.

    The file, .parquet (id and embedding) or .npy, is written whole or not at all.
    """
    import numpy as np

    from docemb_lib.base.hardware import devices_at_hand
    from docemb_lib.base.pretrained import fingerprint, resolve
    from docemb_lib.runs.models import student_embeddings
    from docemb_lib.runs.store import kept_beside
    from docemb_lib.student import Student
    from docemb_lib.student.embeddings_file import write_embeddings

    endings = {".parquet"} if passages else {".parquet", ".npy"}
    if out.suffix not in endings:
        raise InputError(f"-o {out}: embeddings and passages need a .parquet file; name one")
    source = given_path(input_, "INPUT")
    with written_whole(out) as written, kept_beside(written):  # of a model of a hub
        texts = _read(source, how)
        of_documents = None
        if passages is None:
            embeddings = student_embeddings(Path(resolve(model)), [*texts.values()])
        else:
            embeddings, of_documents = Student.load(model).embed_documents(
                [*texts.values()], devices=devices_at_hand(), passages=passages
            )
        if out.suffix == ".npy":
            np.save(written, embeddings)
        else:
            write_embeddings(
                written,
                [*texts],
                embeddings,
                student=fingerprint(model),
                texts=[*texts.values()],
                passages=of_documents,
            )
    console.print(f"{len(texts)} documents, {embeddings.shape[1]} dimensions each: {out}")


@command("docemb export my_student -o my_student.onnx")
def export(model: StudentName, out: Out) -> None:
    """Write the half of meaning of a student as an ONNX file, for programs without torch."""
    from docemb_lib.student import Student
    from docemb_lib.student.onnx import write_onnx

    if out.suffix != ".onnx":
        raise InputError(f"-o {out}: the name of the file must end in .onnx; name it so")
    with written_whole(out) as written:
        student = Student.load(model)
        write_onnx(student, written)
    without = "" if student.words is None else "; its half of words is left out"
    console.print(f"{out}: the half of meaning, {student.dim} dimensions{without}")


@command("docemb search my_student embeddings.parquet 'a question' -k 5")
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
    import numpy as np

    from docemb_lib.base.pretrained import fingerprint
    from docemb_lib.base.prompts import Query
    from docemb_lib.cli.similarity import given_text, hits, print_hits
    from docemb_lib.student import Student
    from docemb_lib.student.embeddings_file import EmbeddingsFile

    if (query is None) == (like is None):
        raise InputError("give either a QUERY or --like ID")
    text = "" if query is None else given_text(query)
    file = EmbeddingsFile(embeddings)
    row = None if like is None else file.row_of(like)
    student = Student.load(model)
    file.check_student(fingerprint(model), model)
    vector = student.embed([Query(text)])[0] if row is None else file.document(row)["embedding"]
    nearest = file.nearest(vector, count, without=row, by_passages=by_passages)
    # A passage is nearer than a document, so the pairs say nothing about its cosine.
    pairs = np.empty(0) if by_passages else file.pair_cosines()
    found = hits(file, nearest, vector, pairs)
    if as_json:
        print_json(found)
    else:
        print_hits(found)


@command("docemb explain my_student a.txt b.txt")
def explain(
    model: StudentName,
    first: Annotated[str, typer.Argument(metavar="A", help="A text, or a text file.")],
    second: Annotated[str, typer.Argument(metavar="B", help="The same.")],
    count: Annotated[int, typer.Option("-k", min=1, help="Contributions to show.")] = 10,
    as_json: AsJson = False,
) -> None:
    """Show which passages and words of two documents make them similar.

    The contributions of all pairs of passages and of all words sum to the cosine.
    """
    from docemb_lib.cli.similarity import given_text, short
    from docemb_lib.student import Student

    texts = [given_text(first), given_text(second)]
    parts = Student.load(model).explain(*texts)
    title = f"cosine {parts['contribution'].sum():.3f}, the greatest of {len(parts)} contributions"
    if as_json:
        print_json(rows_of(parts))
    else:
        shown = parts.head(count)
        print_table(shown.assign(**shown[["of A", "of B"]].map(short)), title)


@command("docemb audit all-MiniLM-L6-v2 my_texts/")
def audit(
    model: AnyModel,
    corpus: Corpus,
    how: HowRead = DEFAULTS,
    as_csv: AsCsv = False,
) -> None:
    """Show how many words of long documents a model never reads, and what that changes.

    Other documents may be nearest if it reads everything, in chunks whose embeddings are averaged.
    --csv prints the numbers of each document. Of a student, `docemb embed` says what is cut.
    """
    import pandas as pd

    from docemb_lib.base.pretrained import resolve
    from docemb_lib.evaluation.probes import audited
    from docemb_lib.student.loading import STUDENT

    if (Path(resolve(model)) / STUDENT).is_file():
        mend = "give another model; `docemb embed` says what a student cuts"
        raise InputError(f"{model}: this is a student; {mend}")
    texts = _read(given_path(corpus, "CORPUS"), how)
    counts = audited(model, pd.Series(texts))
    if as_csv:
        sys.stdout.write(counts.to_csv(index_label="id"))
        return
    most = counts.query("changed > 0").nlargest(20, "changed").index
    unread = counts["unread"]
    words = counts["words"].sum()
    console.print(
        f"{(unread > 0).sum()} of {len(counts)} documents are longer than {model} reads: "
        f"{unread.sum():,} of {words:,} words ({unread.sum() / words:.0%}) never reach it. If it "
        f"reads everything, in chunks, {counts['changed'].mean():.1f} of the "
        f"{min(10, len(counts) - 1)} documents that are nearest to each are others. They change "
        f"most for {', '.join(most) or 'none'}.",
        soft_wrap=False,
    )


@command("docemb evaluate my_student --texts texts.jsonl --links links.tsv")
def evaluate(
    model: AnyModel,
    texts: Annotated[
        str | None,
        typer.Option(
            help=f"Instead of a profile, with --links: {DOCUMENTS} Or a folder of BEIR's layout."
        ),
    ] = None,
    links: Annotated[
        str | None,
        typer.Option(help="A table of two ids a line: a document, and one that it should find."),
    ] = None,
    scored: Annotated[
        bool,
        typer.Option("--scored", help="A number in --links says how similar the documents are."),
    ] = False,
    how: HowRead = DEFAULTS,
    profile: ProfileName = "tiny",
    task: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Only this task of the profile, or several."),
    ] = None,
    alone: Annotated[
        bool, typer.Option("--alone", help="Score the model without references.")
    ] = False,
    metric: Annotated[
        Literal["map", "mrr", "ndcg@10", "recall@100"],
        typer.Option(help="The metric of retrieval that decides."),
    ] = "map",
    as_json: AsJson = False,
) -> None:
    """Score a model on links between documents, or on the tasks of a profile, beside references.

    References are the models that the profile's final evaluation has scored; before there is one,
    SBERT and what is fitted on the texts of each task, without training. Tests compare the model as
    it is given with them, and a student also with itself, refitted to the texts of each task.
    """
    from docemb_lib.cli.report import print_evaluation
    from docemb_lib.evaluation.scoreboard import test_board
    from docemb_lib.runs.kinds import Kind
    from docemb_lib.runs.models import forms_at
    from docemb_lib.runs.references import references_of
    from docemb_lib.runs.run import Run
    from docemb_lib.runs.store import kept_beside
    from docemb_lib.settings.notebooks import EVALUATION
    from docemb_lib.settings.profile import Profile

    of_files = bool(texts or links)
    if (of_files and profile != "tiny") or (not of_files and (scored or how != DEFAULTS)):
        problem = "--scored, --encoding and others say how --texts and --links are read"
        raise InputError(f"{problem}, which stand in place of --profile; give one of both")
    if of_files:
        kind = "scored-pairs" if scored else "retrieval"
        loaded = Profile.of_links(given_path(texts or "", "--texts"), links, kind=kind, **how)
    else:
        loaded = Profile.load(profile)
    chosen = loaded.with_tasks(task, source="--task") if task else loaded
    forms = forms_at(model)
    with kept_beside(Path(model)):
        run = Run(EVALUATION.name, chosen)
        run.scorer.check()
        labels = {row.label for row in forms.models}  # a model may be a reference, too
        found = [] if alone else references_of(run, loaded)
        references = [row for row in found if row.label not in labels]
        refitted = [forms.adapted] if references and forms.adapted else []
        final = run.scorer.evaluate(
            [*forms.models, *references],
            student=forms.saved,
            references=[*references, *refitted],
            metric=metric,
        )
    if as_json:
        frames = {"scores": final.scores, **final.tables}
        print_json({"model": model, **{name: rows_of(frame) for name, frame in frames.items()}})
        return
    print_evaluation(final)
    if len(final.comparison):
        tests = test_board(final.comparison.query("model == @final.student")).reset_index()
        title = f"Paired tests of {final.student} (Holm-corrected p; no word: no difference shown)"
        print_table(tests, title)
    if any(row.kind == Kind.SBERT_CHUNKS for row in references):
        console.print(final.standing())


@command("docemb init my_texts/")
def init(
    input_: Annotated[str | None, typer.Argument(metavar="[INPUT]", help=DOCUMENTS)] = None,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="The profile; default: INPUT's name, here.")
    ] = None,
    how: HowRead = DEFAULTS,
) -> None:
    """Make this folder a working folder, with notebooks and params.

    With INPUT, also write a profile sized to it.
    """
    from docemb_lib.cli.working_folder import copy_shipped, initial_profile
    from docemb_lib.corpus.reader import local_paths, stem

    root = working_folder() or Path.cwd()
    source = None if input_ is None else given_path(input_, "INPUT")
    if source and any(root.is_relative_to(place.resolve()) for place in local_paths(source)):
        inside = f"the working folder {root} lies in it, and its outputs would be read as documents"
        raise InputError(f"{source}: {inside}; give the command in a folder outside of it")
    state = copy_shipped(root)
    if source is None:
        console.print(state)
        return
    name = out or stem(source.resolve()).strip(".")
    out = Path(f"{name}".removesuffix(".yaml") + ".yaml")
    with written_whole(out) as written:
        facts = initial_profile(written, out, {"path": str(source.resolve()), **how}, root)
    console.print(state)
    print_lines(facts)


@command("docemb doctor")
def doctor() -> None:
    """Show the versions, the precision, the threads, and where outputs lie."""
    import torch

    from docemb_lib.base.hardware import devices_at_hand, uses_bf16
    from docemb_lib.runs.store import installed_versions

    device = devices_at_hand()[0]
    precision = "bf16" if uses_bf16(device) else "fp32"
    facts = {**installed_versions()}
    facts["precision"] = f"{precision} on {device}, {PRECISION}={asked_precision()}"
    facts["threads"] = str(torch.get_num_threads())
    try:
        facts["outputs"] = str(find_root() / "outputs")
    except InputError as error:
        facts["outputs"] = str(error)
    print_lines(facts)


if __name__ == "__main__":
    app()

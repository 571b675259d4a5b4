"""The `docemb` command: a few lines around the library. Exit codes: 0 done, 1 something failed (said in one line),
2 wrong usage or input, 130 interrupted (and resumable)."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from docemb_lib.errors import InputError

app = typer.Typer(
    help="Distil long-document embeddings from two teachers: run the notebooks, read the results, embed documents.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
bench = typer.Typer(
    help="Measure ours against the peer, side by side in one process.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)
app.add_typer(bench, name="bench")
console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


def command(function: Callable[..., None], group: typer.Typer = app) -> Callable[..., None]:
    """A command whose errors are one line and an exit code."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends like Ctrl-C: resumable
        try:
            function(*args, **kwargs)
        except InputError as error:
            _fail(error, code=2, debug=kwargs.get("debug", False))
        except KeyboardInterrupt:
            errors.print("Interrupted." + ("" if group is bench else " The same command goes on from here."))
            raise typer.Exit(130) from None
        except Exception as error:
            _fail(error, code=1, debug=kwargs.get("debug", False))

    return group.command()(wrapped)


def _fail(error: Exception, *, code: int, debug: bool) -> None:
    if debug:
        errors.print(getattr(error, "traceback", None) or "".join(traceback.format_exception(error)), markup=False)
    kind = "" if isinstance(error, InputError) else f"{type(error).__name__}: "
    errors.print(f"Error: {kind}{' '.join(str(error).split())}", markup=False)
    raise typer.Exit(code) from None


@command
def run(
    profile: Annotated[str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")] = "tiny",
    from_: Annotated[str | None, typer.Option("--from", help="Start at this notebook, e.g. 03.")] = None,
    only: Annotated[str | None, typer.Option(help="Run this notebook alone, e.g. 05.")] = None,
    debug: Debug = False,
) -> None:
    """Execute the plan of a profile: notebooks 01 to 06, then one table of every model on every task."""
    from docemb_lib.console import ProgressLines, print_paths, print_scoreboard
    from docemb_lib.experiments.plan import execute, resolve_plan
    from docemb_lib.experiments.report import report
    from docemb_lib.profile import Profile
    from docemb_lib.workspace import Workspace

    if from_ is not None and only is not None:
        raise InputError("--from and --only exclude each other; give one of them")
    # Threads that wait for each other spin long by default: on a machine with other work that costs a factor of three.
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")
    workspace = Workspace()
    loaded = Profile.load(profile)
    planned = resolve_plan(loaded, _absolute(profile), workspace, first=from_, only=only)
    with ProgressLines(console) as lines:
        execute(planned, workspace, lines)
    outcome = report(planned, workspace)
    if outcome.board is not None:
        print_scoreboard(outcome.board, console)
        console.print(outcome.standing, markup=False)
    print_paths(outcome.paths, console)


@command
def train(
    profile: Annotated[str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")] = "tiny",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="As a notebook takes it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Distil one student without a notebook; under torchrun or accelerate launch, by all their processes together."""
    from docemb_lib.experiments.distilling import distil, parse_parameters

    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as in `run`
    trained = distil(_absolute(profile), parse_parameters(parameter or []))
    if trained is not None:
        console.print(
            f"{trained.folder}: mean validation loss {trained.before:.4f} → {trained.after:.4f}", markup=False
        )


@command
def results(
    notebook: Annotated[str | None, typer.Argument(help="Only the runs of this notebook, e.g. 05_weighting.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    debug: Debug = False,
) -> None:
    """Show the recorded runs, oldest first."""
    from docemb_lib.experiments import records
    from docemb_lib.profile import check_names

    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other")
    if notebook is not None:
        check_names(notebook, ())
    frame = records.frame(notebook, failed=True)
    if as_json:
        sys.stdout.write(frame.to_json(orient="records", force_ascii=False, indent=1) + "\n")
    elif as_csv:
        sys.stdout.write(frame.to_csv(index=False))
    else:
        from docemb_lib.console import print_runs

        print_runs(frame, console)


@command
def embed(
    model: Annotated[str, typer.Argument(help="A student's folder, e.g. outputs/students/<label>, or a hub id.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A folder of .txt/.md files, or a .jsonl file.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write: .parquet (id and embedding) or .npy.")],
    text_field: Annotated[str, typer.Option(help="The field of a .jsonl that holds the text.")] = "text",
    id_field: Annotated[str, typer.Option(help="The field of a .jsonl that holds the id.")] = "id",
    debug: Debug = False,
) -> None:
    """Turn documents into embeddings with a trained student."""
    from docemb_lib.experiments.embedding import embed_documents

    count, dim = embed_documents(model, source, out, text_field=text_field, id_field=id_field)
    console.print(f"{count} documents, {dim} dimensions each: {out}")


@partial(command, group=bench)
def student(
    device: Annotated[str | None, typer.Option(help="cpu or cuda; by itself a GPU where there is one.")] = None,
    size: Annotated[str | None, typer.Option(help="small or base; by itself base on a GPU, else small.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only see that all runs, in seconds.")] = False,
    documents: Annotated[int | None, typer.Option(help="Documents of the thesis' lengths.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Of each timing; medians are shown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All that was measured, as one JSON object.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for student.json, .csv, .png and .svg.")] = None,
    debug: Debug = False,
) -> None:
    """The student against stock LongformerModel: speed, share of the peak, memory, equality. Takes some minutes."""
    os.environ.setdefault("GOMP_SPINCOUNT", "10000")  # as in `run`
    from docemb_lib.bench import bench_student, write_report
    from docemb_lib.bench.report import check_folder

    if out is not None:
        check_folder(out)
    report = bench_student(device=device, size=size, quick=quick, documents=documents, repeats=repeats)
    if as_json:
        sys.stdout.write(report.json())
    else:
        Console(width=max(console.width, 120)).print(report.table())
        for remark in report.remarks():
            console.print(remark, markup=False)
    if out is not None:
        written = write_report(report, out)
        if not any(path.suffix == ".png" for path in written):
            errors.print("No figure: matplotlib is not installed.")
        errors.print(f"Written to {out}: {', '.join(path.name for path in written)}", markup=False)


def _absolute(profile: str) -> str:
    """A profile's path as notebooks, which run in their own folder, can read it."""
    path = Path(profile)
    return str(path.resolve()) if path.suffix in {".yaml", ".yml"} and path.is_file() else profile


if __name__ == "__main__":
    app()

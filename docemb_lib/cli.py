"""The `docemb` command: a few lines around the library. Exit codes: 0 done, 1 something failed (said in one line),
2 wrong usage or input, 130 interrupted (and resumable)."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from functools import wraps
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
console = Console(highlight=False, soft_wrap=True)
errors = Console(stderr=True, highlight=False, soft_wrap=True)

Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """A command whose errors are one line and an exit code."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # a polite kill ends like Ctrl-C: resumable
        try:
            function(*args, **kwargs)
        except InputError as error:
            _fail(error, code=2, debug=kwargs.get("debug", False))
        except KeyboardInterrupt:
            errors.print("Interrupted. The same command goes on from here.")
            raise typer.Exit(130) from None
        except Exception as error:
            _fail(error, code=1, debug=kwargs.get("debug", False))

    return app.command()(wrapped)


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


def _absolute(profile: str) -> str:
    """A profile's path as notebooks, which run in their own folder, can read it."""
    path = Path(profile)
    return str(path.resolve()) if path.suffix in {".yaml", ".yml"} and path.is_file() else profile


if __name__ == "__main__":
    app()

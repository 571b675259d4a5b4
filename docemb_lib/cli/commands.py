"""The commands that run notebooks and show what they gave, and what all commands share.

Each command reports an error as one line and an exit code, and imports itself what takes long to
load.
"""

import inspect
import logging
import os
import platform
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from importlib import metadata
from shlex import quote
from typing import Annotated, Any

import typer
import yaml
from rich.console import Console
from rich.text import Text

from docemb_lib.base import __version__
from docemb_lib.base.errors import InputError, as_line, plain, spreadsheet_cell
from docemb_lib.base.hardware import PRECISION, asked_precision, tune_environment
from docemb_lib.cli.output import given_path
from docemb_lib.settings.files import WORKSPACE, find_root

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Distil long-document embeddings from two teachers.

    The commands run the notebooks, show the results and embed documents.
    """
    if version:
        console.print(f"docemb {__version__}")


class PlainConsole(Console):
    """A console that prints all text `plain`, so that no file name or label can command it."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string, as rich does for every one, also in tables."""
        return super().render_str(plain(text), **options)


UNFOLDED = 200  # columns of tables in a file or a pipe
in_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
console = PlainConsole(
    highlight=False,
    markup=False,
    emoji=False,
    soft_wrap=True,
    width=None if in_terminal else UNFOLDED,
)
errors = PlainConsole(stderr=True, highlight=False, markup=False, emoji=False, soft_wrap=True)

ProfileName = Annotated[
    str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")
]
Parameter = Annotated[
    list[str] | None,
    typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="A parameter of the notebook."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]
WorkingFolder = Annotated[
    str | None,
    typer.Option(metavar="FOLDER", help="The working folder; default: the one around this folder."),
]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
Value = str | int | float | None  # of a parameter
# What the help of each command ends with.
EXAMPLES = {
    "run": "docemb run 05 -p lam=0.7",
    "sweep": "docemb sweep 05_weighting --grid weighting-cosine --workers 2",
    "results": "docemb results 05 --csv",
    "doctor": "docemb doctor",
    "init": "docemb init my_texts/",
    "train": "docemb train --profile my_texts.yaml -p documents=2000",
    "embed": "docemb embed my_student my_texts/ -o embeddings.parquet --passages 256",
    "search": "docemb search my_student embeddings.parquet 'a question' -k 5",
    "explain": "docemb explain my_student a.txt b.txt",
    "adapt": "docemb adapt all-MiniLM-L6-v2 my_texts/ -o my_student",
    "export": "docemb export my_student -o my_student.onnx",
    "evaluate": "docemb evaluate my_student --profile links.yaml",
}
GO_ON = {"run", "sweep", "train", "adapt", "evaluate"}  # where they were stopped


def command_in_workspace(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command that needs a working folder, with the option --workspace besides."""
    option = inspect.Parameter(
        "workspace", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=WorkingFolder
    )

    @wraps(function)
    def in_workspace(*args: object, workspace: str | None, **kwargs: object) -> None:
        if workspace is not None:
            folder = given_path(workspace, "--workspace")
            os.environ[WORKSPACE] = os.path.abspath(folder)  # for kernels and workers, too
        find_root()
        function(*args, **kwargs)

    options = inspect.signature(function, eval_str=True).parameters.values()
    signature = inspect.Signature([*options, option])
    in_workspace.__signature__ = signature  # type: ignore[attr-defined]
    return command(in_workspace)


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command with the option --debug; an error becomes one line and an exit code."""

    @wraps(function)
    def wrapped(*args: Any, debug: bool = False, **kwargs: Any) -> None:
        # SIGTERM ends a command as Ctrl-C does: the same command goes on from there.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        # The warnings of the library become plain lines of stderr.
        handler: Any = logging.lastResort
        handler.emit = lambda record: errors.print(handler.format(record))
        tune_environment()
        if errors.is_terminal:  # before the libraries, which take seconds
            errors.print(f"docemb {function.__name__}: loading", style="dim")
        try:
            asked_precision()  # a wrong value is refused before any work
            function(*args, **kwargs)
        except KeyboardInterrupt as stop:
            # asyncio would report what still waited for the ended kernel.
            logging.getLogger("asyncio").disabled = True
            end = " to go on" if function.__name__ in GO_ON else ""
            named = f"docemb {function.__name__} is stopped; give the same command again{end}"
            errors.print(f"Interrupted: {str(stop) or named}.")
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception as error:
            if debug:
                errors.print("".join(traceback.format_exception(error)))
            bad_input = isinstance(error, InputError)
            kind = "" if bad_input else f"{type(error).__name__}: "
            errors.print(as_line(f"Error: {kind}{error}"))
            raise typer.Exit(2 if bad_input else 1) from None

    options = inspect.signature(function, eval_str=True).parameters.values()
    kind = inspect.Parameter.KEYWORD_ONLY
    debug_option = inspect.Parameter("debug", kind, default=False, annotation=Debug)
    signature = inspect.Signature([*options, debug_option])
    wrapped.__signature__ = signature  # type: ignore[attr-defined]
    return app.command(epilog=f"Example: {EXAMPLES[function.__name__]}")(wrapped)


@command_in_workspace
def run(
    notebook: Annotated[
        str | None, typer.Argument(help="Only this notebook, e.g. 05; default: the plan.")
    ] = None,
    parameter: Parameter = None,
    profile: ProfileName = "tiny",
    from_: Annotated[
        str | None, typer.Option("--from", help="Start at this notebook, e.g. 03.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="List the runs and what they need and lack.")
    ] = False,
) -> None:
    """Execute the plan of a profile, and show one table of every model on every task.

    With NOTEBOOK, execute the runs of this notebook in the plan, or with -p one run of it with
    these parameters, and show what it concludes.
    """
    from docemb_lib.cli.dry_run import print_outlook
    from docemb_lib.cli.report import TERMS, collapsed_runs, conclusion_of, paths_of, report
    from docemb_lib.cli.terminal import print_scoreboard
    from docemb_lib.runs.plan import resolve_plan, resolve_run, runs_of
    from docemb_lib.runs.sweep import execute_plan
    from docemb_lib.settings.profile import Profile

    if parameter and notebook is None:
        mend = "name it, as in docemb run 05 -p lam=0.5"
        raise InputError(f"-p {parameter[0]}: parameters are those of one notebook; {mend}")
    if from_ is not None and notebook is not None:
        problem = f"--from {from_} starts the plan there, and {notebook} is one notebook"
        raise InputError(f"{problem}; give one of them")
    loaded = Profile.load(profile)
    if parameter and notebook is not None:
        steps = resolve_run(notebook, parse_parameters(parameter), loaded)
    else:
        steps = resolve_plan(loaded, first=from_, only=notebook)
    if dry_run:
        print_outlook(steps, console)
        return
    failures = execute_plan(steps)
    planned = runs_of(steps)
    outcome = report(planned)
    if outcome.board is not None:
        print_scoreboard(outcome.board, console)
        console.print(TERMS)
    if notebook is None:
        if outcome.summary:  # a terminal alone would break words
            console.print(outcome.summary, soft_wrap=not console.is_terminal)
        for line in collapsed_runs(planned):
            console.print(line, soft_wrap=not console.is_terminal)
        _end(outcome.paths, failures)
        return
    for each in planned:
        if each.is_done:
            console.print(f"\n{each.notebook}  {each.label}\n{conclusion_of(each)}")
            _print_paths(paths_of(each))
    _end([], failures)


@command_in_workspace
def sweep(
    notebook: Annotated[str, typer.Argument(help="Its name or number, e.g. 05_weighting or 05.")],
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
    parameter: Parameter = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Say how many runs are there, and what they need.")
    ] = False,
) -> None:
    """Execute the runs of a grid side by side.

    Finished runs are recognised, and a failing run stops no other.
    """
    from docemb_lib.cli.dry_run import print_outlook
    from docemb_lib.cli.terminal import print_runs
    from docemb_lib.runs.plan import resolve_sweep, runs_of
    from docemb_lib.runs.sweep import comparison_paths, execute_plan, recorded

    steps = resolve_sweep(
        notebook, grid, profile=profile, parameters=parse_parameters(parameter or [])
    )
    if dry_run:
        print_outlook(steps, console)
        return
    failures = execute_plan(steps, workers=workers, scheduler=scheduler)
    planned = runs_of(steps)
    print_runs(recorded(planned), console)
    paths = [("runs", f"outputs/runs/{planned[0].notebook}"), *comparison_paths(planned)]
    _end(paths, failures)


@command_in_workspace
def results(
    notebook: Annotated[
        str | None, typer.Argument(help="Only the runs of this notebook, e.g. 05.")
    ] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print comma-separated values.")] = False,
) -> None:
    """Show the recorded runs, oldest first."""
    from docemb_lib.cli import terminal
    from docemb_lib.runs import records
    from docemb_lib.settings.notebooks import notebook_named

    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other; give one of them")
    name = None if notebook is None else notebook_named(notebook)
    frame = records.frame(name, failed=True)
    if as_json:
        terminal.write_json(frame)
    elif as_csv:
        sys.stdout.write(frame.map(spreadsheet_cell).to_csv(index=False))
    else:
        terminal.print_runs(frame, console)


@command
def doctor() -> None:
    """Show the versions, the precision, the threads, and where outputs lie."""
    import torch

    from docemb_lib.base.hardware import devices_at_hand, uses_bf16

    device = devices_at_hand()[0]
    precision = "bf16" if uses_bf16(device) else "fp32"
    lines = [
        ("docemb", __version__),
        ("python", f"{platform.python_version()} ({sys.prefix})"),
    ]
    for name in ("torch", "transformers", "sentence-transformers", "gensim", "numpy"):
        lines.append((name, metadata.version(name)))
    lines.append(("precision", f"{precision} on {device}, {PRECISION}={asked_precision()}"))
    lines.append(("threads", str(torch.get_num_threads())))
    try:
        lines.append(("outputs", str(find_root() / "outputs")))
    except InputError as error:
        lines.append(("outputs", str(error)))
    _print_paths(lines)


def parse_parameters(given: list[str]) -> dict[str, Value]:
    """Parameters of the form `NAME=VALUE`, with values as in YAML, and None as in papermill.

    Raises InputError for other texts, and for a parameter that is given twice.
    """
    from docemb_lib.settings.profile import parse_yaml

    parameters: dict[str, Value] = {}
    for text in given:
        name, _, value = map(str.strip, text.partition("="))
        if name == "profile":
            mend = f"give it as --profile {quote(value or 'NAME')}"
            raise InputError(f"-p {text}: the profile is no parameter; {mend}")
        if name in parameters:
            raise InputError(f"-p {text}: {name} is given twice; give each parameter once")
        if not name or not value:
            mend = "write it as in -p lam=0.5, or -p lam=None for none"
            raise InputError(f"-p {text}: this is not NAME=VALUE; {mend}")
        parameters[name] = value
        with suppress(yaml.YAMLError):
            parsed = None if value == "None" else parse_yaml(value)
            if isinstance(parsed, Value):  # "-", a projection, is a list
                parameters[name] = parsed
    return parameters


def _print_paths(paths: Sequence[tuple[str, str]]) -> None:
    for name, path in paths:
        console.print(f"{name + ':':<20}{path}")


def _end(paths: Sequence[tuple[str, str]], failures: Sequence[str]) -> None:
    """Say where the results are, and which runs failed."""
    _print_paths(paths)
    for failure in failures:
        errors.print(f"Failed: {failure}")
    if failures:
        raise typer.Exit(1)

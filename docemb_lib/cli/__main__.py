"""The `docemb` command: options in, a call of the library, results out. An error is one line and an exit code."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from functools import wraps
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from docemb_lib.errors import InputError, as_line, plain
from docemb_lib.hardware import tune_environment
from docemb_lib.progress import close_bars

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


def _print_version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"docemb {metadata.version('docemb')}\n")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version.", callback=_print_version)] = False,
) -> None:
    """Distil long-document embeddings from two teachers: run the notebooks, read the results, embed documents."""


class PlainConsole(Console):
    """A console that a file name, a label or a text cannot command: it prints all text `plain`."""

    def render_str(self, text: str, **options: Any) -> Text:  # rich calls it for every string, also in tables
        return super().render_str(plain(text), **options)


class PlainLog(logging.Handler):
    """Warnings of the library, as plain lines of stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        errors.print(self.format(record), markup=False)


UNFOLDED = 200  # columns of tables in a file or a pipe
in_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ
console = PlainConsole(highlight=False, soft_wrap=True, width=None if in_terminal else UNFOLDED)
errors = PlainConsole(stderr=True, highlight=False, soft_wrap=True)

ProfileName = Annotated[str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")]
Parameter = Annotated[list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="Of a notebook.")]
AsJson = Annotated[bool, typer.Option("--json", help="Everything, as JSON.")]
TextField = Annotated[str, typer.Option(help="The field of a .jsonl that holds the text.")]
IdField = Annotated[str, typer.Option(help="The field of a .jsonl that holds the id.")]
Debug = Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")]
BENCHMARKS = ("student", "paragraph-vector", "heads")


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Register a command; its errors become one line and an exit code."""

    @wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> None:
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # SIGTERM ends like Ctrl-C: resumable
        logging.lastResort = PlainLog(logging.WARNING)
        if errors.is_terminal:  # before the libraries, which take seconds
            errors.print(f"docemb {function.__name__}: loading", style="dim")
        try:
            function(*args, **kwargs)
        except KeyboardInterrupt:
            close_bars()
            goes_on = "" if function.__name__ == "bench" else " The same command goes on from here."
            errors.print(f"Interrupted.{goes_on}")
            raise typer.Exit(130) from None
        except typer.Exit:
            raise
        except Exception as error:
            close_bars()
            if kwargs.get("debug"):
                trace = getattr(error, "traceback", None) or "".join(traceback.format_exception(error))
                errors.print(trace, markup=False)
            bad_input = isinstance(error, InputError)
            kind = "" if bad_input else f"{type(error).__name__}: "
            errors.print(as_line(f"Error: {kind}{error}"), markup=False)
            raise typer.Exit(2 if bad_input else 1) from None

    return app.command()(wrapped)


@command
def run(
    profile: ProfileName = "tiny",
    from_: Annotated[str | None, typer.Option("--from", help="Start at this notebook, e.g. 03.")] = None,
    only: Annotated[str | None, typer.Option(help="Run this notebook alone, e.g. 05.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List the runs, their cost and what is missing.")] = False,
    debug: Debug = False,
) -> None:
    """Execute the plan of a profile: notebooks 01 to 06, then one table of every model on every task."""
    from docemb_lib.cli import terminal
    from docemb_lib.cli.report import report
    from docemb_lib.experiments.plan import chosen_runs, profile_argument, resolve_plan
    from docemb_lib.experiments.sweeps import execute_plan
    from docemb_lib.settings.profile import Profile
    from docemb_lib.workspace import Workspace

    if from_ is not None and only is not None:
        raise InputError("--from and --only exclude each other; give one of them")
    tune_environment()
    workspace = Workspace()
    steps = resolve_plan(Profile.load(profile), profile_argument(profile), workspace, first=from_, only=only)
    if dry_run:
        from docemb_lib.cli.forecast import forecast

        terminal.print_forecast(forecast(steps, workspace), console)
        return
    failures = execute_plan(steps, workspace, terminal.Terminal(console))
    outcome = report(chosen_runs(steps), workspace)
    if outcome.board is not None:
        terminal.print_scoreboard(outcome.board, console)
        console.print(outcome.standing, markup=False)
    terminal.print_paths(outcome.paths, console)
    _end_with(failures)


@command
def init(
    source: Annotated[Path | None, typer.Argument(metavar="[INPUT]", help="Folder of texts, or a data file.")] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="The profile; default: INPUT's name, here.")] = None,
    text_field: Annotated[str | None, typer.Option(help="The field that holds the text; default: found.")] = None,
    id_field: Annotated[str | None, typer.Option(help="The field that holds the id.")] = None,
    debug: Debug = False,
) -> None:
    """Make this folder a working folder, with notebooks and params; with INPUT, also write a profile sized to it."""
    from docemb_lib.cli import terminal
    from docemb_lib.cli.commands import initial_profile, make_working_folder
    from docemb_lib.cli.forecast import forecast
    from docemb_lib.experiments.plan import resolve_plan
    from docemb_lib.settings.profile import Profile
    from docemb_lib.workspace import Workspace

    if source is None:
        if out is not None:
            raise InputError("-o names the profile of an INPUT; give one")
        console.print(f"{make_working_folder()}; next: docemb run", markup=False)
        return
    tune_environment()
    out = Path(f"{source.resolve().name.split('.')[0]}.yaml") if out is None else out
    for name, value in initial_profile(source, out, text_field=text_field, id_field=id_field).items():
        console.print(f"{name + ':':<16}{value}", markup=False)
    workspace = Workspace()
    total = forecast(resolve_plan(Profile.load(out), str(out), workspace), workspace).total
    console.print(f"{'which takes:':<16}{terminal.in_words(total)}")


@command
def train(profile: ProfileName = "tiny-final", parameter: Parameter = None, debug: Debug = False) -> None:
    """Distil one student without a notebook; under torchrun or accelerate launch, by all their processes together."""
    from docemb_lib.cli.commands import distil, parse_parameters

    tune_environment()
    if (trained := distil(profile, parse_parameters(parameter or []))) is not None:
        console.print(trained, markup=False)


@command
def sweep(
    notebook: Annotated[str, typer.Argument(help="Its name or number, e.g. 05_weighting or 05.")],
    grid: Annotated[str, typer.Option(help="A grid in params/grids/ by name, or the path of a .yaml file.")],
    profile: ProfileName = "tiny",
    workers: Annotated[int | None, typer.Option(help="Processes here; default: as many as there is room for.")] = None,
    scheduler: Annotated[str | None, typer.Option(metavar="ADDRESS|FILE", help="A running Dask cluster.")] = None,
    parameter: Parameter = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs, and whether they are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="List them as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Execute the runs of a grid side by side: what is there is recognised, and a failing run stops no other."""
    from docemb_lib.cli import terminal
    from docemb_lib.cli.commands import described_runs, parse_parameters
    from docemb_lib.cli.forecast import forecast
    from docemb_lib.experiments.plan import chosen_runs, resolve_sweep
    from docemb_lib.experiments.sweeps import comparison_paths, execute_plan, recorded
    from docemb_lib.workspace import Workspace

    if as_json and not dry_run:
        raise InputError("--json lists the runs of --dry-run; for results, see docemb results --json")
    workspace = Workspace()
    steps = resolve_sweep(notebook, grid, workspace, profile=profile, parameters=parse_parameters(parameter or []))
    if dry_run:
        rows = described_runs(steps, workspace)
        if as_json:
            _write_json(rows)
        else:
            terminal.print_planned(rows, console)
            terminal.print_forecast(forecast(steps, workspace), console)
        return
    failures = execute_plan(steps, workspace, terminal.Terminal(console), workers=workers, scheduler=scheduler)
    terminal.print_runs(recorded(planned := chosen_runs(steps), workspace), console)
    paths = [(name, f"outputs/{name}/{planned[0].notebook}") for name in ("records", "notebooks", "figures")]
    terminal.print_paths([*paths, *comparison_paths(planned, workspace)], console)
    _end_with(failures)


@command
def results(
    notebook: Annotated[str | None, typer.Argument(help="Only the runs of this notebook, e.g. 05.")] = None,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    claims: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Instead, what the thesis claims, on a profile's runs.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show the recorded runs, oldest first."""
    from docemb_lib.cli import terminal
    from docemb_lib.experiments import records
    from docemb_lib.settings.profile import notebook_named

    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other")
    notebook = None if notebook is None else notebook_named(notebook)
    if claims is None:
        frame = records.frame(notebook, failed=True)
    else:
        from docemb_lib.thesis.claims import recorded_claims

        frame = recorded_claims(claims).reset_index()
    if as_json:
        sys.stdout.write(frame.to_json(orient="records", force_ascii=False, indent=1) + "\n")
    elif as_csv:
        sys.stdout.write(frame.to_csv(index=False))
    else:
        (terminal.print_runs if claims is None else terminal.print_claims)(frame, console)


@command
def report(
    profile: ProfileName = "tiny",
    out: Annotated[Path | None, typer.Option("-o", "--out", help="A folder; default: outputs/report/PROFILE.")] = None,
    debug: Debug = False,
) -> None:
    """Write the executed notebooks of a profile's plan as pages, with an index and the final table."""
    from docemb_lib.cli.report import write_pages

    console.print(str(write_pages(profile, out)), markup=False)


@command
def embed(
    model: Annotated[str, typer.Argument(help="A student's folder, e.g. outputs/students/<label>, or a hub id.")],
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A folder of .txt/.md files, or a .jsonl file.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="Where to write: .parquet (id and embedding) or .npy.")],
    text_field: TextField = "text",
    id_field: IdField = "id",
    force: Annotated[bool, typer.Option("--force", help="Write over an existing file.")] = False,
    debug: Debug = False,
) -> None:
    """Turn documents into embeddings with a trained student."""
    from docemb_lib.cli.commands import embed_documents

    count, dim = embed_documents(model, source, out, text_field=text_field, id_field=id_field, force=force)
    console.print(f"{count} documents, {dim} dimensions each: {out}", markup=False)


@command
def adapt(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A student, or a short encoder: a folder or a hub id.")],
    source: Annotated[Path, typer.Argument(metavar="CORPUS", help="Folder of .txt/.md files, or a data file.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder of the adapted student; must not exist.")],
    dim: Annotated[int | None, typer.Option(help="Width of the lexical half; default: as it is, or up to 512.")] = None,
    words: Annotated[int, typer.Option(help="Size of its vocabulary at most.")] = 50_000,
    weight: Annotated[float | None, typer.Option(help="Of the lexical half, 0 to 1; default: from the texts.")] = None,
    text_field: TextField = "text",
    id_field: IdField = "id",
    debug: Debug = False,
) -> None:
    """Fit a student's lexical half, mean and weight on a collection; a short encoder becomes a student first."""
    from docemb_lib.cli.commands import adapt_student

    options = {"dim": dim, "words": words, "weight": weight}
    count, width, chosen = adapt_student(model, source, out, text_field=text_field, id_field=id_field, **options)
    console.print(f"{out}: fitted on {count} documents, {width} dimensions, {chosen:.2f} of the cosine is lexical")


@command
def evaluate(
    model: Annotated[str, typer.Argument(help="A sentence-transformers model or student: a folder or a hub id.")],
    profile: ProfileName = "tiny-final",
    task: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this task, or several.")] = None,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Score a model on the tasks of a profile, beside the models that the profile's final evaluation has scored."""
    from docemb_lib.cli import terminal
    from docemb_lib.cli.commands import evaluate_model

    tune_environment()
    found = evaluate_model(model, profile, task or [])
    if as_json:
        frames = {"scores": found.final.scores, **found.final.tables}
        _write_json({"model": model, **{name: json.loads(f.to_json(orient="records")) for name, f in frames.items()}})
    else:
        terminal.print_intervals(found.final.board, console)
        if found.standing:
            console.print(found.standing, markup=False)


@command
def doctor(
    verify: Annotated[bool, typer.Option("--verify", help="Only compare outputs/ with its checksums.")] = False,
    debug: Debug = False,
) -> None:
    """Say what is installed, reachable and slow on this machine; exit code 1 if something must be mended."""
    tune_environment()
    from docemb_lib.doctor import diagnose, verify_outputs

    colours, found = {"ok": "green", "slow": "yellow", "wrong": "red"}, set()
    for name, value, status, mend in verify_outputs() if verify else diagnose():
        console.print(f"[{colours[status]}]{status:<6}[/] {name}: ", end="")
        console.print(f"{value}; {mend}" if mend else value, markup=False)
        found.add(status)
    if "wrong" in found:
        raise typer.Exit(1)


@command
def bench(
    what: Annotated[str, typer.Argument(metavar="|".join(BENCHMARKS))],
    device: Annotated[str | None, typer.Option(help="cpu or cuda; default: a GPU where there is one.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Only see that all parts run, in seconds.")] = False,
    as_json: AsJson = False,
    debug: Debug = False,
) -> None:
    """Measure docemb beside its peers, both sides in one process. Takes some minutes.

    student, with --device: against stock LongformerModel: share of the peak, speed, memory, equality.
    paragraph-vector: inference against a plain gensim loop, by the number of processes.
    heads: all classification heads as one against a loop over torch modules, on the CPU.
    """
    if what not in BENCHMARKS:
        raise InputError(f"bench: got {what!r}; give one of {', '.join(BENCHMARKS)}")
    tune_environment()
    module = what.replace("-", "_")
    measure = resolve_name(f"docemb_lib.bench.{module}:bench_{module}")
    if device is not None and what != "student":
        raise InputError(f"--device: bench {what} has no such option; leave it out")
    report = measure(quick=quick, **({} if device is None else {"device": device}))
    if as_json:
        sys.stdout.write(report.json())
    else:
        from docemb_lib.cli import terminal

        terminal.print_findings(report, console)


def _write_json(content: Any) -> None:
    sys.stdout.write(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def _end_with(failures: Sequence[str]) -> None:
    """Name the runs that failed."""
    for failure in failures:
        errors.print(f"Failed: {failure}", markup=False)
    if failures:
        raise typer.Exit(1)


if __name__ == "__main__":
    app()

"""What the command line shows: a line per run and per long step, and the tables at the end."""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Callable, Sequence, Set
from functools import partial, wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Self

import typer
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.measure import Measurement
from rich.status import Status
from rich.table import Table

from docemb_lib.errors import InputError
from docemb_lib.hardware import tune_environment

if TYPE_CHECKING:
    import pandas as pd

    from docemb_lib.bench import Report
    from docemb_lib.experiments.execution import Planned
    from docemb_lib.experiments.plan import Step
    from docemb_lib.experiments.sweeps import Outcome


# ---- what the command line shows


QUIET_SECONDS = 10.0  # between two lines about one step, where the output is no terminal
SHOWN_COLUMNS = ("notebook", "label", "profile", "status", "documents", "seed", "mean", "seconds")


class ProgressLines:
    """Tells how a plan goes. In a terminal the step in hand is one line that renews itself; elsewhere lines follow."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.status: Status | None = None
        self.last_step = 0.0
        self.run = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def begins(self, run: Planned, number: int, total: int, remaining_s: float | None) -> None:
        left = "" if remaining_s is None else f", about {_duration(remaining_s)} left in all"
        self.run = f"[{number}/{total}] {run.notebook}  {run.label}"
        self._say(f"{self.run}{left}")
        self.last_step = time.monotonic()
        if self.console.is_terminal:
            self.status = self.console.status("")
            self.status.start()

    def step(self, line: str) -> None:
        if self.status is not None:
            self.status.update(escape(line))
        elif time.monotonic() - self.last_step >= QUIET_SECONDS:
            self._say(f"        {line}")
            self.last_step = time.monotonic()

    def ends(self, run: Planned, seconds: float, *, built: bool) -> None:
        self._stop()
        self._say(f"        done in {_duration(seconds)}" if built else "        already there")

    def _say(self, text: str) -> None:
        self.console.print(escape(text))

    def _stop(self) -> None:
        if self.status is not None:
            self.status.stop()
            self.status = None


class SweepLines:
    """Tells how a sweep goes. In a terminal a table renews itself: what is at work, how long still; elsewhere a line
    follows for each run that begins or ends."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.names: dict[Planned, str] = {}
        self.running: dict[Planned, tuple[float, str]] = {}  # when it began, and its last line
        self.started, self.weight, self.ended_weight = time.monotonic(), 0.0, 0.0
        self.total = self.done = self.failed = 0
        self.live: Live | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.live is not None:
            self.live.stop()

    def prepares(self, what: str) -> None:
        self._say(f"preparing {what}")

    def begins(self, planned: Sequence[Planned], missing: Sequence[Planned], where: str) -> None:
        self.started, self.weight = time.monotonic(), sum(run.weight for run in missing)
        self.total, self.done = len(planned), len(planned) - len(missing)
        told_apart = len({run.label for run in planned}) == len(planned)  # seeds, for one, are not in a label
        self.names = {run: run.label if told_apart else run.executed.stem for run in planned}
        there = f", {self.done} of them already there" if self.done else ""
        self._say(f"{len(planned)} runs of {planned[0].notebook}{there}" + (f"; {where}" if where else ""))
        if missing and self.console.is_terminal:
            self.live = Live(get_renderable=self._table, console=self.console, refresh_per_second=2, transient=True)
            self.live.start()

    def step(self, run: Planned, line: str) -> None:
        if run not in self.running and self.live is None:
            self._say(f"begins  {self.names[run]}")
        self.running[run] = (self.running.get(run, (time.monotonic(),))[0], line)

    def ends(self, run: Planned, outcome: Outcome) -> None:
        began, _ = self.running.pop(run, (time.monotonic(), ""))
        if outcome.status == "later":
            return
        self.ended_weight += run.weight
        self.done += outcome.status == "done"
        self.failed += outcome.status == "failed"
        number = f"[{self.done + self.failed}/{self.total}]"
        self._say(
            f"{number} {outcome.status} in {_duration(time.monotonic() - began)}  {self.names[run]}{self._left()}"
        )

    def _left(self) -> str:
        share = self.ended_weight / self.weight
        spent = time.monotonic() - self.started
        return f", about {_duration(spent / share * (1 - share))} left in all" if 0 < share < 1 else ""

    def _table(self) -> Group:
        failed = f", {self.failed} failed" if self.failed else ""
        waiting = self.total - self.done - self.failed - len(self.running)
        table = Table()
        for name, width in (("at work", 20), ("since", 11), ("says", 20)):
            table.add_column(name, no_wrap=True, min_width=width)
        for run, (began, line) in list(self.running.items()):
            table.add_row(escape(self.names[run]), _duration(time.monotonic() - began), escape(line))
        return Group(f"{self.done} of {self.total} done{failed}, {waiting} waiting{self._left()}", table)

    def _say(self, text: str) -> None:
        self.console.print(escape(text))


def print_plan(steps: Sequence[Step], done: Set[Planned], console: Console) -> None:
    """The lines of a plan before it starts: how many runs each is, and how many of them are there."""
    table = Table()
    for name in ("notebook", "runs", "there", "profile", "grid, or single run"):
        table.add_column(name, justify="right" if name in {"runs", "there"} else "left")
    for step in steps:
        first, there = step.runs[0], sum(run in done for run in step.runs)
        what = step.grid or first.label
        table.add_row(first.notebook, str(len(step.runs)), str(there), escape(first.profile.name), escape(what))
    _print_whole(table, console)
    total = sum(len(step.runs) for step in steps)
    console.print(f"{total} runs, {len(done)} of them already there")


def print_planned(planned: Sequence[Planned], done: Sequence[bool], console: Console) -> None:
    """The runs of a sweep before it starts: their labels, what they are given, whether they are there."""
    table = Table()
    varied = [name for name in planned[0].parameters if len({str(run.parameters[name]) for run in planned}) > 1]
    for name in ("label", *varied, "done"):
        table.add_column(name)
    for run, there in zip(planned, done, strict=True):
        table.add_row(
            escape(run.label), *(escape(str(run.parameters[name])) for name in varied), "yes" if there else ""
        )
    _print_whole(table, console)


def print_scoreboard(board: pd.DataFrame, console: Console) -> None:
    """Models × tasks. board: index model; a column per task, `mean` and `std`."""
    table = Table(title="Test scores (accuracy; MAP for retrieval), mean over head seeds", title_justify="left")
    table.add_column("model", no_wrap=True)
    tasks = [name for name in board.columns if name not in {"mean", "std"}]
    for name in (*tasks, "mean ± spread"):
        table.add_column(name, justify="right", no_wrap=True)
    for model, row in board.iterrows():
        table.add_row(
            escape(str(model)), *(f"{row[task]:.3f}" for task in tasks), f"{row['mean']:.3f} ± {row['std']:.3f}"
        )
    _print_whole(table, console)


def print_intervals(board: pd.DataFrame, console: Console) -> None:
    """Models × tasks, each score with its interval. board: texts; index model, or round and model."""
    table = Table(title="Test scores (accuracy; MAP for retrieval) with 95% intervals", title_justify="left")
    rows = board.reset_index()
    for name in rows.columns:
        table.add_column(str(name), justify="left" if name in board.index.names else "right", no_wrap=True)
    for row in rows.itertuples(index=False):
        table.add_row(*(escape(str(text)) for text in row))
    _print_whole(table, console)


def print_paths(paths: Sequence[tuple[str, str | Path]], console: Console) -> None:
    """What lies where, a line each."""
    for what, path in paths:
        console.print(f"{what + ':':<20}{escape(str(path))}")


def print_runs(frame: pd.DataFrame, console: Console) -> None:
    """Recorded runs, a row each; `docemb results --csv` has every column."""
    if frame.empty:
        console.print("No recorded runs yet; `docemb run` makes some.")
        return
    columns = [name for name in SHOWN_COLUMNS if name in frame.columns and frame[name].notna().any()]
    table = Table()
    for name in columns:
        table.add_column(name, justify="right" if frame[name].dtype.kind in "if" else "left")
    for _, row in frame.iterrows():
        table.add_row(*(_cell(row[name]) for name in columns))
    _print_whole(table, console)


def print_claims(table: pd.DataFrame, console: Console) -> None:
    """What the thesis claims, where it holds, and why. table: see `experiments.claims.check_claims`; texts wrap."""
    shown = Table(*table.columns, show_lines=True)
    for row in table.itertuples(index=False):
        shown.add_row(*(escape(str(text)) for text in row))
    console.print(shown)


def _print_whole(table: Table, console: Console) -> None:
    """At its natural width, however narrow the terminal: a number that is cut is worse than a line that wraps."""
    needed = Measurement.get(console, console.options.update(max_width=10_000), table).maximum
    wide = Console(file=console.file, width=max(needed, console.width), force_terminal=console.is_terminal)
    wide.print(table)


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.3f}".rstrip("0").rstrip(".")
    return escape(str(value))


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


# ---- the `docemb` command


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
        except typer.Exit:
            raise
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
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check the plan, and list what is to do.")] = False,
    debug: Debug = False,
) -> None:
    """Execute the plan of a profile: notebooks 01 to 06, then one table of every model on every task."""
    from docemb_lib.experiments.plan import resolve_plan, told
    from docemb_lib.experiments.report import report
    from docemb_lib.experiments.sweeps import execute_plan, missing_runs
    from docemb_lib.settings.profile import Profile
    from docemb_lib.workspace import Workspace

    if from_ is not None and only is not None:
        raise InputError("--from and --only exclude each other; give one of them")
    tune_environment()
    workspace = Workspace()
    loaded = Profile.load(profile)
    steps = resolve_plan(loaded, told(profile), workspace, first=from_, only=only)
    planned = [run for step in steps for run in step.runs]
    if dry_run:
        print_plan(steps, {*planned} - {*missing_runs(steps, workspace)}, console)
        return
    with ProgressLines(console) as lines:
        failures = execute_plan(steps, workspace, lines, partial(SweepLines, console))
    outcome = report(planned, workspace)
    if outcome.board is not None:
        print_scoreboard(outcome.board, console)
        console.print(outcome.standing, markup=False)
    print_paths(outcome.paths, console)
    _end_with(failures)


@command
def train(
    profile: Annotated[str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")] = "tiny",
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="As a notebook takes it.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Distil one student without a notebook; under torchrun or accelerate launch, by all their processes together."""
    from docemb_lib.experiments.commands import distil, parse_parameters

    tune_environment()
    trained = distil(profile, parse_parameters(parameter or []))
    if trained is not None:
        console.print(
            f"{trained.folder}: mean validation loss {trained.before:.4f} → {trained.after:.4f}", markup=False
        )


@command
def sweep(
    notebook: Annotated[str, typer.Argument(help="Its name or number, e.g. 05_weighting or 05.")],
    grid: Annotated[str, typer.Option(help="A grid in params/grids/ by name, or the path of a .yaml file.")],
    profile: Annotated[str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")] = "tiny",
    workers: Annotated[int | None, typer.Option(help="Processes here; by itself as many as there is room for.")] = None,
    scheduler: Annotated[
        str | None, typer.Option(metavar="ADDRESS|FILE", help="A running Dask cluster, instead of workers here.")
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option("-p", "--parameter", metavar="NAME=VALUE", help="The same in all runs.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only list the runs, and whether they are there.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="List them as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Execute the runs of a grid side by side: what is there is recognised, and a failing run stops no other."""
    import json

    from docemb_lib.experiments.commands import parse_parameters
    from docemb_lib.experiments.execution import is_done
    from docemb_lib.experiments.plan import resolve_sweep
    from docemb_lib.experiments.sweeps import execute_sweep, recorded, shown_together
    from docemb_lib.workspace import Workspace

    if as_json and not dry_run:
        raise InputError("--json lists the runs of --dry-run; for results, see docemb results --json")
    workspace = Workspace()
    given = parse_parameters(parameter or [])
    planned = resolve_sweep(notebook, grid, workspace, profile=profile, parameters=given)
    if dry_run:
        done = [is_done(run, workspace) for run in planned]
        names = ("notebook", "label", "parameters", "fingerprint")
        rows = [
            {**{name: getattr(run, name) for name in names}, "done": there}
            for run, there in zip(planned, done, strict=True)
        ]
        if as_json:
            sys.stdout.write(json.dumps(rows, ensure_ascii=False, indent=1) + "\n")
        else:
            print_planned(planned, done, console)
        return
    with SweepLines(console) as lines:
        failures = execute_sweep(planned, workspace, lines, workers=workers, scheduler=scheduler)
    print_runs(recorded(planned, workspace), console)
    places = ("records", "notebooks", "figures")
    paths = [(name, workspace.shown(workspace.outputs / name / planned[0].notebook)) for name in places]
    print_paths([*paths, *shown_together(planned, workspace)], console)
    _end_with(failures)


def _end_with(failures: Sequence[str]) -> None:
    """Name the runs that failed."""
    for failure in failures:
        errors.print(f"Failed: {failure}", markup=False)
    if failures:
        raise typer.Exit(1)


@command
def results(
    notebook: Annotated[str | None, typer.Argument(help="Only the runs of this notebook, e.g. 05_weighting.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per run.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Comma-separated values.")] = False,
    claims: Annotated[
        str | None, typer.Option(metavar="PROFILE", help="Instead, what the thesis claims, on a profile's final runs.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Show the recorded runs, oldest first."""
    from docemb_lib.experiments import records
    from docemb_lib.settings.profile import check_names

    if as_json and as_csv:
        raise InputError("--json and --csv exclude each other")
    if notebook is not None:
        check_names(notebook, ())
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
        (print_runs if claims is None else print_claims)(frame, console)


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
    from docemb_lib.experiments.commands import embed_documents

    count, dim = embed_documents(model, source, out, text_field=text_field, id_field=id_field)
    console.print(f"{count} documents, {dim} dimensions each: {out}")


@command
def evaluate(
    model: Annotated[str, typer.Argument(help="A sentence-transformers model or student: a folder or a hub id.")],
    profile: Annotated[str, typer.Option(help="A profile in params/ by name, or the path of a .yaml file.")] = "tiny",
    task: Annotated[list[str] | None, typer.Option(metavar="NAME", help="Only this task, or several.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All scores, intervals and comparisons as JSON.")] = False,
    debug: Debug = False,
) -> None:
    """Score a model on the tasks of a profile, beside what the profile's final evaluation has scored already."""
    import json

    from docemb_lib.experiments.commands import evaluate_model

    tune_environment()
    found = evaluate_model(model, profile, task or [])
    if as_json:
        frames = {"scores": found.final.scores, **found.final.tables}
        rows = {name: json.loads(frame.to_json(orient="records")) for name, frame in frames.items()}
        sys.stdout.write(json.dumps({"model": model, **rows}, ensure_ascii=False, indent=1) + "\n")
        return
    print_intervals(found.final.board, console)
    if found.standing:
        console.print(found.standing, markup=False)


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
    tune_environment()
    from docemb_lib.bench import bench_student
    from docemb_lib.bench.report import check_folder

    if out is not None:
        check_folder(out)
    report = bench_student(device=device, size=size, quick=quick, documents=documents, repeats=repeats)
    _show(report, as_json, out)


@partial(command, group=bench)
def paragraph_vector(
    quick: Annotated[bool, typer.Option("--quick", help="Only see that all runs, in seconds.")] = False,
    documents: Annotated[int | None, typer.Option(help="Documents of about 400 words.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Of each timing; medians are shown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All that was measured, as one JSON object.")] = False,
    out: Annotated[Path | None, typer.Option(help="A folder for paragraph-vector.json, .csv, .png and .svg.")] = None,
    debug: Debug = False,
) -> None:
    """Paragraph Vector against a plain gensim loop, by the number of workers. Takes some minutes."""
    from docemb_lib.bench import bench_paragraph_vector
    from docemb_lib.bench.report import check_folder

    if out is not None:
        check_folder(out)
    _show(bench_paragraph_vector(quick=quick, documents=documents, repeats=repeats), as_json, out)


@partial(command, group=bench)
def heads(
    quick: Annotated[bool, typer.Option("--quick", help="Only see that all runs, in seconds.")] = False,
    repeats: Annotated[int | None, typer.Option(help="Of each timing; medians are shown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All that was measured, as one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Classification heads trained as one against a loop over torch modules, on the CPU. Takes about a minute."""
    tune_environment()
    from docemb_lib.bench import bench_heads

    _show(bench_heads(quick=quick, repeats=repeats), as_json, None)


@partial(command, group=bench)
def retrieval(
    quick: Annotated[bool, typer.Option("--quick", help="Only see that all runs, in seconds.")] = False,
    documents: Annotated[int | None, typer.Option(help="By itself a million, of 1.5 KB on disk each.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All that was measured, as one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Exact ranks for a thousand queries against faiss: time, memory, equality. Takes some minutes."""
    tune_environment()
    from docemb_lib.bench import bench_retrieval

    _show(bench_retrieval(quick=quick, documents=documents), as_json, None)


@partial(command, group=bench)
def corpus(
    quick: Annotated[bool, typer.Option("--quick", help="Only see that all runs, in seconds.")] = False,
    documents: Annotated[int | None, typer.Option(help="Of the largest corpus whose memory is measured.")] = None,
    repeats: Annotated[int | None, typer.Option(help="Of the speed; medians are shown.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All that was measured, as one JSON object.")] = False,
    debug: Debug = False,
) -> None:
    """Building a corpus against `datasets`: documents a second, cores busy, memory by size. Takes some minutes."""
    from docemb_lib.bench import bench_corpus

    _show(bench_corpus(quick=quick, largest=documents, repeats=repeats), as_json, None)


def _show(report: Report, as_json: bool, out: Path | None) -> None:
    """Print what a benchmark found, and write it into a folder."""
    from docemb_lib.bench import write_report

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


if __name__ == "__main__":
    app()

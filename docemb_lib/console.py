"""What the command line shows: a line per run and per long step, and the tables at the end."""

from __future__ import annotations

import time
from collections.abc import Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.measure import Measurement
from rich.status import Status
from rich.table import Table

if TYPE_CHECKING:
    import pandas as pd

    from docemb_lib.experiments.execution import Planned
    from docemb_lib.experiments.plan import Step
    from docemb_lib.experiments.sweeps import Outcome

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

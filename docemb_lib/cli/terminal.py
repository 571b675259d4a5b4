"""What the command line shows: the progress of plans and sweeps, and tables that are never cut."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console, Group
from rich.live import Live
from rich.markup import escape
from rich.table import Table

from docemb_lib.evaluation.scoreboard import NO_BREAK
from docemb_lib.experiments.execution import Planned, Reporter, Runs, Status
from docemb_lib.experiments.records import LATER
from docemb_lib.settings.profile import FINAL

if TYPE_CHECKING:
    from docemb_lib.bench.harness import Report
    from docemb_lib.cli.forecast import Cost, Forecast

QUIET_SECONDS = 10.0  # between two lines about one run, where the output is no terminal
TIMES, SIZES = {"days": 86400, "h": 3600, "min": 60, "s": 1}, {"TB": 1e12, "GB": 1e9, "MB": 1e6}
RUN_COLUMNS = ("notebook", "label", "profile", "status", "documents", "seed", "validation", "test", "seconds")
AS_USUAL = {"status": "done", "seed": 0}  # columns of runs that all have this value are left out
BORDERS = 3  # characters that a table needs for each column, and one more
OUTCOMES = {"built": "done", "failed": "failed"}
SCORES = "Test scores (accuracy; MAP for retrieval)"


class Terminal(Reporter):
    """Progress of a plan or a sweep: in a terminal a table of the runs at work, elsewhere a line per event."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.live: Live | None = None
        self.names: dict[Planned, str] = {}
        self.running: dict[Planned, tuple[float, float, str]] = {}  # start, time of the last line, that line
        self.there: set[Planned] = set()  # done before `begin`
        self.ended: list[Planned] = []
        self.begun = self.weight = 0.0

    def begin(self, runs: Runs, missing: Runs, where: str = "") -> None:
        workers, further = f"; {where}" if where else "", "further " if self.names else ""
        self.begun = self.begun if further else time.monotonic()
        self.weight += sum(run.weight for run in missing)
        self.there |= set(runs) - set(missing)
        known = [*self.names, *runs]
        labels = [(run.notebook, run.label) for run in known]
        for run, label in zip(known, labels, strict=True):  # labels leave out the seed, for one
            self.names[run] = f"{run.notebook}  {run.label if labels.count(label) == 1 else run.executed.stem}"
        self._print(f"{len(runs)} {further}runs, {len(runs) - len(missing)} of them already there{workers}")

    def prepare(self, what: str) -> None:
        self._print(f"preparing {what}")

    def start(self, run: Planned) -> None:
        now = time.monotonic()
        self.running[run] = (now, now, "")
        self._print(f"begins  {self.names[run]}")
        if self.live is None and self.console.is_terminal:
            self.live = Live(get_renderable=self.at_work, console=self.console, refresh_per_second=2, transient=True)
            self.live.start()

    def step(self, run: Planned, line: str) -> None:
        start, last, _ = self.running[run]
        now = time.monotonic()
        if self.live is None and now - last >= QUIET_SECONDS:
            self._print(f"        {line}")
            last = now
        self.running[run] = (start, last, line)

    def end(self, run: Planned, status: Status, seconds: float, error: str = "") -> None:
        self.running.pop(run, None)
        if status == "later":
            return
        self.ended += [] if run in self.there else [run]
        how = "already there" if status == "reused" else f"{OUTCOMES[status]} in {duration(seconds)}"
        ended = f"{len(self.ended) + len(self.there)}/{len(self.names)}"
        self._print(f"[{ended}] {how}  {self.names[run]}{self._left()}")

    def close(self) -> None:
        if self.live is not None:
            self.live.stop()

    def at_work(self) -> Group:
        """The runs at work: since when, and the last line of each."""
        table = Table()
        for name, width in (("at work", 20), ("since", 11), ("last line", 20)):
            table.add_column(name, no_wrap=True, min_width=width)
        for run, (start, _, line) in list(self.running.items()):
            table.add_row(escape(self.names[run]), duration(time.monotonic() - start), escape(line))
        ended = f"{len(self.ended) + len(self.there)} of {len(self.names)}"
        return Group(f"{ended} ended{self._left()}", table)

    def _left(self) -> str:
        share = sum(run.weight for run in self.ended) / self.weight if self.weight else 1.0
        spent = time.monotonic() - self.begun
        return f", about {duration(spent / share * (1 - share))} left in all" if 0 < share < 1 else ""

    def _print(self, text: str) -> None:
        self.console.print(escape(text))


def print_forecast(found: Forecast, console: Console) -> None:
    """A plan before it starts: what its lines take, what they need from outside, and what of it is missing."""
    columns = ("line", "notebook", "runs", "there", "profile", "grid, or single run", "time", "memory", "disk")
    rows = []
    for number, (step, there, cost) in enumerate(found.lines, 1):
        first, runs = step.runs[0], len(step.runs)
        about = [text.replace(" ", NO_BREAK) for text in _amounts(cost)] if there < runs else ["", "", ""]
        later = f"; {len(step.later)} {LATER}" if step.later else ""
        what = (f"{step.grid or first.label}{later}", *about)
        rows.append((str(number), first.notebook, runs, there, first.profile.name, *what))
    print_table(pd.DataFrame(rows, columns=[*columns]), console)
    needs = [(kind, name, ", ".join(map(str, lines))) for (kind, name), lines in found.needs.items()]
    print_table(pd.DataFrame(needs, columns=["needs", "which", "for lines"]), console)
    for line in found.missing:
        console.print(f"missing: {line}", markup=False)
    total, there = sum(len(line.step.runs) for line in found.lines), sum(line.there for line in found.lines)
    console.print(f"{total} runs, {there} of them already there; {in_words(found.total)}")


def in_words(cost: Cost) -> str:
    seconds, memory, disk = _amounts(cost)
    return f"about {seconds} on this machine, {memory} of memory and {disk} of disk"


def _amounts(cost: Cost) -> list[str]:
    """Time, memory and disk with one digit that counts: `40 min`, `3 GB`, `200 MB`."""
    found = []
    for value, units in ((cost.seconds, TIMES), (cost.memory, SIZES), (cost.disk, SIZES)):
        unit = next((unit for unit in units if value >= units[unit]), [*units][-1])
        found.append(f"{float(f'{value / units[unit]:.0e}'):,.0f} {unit}")
    return found


def print_planned(rows: Sequence[Mapping[str, Any]], console: Console) -> None:
    """The runs of a sweep before it starts: label, the parameters in which they differ, whether they are there."""
    given = [row["parameters"] for row in rows if row["parameters"]]
    varied = [name for name in given[0] if len({str(parameters[name]) for parameters in given}) > 1]
    shown = [{"label": row["label"], **{name: str(row["parameters"].get(name, "")) for name in varied}} for row in rows]
    print_table(pd.DataFrame(shown).assign(done=["yes" if row["done"] else "" for row in rows]), console)


def print_scoreboard(board: pd.DataFrame, console: Console) -> None:
    """Models × tasks. board: index model; a column per task, `mean`, `std` and `fitted on`; NaN: not scored."""
    shown = board.drop(columns=["mean", "std", "fitted on"]).map("{:.3f}".format)
    pairs = zip(board["mean"], board["std"], strict=True)
    shown["mean ± spread"] = [f"{mean:.3f}{NO_BREAK}± {std:.3f}" for mean, std in pairs]
    shown = shown.assign(**{"fitted on": board["fitted on"]}).replace({"nan": "", f"nan{NO_BREAK}± nan": ""})
    print_table(shown.rename_axis("model").reset_index(), console, title=f"{SCORES}, mean over head seeds", text=1)


def print_intervals(board: pd.DataFrame, console: Console) -> None:
    """Models × tasks, each score with its interval. board: texts; index model, or round and model."""
    print_table(board.reset_index(), console, title=f"{SCORES} with 95% intervals", text=board.index.nlevels)


def print_runs(frame: pd.DataFrame, console: Console) -> None:
    """Recorded runs, a row each; `docemb results --csv` has every column.

    The mean over tasks stands under `test` for notebooks that score test splits, else under `validation`.
    """
    if frame.empty:
        console.print("No recorded runs yet; `docemb run` makes some.")
        return
    on_test = frame["notebook"].isin(FINAL)
    if "mean" in frame:
        frame = frame.assign(validation=frame["mean"].mask(on_test), test=frame["mean"].where(on_test))
    shown = [name for name in RUN_COLUMNS if name in frame and frame[name].notna().any()]
    usual = [name for name, value in AS_USUAL.items() if name in frame and (frame[name] == value).all()]
    profiles = list(frame["profile"].unique()) if "profile" in frame else []
    title = f"Profile {profiles[0]}" if len(profiles) == 1 else None
    left_out = {*usual, "profile"} if title else {*usual}
    print_table(frame[[name for name in shown if name not in left_out]], console, title=title)


def print_claims(table: pd.DataFrame, console: Console) -> None:
    """The thesis' claims, where each holds, and why; long texts wrap. table: see `thesis.claims.recorded_claims`."""
    shown = Table(*table.columns, show_lines=True)
    for row in table.itertuples(index=False):
        shown.add_row(*(escape(str(text)) for text in row))
    console.print(shown)


def print_findings(report: Report, console: Console) -> None:
    """What a benchmark has found."""
    print_table(report.table(), console, title=report.title, text=1)


def print_paths(paths: Sequence[tuple[str, str]], console: Console) -> None:
    for name, path in paths:
        console.print(f"{name + ':':<20}{escape(path)}")


def print_table(frame: pd.DataFrame, console: Console, *, title: str | None = None, text: int | None = None) -> None:
    """A frame as a table. Where the terminal is too narrow, cells become several lines, and no word is broken.

    text: how many first columns are aligned to the left; None: all that hold no numbers.
    """
    columns = [[str(name), *map(_cell, frame.iloc[:, place])] for place, name in enumerate(frame)]
    widths = [max(map(len, cells)) for cells in columns]
    least = [max(len(line) for cell in cells for line in _folded(cell, 1).split("\n")) for cells in columns]
    needed = BORDERS * len(columns) + 1
    while sum(widths) + needed > console.width and widths != least:
        widest = max((width, place) for place, width in enumerate(widths) if width > least[place])[1]
        widths[widest] -= 1
    table = Table(title=None if title is None else escape(title), title_justify="left")
    folded = [[_folded(cell, width) for cell in cells] for cells, width in zip(columns, widths, strict=True)]
    for place, (head, *_) in enumerate(folded):
        left = frame.dtypes.iloc[place].kind not in "if" if text is None else place < text
        table.add_column(head, justify="left" if left else "right", no_wrap=True)
    for row in zip(*(cells[1:] for cells in folded), strict=True):
        table.add_row(*map(escape, row))
    wide = max(sum(widths) + needed, console.width)
    type(console)(file=console.file, width=wide, force_terminal=console.is_terminal).print(table)


def _folded(text: str, width: int) -> str:
    """`text` in lines of at most `width` characters where possible, broken at spaces, `-`, `;`, `_` and `)`."""
    if len(text) > width:
        breakable = re.sub("[;_)]", r"\g<0>\t", text)  # a tab marks a place to break at
        lines = wrap(breakable, width, expand_tabs=False, replace_whitespace=False, break_long_words=False)
        text = "\n".join(lines).replace("\t", "")
    return text.replace(NO_BREAK, " ")


def duration(seconds: float) -> str:
    """`45 s` or `3 min 05 s`."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"


def _cell(value: object) -> str:
    if isinstance(value, float):
        return "" if value != value else f"{value:.3f}".rstrip("0").rstrip(".")
    return str(value)

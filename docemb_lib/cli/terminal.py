"""What the command line shows: the progress of plans and sweeps, and tables that are never cut."""

import re
import sys
import time
from collections import Counter
from textwrap import wrap
from typing import Any

import pandas as pd
from rich.console import Console
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from docemb_lib.base.errors import plain
from docemb_lib.evaluation.scoreboard import NO_BREAK
from docemb_lib.sweeps.execution import Planned, Reporter, Runs, Status
from docemb_lib.sweeps.times import RunTimes

RUN_COLUMNS = ("notebook", "label", "documents", "validation", "test", "seconds")
ALIKE = (
    "profile",
    "status",
    "seed",
)  # columns of runs; in the title where all runs have the same value
QUIET_SECONDS = 10.0  # between two lines about one run, where the output is no terminal
FOLDS = (
    sys.maxsize,
    60,
    40,
    30,
    20,
    15,
    10,
    7,
)  # characters in a line of a cell, tried until the table fits
BREAKS = re.compile(rf"[;)/]|,(?!{NO_BREAK})|(?<=\S)-(?=\w)")
SCORES = "Test scores (accuracy; MAP for retrieval)"


class Terminal(Reporter):
    """Progress of a plan or a sweep: a line per event, and in a terminal the last lines of the runs
    at work.

    times: how long such runs took before. The time that is left is shown where it is known for all
    missing runs.
    """

    def __init__(self, console: Console, times: RunTimes) -> None:
        self.console = console
        self.times = times
        name, line = (
            TextColumn(text, markup=False) for text in ("{task.description}", "{task.fields[line]}")
        )
        self.bars = Progress(name, TimeElapsedColumn(), line, console=console, transient=True)
        self.bars.disable = not console.is_terminal
        self.tasks: dict[Planned, TaskID] = {}
        self.said: dict[Planned, float] = {}  # time of the last line about a run
        self.missing: set[Planned] = set()  # neither done before `begin` nor ended
        self.repeated: set[str] = set()  # labels of several runs: they leave out the seed, for one
        self.runs = 0
        self.side_by_side = False  # by several workers, which take less than the sum of their runs
        self.worked = 0.0  # seconds of all runs that have ended
        self.begun = time.monotonic()

    def begin(self, runs: Runs, missing: Runs, where: str = "") -> None:
        self.runs += len(runs)
        self.repeated |= {
            label for label, times in Counter(run.label for run in runs).items() if times > 1
        }
        self.missing |= set(missing)
        self.side_by_side |= bool(where)
        expected = self.times.total(missing)
        more = f"; {where}" if where else f"; about {duration(expected)}" if expected else ""
        self.console.print(f"{already_there(len(runs), len(runs) - len(missing))}{more}")

    def prepare(self, what: str) -> None:
        self.console.print(f"preparing {what}")

    def start(self, run: Planned) -> None:
        self.console.print(f"begins  {self._name(run)}")
        self.said[run] = time.monotonic()
        self.tasks[run] = self.bars.add_task(plain(self._name(run)), line="")
        self.bars.start()

    def step(self, run: Planned, line: str) -> None:
        self.bars.update(self.tasks[run], line=plain(line))
        if self.bars.disable and time.monotonic() - self.said[run] >= QUIET_SECONDS:
            self.console.print(f"        {line}")
            self.said[run] = time.monotonic()

    def end(self, run: Planned, status: Status, seconds: float, error: str = "") -> None:
        self.bars.remove_task(self.tasks.pop(run))
        self.missing.discard(run)
        self.worked += seconds
        if status == "built":
            self.times.add(run, seconds)
        left = self._left()
        about = f", about {duration(left)} left in all" if left else ""
        ended = "done" if status == "built" else status
        how = "already there" if status == "reused" else f"{ended} in {duration(seconds)}"
        self.console.print(
            f"[{self.runs - len(self.missing)}/{self.runs}] {how}  {self._name(run)}{about}"
        )
        if error:  # now, because a later interruption leaves no summary
            self.console.print(f"        {error}")

    def close(self) -> None:
        self.bars.stop()

    def _left(self) -> float | None:
        """Seconds until all missing runs have ended; None: unknown."""
        left = self.times.total(self.missing)
        if left and self.side_by_side and self.worked:
            left *= (
                time.monotonic() - self.begun
            ) / self.worked  # as many runs at once as until now
        return left

    def _name(self, run: Planned) -> str:
        return f"{run.notebook}  {run.executed.stem if run.label in self.repeated else run.label}"


def already_there(runs: int, there: int) -> str:
    """`1 run, already there` or `12 runs, 3 of them already there`."""
    if runs == 1:
        return "1 run, already there" if there else "1 run, not there yet"
    return f"{runs} runs, {there} of them already there"


def print_scoreboard(board: pd.DataFrame, console: Console) -> None:
    """Models × tasks. board: index model; a column per task, `mean` as text, `fitted on`; NaN: not
    scored.
    """
    tasks = board.drop(columns=["mean", "fitted on"]).map("{:.3f}".format).replace("nan", "")
    means = board["mean"].str.replace(", ", f",{NO_BREAK}")
    shown = tasks.assign(**{"mean [95%]": means, "fitted on": board["fitted on"]})
    print_table(shown.rename_axis("model").reset_index(), console, SCORES)


def print_runs(frame: pd.DataFrame, console: Console) -> None:
    """Recorded runs, a row each; `docemb results --csv` has every column. frame: see
    `records.frame`.
    """
    if frame.empty:
        console.print("No recorded runs yet; `docemb run` makes some.")
        return
    alike = [name for name in ALIKE if name in frame and frame[name].nunique(dropna=False) == 1]
    title = ", ".join(f"{name} {frame[name].iloc[0]}" for name in alike)
    shown = [name for name in (*ALIKE, *RUN_COLUMNS) if name in frame and frame[name].notna().any()]
    print_table(frame[[name for name in shown if name not in alike]], console, title)


def print_table(frame: pd.DataFrame, console: Console, title: str | None = None) -> None:
    """A frame as a table. Where the terminal is too narrow, cells become several lines, and no word
    is broken.

    Where that is not enough, the columns are shared out among several tables, each with those that
    name the rows.
    """
    for fold in FOLDS:
        table = Table(title=title or None, title_justify="left", show_lines=fold < FOLDS[0])
        for name, dtype in frame.dtypes.items():
            table.add_column(
                _folded(str(name), fold),
                justify="right" if dtype.kind in "if" else "left",
                no_wrap=True,
            )
        for row in zip(*(_cells(column) for _, column in frame.items()), strict=True):
            table.add_row(*(_folded(cell, fold) for cell in row))
        table.width = width = console.measure(
            table, options=console.options.update(width=sys.maxsize)
        ).maximum
        if width <= console.width:
            break
    names = {"round", "model", "label"}.intersection(frame) or {frame.columns[0]}
    further = [name for name in frame if name not in names]
    if width > console.width and (half := len(further) // 2):
        for part, heading in ((further[:half], title), (further[half:], None)):
            print_table(
                frame[[name for name in frame if name in names or name in part]], console, heading
            )
    else:
        console.print(table, soft_wrap=True)


def write_json(frame: pd.DataFrame) -> None:
    sys.stdout.write(frame.to_json(orient="records", force_ascii=False, indent=1) + "\n")


def _folded(text: str, width: int) -> str:
    """`text` in lines of at most `width` characters where possible, broken at spaces and after
    `BREAKS`.
    """
    if len(text) > width:
        breakable = BREAKS.sub(r"\g<0>\t", text)  # a tab marks a place to break at
        fixed: Any = dict.fromkeys(
            ("expand_tabs", "replace_whitespace", "break_long_words", "break_on_hyphens"), False
        )
        lines = wrap(breakable, width, **fixed)
        text = "\n".join(lines).replace("\t", "")
    return text.replace(NO_BREAK, " ")


def _cells(column: pd.Series) -> list[str]:
    """The values as text; all numbers have as many decimals, up to three, as one of them needs.

    Nothing for NaN.
    """
    decimals = max(
        (len(f"{x:.3f}".rstrip("0").partition(".")[2]) for x in column if isinstance(x, float)),
        default=0,
    )
    return [
        f"{x:.{decimals}f}".replace("nan", "") if isinstance(x, float) else str(x) for x in column
    ]


def duration(seconds: float) -> str:
    """`45 s`, `3 min 05 s` or `2 h 03 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60:02d} min"
    return f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"

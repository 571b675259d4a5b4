"""What the command line shows: the progress of plans and sweeps, and tables that are never cut."""

import re
import sys
import time
from collections import Counter
from textwrap import wrap

import pandas as pd
from rich.console import Console, JustifyMethod
from rich.progress import Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

from docemb_lib.base.errors import plain
from docemb_lib.evaluation.scoreboard import NO_BREAK
from docemb_lib.runs import records
from docemb_lib.sweeps.execution import Planned, Reporter, Runs, Status
from docemb_lib.sweeps.monitor import training_of, trainings_on_disk
from docemb_lib.sweeps.times import RunTimes
from docemb_lib.workspace import Workspace

RUN_COLUMNS = ("notebook", "label", "documents", "validation", "test", "collapsed", "seconds")
# Columns of runs that stand in the title where all runs have the same value.
ALIKE = ("profile", "status", "seed")
EVERY = 1.0  # seconds between two looks for trainings
TRAINING = "update {update}, loss {loss:.4f}, {tokens/s:,.0f} tokens a second, {time left} left"
QUIET_SECONDS = 10.0  # between two lines about one run, where the output is no terminal
# Characters in a line of a cell, tried until the table fits.
FOLDS = (sys.maxsize, 60, 40, 30, 20, 15, 10, 7)
BREAKS = re.compile(rf"[;)/]|,(?!{NO_BREAK})|(?<=\S)-(?=\w)")
SCORES = "Test scores (accuracy; {} for retrieval)"


class Terminal(Reporter):
    """Shows the progress of a plan or a sweep, a line for each event.

    A terminal also shows the last line of each run at work. The time that is left is shown where
    `times` has such runs for all missing ones.
    """

    def __init__(self, console: Console, times: RunTimes, workspace: Workspace) -> None:
        self.console = console
        self.times = times
        self.workspace = workspace
        self.looked = 0.0  # time when trainings were looked for
        self.bars = Progress(
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            TextColumn("{task.fields[line]}", markup=False),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self.tasks: dict[Planned, TaskID] = {}
        self.said: dict[Planned, float] = {}  # time of the last line about a run
        self.missing: set[Planned] = set()  # those that are still to be executed
        self.repeated: set[str] = set()  # labels of several runs, which may differ in the seed
        self.runs = 0
        self.ended = 0  # of all runs, those that were done before included
        self.side_by_side = False  # by several workers, which take less than the sum of their runs
        self.worked = 0.0  # seconds of all runs that have ended
        self.begun = time.monotonic()

    def begin(self, runs: Runs, missing: Runs, where: str = "") -> None:
        self.runs += len(runs)
        labels = Counter(run.label for run in runs)
        self.repeated |= {label for label, count in labels.items() if count > 1}
        self.missing |= set(missing)
        self.side_by_side |= bool(where)
        line = already_there(len(runs), len(runs) - len(missing))
        expected = self.times.total(missing)
        if where:
            line += f"; {where}"
        elif expected:
            line += f"; about {duration(expected)}"
        self.console.print(line)

    def skip(self, runs: Runs) -> None:
        self.ended += len(runs)

    def say(self, line: str) -> None:
        self.console.print(line)

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

    def tick(self) -> None:
        """Show the trainings of the runs at work."""
        if time.monotonic() - self.looked < EVERY:
            return
        trainings = trainings_on_disk(self.workspace)
        for run in self.tasks:
            training = training_of(run, trainings)
            if "loss" in training and training["time left"]:
                self.step(run, TRAINING.format(**training))
        self.looked = time.monotonic()

    def end(self, run: Planned, status: Status, seconds: float, error: str = "") -> None:
        self.bars.remove_task(self.tasks.pop(run))
        self.missing.discard(run)
        self.worked += seconds
        if status == "built":
            self.times.add(run, seconds)
        left = self._left()
        about = f", about {duration(left)} left in all" if left else ""
        how = {"built": "done", "failed": "failed"}.get(status)
        outcome = f"{how} in {duration(seconds)}" if how else "already there"
        self.ended += 1
        place = f"[{self.ended}/{self.runs}]"
        self.console.print(f"{place} {outcome}  {self._name(run)}{about}")
        if error:  # now, because a later interruption leaves no summary
            self.console.print(f"        {error}")

    def close(self) -> None:
        self.bars.stop()

    def _left(self) -> float | None:
        """Seconds until all missing runs have ended; None: unknown."""
        left = self.times.total(self.missing)
        if left and self.side_by_side and self.worked:
            # As many runs will be at work at once as until now.
            left *= (time.monotonic() - self.begun) / self.worked
        return left

    def _name(self, run: Planned) -> str:
        return f"{run.notebook}  {run.executed.stem if run.label in self.repeated else run.label}"


def already_there(runs: int, there: int) -> str:
    """`1 run, already there` or `12 runs, 3 of them already there`."""
    if runs == 1:
        return "1 run, already there" if there else "1 run, not there yet"
    return f"{runs} runs, {there} of them already there"


def print_scoreboard(board: pd.DataFrame, console: Console) -> None:
    """Print a table of models and tasks.

    board: index model; a column per task, `mean` as text, `fitted on`; NaN where there is no score.
    """
    table = board.drop(columns=["mean", "fitted on"]).map("{:.3f}".format).replace("nan", "")
    table["mean [95%]"] = board["mean"].str.replace(", ", f",{NO_BREAK}")
    table["fitted on"] = board["fitted on"]
    print_table(table.rename_axis("model").reset_index(), console, SCORES.format("MAP"))


def print_runs(frame: pd.DataFrame, console: Console) -> None:
    """Print recorded runs, a row each, and what to change where a student has collapsed.

    `docemb results --csv` has every column.

    frame: see `records.frame`.
    """
    if frame.empty:
        console.print("No recorded runs yet; `docemb run` makes some.")
        return
    collapsed = frame.get("collapsed", pd.Series(0, frame.index)) == 1
    # The column is there only if a student has collapsed.
    frame = frame.assign(
        collapsed=collapsed.map({True: "yes", False: ""}) if any(collapsed) else None
    )
    alike = [name for name in ALIKE if name in frame and frame[name].nunique(dropna=False) == 1]
    title = ", ".join(f"{name} {frame[name].iloc[0]}" for name in alike)
    names = [name for name in (*ALIKE, *RUN_COLUMNS) if name in frame and frame[name].notna().any()]
    print_table(frame[[name for name in names if name not in alike]], console, title)
    if any(collapsed):
        console.print(
            f"collapsed: all documents have nearly the same embedding; {records.COLLAPSE_MEND}"
        )


def print_table(frame: pd.DataFrame, console: Console, title: str | None = None) -> None:
    """Print a frame as a table that fits the terminal; no word is broken.

    Where the terminal is too narrow, cells become several lines. Where that is not enough, the
    columns are shared out among several tables, each with those that name the rows.
    """
    unlimited = console.options.update(width=sys.maxsize)
    for fold in FOLDS:
        table = _table(frame, title, fold)
        table.width = console.measure(table, options=unlimited).maximum
        if table.width <= console.width:
            console.print(table, soft_wrap=True)
            return
    names = {"round", "model", "label"}.intersection(frame) or {frame.columns[0]}
    further = [name for name in frame if name not in names]
    half = len(further) // 2
    if not half:
        console.print(table, soft_wrap=True)
        return
    for part, heading in ((further[:half], title), (further[half:], None)):
        columns = [name for name in frame if name in names or name in part]
        print_table(frame[columns], console, heading)


def write_json(frame: pd.DataFrame) -> None:
    sys.stdout.write(frame.to_json(orient="records", force_ascii=False, indent=1) + "\n")


def _table(frame: pd.DataFrame, title: str | None, fold: int) -> Table:
    """A table whose cells have at most `fold` characters in a line where possible."""
    table = Table(title=title or None, title_justify="left", show_lines=fold < FOLDS[0])
    columns = []
    for name, column in frame.items():
        justify: JustifyMethod = "right" if column.dtype.kind in "if" else "left"
        table.add_column(_folded(str(name), fold), justify=justify, no_wrap=True)
        columns.append([_folded(cell, fold) for cell in _cells(column)])
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    return table


def _folded(text: str, width: int) -> str:
    """A text in lines of at most `width` characters where possible.

    The lines are broken at spaces and after `BREAKS`; rich breaks at spaces alone.
    """
    if len(text) > width:
        breakable = BREAKS.sub(r"\g<0>\t", text)  # a tab marks a place to break at
        lines = wrap(
            breakable,
            width,
            expand_tabs=False,
            replace_whitespace=False,
            break_long_words=False,
            break_on_hyphens=False,
        )
        text = "\n".join(lines).replace("\t", "")
    return text.replace(NO_BREAK, " ")


def _cells(column: pd.Series) -> list[str]:
    """The values as text, "" for NaN.

    All numbers have as many decimals, up to three, as one of them needs.
    """
    numbers = [value for value in column if isinstance(value, float)]
    decimals = max((len(f"{x:.3f}".rstrip("0").partition(".")[2]) for x in numbers), default=0)
    return [
        f"{value:.{decimals}f}".replace("nan", "") if isinstance(value, float) else str(value)
        for value in column
    ]


def duration(seconds: float) -> str:
    """`45 s`, `3 min 05 s` or `2 h 03 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{rest} s"

"""What a plan or a sweep shows while it works: lines, and one bar with the run at hand."""

import shutil
import sys
from collections import Counter

from tqdm import tqdm

from docemb_lib.base.errors import plain
from docemb_lib.base.progress import in_kernel
from docemb_lib.sweeps.execution import Planned, Runs, Status

OUTCOMES = {"built": "done", "failed": "failed"}  # of runs that have taken their time


class Progress:
    """A bar, the same in a terminal and in a cell; none in a file or a pipe.

    Lines are printed above it, in a cell only those about failures.
    """

    def __init__(self, *, in_cell: bool) -> None:
        self.in_cell = in_cell
        self.runs = 0
        self.ended = 0  # of all runs, those that were done before included
        self.at_work: dict[Planned, str] = {}  # the last line of each run's notebook
        self.repeated: set[str] = set()  # labels of several runs, which may differ in the seed
        self.bar = tqdm(
            desc="runs",
            bar_format="{desc} [{elapsed}]",
            mininterval=1.0,
            miniters=0,  # `update(0)` refreshes the bar
            leave=in_cell,
            disable=not in_kernel() and not sys.stderr.isatty(),
            file=sys.stdout if in_kernel() else sys.stderr,
        )

    def begin(self, runs: Runs, missing: Runs, where: str) -> None:
        """Say how many runs a plan has; where: names the workers."""
        self.runs = len(runs)
        labels = Counter(run.label for run in runs)
        self.repeated = {label for label, count in labels.items() if count > 1}
        self.say(already_there(len(runs), len(runs) - len(missing)) + where)
        self.show()
        self.bar.refresh()

    def say(self, line: str, *, always: bool = False) -> None:
        """Print a line above the bar."""
        if always or not self.in_cell:
            with tqdm.external_write_mode():
                print(plain(line), flush=True)

    def start(self, run: Planned) -> None:
        self.say(f"begins  {self._name(run)}")
        self.at_work[run] = ""
        self.show()

    def step(self, run: Planned, line: str) -> None:
        """Show the last line of a run's notebook."""
        self.at_work[run] = line
        self.show()

    def end(self, run: Planned, status: Status, seconds: float, error: str = "") -> None:
        del self.at_work[run]
        self.ended += 1
        how = OUTCOMES.get(status)
        outcome = f"{how} in {duration(seconds)}" if how else "already there"
        failed = status == "failed"
        line = f"[{self.ended}/{self.runs}] {outcome}  {self._name(run)}"
        self.say(line, always=failed)
        if failed:  # now, because a later interruption leaves no summary
            self.say(f"        {error}", always=True)
        self.show()

    def show(self) -> None:
        """Let the bar name the run that was started last, and its time go on."""
        text = f"{self.ended}/{self.runs} runs"
        for run in [*self.at_work][-1:]:
            text += f"  {self._name(run)}  {self.at_work[run]}"
        columns = shutil.get_terminal_size().columns - len(" [00:00:00] ")
        self.bar.set_description_str(plain(text)[:columns].rstrip(), refresh=False)
        self.bar.update(0)

    def close(self) -> None:
        self.bar.close()

    def _name(self, run: Planned) -> str:
        is_unclear = run.label in self.repeated or run.compared
        return f"{run.notebook}  {run.executed.stem if is_unclear else run.label}"


def already_there(runs: int, there: int) -> str:
    """`1 run, already there` or `12 runs, 3 of them already there`."""
    if runs == 1:
        return "1 run, already there" if there else "1 run, not there yet"
    return f"{runs} runs, {there} of them already there"


def duration(seconds: float) -> str:
    """`45 s`, `3 min 05 s` or `2 h 03 min`."""
    minutes, rest = divmod(round(seconds), 60)
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60:02d} min"
    if minutes:
        return f"{minutes} min {rest:02d} s"
    return f"{rest} s"

"""What a plan or a sweep shows while it works: lines, and one bar with the run at hand."""

import shutil
import sys
from collections import Counter

from tqdm import tqdm

from docemb_lib.base.errors import plain
from docemb_lib.base.progress import in_kernel
from docemb_lib.runs.run import Run


class Progress:
    """A bar, the same in a terminal and in a cell; none in a file or a pipe.

    Lines are printed above it, in a cell only those about failures.
    """

    def __init__(self, runs: list[Run], missing: int, where: str, *, in_cell: bool) -> None:
        self.in_cell = in_cell
        self.runs = len(runs)
        self.ended = 0  # of all runs, those that were done before included
        labels = Counter(run.label for run in runs)
        # Labels of several runs, which may differ in the seed.
        self.repeated = {label for label, count in labels.items() if count > 1}
        self.bar = tqdm(
            desc="runs",
            bar_format="{desc} [{elapsed}]",
            leave=in_cell,
            disable=not in_kernel() and not sys.stderr.isatty(),
            file=sys.stdout if in_kernel() else sys.stderr,
        )
        self.say(already_there(self.runs, self.runs - missing) + where)

    def say(self, line: str, *, always: bool = False) -> None:
        """Print a line above the bar."""
        if always or not self.in_cell:
            with tqdm.external_write_mode():
                print(plain(line), flush=True)

    def begin(self, run: Run) -> None:
        self.say(f"begins  {self._name(run)}")
        self.show(run)

    def show(self, run: Run, line: str = "") -> None:
        """Let the bar name a run at work and the last line of its notebook."""
        text = f"{self.ended}/{self.runs} runs  {self._name(run)}  {line}"
        columns = shutil.get_terminal_size().columns - len(" [00:00:00] ")
        self.bar.set_description_str(plain(text)[:columns].rstrip())

    def end(self, run: Run, outcome: str, error: str = "") -> None:
        """Say how a run has ended."""
        self.ended += 1
        self.say(f"[{self.ended}/{self.runs}] {outcome}  {self._name(run)}", always=bool(error))
        if error:  # now, because a later interruption leaves no summary
            self.say(f"        {error}", always=True)

    def _name(self, run: Run) -> str:
        name = run.folder.name if run.label in self.repeated else run.label
        return f"{run.notebook}  {name}{', beside the others' if run.beside else ''}"


def already_there(runs: int, there: int) -> str:
    """`1 run, already there` or `12 runs, 3 of them already there`."""
    if runs == 1:
        return "1 run, already there" if there else "1 run, not there yet"
    return f"{runs} runs, {there} of them already there"

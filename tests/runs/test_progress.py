"""What a plan shows while it works: a line for each event, and one bar where a person looks."""

import io
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from docemb_lib.runs.sweep import Progress


@dataclass(frozen=True, eq=False)
class ARun:
    label: str
    folder: Path = Path("the-folder")
    notebook: str = "05_weighting"
    beside: tuple[str, ...] = ()

    @property
    def name(self):
        return self.label


@pytest.fixture
def terminal(monkeypatch):
    """The stderr of a process in a terminal of 60 columns."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("docemb_lib.runs.sweep.sys", SimpleNamespace(stderr=screen))
    monkeypatch.setenv("COLUMNS", "60")
    return screen


def test_a_plan_is_a_line_for_each_event_and_counts_every_run(capsys):
    """Runs may have been done before, fail, and share a label."""
    runs = [ARun(label) for label in "abcc"]
    progress = Progress(runs, 2, "; workers: 2", in_cell=False)
    progress.ended += 2
    for run, ending in ((runs[1], ["done in 01:01"]), (runs[2], ["failed in 00:01", "no luck"])):
        progress.begin(run)
        progress.show(run, "training: 50%")
        progress.end(run, *ending)
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "4 runs, 2 of them already there; workers: 2",
        "begins  05_weighting  b",
        "[3/4] done in 01:01  05_weighting  b",
        "begins  05_weighting  the-folder",  # which tells runs of one label apart
        "[4/4] failed in 00:01  05_weighting  the-folder",
        "        no luck",
    ]
    assert err == ""  # a file or a pipe gets no bar


def test_a_terminal_has_a_bar_of_one_line_with_the_run_at_work(terminal):
    runs = [ARun("a"), ARun("b" * 99)]
    progress = Progress(runs, 2, "", in_cell=False)
    progress.show(runs[0], "training: 50%")
    progress.bar.refresh()
    assert terminal.getvalue().endswith("0/2 runs  05_weighting  a  training: 50% [00:00]")
    progress.show(runs[1])
    assert "0/2 runs  05_weighting  bbb" in terminal.getvalue()
    assert max(map(len, terminal.getvalue().split("\r"))) <= 60
    progress.bar.close()


def test_a_cell_has_lines_about_failures_alone(capsys):
    runs = [ARun("a"), ARun("b")]
    progress = Progress(runs, 2, "; workers: 2", in_cell=True)
    progress.begin(runs[0])
    progress.end(runs[0], "done in 00:01")
    progress.end(runs[1], "failed in 00:01", "no luck")
    assert capsys.readouterr().out.splitlines() == [
        "[2/2] failed in 00:01  05_weighting  b",
        "        no luck",
    ]

"""What a plan shows while it works: a line for each event, and one bar where a person looks."""

import io
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from docemb_lib.runs.progress import Progress, already_there, duration


@dataclass(frozen=True, eq=False)
class ARun:
    label: str
    executed: Path = Path("the-file.ipynb")
    notebook: str = "05_weighting"
    compared: tuple[str, ...] = ()


@pytest.fixture
def terminal(monkeypatch):
    """The stderr of a process in a terminal of 60 columns."""
    screen = io.StringIO()
    screen.isatty = lambda: True
    monkeypatch.setattr("docemb_lib.runs.progress.sys", SimpleNamespace(stderr=screen))
    monkeypatch.setenv("COLUMNS", "60")
    return screen


def test_a_plan_is_a_line_for_each_event_and_counts_every_run_once(capsys):
    """Runs may have been done before, fail, share a label, and be skipped."""
    progress = Progress(in_cell=False)
    runs = [ARun(label) for label in "abcdd"]
    progress.begin(runs, runs[2:4], "; workers: 2")
    progress.ended += 1
    progress.start(runs[1])
    progress.end(runs[1], "reused", 0.0)
    progress.start(runs[2])
    progress.step(runs[2], "training: 50%")
    progress.end(runs[2], "built", 61.0)
    progress.start(runs[3])
    progress.end(runs[3], "failed", 0.0, "no luck")
    progress.close()
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "5 runs, 3 of them already there; workers: 2",
        "begins  05_weighting  b",
        "[2/5] already there  05_weighting  b",
        "begins  05_weighting  c",
        "[3/5] done in 1 min 01 s  05_weighting  c",
        "begins  05_weighting  the-file",  # the name of a file tells runs of one label apart
        "[4/5] failed in 0 s  05_weighting  the-file",
        "        no luck",
    ]
    assert err == ""  # a file or a pipe gets no bar


def test_a_terminal_has_a_bar_of_one_line_with_the_run_that_was_started_last(terminal):
    progress = Progress(in_cell=False)
    runs = [ARun("a"), ARun("b" * 99)]
    progress.begin(runs, runs, "")
    progress.start(runs[0])
    progress.step(runs[0], "training: 50%")
    progress.bar.refresh()
    assert terminal.getvalue().endswith("0/2 runs  05_weighting  a  training: 50% [00:00]")
    progress.start(runs[1])
    progress.bar.refresh()
    assert "0/2 runs  05_weighting  bbb" in terminal.getvalue()
    assert max(map(len, terminal.getvalue().split("\r"))) <= 60
    progress.close()


def test_a_cell_has_lines_about_failures_alone_and_keeps_the_bar(terminal, capsys):
    progress = Progress(in_cell=True)
    runs = [ARun("a"), ARun("b")]
    progress.begin(runs, runs, "; workers: 2")
    for run, status in zip(runs, ("built", "failed"), strict=True):
        progress.start(run)
        progress.end(run, status, 1.0, "no luck" if status == "failed" else "")
    progress.close()
    assert capsys.readouterr().out.splitlines() == [
        "[2/2] failed in 1 s  05_weighting  b",
        "        no luck",
    ]
    assert terminal.getvalue().endswith("2/2 runs [00:00]\n")


def test_counts_and_times_are_words():
    assert already_there(1, 0) == "1 run, not there yet"
    assert already_there(1, 1) == "1 run, already there"
    assert [duration(seconds) for seconds in (9.6, 185, 7380)] == [
        "10 s",
        "3 min 05 s",
        "2 h 03 min",
    ]

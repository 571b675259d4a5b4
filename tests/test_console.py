"""What the command line prints can be read in any terminal."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console

from docemb_lib.cli import ProgressLines, SweepLines, print_claims, print_intervals, print_runs, print_scoreboard
from docemb_lib.experiments.sweeps import Outcome


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_are_never_cut(columns):
    console = Console(file=io.StringIO(), width=columns)
    board = pd.DataFrame({"see-also-retrieval": [0.8123], "package": [0.7], "mean": [0.7561], "std": [0.0041]},
                         index=["student before distillation"])  # fmt: skip
    print_scoreboard(board, console)
    shown = console.file.getvalue()
    for whole in ("student before distillation", "see-also-retrieval", "0.812", "0.756 ± 0.004"):
        assert whole in shown


def test_intervals_are_shown_by_model_and_round():
    console = Console(file=io.StringIO(), width=40)
    board = pd.DataFrame({"find": [".512 [.48, .55]", "1.000 [.99, 1.00]"]}, index=pd.Index(["a", "b"], name="model"))
    print_intervals(board, console)
    assert all(whole in console.file.getvalue() for whole in ("model", ".512 [.48, .55]", "1.000 [.99, 1.00]"))
    print_intervals(pd.concat({"10k": board}, names=["round"]), console)
    assert "10k" in console.file.getvalue()


def test_claims_wrap_where_the_terminal_is_narrow():
    console = Console(file=io.StringIO(), width=60)
    claim = "The best student has nearly 80% of the best [score] of each task."
    print_claims(pd.DataFrame({"id": ["c4"], "claim": [claim], "because": ["no round 1k"]}), console)
    lines = console.file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 60
    assert [word for line in lines if line.startswith("│") for word in line.split("│")[2].split()] == claim.split()


def test_runs_without_records_say_how_to_make_some():
    console = Console(file=io.StringIO(), width=80)
    print_runs(pd.DataFrame(), console)
    assert "docemb run" in console.file.getvalue()


def test_a_run_that_failed_shows_its_status():
    console = Console(file=io.StringIO(), width=80)
    print_runs(
        pd.DataFrame({"notebook": ["05_weighting"], "label": ["x"], "status": ["failed"], "mean": [None]}), console
    )
    assert "failed" in console.file.getvalue()


def test_outside_a_terminal_steps_are_lines_but_not_too_many(monkeypatch):
    clock = iter([0.0, 5.0, 12.0, 12.0, 13.0])
    monkeypatch.setattr("docemb_lib.cli.time.monotonic", lambda: next(clock))
    console = Console(file=io.StringIO(), width=80)
    run = type("Run", (), {"notebook": "05_weighting", "label": "a"})()
    with ProgressLines(console) as lines:
        lines.begins(run, 2, 9, 75.0)
        for percent in (10, 50, 51):
            lines.step(f"training: {percent}%")
        lines.ends(run, 61.0, built=True)
    assert console.file.getvalue().splitlines() == [
        "[2/9] 05_weighting  a, about 1 min 15 s left in all",
        "        training: 50%",
        "        done in 1 min 01 s",
    ]


def a_sweep(columns=100, terminal=False, labels=("a", "b", "c")):
    runs = [ARun(label, Path(f"{number}.ipynb")) for number, label in enumerate(labels)]
    return runs, Console(file=io.StringIO(), width=columns, force_terminal=terminal)


@dataclass(frozen=True, eq=False)
class ARun:
    label: str
    executed: Path
    notebook: str = "05_weighting"
    weight: float = 1.0


def test_outside_a_terminal_a_sweep_is_a_line_per_run_that_begins_or_ends(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("docemb_lib.cli.time.monotonic", lambda: clock[0])
    runs, console = a_sweep()
    with SweepLines(console) as lines:
        lines.prepares("the words of the corpus, stem")
        lines.begins(runs, runs[1:], "2 workers")
        lines.step(runs[1], "starting the notebook")
        clock[0] = 30.0
        lines.step(runs[1], "training: 50%")
        lines.ends(runs[2], Outcome("later"))
        lines.ends(runs[1], Outcome("done"))
        lines.ends(runs[2], Outcome("failed", "no luck"))
    assert console.file.getvalue().splitlines() == [
        "preparing the words of the corpus, stem",
        "3 runs of 05_weighting, 1 of them already there; 2 workers",
        "begins  b",
        "[2/3] done in 30 s  b, about 30 s left in all",
        "[3/3] failed in 0 s  c",
    ]


def test_runs_with_one_label_are_told_apart_by_their_files():
    runs, console = a_sweep(labels=("a", "a"))
    with SweepLines(console) as lines:
        lines.begins(runs, runs, "1 worker")
        lines.step(runs[1], "x")
    assert console.file.getvalue().splitlines()[-1] == "begins  1"


def test_in_a_terminal_a_table_shows_what_is_at_work():
    runs, console = a_sweep(terminal=True)
    with SweepLines(console) as lines:
        lines.begins(runs, runs, "2 workers")
        lines.step(runs[0], "training: 50%")
        lines.ends(runs[1], Outcome("failed", "no luck"))
        shown = Console(file=io.StringIO(), width=100)
        shown.print(lines._table())
    text = shown.file.getvalue()
    assert "0 of 3 done, 1 failed, 1 waiting, about " in text
    assert "training: 50%" in text

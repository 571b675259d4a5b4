"""What the command line prints can be read in any terminal."""

from __future__ import annotations

import io

import pandas as pd
import pytest
from rich.console import Console

from docemb_lib.console import ProgressLines, print_runs, print_scoreboard


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_tables_are_never_cut(columns):
    console = Console(file=io.StringIO(), width=columns)
    board = pd.DataFrame({"see-also-retrieval": [0.8123], "package": [0.7], "mean": [0.7561], "std": [0.0041]},
                         index=["student before distillation"])  # fmt: skip
    print_scoreboard(board, console)
    shown = console.file.getvalue()
    for whole in ("student before distillation", "see-also-retrieval", "0.812", "0.756 ± 0.004"):
        assert whole in shown


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
    monkeypatch.setattr("docemb_lib.console.time.monotonic", lambda: next(clock))
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

"""What the command line prints can be read in any terminal."""

import io
import logging
import unicodedata
from math import nan
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
from conftest import docemb
from rich.console import Console

from docemb_lib.base.progress import log_to_notebook, progress
from docemb_lib.cli.commands import PlainConsole
from docemb_lib.cli.terminal import print_runs, print_scoreboard, print_table
from docemb_lib.runs.progress import Progress
from docemb_lib.runs.records import COLLAPSE_MEND


def console(columns=100, terminal=False):
    return Console(file=io.StringIO(), width=columns, force_terminal=terminal, markup=False)


def cells_of(text):
    """The cells of a table, column by column, with their lines joined."""
    lines = [line for line in text.splitlines() if line[0] in "│┃"]
    rows = [line.strip("│┃").replace("┃", "│").split("│") for line in lines]
    return ["".join(column).replace(" ", "") for column in zip(*rows, strict=True)]


@pytest.mark.parametrize("columns", [60, 80, 120, 200])
def test_tables_fit_the_terminal_and_lose_nothing(columns):
    screen = console(columns)
    # the name of a folder
    folder = "tiny-final-student-cosine-lam=0.5-PV-S-384-ReLU-x200-C---700-docs-seed0"
    board = pd.DataFrame(
        {
            "see-also-retrieval": [0.8123, 0.5],
            "package": [0.7, 0.3],
            "mean": ".756 [.70, .81]",
            "fitted on": "task",
        },
        index=["student before distillation", folder],
    )
    print_scoreboard(board, screen)
    _title, _, table = screen.file.getvalue().partition("\n")
    expected = [
        "model",
        "student before distillation",
        folder,
        "see-also-retrieval",
        "0.8120.500",
        "package",
        "0.7000.300",
        "mean [95%]",
        ".756 [.70, .81]" * 2,
        "fitted on",
        "task" * 2,
    ]
    assert "".join(cells_of(table)) == "".join(expected).replace(" ", "")
    assert max(map(len, table.splitlines())) <= columns


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_recorded_runs_fit_the_terminal(columns):
    screen = console(columns)
    label = "cosine;PV;S:384(ReLU)x512(ReLU)x384;C:384"
    notebooks = ["04_projections", "06_evaluation"]
    rows = {
        "notebook": notebooks,
        "label": label,
        "profile": "tiny",
        "status": "done",
        "documents": 150,
        "seed": 0,
    }
    print_runs(
        pd.DataFrame(
            {**rows, "validation": [0.61, nan], "test": [nan, 0.87], "seconds": [53.2, 209.0]}
        ),
        screen,
    )
    title, *lines = screen.file.getvalue().splitlines()
    assert title.strip() == "profile tiny, status done, seed 0"
    assert max(map(len, lines)) <= columns
    assert cells_of("\n".join(lines)) == [
        f"notebook{''.join(notebooks)}",
        f"label{label * 2}",
        "documents150150",
        "validation0.61",
        "test0.87",
        "seconds53.2209.0",
    ]


def test_long_texts_wrap_where_the_terminal_is_narrow():
    screen = console(60)
    claim = "The best student has nearly 80% of the best [score] of each task."
    print_table(pd.DataFrame({"id": ["c4"], "claim": [claim], "because": ["no round 1k"]}), screen)
    lines = screen.file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 60
    assert [
        word for line in lines if line.startswith("│") for word in line.split("│")[2].split()
    ] == claim.split()


def test_a_name_between_colons_is_printed_as_it_is():
    assert "'my_losses:angel:'" in docemb("results", "my_losses:angel:").stderr


def test_no_name_label_or_text_can_command_the_terminal(workspace_root, monkeypatch, capsys):
    name = "\x1b]0;owned\x07\x1b[2J\u202e\u2066\x9b31m\x00\r"
    screen = PlainConsole(file=io.StringIO(), width=300, highlight=False, markup=False)
    run = SimpleNamespace(label=name, notebook=name, folder=Path(name), beside=())
    Progress([run], 1, "", in_cell=False).end(run, "done")
    print_table(pd.DataFrame({name: [name]}), screen, name)
    screen.print(f"{name}\udcff", markup=False)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    bar = progress(desc=name, total=3)
    bar.update()
    refused = docemb("results", name)  # which sets the handler of warnings
    assert refused.returncode == 2
    logging.lastResort.handle(logging.makeLogRecord({"msg": name, "levelno": logging.WARNING}))
    bars = bar.fp.getvalue().replace("\r", "")
    for text in (screen.file.getvalue(), refused.stderr, bars, capsys.readouterr().out):
        assert "owned" in text
        assert not [c for c in text if c != "\n" and unicodedata.category(c) in {"Cc", "Cf", "Cs"}]


def test_warnings_in_a_notebook_are_plain_text_because_stderr_looks_like_an_error(
    monkeypatch, capsys
):
    monkeypatch.setattr("docemb_lib.base.progress.in_kernel", lambda: True)
    monkeypatch.setattr("IPython.get_ipython", Mock())
    monkeypatch.setattr(logging.getLogger("docemb_lib"), "handlers", [])
    log_to_notebook()
    logging.getLogger("docemb_lib.student").warning("%d of <b> cut", 3)
    assert capsys.readouterr() == ("3 of <b> cut\n", "")


@pytest.mark.parametrize("collapsed", [[0.0, 1.0], [0.0, nan]])
def test_recorded_runs_say_which_students_have_collapsed(collapsed):
    frame = pd.DataFrame({"notebook": "04", "label": ["a", "b"], "collapsed": collapsed})
    screen = console()
    print_runs(frame, screen)
    printed = screen.file.getvalue()
    has_collapsed = 1.0 in collapsed
    assert ("collapsed" in printed) == has_collapsed
    assert (COLLAPSE_MEND in " ".join(printed.split())) == has_collapsed
    assert printed.count("yes") == has_collapsed

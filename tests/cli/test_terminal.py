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

from docemb_lib.base.progress import log_to_notebook, progress
from docemb_lib.cli import report, terminal
from docemb_lib.cli.terminal import PlainConsole, print_table
from docemb_lib.runs.sweep import Progress

FOLDER = "tiny-final-student-cosine-lam=0.5-PV-S-384-ReLU-x200-C---700-docs-seed0"


@pytest.fixture
def screen(request, monkeypatch):
    """A terminal, in place of that of the commands."""
    screen = PlainConsole(file=io.StringIO(), width=request.param)
    for module in (terminal, report):
        monkeypatch.setattr(module, "console", screen)
    return screen


def columns(*widths):
    return pytest.mark.parametrize("screen", widths, indirect=True)


def cells_of(screen):
    """The cells of a table, column by column, with their lines joined."""
    lines = [line for line in screen.file.getvalue().splitlines() if line[0] in "│┃"]
    assert max(map(len, lines)) <= screen.width
    rows = [line.strip("│┃").replace("┃", "│").split("│") for line in lines]
    return ["".join(column).replace(" ", "") for column in zip(*rows, strict=True)]


@columns(60, 80, 120, 200)
def test_tables_fit_the_terminal_and_lose_nothing(screen):
    claim = "The best student has 80% of the best [score] of each task."
    names = {"model": ["before distillation", FOLDER], "claim": claim}
    numbers = {"package": [0.8123, 0.5], "documents": [150.0, nan], "seed": [0, 1]}
    print_table(pd.DataFrame({**names, **numbers}))
    assert cells_of(screen) == [
        f"modelbeforedistillation{FOLDER}",
        f"claim{claim * 2}".replace(" ", ""),
        "package0.8120.500",
        "documents150",
        "seed01",
    ]


@columns(60)
def test_recorded_runs_have_the_columns_that_say_something(screen):
    rows = {"notebook": ["04", "06"], "label": "a", "profile": "tiny", "status": "done", "seed": 0}
    scores = {"validation": [0.61, nan], "test": [nan, 0.87], "collapsed": [0.0, 1.0]}
    report.print_runs(pd.DataFrame({**rows, **scores, "seconds": [53.2, 209.0]}))
    assert cells_of(screen) == [
        *("notebook0406", "labelaa", "profiletinytiny", "statusdonedone"),
        *("validation0.610", "test0.870", "collapsed01", "seconds53209"),
    ]


def test_a_name_between_colons_is_printed_as_it_is():
    assert "'my_losses:angel:'" in docemb("results", "my_losses:angel:").stderr


@columns(300)
def test_no_name_label_or_text_can_command_the_terminal(
    workspace_root, screen, monkeypatch, capsys
):
    name = "\x1b]0;owned\x07\x1b[2J\u202e\u2066\x9b31m\x00\r"
    run = SimpleNamespace(name=name, notebook=name, folder=Path(name), beside=())
    Progress([run], 1, "", in_cell=False).end(run, "done")
    print_table(pd.DataFrame({name: [name]}), name)
    screen.print(f"{name}\udcff")
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

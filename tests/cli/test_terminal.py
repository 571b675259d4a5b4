"""What the command line prints can be read in any terminal."""

import io
import logging
import unicodedata
from dataclasses import dataclass, field, replace
from math import nan
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest
from conftest import docemb
from rich.console import Console
from rich.text import Text

from docemb_lib.base.progress import log_to_notebook, progress
from docemb_lib.cli.commands import PlainConsole
from docemb_lib.cli.dry_run import Need, Outlook, print_outlook
from docemb_lib.cli.terminal import Terminal, print_runs, print_scoreboard, print_table
from docemb_lib.evaluation.scoreboard import NO_BREAK
from docemb_lib.runs.records import COLLAPSE_MEND
from docemb_lib.sweeps.times import RunTimes


@dataclass(frozen=True, eq=False)
class ARun:
    label: str
    executed: Path
    notebook: str = "05_weighting"
    profile: SimpleNamespace = field(default_factory=lambda: SimpleNamespace(name="tiny"))
    key: SimpleNamespace | None = None


def times_of(workspace, **seconds):
    """How long runs took, by notebook: without records, and with these."""
    times = RunTimes(workspace)
    for notebook, durations in seconds.items():
        for each in durations:
            times.add(ARun("", Path(), notebook.removeprefix("n")), each)
    return times


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("docemb_lib.cli.terminal.time.monotonic", lambda: now[0])
    return now


def console(columns=100, terminal=False):
    return Console(file=io.StringIO(), width=columns, force_terminal=terminal, markup=False)


def reported(workspace, *labels, terminal=False, seconds=()):
    planned = [ARun(label, Path(f"{number}.ipynb")) for number, label in enumerate(labels)]
    screen = console(terminal=terminal)
    return Terminal(screen, times_of(workspace, n05_weighting=seconds), workspace), screen, planned


def cells_of(text):
    """The cells of a table, column by column, with their lines joined; of one printed in parts,
    each column once.
    """
    columns = {}
    for part in text.split("┏")[1:]:
        lines = [line for line in part.splitlines()[1:] if line[0] in "│┃"]
        rows = [line.strip("│┃").replace("┃", "│").split("│") for line in lines]
        for column in zip(*rows, strict=True):
            columns["".join(column).replace(" ", "")] = None
    return [*columns]


@pytest.mark.parametrize("columns", [40, 60, 80, 120, 200])
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
    assert all(
        word in table for word in ("distillation", "retrieval", "[.70, .81]")
    )  # no word is broken
    assert max(map(len, table.splitlines())) <= columns
    intervals = pd.DataFrame(
        {"find": [f".512 [.48,{NO_BREAK}.55]"]}, index=pd.Index(["a"], name="model")
    )
    print_table(intervals.reset_index(), screen)
    assert "[.48, .55]" in screen.file.getvalue()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_recorded_runs_and_plans_fit_the_terminal(columns):
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
    columns_shown = cells_of("\n".join(lines))
    assert all(name in screen.file.getvalue() for name in notebooks)  # not broken
    assert columns_shown == [
        f"notebook{''.join(notebooks)}",
        f"label{label * 2}",
        "documents150150",
        "validation0.61",
        "test0.87",
        "seconds53.2209.0",
    ]
    listed = {
        "line": "10",
        "notebook": notebooks,
        "runs": 9,
        "there": 0,
        "profile": "tiny",
        "grid, or single": label,
        "time": "10,155 h 19 min",
    }
    files = f"/home/{'somebody/' * 9}data/cda (train_cite.csv, dev_cite.csv, test_cite.csv)"
    outlook = Outlook(pd.DataFrame(listed), 3.6e7, {Need("files", files): [*range(9)]}, [])
    print_outlook(outlook, screen := console(columns, terminal=True))
    *_, last = lines = Text.from_ansi(screen.file.getvalue()).plain.splitlines()
    assert max(map(len, lines)) <= columns
    assert last.endswith("before")


def test_long_texts_wrap_where_the_terminal_is_narrow():
    screen = console(60)
    claim = "The best student has nearly 80% of the best [score] of each task."
    print_table(pd.DataFrame({"id": ["c4"], "claim": [claim], "because": ["no round 1k"]}), screen)
    lines = screen.file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= 60
    assert [
        word for line in lines if line.startswith("│") for word in line.split("│")[2].split()
    ] == claim.split()


def test_recorded_runs_show_their_status_or_how_to_make_some():
    screen = console(80)
    print_runs(pd.DataFrame(), screen)
    assert "docemb run" in screen.file.getvalue()
    print_runs(pd.DataFrame({"notebook": ["05_weighting"], "status": ["failed"]}), screen)
    assert "failed" in screen.file.getvalue()


def test_a_plan_is_a_line_for_each_event_and_says_how_long_such_runs_took(workspace, clock):
    """Runs may have been done before, fail, and share a label."""
    reporter, screen, (first, second, third, fourth, again) = reported(
        workspace, "a", "b", "c", "d", "d"
    )
    reporter.say("preparing the words of the corpus, stem")
    reporter.begin([first, second, third], [second, third], "2 workers")
    reporter.start(first)
    reporter.end(first, "reused", 0.0)
    reporter.start(second)
    for clock[0], line in ((3.0, "training: 5%"), (30.0, "training: 50%"), (33.0, "training: 55%")):
        reporter.step(second, line)
    clock[0] = 75.0
    reporter.end(second, "built", 61.0)
    reporter.start(third)
    reporter.end(third, "failed", 0.0, "no luck")
    reporter.begin([fourth, again], [fourth, again])
    reporter.start(fourth)
    reporter.close()
    assert screen.file.getvalue().splitlines() == [
        "preparing the words of the corpus, stem",
        "3 runs, 1 of them already there; 2 workers",
        "begins  05_weighting  a",
        "[1/3] already there  05_weighting  a",
        "begins  05_weighting  b",
        "        training: 50%",
        "[2/3] done in 1 min 01 s  05_weighting  b, about 1 min 15 s left in all",  # 61 * 75 / 61
        "begins  05_weighting  c",
        "[3/3] failed in 0 s  05_weighting  c",
        "        no luck",
        "2 runs, 0 of them already there; about 2 min 02 s",  # twice what b took
        "begins  05_weighting  3",  # the name of a file tells runs of one label apart
    ]


def test_the_counter_counts_runs_that_are_skipped_there_already_built_and_failed(workspace):
    reporter, screen, runs = reported(workspace, "a", "b", "c", "d", "e")
    reporter.begin(runs, runs[3:])
    reporter.start(runs[0])
    reporter.end(runs[0], "reused", 0.0)
    reporter.skip(runs[1:3])
    for run, status in zip(runs[3:], ("built", "failed"), strict=True):
        reporter.start(run)
        reporter.end(run, status, 1.0)
    places = [line.split()[0] for line in screen.file.getvalue().splitlines() if line[0] == "["]
    assert places == ["[1/5]", "[4/5]", "[5/5]"]


def test_a_plan_without_workers_takes_the_sum_of_the_usual_times(workspace, clock):
    reporter, screen, planned = reported(workspace, "a", "b", "c", seconds=(60.0, 180.0))
    reporter.begin(planned, planned[1:])
    reporter.start(planned[1])
    clock[0] = 200.0
    reporter.end(planned[1], "built", 200.0)
    first, _, last = screen.file.getvalue().splitlines()
    assert first == "3 runs, 1 of them already there; about 4 min 00 s"  # twice the median
    assert last.endswith("about 3 min 00 s left in all")  # the median of 60, 180 and 200
    Terminal(screen, times_of(workspace, n05_weighting=[60.0]), workspace).begin(planned, [])
    assert screen.file.getvalue().endswith("\n3 runs, 3 of them already there\n")
    other = ARun("e", Path("5.ipynb"), "03_structural")
    Terminal(screen, times_of(workspace, n05_weighting=[60.0]), workspace).begin(
        [*planned, other], [*planned, other]
    )
    assert screen.file.getvalue().endswith("\n4 runs, 0 of them already there\n")  # 03 is not known
    Terminal(screen, times_of(workspace), workspace).begin([other], [other])
    assert screen.file.getvalue().endswith("\n1 run, not there yet\n")
    Terminal(screen, times_of(workspace), workspace).begin([other], [])
    assert screen.file.getvalue().endswith("\n1 run, already there\n")


def test_in_a_terminal_the_runs_at_work_are_shown_with_their_last_lines(workspace):
    screen = console()
    reporter, _, planned = reported(workspace, "a", "b", "c", terminal=True)
    reporter.begin(planned, planned)
    reporter.start(planned[0])
    reporter.step(planned[0], "training: 50%")
    screen.print(reporter.bars)
    reporter.close()
    assert "05_weighting  a 0:00:00 training: 50%" in screen.file.getvalue()


def test_a_name_between_colons_is_printed_as_it_is():
    assert "'my_losses:angel:'" in docemb("results", "my_losses:angel:").stderr


def test_no_name_label_or_text_can_command_the_terminal(workspace, monkeypatch):
    name = "\x1b]0;owned\x07\x1b[2J\u202e\u2066\x9b31m\x00\r"
    screen = PlainConsole(file=io.StringIO(), width=300, highlight=False, markup=False)
    run = ARun(name, Path(name))
    reporter = Terminal(screen, times_of(workspace), workspace)
    reporter.begin([run], [run], name)
    reporter.start(run)
    reporter.step(run, name)
    screen.print(reporter.bars)
    reporter.end(run, "failed", 1.0, name)
    print_table(pd.DataFrame({name: [name]}), screen, name)
    screen.print(f"{name}\udcff", markup=False)
    monkeypatch.setattr("sys.stderr", io.StringIO())
    bar = progress(desc=name, total=3)
    bar.update()
    refused = docemb("results", name)  # which sets the handler of warnings
    assert refused.returncode == 2
    logging.lastResort.handle(logging.makeLogRecord({"msg": name, "levelno": logging.WARNING}))
    for text in (screen.file.getvalue(), refused.stderr, bar.fp.getvalue().replace("\r", "")):
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


def test_a_run_of_a_sweep_is_shown_with_the_progress_of_its_training(workspace, monkeypatch):
    names = ["student a", "student a", "student b"]
    trainings = pd.DataFrame({"training": names, "profile": ["other", "tiny", "tiny"]})
    trainings = trainings.assign(update="12 of 333", loss=[9.0, 0.25, nan])  # b has no update yet
    trainings = trainings.assign(**{"tokens/s": 5120.0, "time left": ["01:25", "01:25", ""]})
    monkeypatch.setattr("docemb_lib.cli.terminal.trainings_on_disk", lambda _: trainings)
    reporter, _, planned = reported(workspace, "a", "b", terminal=True)
    runs = []
    for run in planned:
        key = SimpleNamespace(trains=True, student_label=f"student {run.label}")
        runs.append(replace(run, key=key))
    reporter.begin(runs, runs, "2 workers")
    for run in runs:
        reporter.start(run)
    reporter.tick()
    plain = console()
    plain.print(reporter.bars)
    reporter.close()
    said = "a 0:00:00 update 12 of 333, loss 0.2500, 5,120 tokens a second, 01:25 left"
    assert said in plain.file.getvalue()
    assert "nan" not in plain.file.getvalue()

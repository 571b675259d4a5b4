"""One run: executed once, recognised afterwards, and its failures recorded; then whole plans of
such runs.
"""

import dataclasses
import json
import os
import re
import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext

import pytest
from filelock import FileLock

from docemb_lib.base.errors import InputError
from docemb_lib.runs import records
from docemb_lib.sweeps import cluster, execution, kernels
from docemb_lib.runs.execution import (
    RunError,
    UnwantedError,
    execute_run,
    is_done,
    reason_to_execute,
    record_failure,
    repetitions,
)
from docemb_lib.runs.sweep import comparison_paths, execute_plan
from docemb_lib.workspace import installed_versions

SUCCEEDS = """
from docemb_lib.runs.run import begin
run = begin("05_weighting", globals())
import sys; print("half-way", file=sys.stderr)
run.finish({"mean": lam})
"""
FAILS = "raise RuntimeError('no luck')"
EDITS_ITSELF = """
from pathlib import Path
notebook = Path("05_weighting.ipynb")
notebook.write_text(notebook.read_text().replace("half-way", "half way"))
"""
SLEEPS = "import time; time.sleep(60)"
ONE = "[{notebook: 05_weighting, lam: 0.5}]"
NAME = r"05_weighting \(cosine;64;λ=0\.5\)"


@pytest.fixture
def told(capsys):
    """The lines since the last call: of each run that begins or ends, its word and its λ."""

    def lines():
        out = capsys.readouterr().out
        pattern = r"^(?:\[\d/\d\] )?(begins|done|failed|already).*?(λ=0\.\d|comparison)"
        return [" ".join(line) for line in re.findall(pattern, out, flags=re.MULTILINE)]

    return lines


@pytest.fixture
def steps(plan_of, write_notebook):
    """Resolves a plan of the small profile; `text` replaces notebook 05 by a few lines that compute
    nothing.
    """

    def resolve(text="", runs=ONE):
        if text:
            write_notebook("05_weighting", "profile = 'tiny'\nseed = 0\nlam = 0.1", text)
        return plan_of(runs)

    return resolve


@pytest.fixture
def a_run(steps):
    return lambda text="": steps(text)[0].runs[0]


def test_an_edited_notebook_or_lost_copy_is_executed_again_and_a_late_kill_is_free(
    a_run, workspace, monkeypatch
):
    run = a_run(f"{SUCCEEDS}\n{EDITS_ITSELF}")
    assert execute_run(run, workspace)
    assert records.frame(workspace=workspace)["validation"].tolist() == [0.5]
    assert not is_done(run, workspace)
    run = a_run(SUCCEEDS)
    replace = os.replace

    def killed_afterwards(source, target):
        replace(source, target)
        if os.fspath(target) == str(run.executed):
            raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", killed_afterwards)
        with pytest.raises(SystemExit):
            execute_run(run, workspace)
    assert [
        path.name for path in run.executed.parent.glob(".*") if path.suffix != ".lock"
    ] == []  # no working copy
    assert is_done(run, workspace)
    assert not execute_run(run, workspace)
    copy = run.executed.read_bytes()
    for unreadable in (copy[:99], b"", b"[]", b'{"metadata": {}}', copy.replace(b"m", b"\xff", 1)):
        run.executed.write_bytes(unreadable)
        assert not is_done(run, workspace)
    run.executed.write_bytes(copy)
    recorded = records.find(workspace, run.notebook, run.key)
    for student, done in (
        ("outputs/students", False),
        ("outputs/records", True),
    ):  # the first was removed
        records.save(workspace, dataclasses.replace(recorded, student=student))
        assert is_done(run, workspace) is done
    run.executed.unlink()
    assert not is_done(run, workspace)


@pytest.fixture
def a_done_run(a_run, workspace):
    run = a_run(SUCCEEDS)
    assert reason_to_execute(run, workspace) == ""
    assert repetitions([run], workspace) == []
    execute_run(run, workspace)
    return run


def edit(run, change):
    """Change the cells of the run's notebook."""
    notebook = json.loads(run.source.read_text())
    change(notebook["cells"])
    run.source.write_text(json.dumps(notebook))


def test_the_prose_of_a_notebook_is_no_reason_to_execute_it_again(a_done_run, workspace):
    prose = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": ["*New* prose."]}
    edit(a_done_run, lambda cells: cells.insert(1, prose))
    assert is_done(a_done_run, workspace)


def test_a_run_that_is_repeated_says_why(a_done_run, a_run, workspace):
    profile = workspace.root / "params" / "small.yaml"
    record = workspace.outputs / "records" / "05_weighting" / a_done_run.fingerprint / "record.json"
    changes = [
        (profile, "_tokens: 64}\n", "_tokens: 32}\n", "profile changed"),
        (profile, "packages: [numpy, seaborn]", "packages: [numpy]", "texts changed"),
        (a_done_run.source, "half-way", "half way", "the notebook's code has changed"),
        (a_done_run.executed, "{", "", "its executed notebook is missing or damaged"),
        (record, "{", "", "its record is missing or damaged"),
    ]
    for file, old, new, reason in changes:
        text = file.read_text()
        file.write_text(text.replace(old, new, 1))
        run = a_run()
        assert reason_to_execute(run, workspace) == reason
        assert repetitions([run], workspace) == [f"again   05_weighting (1): {reason}"]
        file.write_text(text)


def test_a_package_that_has_changed_since_a_run_is_named(a_done_run, a_run, workspace, monkeypatch):
    versions = {**installed_versions(), "numpy": "99.0"}
    monkeypatch.setattr("docemb_lib.runs.key.installed_versions", lambda: versions)
    assert reason_to_execute(a_run(), workspace) == "versions changed"


@pytest.mark.parametrize(
    ("text", "error", "said", "kept"),
    [
        (FAILS, RunError, "RuntimeError: no luck", FAILS),
        ("pass", RunError, "it ended without its record", "pass"),
        ("import os; os._exit(9)", RunError, "its kernel died", "os._exit(9)"),
        (
            "from docemb_lib.base.errors import InputError\n"
            "raise InputError('lam: too much of it')",
            InputError,
            "lam: too much of it",
            "too much of it",
        ),
    ],
)
def test_a_failure_is_recorded_with_its_error_and_its_notebook(
    a_run, workspace, text, error, said, kept
):
    run = a_run(text)
    with pytest.raises(error, match=rf"^{NAME}: {said}.* \(see .*failed\.ipynb\)$"):
        execute_run(run, workspace)
    (row,) = records.frame(workspace=workspace, failed=True).to_dict("records")
    assert row["status"] == "failed"
    assert row["error"].startswith(f"05_weighting (cosine;64;λ=0.5): {said}")
    assert records.frame(workspace=workspace).empty
    assert kept in run.failed.read_text()
    assert not run.working.exists()
    assert not is_done(run, workspace)


def test_all_runs_are_checked_before_the_first_kernel_starts(
    steps, workspace, monkeypatch, refused
):
    lines = (
        "[{notebook: 05_weighting, lam: 0.5}, {notebook: 05_weighting, student_projection: 16x17}]"
    )
    refused(r"plan, line 2 \(05_weighting\): .*384 → 16 → 17.*16 → 16", steps, SUCCEEDS, lines)
    plan = steps(
        SUCCEEDS, "[{notebook: 05_weighting, lam: 0.5}, {notebook: 05_weighting, documents: 12}]"
    )
    monkeypatch.setattr(
        execution, "execute_run", lambda *a, **k: pytest.fail("a kernel was started")
    )

    def check_task(profile, *_):
        if profile.parameters.documents == 12:
            raise InputError("its files are gone")

    monkeypatch.setattr("docemb_lib.runs.scores.check_task", check_task)
    refused(
        r"^05_weighting \(cosine;.*λ=0.5\): its files are gone",
        execute_plan,
        plan,
        workspace,
    )


def test_a_failed_run_is_tried_again_unless_at_work_and_once_done_keeps_its_record(
    a_run, workspace
):
    run = a_run(SUCCEEDS)
    run.executed.parent.mkdir(parents=True)
    run.working.write_text("as far as it came")
    with FileLock(run.executed.with_name(f".{run.executed.name}.lock")):
        message = record_failure(run, workspace, "its  worker died", "")
        assert message == "05_weighting (cosine;64;λ=0.5): its worker died"
    assert records.find(workspace, run.notebook, run.key) is None
    assert run.working.exists()
    assert record_failure(run, workspace, "its worker died", "").endswith(
        f"(see {workspace.relative(run.failed)})"
    )
    assert records.find(workspace, run.notebook, run.key).status == "failed"
    assert run.failed.read_text() == "as far as it came"
    assert not run.working.exists()
    assert execute_run(run, workspace)
    assert is_done(run, workspace)
    assert records.frame(workspace=workspace, failed=True)["status"].tolist() == ["done"]
    assert not run.failed.exists()
    record_failure(run, workspace, "its worker died", "")
    assert records.frame(workspace=workspace, failed=True)["validation"].tolist() == [0.5]


def test_an_unwanted_run_in_a_thread_is_ended_and_counts_as_no_failure(
    a_run, workspace, monkeypatch
):
    run = a_run(SLEEPS)
    end = kernels._end_kernel
    calls = []

    def end_later(sockets):
        """The first call comes before the kernel has started, and finds none."""
        if calls:
            end(sockets)
        calls.append(sockets)

    monkeypatch.setattr(kernels, "_end_kernel", end_later)
    with ThreadPoolExecutor(1) as thread, pytest.raises(UnwantedError):
        thread.submit(execute_run, run, workspace, unwanted=lambda: True).result(timeout=50)
    assert len(calls) >= 2
    assert records.frame(workspace=workspace, failed=True).empty
    assert [path.suffix for path in run.executed.parent.iterdir()] == [".lock"]


@pytest.mark.slow
def test_the_runs_of_a_grid_are_a_sweep_with_a_page_and_a_failing_run_stops_no_other(
    steps, workspace, monkeypatch, told
):
    monkeypatch.setattr(cluster, "default_workers", lambda runs: 1)
    single = "{notebook: 05_weighting, lam: 0.%d}"
    three = f"[{single % 3}, {{grid: lams, profile: other.yaml}}, {single % 4}]"
    text = SUCCEEDS.replace(
        "import sys", "import sys, os; assert lam != 0.8 or os.path.exists('mended')", 1
    )
    plan = steps(text, three)
    (failure,) = execute_plan(plan, workspace)
    assert failure.startswith("05_weighting (cosine;64;λ=0.8): AssertionError")
    assert [line for line in told() if not line.startswith("begins")] == [
        "done λ=0.3",
        "done λ=0.5",
        "failed λ=0.8",
        "done comparison",
        "done λ=0.4",
    ]
    assert sorted(records.frame(workspace=workspace)["validation"]) == [0.3, 0.4, 0.5]
    (workspace.root / "notebooks" / "mended").touch()
    assert execute_plan(steps("", three), workspace) == []
    assert [line for line in told() if not line.startswith("begins")] == [
        "already λ=0.3",
        "done λ=0.8",
        "done comparison",
        "already λ=0.4",
    ]
    ((_, page),) = comparison_paths(plan[1].runs, workspace)
    metadata = json.loads((workspace.root / page).read_text())["metadata"]
    assert metadata["docemb"]["compared"] == [run.key for run in plan[1].runs]
    monkeypatch.setitem(sys.modules, "papermill", None)  # a third time nothing is executed
    assert execute_plan(steps("", three), workspace) == []
    ends = ["already λ=0.3", "already λ=0.4"]
    assert [line for line in told() if not line.startswith("begins")] == ends


class Workers:
    """Two workers that record runs. That of λ 0.5 ends when another line's run has begun."""

    def __init__(self, workspace):
        self.workspace = workspace
        self.compared = []
        self.late = None

    def nthreads(self):
        return {"a": 1, "b": 1}

    def submit(self, attempt, run, *arguments, **options):
        future = Future()
        future.status = "finished"
        records.save(self.workspace, records.Record.of(run))
        if run.compared:
            self.compared.append([run.label, len(run.compared)])
        elif run.parameters["lam"] == 0.5:
            self.late = future
            return future
        elif run.parameters["lam"] == 0.7:
            self.late.set_result(("built", ""))
        future.set_result(("built", ""))
        return future


@pytest.fixture
def workers(workspace, monkeypatch):
    both = Workers(workspace)
    monkeypatch.setattr(cluster, "local_workers", lambda count: nullcontext(both))
    monkeypatch.setattr(
        execution, "execute_run", lambda run, *_, **__: both.submit(None, run).result()
    )
    return both


FIRST = "{notebook: 05_weighting, runs: [{lam: 0.5}, {lam: 0.6}]}"


def test_runs_of_the_next_line_begin_before_a_line_ends_and_each_has_a_page(
    steps, workspace, workers, told
):
    plan = steps(runs=f"[{FIRST}, {{notebook: 05_weighting, runs: [{{lam: 0.7}}]}}]")
    assert execute_plan(plan, workspace) == []
    lines = told()
    assert lines.index("begins λ=0.7") < lines.index("done λ=0.5")
    first, second = (step.runs[0].label for step in plan)
    assert sorted(workers.compared) == sorted([[first, 2], [second, 1]])


@pytest.mark.parametrize(("profile", "pages"), [("", 0), (", profile: other.yaml", 1)])
def test_a_line_has_no_page_where_a_single_run_later_shows_its_runs(
    steps, workspace, workers, profile, pages
):
    line = "{notebook: 05_weighting, runs: [{lam: 0.6}, {lam: 0.8}]}"
    plan = steps(runs=f"[{line}, {{notebook: 05_weighting, lam: 0.9{profile}}}]")
    execute_plan(plan, workspace)
    assert len(workers.compared) == pages

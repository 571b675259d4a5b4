"""The plan: resolved and checked before anything starts, finished runs recognised without executing anything."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import nbformat
import pytest
from filelock import FileLock, Timeout
from jupyter_client.manager import KernelManager

from docemb_lib.errors import InputError
from docemb_lib.experiments import execution, plan, records
from docemb_lib.experiments.execution import RunError, UnwantedError, execute_run, is_done, record_failure
from docemb_lib.experiments.plan import execute, resolve_plan
from docemb_lib.profile import Profile
from docemb_lib.workspace import Workspace

SUCCEEDS = """
from docemb_lib.experiments import records
from docemb_lib.experiments.run import Run
run = Run.begin("05_weighting", profile=profile, seed=seed, lam=lam)
import sys; print("half-way", file=sys.stderr)
run.finish({"mean": lam})
"""


ONE = "[{notebook: 05_weighting, lam: 0.5}]"


class Nobody:
    def __init__(self):
        self.told = []

    def begins(self, run, number, total, remaining_s):
        self.told.append(f"begins {number}/{total} {run.label}")

    def step(self, line):
        self.told.append(line)

    def ends(self, run, seconds, *, built):
        self.told.append("built" if built else "there")


@pytest.fixture
def workspace(workspace_root):
    return Workspace(workspace_root)


def a_plan(workspace, text="", runs="[{notebook: 05_weighting, lam: 0.5}, {notebook: 05_weighting, lam: 0.8}]"):
    """The small profile with another plan, resolved; the notebook replaced by a few lines that compute nothing."""
    path = workspace.root / "params" / "planned.yaml"
    small = (workspace.root / "params" / "small.yaml").read_text(encoding="utf-8")
    path.write_text(small[: small.index("plan:")].replace("name: small", "name: planned") + f"plan: {runs}\n")
    if text:
        notebook = nbformat.v4.new_notebook(
            cells=[
                nbformat.v4.new_code_cell("profile = 'tiny'\nseed = 0\nlam = 0.1", metadata={"tags": ["parameters"]}),
                nbformat.v4.new_code_cell(text),
            ],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}},
        )
        nbformat.write(notebook, workspace.root / "notebooks" / "05_weighting.ipynb")
    return resolve_plan(Profile.load(path), str(path), workspace)


def test_the_plan_is_executed_once_and_recognised_afterwards(workspace, monkeypatch):
    planned = a_plan(workspace, SUCCEEDS)
    watcher = Nobody()
    execute(planned, workspace, watcher)
    assert [line for line in watcher.told if line.startswith("begins")] == [
        "begins 1/2 cosine;64;λ=0.5", "begins 2/2 cosine;64;λ=0.8",
    ]  # fmt: skip
    assert "half-way" in watcher.told
    assert records.frame("05_weighting", workspace=workspace)["mean"].tolist() == [0.5, 0.8]
    assert all(run.executed.is_file() and is_done(run, workspace) for run in planned)

    monkeypatch.setitem(sys.modules, "papermill", None)  # a second time nothing is executed
    again = Nobody()
    execute(a_plan(workspace), workspace, again)
    assert again.told.count("there") == 2


def test_an_edited_notebook_or_a_lost_copy_is_executed_again(workspace):
    run = a_plan(workspace, SUCCEEDS, "[{notebook: 05_weighting, lam: 0.5}]")[0]
    execute([run], workspace, Nobody())
    assert is_done(run, workspace)
    notebook = json.loads(run.source.read_text())
    notebook["cells"][1]["source"] += ["\n# a remark"]
    run.source.write_text(json.dumps(notebook))
    assert not is_done(run, workspace)
    execute([run], workspace, Nobody())
    assert is_done(run, workspace)
    run.executed.unlink()
    assert not is_done(run, workspace)


def test_a_failing_notebook_is_recorded_with_its_error_and_tried_again(workspace):
    failing = a_plan(workspace, "raise RuntimeError('no luck')", "[{notebook: 05_weighting, lam: 0.5}]")
    with pytest.raises(RunError, match=r"05_weighting .*RuntimeError: no luck.*failed\.ipynb"):
        execute(failing, workspace, Nobody())
    frame = records.frame(workspace=workspace, failed=True)
    assert frame["status"].tolist() == ["failed"]
    assert "no luck" in frame["error"].item()
    assert records.frame(workspace=workspace).empty
    assert not is_done(failing[0], workspace)
    execute(a_plan(workspace, SUCCEEDS, "[{notebook: 05_weighting, lam: 0.5}]"), workspace, Nobody())
    assert records.frame(workspace=workspace, failed=True)["status"].tolist() == ["done"]
    assert not list((workspace.outputs / "notebooks").rglob("*.failed.ipynb"))


def test_all_runs_are_checked_before_the_first_kernel_starts(workspace, monkeypatch):
    runs = "[{notebook: 05_weighting, lam: 0.5}, {notebook: 05_weighting, student_projection: 16x17}]"
    planned = a_plan(workspace, SUCCEEDS, runs)
    monkeypatch.setattr(plan, "execute_run", lambda *a, **k: pytest.fail("a kernel was started"))
    with pytest.raises(InputError, match=r"384 → 16 → 17.*16 → 16"):
        execute(planned, workspace, Nobody())


@pytest.mark.parametrize(
    ("selection", "notebooks"),
    [
        ({"first": "05"}, ["05_weighting", "06_evaluation"]),
        ({"only": "03"}, ["03_structural"]),
        ({"only": "05_weighting"}, ["05_weighting"]),
    ],
)
def test_from_and_only_choose_notebooks(workspace, selection, notebooks):
    planned = resolve_plan(Profile.load("small"), "small", workspace, **selection)
    assert [run.notebook for run in planned] == notebooks


def test_a_choice_that_leaves_nothing_is_refused(workspace):
    with pytest.raises(InputError, match="no notebook begins with '99'"):
        resolve_plan(Profile.load("small"), "small", workspace, only="99")
    planned = workspace.root / "params" / "planned.yaml"
    a_plan(workspace)
    with pytest.raises(InputError, match="--only 03 leaves no run; the plan's notebooks are 05_weighting"):
        resolve_plan(Profile.load(planned), str(planned), workspace, only="03")


def test_a_failure_does_not_overwrite_the_record_of_a_run_that_once_succeeded(workspace):
    runs = "[{notebook: 05_weighting, lam: 0.5}]"
    execute(a_plan(workspace, SUCCEEDS, runs), workspace, Nobody())
    with pytest.raises(RunError):
        execute(a_plan(workspace, "raise RuntimeError('no luck')", runs), workspace, Nobody())
    assert records.frame(workspace=workspace)["mean"].tolist() == [0.5]


def test_a_notebook_that_leaves_no_record_has_failed(workspace):
    with pytest.raises(RunError, match="ended without its record"):
        execute(a_plan(workspace, "pass", "[{notebook: 05_weighting, lam: 0.5}]"), workspace, Nobody())
    assert "without its record" in records.frame(workspace=workspace, failed=True)["error"].item()


def test_a_kernel_that_dies_is_a_recorded_failure(workspace):
    dying = a_plan(workspace, "import os; os._exit(9)", "[{notebook: 05_weighting, lam: 0.5}]")
    with pytest.raises(RunError, match=r"05_weighting \(cosine;64;λ=0\.5\): its kernel died"):
        execute(dying, workspace, Nobody())
    assert "kernel died" in records.frame(workspace=workspace, failed=True)["error"].item()
    assert "os._exit(9)" in dying[0].failed.read_text()
    assert not dying[0].working.exists()


def test_an_execution_that_breaks_outside_the_notebook_is_a_recorded_failure(workspace):
    (run,) = a_plan(workspace, SUCCEEDS, ONE)
    run.source.write_text("{}")
    with pytest.raises(RunError, match=r"^05_weighting \(cosine;64;λ=0\.5\): "):
        execute([run], workspace, Nobody())
    assert records.frame(workspace=workspace, failed=True)["status"].tolist() == ["failed"]


def test_a_notebook_that_is_edited_while_it_runs_is_executed_again(workspace):
    edit = "open('05_weighting.ipynb', 'a').write(' ')"  # it runs in notebooks/
    (run,) = a_plan(workspace, f"{SUCCEEDS}\n{edit}", ONE)
    execute_run(run, workspace, tell=lambda line: None)
    assert records.frame(workspace=workspace)["mean"].tolist() == [0.5]
    assert not is_done(run, workspace)


def test_a_process_killed_when_its_run_is_done_leaves_no_working_copy(workspace, monkeypatch):
    (run,) = a_plan(workspace, SUCCEEDS, ONE)
    replace = os.replace

    def killed_afterwards(source, target):
        replace(source, target)
        if os.fspath(target) == str(run.executed):
            raise SystemExit

    monkeypatch.setattr(os, "replace", killed_afterwards)
    with pytest.raises(SystemExit):
        execute_run(run, workspace, tell=lambda line: None)
    assert is_done(run, workspace)
    assert [path.name for path in run.executed.parent.glob(".*") if path.suffix != ".lock"] == []


def test_a_failure_is_not_recorded_while_another_process_has_the_run_in_hand(workspace):
    (run,) = a_plan(workspace, runs=ONE)
    run.executed.parent.mkdir(parents=True)
    run.working.write_text("as far as it came")
    with FileLock(run.executed.with_name(f".{run.executed.name}.lock")):
        assert (
            record_failure(run, workspace, "its  worker died", "") == "05_weighting (cosine;64;λ=0.5): its worker died"
        )
    assert records.find(workspace, run.notebook, run.fingerprint) is None
    assert run.working.exists()
    assert record_failure(run, workspace, "its worker died", "").endswith(f"(see {workspace.shown(run.failed)})")
    assert records.find(workspace, run.notebook, run.fingerprint).status == "failed"
    assert run.failed.read_text() == "as far as it came"
    assert not run.working.exists()


def test_sockets_fit_into_the_longest_path_that_systems_take(monkeypatch):
    root = tempfile.mkdtemp(dir="/tmp")
    longest = root + "/" + "x" * (execution.LONGEST_SOCKET - len(root) - 1 - len(execution.SOCKET))
    monkeypatch.setattr(tempfile, "tempdir", longest)
    assert execution._short_folder() == longest
    os.mkdir(longest)
    with tempfile.TemporaryDirectory(prefix="docemb-", dir=longest) as sockets:
        manager = KernelManager(config=execution._kernel_options(sockets)["config"])
        assert len(f"{manager.ip}-10") == execution.LONGEST_SOCKET == 103
    os.rmdir(longest)
    os.rmdir(root)
    for longer in (f"{longest}x", longest[:-1] + "ä"):  # one byte too many
        monkeypatch.setattr(tempfile, "tempdir", longer)
        assert execution._short_folder() == "/tmp"


def test_bad_input_that_only_the_notebook_finds_is_recorded_and_stays_bad_input(workspace):
    text = "from docemb_lib.errors import InputError\nraise InputError('lam: too much of it')"
    with pytest.raises(InputError, match=r"^lam: too much of it$"):
        execute(a_plan(workspace, text, "[{notebook: 05_weighting, lam: 0.5}]"), workspace, Nobody())
    assert "too much of it" in records.frame(workspace=workspace, failed=True)["error"].item()


def test_a_run_that_another_process_has_in_hand_is_not_waited_for_where_that_is_not_wanted(workspace):
    run = a_plan(workspace, SUCCEEDS, "[{notebook: 05_weighting, lam: 0.5}]")[0]
    run.executed.parent.mkdir(parents=True)
    with FileLock(run.executed.with_name(f".{run.executed.name}.lock")), pytest.raises(Timeout):
        execute_run(run, workspace, tell=print, wait=False)
    execute_run(run, workspace, tell=lambda line: None, wait=False)
    assert is_done(run, workspace)


def test_a_run_in_a_thread_is_ended_once_nobody_wants_it_and_counts_as_no_failure(workspace):
    text = "open('ready', 'w').close(); import time; time.sleep(60)"  # it runs in notebooks/
    run = a_plan(workspace, text, "[{notebook: 05_weighting, lam: 0.5}]")[0]
    ready = workspace.root / "notebooks" / "ready"
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(execute_run, run, workspace, tell=lambda line: None, unwanted=ready.exists)
        with pytest.raises(UnwantedError):
            future.result(timeout=50)
    assert records.frame(workspace=workspace, failed=True).empty
    assert [path.suffix for path in run.executed.parent.iterdir()] == [".lock"]


def test_a_run_that_nobody_wants_is_ended_again_where_there_was_no_kernel_yet(workspace, monkeypatch):
    (run,) = a_plan(workspace, "import time; time.sleep(60)", ONE)
    calls = []
    end = execution._end_kernel
    monkeypatch.setattr(execution, "_end_kernel", lambda sockets: end(sockets) if calls else calls.append(sockets))
    with ThreadPoolExecutor(1) as thread:
        future = thread.submit(execute_run, run, workspace, tell=lambda line: None, unwanted=lambda: True)
        with pytest.raises(UnwantedError):
            future.result(timeout=50)
    assert len(calls) == 1


def test_the_notebook_is_told_every_parameter_so_that_both_sides_mean_the_same_run(workspace):
    for run in resolve_plan(Profile.load("small"), "small", workspace):
        again = Profile.load("small").for_notebook(run.notebook, **run.parameters)
        assert plan.fingerprint_of_run(run.notebook, again) == run.fingerprint
        assert set(run.parameters) == {"profile", "seed", *plan.NOTEBOOKS[run.notebook]}

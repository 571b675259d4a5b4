"""The plan: resolved and checked before anything starts, finished runs recognised without executing anything."""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import nbformat
import pytest
from filelock import FileLock, Timeout
from jupyter_client.manager import KernelManager

from docemb_lib.errors import InputError
from docemb_lib.experiments import execution, plan, records
from docemb_lib.experiments import sweeps as plan_execution
from docemb_lib.experiments.execution import RunError, UnwantedError, execute_run, is_done, record_failure
from docemb_lib.experiments.plan import Step, resolve_plan
from docemb_lib.experiments.scores import check_benchmarks
from docemb_lib.experiments.sweeps import execute_plan
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace

SUCCEEDS = """
from docemb_lib.experiments import records
from docemb_lib.experiments.run import begin
run = begin("05_weighting", globals())
import sys; print("half-way", file=sys.stderr)
run.finish({"mean": lam})
"""


REPOSITORY = Path(__file__).resolve().parents[2]
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
    return runs_of(resolve_plan(Profile.load(path), str(path), workspace))


def runs_of(steps):
    return [run for step in steps for run in step.runs]


def execute(planned, workspace, watcher):
    """Runs that no grid names."""
    steps = [Step([run], grid=None) for run in planned]
    assert execute_plan(steps, workspace, watcher, lambda: pytest.fail("there is no grid")) == []


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
    monkeypatch.setattr(plan_execution, "execute_run", lambda *a, **k: pytest.fail("a kernel was started"))
    with pytest.raises(InputError, match=r"384 → 16 → 17.*16 → 16"):
        execute(planned, workspace, Nobody())


@pytest.mark.parametrize(
    ("selection", "notebooks"),
    [
        ({"first": "05"}, ["05_weighting", "06_evaluation", "07_simde"]),
        ({"only": "03"}, ["03_structural"]),
        ({"only": "05_weighting"}, ["05_weighting"]),
    ],
)
def test_from_and_only_choose_notebooks(workspace, selection, notebooks):
    planned = runs_of(resolve_plan(Profile.load("small"), "small", workspace, **selection))
    assert [run.notebook for run in planned] == notebooks


def test_a_line_on_request_runs_only_where_its_notebook_is_asked_for(workspace):
    a_plan(workspace, runs="[{notebook: 06_evaluation}, {notebook: 07_simde, seed: 1, on_request: true}]")
    planned = workspace.root / "params" / "planned.yaml"

    def chosen(**selection):
        steps = resolve_plan(Profile.load(planned), str(planned), workspace, **selection)
        return [(run.notebook, run.profile.parameters.seed) for run in runs_of(steps)]

    assert chosen() == chosen(first="06") == [("06_evaluation", 0)]
    assert chosen(only="07") == [("07_simde", 1)]


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
    for run in runs_of(resolve_plan(Profile.load("small"), "small", workspace)):
        again = Profile.load("small").for_notebook(run.notebook, **run.parameters)
        assert plan.RunKey(run.notebook, again).fingerprint == run.fingerprint
        assert set(run.parameters) == {"profile", "seed", *plan.NOTEBOOKS[run.notebook]}


# ---- lines that name a grid, or another profile

LINES = """[
    {notebook: 05_weighting, lam: 0.3},
    {grid: grids/lams.yaml, seed: 3},
    {notebook: 05_weighting, lam: 0.3, profile: other.yaml},
    {grid: lams, profile: other.yaml},
    {notebook: 01_corpus},
]"""
FAILS_AT_0_8 = SUCCEEDS.replace("import sys", "import sys, os; assert lam != 0.8 or os.path.exists('mended')", 1)


@pytest.fixture
def lines(workspace):
    """Writes a grid of two λ and another profile, and resolves the LINES of a plan."""
    (workspace.root / "params" / "grids").mkdir()
    grid = workspace.root / "params" / "grids" / "lams.yaml"
    grid.write_text("{notebook: 05_weighting, axes: {lam: [0.5, 0.8]}}", encoding="utf-8")
    other = workspace.root / "params" / "other.yaml"
    other.write_text("base: small.yaml\nname: other\nparameters: {documents: 30}", encoding="utf-8")

    def resolve(text="", runs=LINES, **selection):
        a_plan(workspace, text, "[{notebook: 01_corpus}]")  # the notebook, and the profile but for its plan
        path = workspace.root / "params" / "planned.yaml"
        path.write_text(path.read_text().replace("plan: [{notebook: 01_corpus}]", f"plan: {runs}"), encoding="utf-8")
        return resolve_plan(Profile.load(path), str(path), workspace, **selection)

    return resolve


def test_a_line_stands_for_a_run_or_for_all_runs_of_a_grid_in_this_profile_or_another(lines, workspace):
    steps = lines()
    planned, other = str(workspace.root / "params" / "planned.yaml"), str(workspace.root / "params" / "other.yaml")
    found = [
        [(run.parameters["profile"], run.parameters.get("lam"), run.parameters["seed"]) for run in step.runs]
        for step in steps
    ]
    assert found == [
        [(planned, 0.3, 0)], [(planned, 0.5, 3), (planned, 0.8, 3)], [(other, 0.3, 0)], [(other, 0.5, 0), (other, 0.8, 0)],
        [(planned, None, 0)],
    ]  # fmt: skip
    assert [step.grid is None for step in steps] == [True, False, True, False, True]
    assert [run.profile.parameters.documents for run in steps[3].runs] == [30, 30]
    assert len({run.fingerprint for run in runs_of(steps)}) == len({run.executed for run in runs_of(steps)}) == 7


@pytest.mark.parametrize(
    ("selection", "sizes"), [({"only": "05"}, [1, 2, 1, 2]), ({"only": "01"}, [1]), ({"first": "02"}, [1, 2, 1, 2])]
)
def test_from_and_only_choose_grids_by_their_notebook(lines, selection, sizes):
    assert [len(step.runs) for step in lines(**selection)] == sizes
    with pytest.raises(InputError, match="--only 03 leaves no run; the plan's notebooks are 05_weighting, 01_corpus"):
        lines(only="03")


@pytest.mark.parametrize(
    ("runs", "said"),
    [
        ("[{notebook: 01_corpus}, {grid: lam}]", "plan, line 2 (grid lam): grid 'lam' is unknown; known are final,"),
        ("[{grid: lams, notebook: 03_structural}]", "line 1 (03_structural grid lams): grid lams: is for notebook 05_wei"),
        ("[{grid: lams, lamm: 1}]", "line 1 (grid lams): grid lams: run 1: 05_weighting: unknown parameter 'lamm'; did you"),
        ("[{grid: lams, gamma: -1}]", "plan, line 1 (grid lams): grid lams: run 1: 05_weighting: gamma: input should be gr"),
        ("[{grid: lams, lam: 0.1}]", "run 2: the same as run 1 (cosine;64;λ=0.1); the grid varies what is given for all runs: lam"),
        ("[{grid: lams, student_projection: 16x17}]", "plan, line 1 (grid lams): grid lams: run 1: projections end in diff"),
        ("[{grid: lams, profile: nowhere}]", "line 1 (grid lams nowhere): profile 'nowhere' is unknown; known are other"),
        ("[{notebook: 05_weighting, profile: other.yaml, lam: 2}]", "other.yaml): 05_weighting: lam: must lie in [0, 1]"),
        ("[{notebook: 05_weighting, profile: torn.yaml}]", "torn.yaml: not readable as YAML"),
        ("[{notebook: 01_corpus, profile: other.yaml}, {notebook: 01_corpus, profile: synonym.yaml}]", "synonym.yaml): "
         "line 1 has another run whose executed copy is other-corpus-seed0.ipynb; give one of them a profile of"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_refused_with_its_number_before_anything_starts(lines, workspace, runs, said):
    (workspace.root / "params" / "torn.yaml").write_text("a: [")
    (workspace.root / "params" / "synonym.yaml").write_text("base: other.yaml\nname: other\ncorpus: {validation: 7}")
    with pytest.raises(InputError) as caught:
        lines(runs=runs)
    assert str(caught.value).startswith("profile planned: plan, line ")
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert not (workspace.outputs / "records").exists()


class NobodySweeping:
    def __init__(self):
        self.told = []

    def prepares(self, what): ...

    def begins(self, planned, missing, where):
        self.told.append(f"{len(missing)} of {len(planned)}")

    def step(self, run, line): ...

    def ends(self, run, outcome):
        self.told.append(f"{outcome.status} {run.profile.name} {run.parameters['lam']}")


@pytest.mark.slow
def test_the_runs_of_a_grid_are_a_sweep_in_which_a_failing_run_stops_no_other(lines, workspace, monkeypatch):
    monkeypatch.setattr("docemb_lib.experiments.sweeps.default_workers", lambda runs: 1)
    two = "[{notebook: 05_weighting, lam: 0.3}, {grid: lams, profile: other.yaml}, {notebook: 05_weighting, lam: 0.4}]"
    singles, grids = Nobody(), NobodySweeping()
    failures = execute_plan(lines(FAILS_AT_0_8, two), workspace, singles, lambda: nullcontext(grids))
    assert [line for line in singles.told if line.startswith("begins")] == [
        "begins 1/4 cosine;64;λ=0.3", "begins 4/4 cosine;64;λ=0.4",
    ]  # fmt: skip
    assert grids.told == ["2 of 2", "done other 0.5", "failed other 0.8"]
    assert len(failures) == 1
    assert failures[0].startswith("05_weighting (cosine;64;λ=0.8): AssertionError")
    assert sorted(records.frame(workspace=workspace)["lam"]) == [0.3, 0.4, 0.5]

    (workspace.root / "notebooks" / "mended").touch()
    singles, grids = Nobody(), NobodySweeping()
    assert execute_plan(lines("", two), workspace, singles, lambda: nullcontext(grids)) == []
    assert grids.told == ["1 of 2", "done other 0.8"]
    assert singles.told.count("there") == 2

    monkeypatch.setitem(sys.modules, "papermill", None)  # a third time nothing is executed
    assert execute_plan(lines("", two), workspace, Nobody(), lambda: nullcontext(NobodySweeping())) == []


# ---- the thesis


def stand_ins(data):
    """The benchmark files of `params/thesis.yaml` in their published layouts, with next to nothing in them."""
    for name in ("train_cite", "dev_cite", "test_cite", "train_ai2_ab", "dev_ai2_ab", "test_ai2_ab", "train_ai2_gorc",
                 "dev_ai2_gorc", "test_ai2_gorc", "pla_train", "pla_dev", "pla_test"):  # fmt: skip
        (data / "cda").mkdir(parents=True, exist_ok=True)
        rows = [f'"{number % 2}","{name} {number}","another text {number}"' for number in range(12)]
        (data / "cda" / f"{name}.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    for folder, articles in (("wines", "wines.txt"), ("games", "video_games.txt")):
        (data / folder).mkdir()
        (data / folder / articles).write_text("Title,Sections\n" + "".join(f"{one},[]\n" for one in "ABC"))
        (data / folder / "gt.json").write_text(json.dumps({"A": {"B": 1}, "B": {"C": 1}}))


@pytest.fixture
def thesis(workspace):
    shutil.rmtree(workspace.root / "params")
    shutil.copytree(REPOSITORY / "params", workspace.root / "params")
    return Profile.load("thesis")


def test_the_plan_of_the_thesis_is_checked_whole_without_a_hub_and_has_all_its_runs(thesis, workspace):
    stand_ins(workspace.root / "data")
    steps = resolve_plan(thesis, "thesis", workspace)
    assert [(step.grid, len(step.runs), step.runs[0].profile.name) for step in steps] == [
        (None, 1, "thesis"), ("paragraph-vector", 36 + 9, "thesis"), ("structural", 11, "thesis"),
        ("projections-contextual", 16, "thesis"), ("projections-cosine", 12, "thesis"),
        ("projections-max-margin", 14, "thesis"), ("weighting-cosine", 9, "thesis"), ("weighting-max-margin", 9, "thesis"),
        (None, 1, "thesis-final"), ("final", 3, "thesis-final"),
    ]  # fmt: skip
    runs = runs_of(steps)
    assert len({run.fingerprint for run in runs}) == len({run.executed for run in runs}) == len(runs) == 121
    finals = (
        {run.profile.training.accumulation for run in steps[-1].runs},
        {run.parameters["documents"] for run in steps[-1].runs},
    )
    assert finals == ({10}, {1_000_000})


def test_all_missing_benchmark_files_are_told_at_once_before_any_work(thesis, workspace):
    stand_ins(workspace.root / "data")
    (workspace.root / "data" / "cda" / "dev_cite.csv").unlink()
    (workspace.root / "data" / "cda" / "pla_test.csv").rename(workspace.root / "data" / "cda" / "pla_test.csv.gz")
    (workspace.root / "data" / "wines" / "gt.json").rename(workspace.root / "data" / "wines" / "gt.pickle")
    shutil.rmtree(workspace.root / "data" / "games")
    with pytest.raises(InputError) as caught:
        resolve_plan(thesis, "thesis", workspace)
    data = workspace.root / "data"
    assert (
        f"evaluation.benchmarks: aan needs dev_cite.csv in {data / 'cda'}; wines needs gt in {data / 'wines'}; games "
        f"needs video_games.txt, gt in {data / 'games'}; put the published files there (docs/data.md says where they "
        "come from), name other folders, or leave these tasks out of evaluation.tasks and evaluation.sweep_tasks"
    ) in str(caught.value)
    check_benchmarks(thesis.evaluation, ["arxiv", "imdb", "oc", "pan"])  # of the other tasks files may be missing
    on_a_hub = thesis.evaluation.model_copy(update={"benchmarks": {"games": "somebody/games"}})
    check_benchmarks(on_a_hub, ["games"])
    assert not workspace.outputs.exists()

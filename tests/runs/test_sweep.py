"""Sweeps and plans: shared out among workers, compared, and the same in the end whichever process
was killed on the way.
"""

import os
import signal
import subprocess
import sys
from contextlib import contextmanager, nullcontext
from textwrap import indent
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from conftest import AS_A_USER, DOCEMB, docemb, succeed, wait_until
from jupyter_client.manager import start_new_kernel

from docemb_lib import sweep
from docemb_lib.base.errors import InputError
from docemb_lib.runs import cluster, records
from docemb_lib.runs import sweep as sweeps
from docemb_lib.runs.execution import NOTEBOOK, record_of
from docemb_lib.runs.plan import resolve_sweep
from docemb_lib.runs.scores import Scorer
from docemb_lib.runs.store import locked

ARGUMENTS = ["sweep", "01", "--grid", "params/seeds.yaml", "--profile", "small"]
ENVIRONMENT = {**AS_A_USER, "CUDA_VISIBLE_DEVICES": ""}
SLUG = "small-corpus-seed{}"
FIRST = SLUG.format(0)
CELLS = """
import os, psutil, signal, sys, time
import numpy as np
from docemb_lib import begin, records
from docemb_lib.runs.embeddings import Embedder, embed_once
from docemb_lib.runs.store import cached
from docemb_lib.settings.files import find_root
run = begin("01_corpus", globals())

def note(name, line):
    with open(find_root() / name, "a") as file:
        file.write(f"{{line}}\\n")

def embed(texts):
    note("embedded.txt", len(texts))
    time.sleep(0.5)
    return np.ones((len(texts), 2))

def work(folder):
    note("begun.txt", seed)
{special}

cached("work", {{"seed": seed}}, work)
embed_once(Embedder("m", "fp", embed), ["one", "two"])
run.finish({{"mean": seed}})
print("records:", len(records.frame("01_corpus")))
"""
# The first run takes its worker with it, which is tried three times; the second raises an error;
# the third loses its worker once.
DYING = """
mended = os.path.exists("mended")
if seed == 0 and not mended or seed == 2 and not os.path.exists("lost"):
    if seed == 2:
        open("lost", "w").close()
    time.sleep(1)
    above = psutil.Process().parents()
    next(process for process in above if "spawn_main" in str(process.cmdline())).kill()  # worker
    time.sleep(5)
    open("survived", "w").close()
if seed == 1 and not mended:
    raise RuntimeError("no luck")
"""
# Each run ends only when both have begun, so that one that waits would stop the sweep.
TOGETHER = """
end = time.time() + 120
while len(open(find_root() / "begun.txt").read().split()) < 2:
    time.sleep(0.05)
    assert time.time() < end
"""


@pytest.fixture
def runs(workspace_root, write_notebook):
    """Puts a notebook that builds an artefact and leaves a record in place of the first, beside a
    grid of its seeds.
    """

    def write(special="time.sleep(1)", seeds=2):
        cells = CELLS.format(special=indent(special, "    "))
        write_notebook("01_corpus", "profile = 'tiny'\nseed = 0", cells)
        grid = f"notebook: 01_corpus\naxes: {{seed: {list(range(seeds))}}}\n"
        (workspace_root / "params" / "seeds.yaml").write_text(grid)
        return workspace_root

    write()
    return write


def begin(root, *arguments, **options):
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    command = [*DOCEMB, *ARGUMENTS, *arguments]
    return subprocess.Popen(command, cwd=root, env=ENVIRONMENT, text=True, **pipes, **options)


def finish(*arguments):
    """The command in this process, which saves the seconds of a start."""
    return docemb(*ARGUMENTS, *arguments)


def begun(root):
    path = root / "begun.txt"
    return [int(line) for line in path.read_text().split()] if path.is_file() else []


def kernels_below(process):
    below = process.children(recursive=True)
    return [child for child in below if "ipykernel_launcher" in str(child.cmdline())]


def folders_in(root):
    return sorted(path.name for path in (root / "outputs/runs/01_corpus").glob("[!.]*"))


def assert_complete(root, seeds=2):
    """Each run has one folder, the first shows all of them, and nothing half-made is left."""
    frame = records.frame("01_corpus", failed=True)
    assert frame["status"].tolist() == ["done"] * seeds
    assert sorted(frame["validation"]) == sorted(frame["seed"]) == [*range(seeds)]
    assert folders_in(root) == [*map(SLUG.format, range(seeds))]
    for folder in folders_in(root):
        assert (root / "outputs/runs/01_corpus" / folder / NOTEBOOK).is_file()


@pytest.fixture
def distributed(monkeypatch):
    """The runs of each call that shares runs out, of which those of λ 0.8 fail."""
    calls = []

    def distribute(client, planned, progress, *, wait):
        calls.append([(run.parameters["lam"], len(run.beside)) for run in planned])
        failed = {run: "no luck" for run in planned if run.parameters["lam"] == 0.8}
        for run in planned:
            if run not in failed:
                record_of(run, shown=[*run.beside]).write(run.folder, {})
                (run.folder / NOTEBOOK).touch()
        return failed

    def execute(run, report):
        distribute(None, [run], None, wait=True)
        return True

    monkeypatch.setattr(cluster, "local_workers", lambda count: nullcontext(count))
    monkeypatch.setattr(sweeps, "_distribute", distribute)
    monkeypatch.setattr(sweeps, "execute", execute)
    return calls


ALONE = "{notebook: 05_weighting, lam: 0.%d}"
PAIR = "{notebook: 05_weighting, runs: [{lam: %s}, {lam: %s}]}"


def test_grids_that_follow_each_other_are_shared_out_together_and_compared(plan_of, distributed):
    lines = f"[{ALONE % 3}, {PAIR % (0.5, 0.6)}, {PAIR % (0.7, 0.8)}]"
    assert sweeps.execute_plan(plan_of(lines)) == ["no luck"]
    together = [(0.5, 0), (0.6, 0), (0.7, 0), (0.8, 0)]
    assert distributed == [[(0.3, 0)], together, [(0.5, 2)]]
    distributed.clear()
    assert sweeps.execute_plan(plan_of(lines)) == ["no luck"]
    assert distributed == [[(0.8, 0)]]


@pytest.mark.parametrize(("profile", "pages"), [("", []), (", profile: other.yaml", [[(0.5, 2)]])])
def test_a_grid_has_no_comparison_where_a_single_run_later_shows_its_runs(
    plan_of, distributed, profile, pages
):
    single = f"{{notebook: 05_weighting, lam: 0.9{profile}}}"
    sweeps.execute_plan(plan_of(f"[{PAIR % (0.5, 0.6)}, {single}]"))
    assert distributed == [[(0.5, 0), (0.6, 0)], *pages, [(0.9, 0)]]


def test_all_runs_are_checked_before_the_first_kernel_starts(
    plan_of, distributed, refused, monkeypatch
):
    plan = plan_of(f"[{ALONE % 3}, {{notebook: 05_weighting, documents: 12}}]")

    def check(scorer):
        if scorer.profile.parameters.documents == 12:
            raise InputError("its files are gone")

    monkeypatch.setattr(Scorer, "check", check)
    said = r"^05_weighting \(S\+PV masked, .*12 docs\): its files are gone"
    refused(said, sweeps.execute_plan, plan)
    for workers in (0, "2"):
        refused(f"got {workers!r}; give 1 or more", sweeps.execute_plan, plan, workers=workers)
    refused("has its own; leave workers out", sweeps.execute_plan, plan, workers=1, scheduler="a")
    assert distributed == []


def test_what_killed_workers_have_left_is_removed_and_what_is_executed_elsewhere_stays(
    plan_of, distributed
):
    steps = plan_of(f"[{PAIR % (0.5, 0.6)}]")
    left, elsewhere = steps[0].runs
    for run in (left, elsewhere):
        run.partial.mkdir(parents=True)
    with locked(elsewhere.folder):
        sweeps.execute_plan(steps)
    assert not left.partial.exists()
    assert elsewhere.partial.is_dir()


def test_a_worker_that_is_unfit_or_whose_run_does_not_arrive_ends_the_sweep(
    runs, refused, monkeypatch
):
    monkeypatch.setattr(sweeps, "ARRIVAL", 0)
    (step,) = resolve_sweep("01", "params/seeds.yaml", profile="small", parameters={})
    outcome = sweeps.Outcome("done in 00:01")
    ended = SimpleNamespace(status="finished", result=lambda: outcome)
    said = "outputs: a worker has executed .*, but it is not there; the workers must share"
    refused(said, sweeps._outcome, ended, step.runs[0])
    ended.result = Mock(side_effect=InputError("worker tcp://a:1 has 2 threads"))
    refused("has 2 threads", sweeps._outcome, ended, step.runs[0])
    ended.status = "cancelled"
    with pytest.raises(ConnectionError, match="the scheduler is out of reach; give the same"):
        sweeps._outcome(ended, step.runs[0])


@pytest.mark.slow
def test_runs_on_as_many_workers_take_one_wave_share_embeddings_and_are_then_compared(
    runs, monkeypatch
):
    root = runs(TOGETHER)
    code, stdout, stderr = finish("--workers", "2")
    assert code == 0, stderr
    assert_complete(root)
    assert sorted(begun(root)) == [0, 1]  # the comparison builds nothing again
    assert (root / "embedded.txt").read_text().split() == ["2"]
    lines = stdout.splitlines()
    assert lines[0] == "2 runs, 0 of them already there; workers: 2"
    assert lines[1].startswith("begins  01_corpus  small-corpus-seed")
    assert "[2/2] done in " in stdout
    assert lines[-2].split() == ["runs:", "outputs/runs/01_corpus"]
    assert lines[-1].split() == ["comparison:", f"outputs/runs/01_corpus/{FIRST}"]
    folder = root / "outputs/runs/01_corpus"
    assert "records: 2" in (folder / FIRST / NOTEBOOK).read_text()
    written = (folder / FIRST).stat().st_mtime_ns
    monkeypatch.setattr(cluster, "local_workers", lambda count: pytest.fail("workers started"))
    frame = sweep("01_corpus", "params/seeds.yaml", profile="small")  # nothing to do
    assert frame["seed"].tolist() == [0, 1]
    assert (folder / FIRST).stat().st_mtime_ns == written


@pytest.mark.slow
def test_failing_runs_and_killed_workers_stop_no_other_are_recorded_and_tried_again(runs):
    root = runs(DYING, seeds=3)
    code, stdout, stderr = finish("--workers", "2")
    assert code == 1
    folder = root / "outputs/runs/01_corpus"
    died = "its worker died in each of 3 attempts; if the memory was full, give fewer workers"
    expected = []
    for seed, reason in enumerate((died, "RuntimeError: no luck")):
        notebook = f"outputs/runs/01_corpus/{SLUG.format(seed)}.failed/{NOTEBOOK}"
        expected.append(f"Failed: 01_corpus (corpus): {reason} (see {notebook})")
    assert sorted(stderr.splitlines()) == sorted(expected)
    assert "] failed" in stdout
    frame = records.frame("01_corpus", failed=True)
    assert frame.set_index("seed")["status"].sort_index().tolist() == ["failed", "failed", "done"]
    names = [SLUG.format(name) for name in ("0.failed", "1.failed", "2")]
    assert folders_in(root) == names
    assert 'raise RuntimeError("no luck")' in records.read(folder / names[1]).traceback
    assert "psutil.Process().parents()" in (folder / names[0] / NOTEBOOK).read_text()
    assert sorted(begun(root)) == [0, 0, 0, 1, 2, 2]
    assert not (root / "notebooks" / "survived").exists()  # kernels end with their worker
    (root / "notebooks" / "mended").touch()
    assert finish("--workers", "1").returncode == 0
    assert_complete(root, seeds=3)
    assert sorted(begun(root)) == [0, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_an_interrupted_sweep_leaves_no_process_and_keeps_what_is_done(runs):
    root = runs("time.sleep(600 if seed else 0)", seeds=3)

    def hear():  # it is ignored after `&`
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    process = begin(root, "--workers", "2", start_new_session=True, preexec_fn=hear)
    wait_until(lambda: {1, 2} <= {*begun(root)}, process)
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all at once
    _, stderr = process.communicate(timeout=60)
    line = "Interrupted: docemb sweep is stopped; give the same command again to go on."
    assert (process.returncode, stderr.splitlines()) == (130, [line])
    assert psutil.wait_procs(below, timeout=5)[1] == []
    assert records.frame("01_corpus", failed=True)["seed"].tolist() == [0]
    assert folders_in(root) == [FIRST]


@pytest.mark.slow
def test_two_equal_sweeps_share_their_runs(runs):
    root = runs()
    both = [begin(root, "--workers", "1") for _ in range(2)]
    ends = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert_complete(root)
    assert sorted(begun(root)) == [0, 1]  # none twice


CELL = """
from docemb_lib import begin, sweep
run = begin("01_corpus", {"profile": "small"})  # interruptions are one line from now on
sweep("01", "params/seeds.yaml", profile="small", workers=1)
"""


@pytest.mark.slow
def test_the_stop_button_of_jupyter_ends_a_sweep_and_its_run_in_one_line(runs):
    root = runs("time.sleep(600 if seed else 0)")
    manager, client = start_new_kernel(cwd=str(root))
    try:
        client.execute(CELL)
        wait_until(lambda: 1 in begun(root))
        below = kernels_below(psutil.Process(manager.provisioner.process.pid))
        assert below
        manager.interrupt_kernel()
        messages = iter(lambda: client.get_iopub_msg(timeout=150), None)
        error = next(message for message in messages if message["msg_type"] == "error")
        line = "stopped the sweep; run the cell again to go on"
        assert error["content"]["traceback"] == [line]
        assert psutil.wait_procs(below, timeout=10)[1] == []
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)
    assert records.frame("01_corpus", failed=True)["seed"].tolist() == [0]


# A run of notebook 03, which sweeps over seeds of its own notebook before it ends.
OF_ITSELF = """
from docemb_lib import begin, sweep
run = begin("03_structural", globals())
with open("../begun.txt", "a") as file:
    file.write(f"{seed} ")
frame = sweep("03", [{"seed": number} for number in range(2)], profile=profile, workers=1)
print(dict(zip(frame["seed"], frame["status"])))
run.finish({"mean": seed})
"""


@pytest.mark.slow
def test_a_run_that_sweeps_over_its_notebook_ends_and_begins_no_run_twice(
    workspace_root, write_notebook
):
    write_notebook("03_structural", "profile = 'small'\nseed = 0", OF_ITSELF)
    succeed("run", "03", "-p", "seed=0", "--profile", "small")
    assert sorted(begun(workspace_root)) == [0, 1]
    assert sorted(records.frame("03_structural")["seed"]) == [0, 1]
    folder = workspace_root / "outputs/runs/03_structural"
    (asked,) = folder.glob("[!.]*seed0")
    assert "{0: 'missing', 1: 'done'}" in (asked / NOTEBOOK).read_text()
    (other,) = folder.glob("[!.]*seed1")
    assert "{0: 'missing', 1: 'missing'}" in (other / NOTEBOOK).read_text()


def start_dask(what, file, *options):
    command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard"]
    command += ["--scheduler-file", file, *options]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen(command, cwd=file.parent, env=ENVIRONMENT, **quiet)


@contextmanager
def a_cluster(folder):
    """A scheduler and a worker started by hand, as people do on a cluster.

    Yields both, and the scheduler's file.
    """
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    scheduler = start_dask("scheduler", file, "--host", "127.0.0.1", "--port", "0")
    wait_until(file.is_file)
    worker = start_dask("worker", file, "--nworkers", "1", "--nthreads", "1")
    try:
        yield scheduler, worker, file
    finally:
        for process in (scheduler, worker):
            is_over = process.poll() is not None
            children = [] if is_over else psutil.Process(process.pid).children(recursive=True)
            for each in (*children, process):
                each.kill()
            process.wait()


@pytest.mark.slow
def test_a_killed_scheduler_ends_a_sweep_and_the_next_goes_on(runs, tmp_path):
    root = runs("time.sleep(20)")
    with a_cluster(tmp_path) as (scheduler, worker, file):
        process = begin(root, "--scheduler", str(file))
        wait_until(lambda: begun(root), process)
        kernels = kernels_below(psutil.Process(worker.pid))
        assert kernels
        scheduler.kill()
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 1
        mend = "give the same command again, which goes on from here"
        said = f"Error: ConnectionError: the scheduler is out of reach; {mend}"
        assert stderr.splitlines()[-1] == said
        assert psutil.wait_procs(kernels, timeout=120)[1] == []
    runs("pass")
    with a_cluster(tmp_path) as (_, _, file):
        assert finish("--scheduler", str(file)).returncode == 0
    assert_complete(root)

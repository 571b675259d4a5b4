"""Sweeps: shared out among workers, in one wave, and the same in the end whichever process was
killed on the way.
"""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from textwrap import indent
from types import SimpleNamespace
from unittest.mock import Mock

import psutil
import pytest
from conftest import docemb
from jupyter_client.manager import start_new_kernel

from docemb_lib import sweep
from docemb_lib.base.errors import InputError
from docemb_lib.runs import records
from docemb_lib.sweeps import sweep as sweeps
from docemb_lib.runs.kernels import kernels_below
from docemb_lib.runs.plan import resolve_sweep

ARGUMENTS = ["sweep", "01", "--grid", "params/seeds.yaml", "--profile", "small"]
SWEEP = [sys.executable, "-m", "docemb_lib.cli", *ARGUMENTS]
ENVIRONMENT = {
    **os.environ,
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "COLUMNS": "200",
    "CUDA_VISIBLE_DEVICES": "",
}
PAGE = "comparison-small-corpus-seed0.ipynb"
NOTEBOOK = """
import os, psutil, signal, sys, time
from docemb_lib.runs import records
from docemb_lib.runs.run import begin
run = begin("01_corpus", globals())

def work(folder):
    with open(run.workspace.root / "begun.txt", "a") as file:
        file.write(f"{{seed}}\\n")
    print("half-way", file=sys.stderr)
{special}

run.workspace.artefact("work", {{"seed": seed}}, work)
print("records:", len(list(records.all_records("01_corpus"))))
run.figures = ["outputs/lengths.png", f"outputs/figures/{{seed}}/runs.png"]
run.finish({{"mean": seed}})
"""
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


@pytest.fixture(autouse=True)
def runs(workspace, write_notebook):
    """Puts a notebook that builds an artefact and leaves a record in place of the first, beside a
    grid of its seeds.
    """

    def write(special="time.sleep(1)", seeds=2):
        write_notebook(
            "01_corpus",
            "profile = 'tiny'\nseed = 0",
            NOTEBOOK.format(special=indent(special, "    ")),
        )
        grid = f"notebook: 01_corpus\naxes: {{seed: {list(range(seeds))}}}\n"
        (workspace.root / "params" / "seeds.yaml").write_text(grid)

    write()
    return write


def begin(workspace, *arguments, **options):
    return subprocess.Popen(
        [*SWEEP, *arguments],
        cwd=workspace.root,
        env=ENVIRONMENT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
        **options,
    )


def finish(*arguments):
    """The command in this process, which saves the seconds of a start."""
    return docemb(*ARGUMENTS, *arguments)


def begun(workspace):
    path = workspace.root / "begun.txt"
    return [int(line) for line in path.read_text().split()] if path.is_file() else []


def wait_until(condition, process=None):
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.05)


def is_complete(workspace, seeds=2):
    """Each run has one record and one executed copy, the page exists, and nothing half-made is
    left.
    """
    frame = records.frame("01_corpus", workspace=workspace, failed=True)
    copies = [path.name for path in (workspace.outputs / "notebooks" / "01_corpus").glob("*.ipynb")]
    kept = [
        path.name
        for path in (workspace.outputs / "records" / "01_corpus").iterdir()
        if path.suffix != ".lock"
    ]
    return (
        frame["status"].tolist() == ["done"] * seeds
        and sorted(zip(frame["seed"], frame["validation"], strict=True))
        == [(seed, seed) for seed in range(seeds)]
        and sorted(copies) == [PAGE, *(f"small-corpus-seed{seed}.ipynb" for seed in range(seeds))]
        and sorted(kept) == sorted(frame["fingerprint"])
    )


def test_a_worker_that_is_unfit_or_whose_record_does_not_arrive_ends_the_sweep(
    workspace, refused, monkeypatch
):
    monkeypatch.setattr(sweeps, "ARRIVAL", 0)
    (step,) = resolve_sweep("01", "params/seeds.yaml", workspace, profile="small", parameters={})
    ended = SimpleNamespace(status="finished", result=lambda: ("built", ""))
    said = "outputs: .* its record is not there; the workers must"
    refused(said, sweeps._outcome, ended, step.runs[0], workspace)
    ended.result = Mock(side_effect=InputError("worker tcp://a:1 has 2 threads"))
    refused("has 2 threads", sweeps._outcome, ended, step.runs[0], workspace)


@pytest.mark.slow
def test_equal_runs_on_as_many_workers_take_one_wave_and_are_then_compared(
    workspace, runs, monkeypatch
):
    """Each run ends only when all have begun, so that one that waits would stop the sweep."""
    count = "len(open(run.workspace.root / 'begun.txt').read().split())"
    lines = [
        "end = time.time() + 120",
        f"while {count} < 2:",
        "    time.sleep(0.05)",
        "    assert time.time() < end",
    ]
    runs("\n".join(lines))
    code, stdout, stderr = finish("--workers", "2")
    assert code == 0, stderr
    assert is_complete(workspace)
    assert sorted(begun(workspace)) == [0, 1]  # the page reuses the artefact
    assert "[2/2] done in " in stdout
    first, second = stdout.splitlines()[:2]
    assert (first[:6], first[-10:], second[:6]) == ("2 runs", "workers: 2", "begins")
    assert "small-corpus-seed" in second
    assert "outputs/records/01_corpus" in stdout
    assert stdout.splitlines()[-3:] == [
        f"comparison:         outputs/notebooks/01_corpus/{PAGE}",
        "comparison figure:  outputs/figures/0/runs.png",
        "comparison table:   outputs/figures/0/runs.csv",
    ]
    copies = workspace.outputs / "notebooks" / "01_corpus"
    page = copies / PAGE
    own = copies / "small-corpus-seed0.ipynb"
    assert "records: 2" in page.read_text()
    assert "records: 2" not in own.read_text()
    assert own.stat().st_mtime < page.stat().st_mtime
    written = page.stat().st_mtime
    monkeypatch.setattr(
        sweeps.cluster, "local_workers", lambda count: pytest.fail("workers were started")
    )
    frame = sweep("01_corpus", "params/seeds.yaml", profile="small")  # nothing to do
    assert frame["seed"].tolist() == [0, 1]
    assert page.stat().st_mtime == written


@pytest.mark.slow
def test_failing_runs_and_killed_workers_stop_no_other_are_recorded_and_tried_again(
    workspace, runs
):
    """One raises an error; one takes its worker with it, which is tried three times; one loses its
    worker once.
    """
    runs(DYING, seeds=3)
    code, stdout, stderr = finish("--workers", "2")
    assert code == 1
    folder = workspace.outputs / "notebooks" / "01_corpus"
    reasons = (
        "its worker died in each of 3 attempts; if the memory was full, give fewer workers",
        "RuntimeError: no luck",
    )
    copy = "outputs/notebooks/01_corpus/small-corpus-seed{}.failed.ipynb"
    told = f"Failed: 01_corpus (corpus): {{}} (see {copy})"
    assert sorted(stderr.splitlines()) == sorted(
        told.format(reason, seed) for seed, reason in enumerate(reasons)
    )
    assert "failed" in stdout
    by_seed = {
        record.parameters["seed"]: record
        for record in records.all_records("01_corpus", workspace=workspace)
    }
    assert {seed: record.status for seed, record in by_seed.items()} == {
        0: "failed",
        1: "failed",
        2: "done",
    }
    assert 'raise RuntimeError("no luck")' in by_seed[1].traceback
    names = [f"small-corpus-seed{end}.ipynb" for end in ("0.failed", "1.failed", "2")]
    assert sorted(path.name for path in folder.glob("*.ipynb")) == [PAGE, *names]
    assert "psutil.Process().parents()" in (folder / names[0]).read_text()
    assert "no luck" in (folder / names[1]).read_text()
    assert not list(folder.glob(".*.running.ipynb"))
    assert sorted(begun(workspace)) == [0, 0, 0, 1, 2, 2]
    assert not (workspace.root / "notebooks" / "survived").exists()  # kernels end with their worker
    (workspace.root / "notebooks" / "mended").touch()
    assert finish("--workers", "1").returncode == 0
    assert is_complete(workspace, seeds=3)
    assert sorted(begun(workspace)) == [0, 0, 0, 0, 1, 1, 2, 2]


@pytest.mark.slow
def test_an_interrupted_sweep_lets_kernels_write_a_checkpoint_and_leaves_no_process(
    workspace, runs
):
    lines = [
        "def stop(*_):",
        "    time.sleep(1.5)",
        "    (run.workspace.root / f'checkpoint{seed}').touch()",
        "    os._exit(1)",
        "if seed in (0, 3):",
        "    signal.signal(signal.SIGTERM, stop)",
        "    time.sleep(600)",
    ]
    runs("\n".join(lines), seeds=4)
    heard = {
        "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    }  # ignored after `&`, as in test_main
    process = begin(workspace, "--workers", "2", start_new_session=True, **heard)
    wait_until(lambda: {0, 3} <= {*begun(workspace)}, process)
    time.sleep(0.5)
    below = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to all at once
    _, stderr = process.communicate(timeout=180)  # kernels may take 120 seconds for a checkpoint
    assert (process.returncode, stderr.splitlines()[-1]) == (
        130,
        "Interrupted: docemb sweep is stopped; give the same command again to go on.",
    )
    assert {path.name for path in workspace.root.glob("checkpoint*")} == {
        "checkpoint0",
        "checkpoint3",
    }
    assert psutil.wait_procs(below, timeout=5)[1] == []
    assert (
        records.frame("01_corpus", workspace=workspace, failed=True)["status"].tolist()
        == ["done"] * 2
    )


@pytest.mark.slow
def test_two_equal_sweeps_share_their_runs(workspace):
    both = [begin(workspace, "--workers", "1") for _ in range(2)]
    ends = [process.communicate(timeout=200) for process in both]
    assert [process.returncode for process in both] == [0, 0], ends
    assert is_complete(workspace)
    assert sorted(begun(workspace)) == [0, 1]  # none twice


CELL = """
from docemb_lib import begin, sweep
run = begin("01_corpus", {"profile": "small"})  # interruptions are one line from now on
sweep("01", "params/seeds.yaml", profile="small", workers=1)
"""


@pytest.mark.slow
def test_the_stop_button_of_jupyter_ends_a_sweep_and_its_run_in_one_line(workspace, runs):
    runs("time.sleep(600 if seed else 0)")
    manager, client = start_new_kernel(cwd=str(workspace.root))
    try:
        kernel = psutil.Process(manager.provisioner.process.pid)
        client.execute(CELL)
        wait_until(lambda: 1 in begun(workspace))
        below = kernels_below(kernel)
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
    assert records.frame("01_corpus", workspace=workspace, failed=True)["seed"].tolist() == [0]


# A run of notebook 03, which sweeps over seeds of its own notebook before it ends.
OF_ITSELF = """
from docemb_lib import begin, sweep
run = begin("03_structural", globals())
with open(run.workspace.root / "begun.txt", "a") as file:
    file.write(f"{seed} ")
frame = sweep("03", [{"seed": number} for number in range(2)], profile=profile, workers=1)
print(dict(zip(frame["seed"], frame["status"])))
run.finish({"mean": seed})
"""


@pytest.mark.slow
def test_a_run_that_sweeps_over_its_notebook_ends_and_begins_no_run_twice(
    workspace, write_notebook
):
    write_notebook("03_structural", "profile = 'small'\nseed = 0", OF_ITSELF)
    done = docemb("run", "03", "-p", "seed=0", "--profile", "small")
    assert done.returncode == 0, done.stderr
    assert sorted(begun(workspace)) == [0, 1]
    frame = records.frame("03_structural", workspace=workspace)
    assert sorted(frame["seed"]) == [0, 1]
    folder = workspace.outputs / "notebooks" / "03_structural"
    (own,) = folder.glob("*seed0.ipynb")
    assert "{0: 'missing', 1: 'done'}" in own.read_text()
    (other,) = folder.glob("*seed1.ipynb")
    assert "{0: 'missing', 1: 'missing'}" in other.read_text()
    assert not list(folder.glob("comparison-*"))


def start_dask(what, file, *options):
    command = [
        sys.executable,
        "-m",
        f"distributed.cli.dask_{what}",
        "--scheduler-file",
        file,
        "--no-dashboard",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return subprocess.Popen([*command, *options], cwd=file.parent, env=ENVIRONMENT, **quiet)


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
            children = (
                psutil.Process(process.pid).children(recursive=True)
                if process.poll() is None
                else []
            )
            for each in (*children, process):
                each.kill()
            process.wait()


@pytest.mark.slow
def test_a_killed_scheduler_ends_a_sweep_and_the_next_goes_on(workspace, runs, tmp_path):
    runs("time.sleep(20)")
    with a_cluster(tmp_path) as (scheduler, worker, file):
        process = begin(workspace, "--scheduler", str(file))
        wait_until(lambda: begun(workspace), process)
        kernels = kernels_below(psutil.Process(worker.pid))
        assert kernels
        scheduler.kill()
        _, stderr = process.communicate(timeout=600)
        assert process.returncode == 1
        mend = "give the same command again, which goes on from here"
        said = f"Error: ConnectionError: the scheduler is out of reach; {mend}"
        assert stderr.splitlines()[-1] == said
        assert psutil.wait_procs(kernels, timeout=20)[1] == []
    runs("pass")
    with a_cluster(tmp_path) as (_, _, file):
        assert finish("--scheduler", str(file)).returncode == 0
    assert is_complete(workspace)

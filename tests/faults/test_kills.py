"""Commands that are killed at random moments end in the bytes of unbroken runs.

They leave no process behind.
"""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
import torch
from conftest import AS_A_USER, DOCEMB, docemb, replace_notebook

KILLS = int(os.environ.get("DOCEMB_KILLS", "1"))  # of each command; 20 take a quarter of an hour
COMMANDS = {  # by the seeds of their runs
    (0,): ["run", "--profile", "faults"],
    (1, 2): ["sweep", "03", "--profile", "faults", "--grid", "params/two.yaml", "--workers", "2"],
}
ARRAYS = {".npy", ".npz", ".safetensors", ".arrow"}  # other files hold times
PARAMETERS = "profile = 'faults'\nseed = 0\nstructural_loss = 'cosine'"
# All that 03_structural publishes, and one of its figures: the others take most of its time.
NOTEBOOK = """
from docemb_lib import begin, figures
run = begin("03_structural", globals())
train, validation = run.history()
run.save_figure(figures.plot_history(train, validation), "training", validation)
scores = run.scores()
student = run.link_student()
run.finish(run.metrics(scores), scores=scores, student=student, tables=run.validation.tables)
"""


@pytest.fixture
def one_thread(monkeypatch):
    """As many as kernels have, which changes the last bits."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def count_files(root: Path) -> int:
    return sum(len(names) for _, _, names in os.walk(root / "outputs"))


def arrays_of(root: Path) -> dict[Path, bytes]:
    files = [
        file
        for folder in ("artefacts", "records")
        for file in (root / "outputs" / folder).rglob("*.*")
    ]
    return {file: file.read_bytes() for file in files if file.suffix in ARRAYS}


def start_and_kill(root: Path, command: list[str], files: float) -> None:
    """Kill a command that has left as many files, and assert that all it has started ends."""
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    process = subprocess.Popen([*DOCEMB, *command], cwd=root, env=AS_A_USER, **quiet)
    while process.poll() is None and count_files(root) < files:
        time.sleep(0.02)
    below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
    process.kill()
    process.wait(timeout=60)
    assert psutil.wait_procs(below, timeout=5)[1] == []


@pytest.mark.slow
def test_runs_and_sweeps_that_are_killed_end_in_the_bytes_of_unbroken_ones(
    root, one_thread, monkeypatch
):
    monkeypatch.chdir(root)
    replace_notebook(root, "03_structural", PARAMETERS, NOTEBOOK)
    (root / "params" / "two.yaml").write_text("axes: {seed: [1, 2]}")
    files = {}
    for seeds in COMMANDS:
        for seed in seeds:  # in this process, without a command and its kernels
            exec(NOTEBOOK, {"profile": "faults", "seed": seed, "structural_loss": "cosine"})
        files[seeds] = count_files(root)
    expected = arrays_of(root)
    shutil.rmtree(root / "outputs")
    moments = random.Random(17)
    for seeds, command in COMMANDS.items():
        for _ in range(KILLS):
            start_and_kill(root, command, moments.uniform(count_files(root), files[seeds]))
        done = docemb(*command)
        assert done.returncode == 0, done.stderr
    assert arrays_of(root) == expected
    assert {file.suffix for file in expected} == ARRAYS
    assert not list((root / "outputs").rglob("*.partial"))

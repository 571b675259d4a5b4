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

from docemb_lib.student import Student

KILLS = int(os.environ.get("DOCEMB_KILLS", "1"))  # of each command; 20 take a quarter of an hour
SEED = int(os.environ.get("DOCEMB_KILLS_SEED", "17"))  # of the moments
COMMANDS = [
    ["train", "--profile", "faults", "-p", "structural_loss=cosine"],
    ["adapt", "student", "texts", "--dim", "3", "-o", "outputs/mine"],
    ["embed", "student", "texts", "-o", "outputs/mine.npy"],
    ["evaluate", "student", "--profile", "faults", "--json"],
]
RUNS = {  # by the seeds of their runs
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
run.finish(run.metrics(scores), scores=scores, student=student, tables=run.evaluation.tables)
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
    files = [file for file in (root / "outputs").rglob("*.*") if file.suffix in ARRAYS]
    return {file: file.read_bytes() for file in files}


def start_and_kill(root: Path, command: list[str], files: float) -> None:
    """Kill a command that has left as many files, and assert that all it has started ends."""
    quiet = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
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
    for seeds in RUNS:
        for seed in seeds:  # in this process, without a command and its kernels
            exec(NOTEBOOK, {"profile": "faults", "seed": seed, "structural_loss": "cosine"})
        files[seeds] = count_files(root)
    expected = arrays_of(root)
    shutil.rmtree(root / "outputs")
    moments = random.Random(SEED)
    for seeds, command in RUNS.items():
        for _ in range(KILLS):
            start_and_kill(root, command, moments.uniform(count_files(root), files[seeds]))
        # A second worker would cost more than it does for one run or two.
        alone = ["--workers", "1"] if "--workers" in command else []
        done = docemb(*command, *alone)
        assert done.returncode == 0, done.stderr
    assert arrays_of(root) == expected
    assert {file.suffix for file in expected} == ARRAYS
    assert not list((root / "outputs").rglob("*.partial"))


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_that_is_killed_ends_in_the_bytes_of_an_unbroken_one(
    root, one_thread, monkeypatch, command
):
    monkeypatch.chdir(root)
    encoder = str(root / "encoder")
    Student.from_encoder(encoder, max_tokens=64, attention_window=16).save(root / "student")
    unbroken = docemb(*command)
    assert unbroken.returncode == 0, unbroken.stderr
    files = count_files(root)
    arrays = arrays_of(root)
    shutil.rmtree(root / "outputs")
    moments = random.Random(SEED)
    for _ in range(KILLS):
        start_and_kill(root, command, moments.uniform(count_files(root), files))
    shutil.rmtree(root / "outputs" / "mine", ignore_errors=True)  # it was whole by then
    (root / "outputs" / "mine.npy").unlink(missing_ok=True)
    assert docemb(*command).stdout == unbroken.stdout
    assert arrays_of(root) == arrays
    assert not list((root / "outputs").rglob("*.partial"))

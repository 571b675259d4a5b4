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
from conftest import AS_A_USER, DOCEMB, docemb, replace_notebook, succeed

from docemb_lib.student import Student

KILLS = int(os.environ.get("DOCEMB_KILLS", "1"))  # of each command; 20 take a quarter of an hour
SEED = int(os.environ.get("DOCEMB_KILLS_SEED", "17"))  # of the moments
COMMANDS = [
    ["train", "--profile", "faults", "-p", "structural_loss=cosine"],
    ["adapt", "student", "texts", "--dim", "3", "-o", "outputs/mine"],
    ["embed", "student", "texts", "-o", "outputs/mine.npy"],
    ["evaluate", "student", "--profile", "faults", "--json"],
    ["run", "--profile", "faults"],
    ["sweep", "03", "--profile", "faults", "--grid", "params/one.yaml", "--workers", "1"],
]
SEEDS = {"run": [0], "sweep": [1]}  # of the runs of these commands
ARRAYS = {".npy", ".npz", ".safetensors", ".arrow"}  # other files hold times
PARAMETERS = "profile = 'faults'\nseed = 0\nstructural_loss = 'cosine'"
# All that 03_structural publishes, and one of its figures: the others take most of its time.
NOTEBOOK = """
from docemb_lib import begin, figures
run = begin("03_structural", globals())
train, validation = run.history()
run.save_figure(figures.plot_history(train, validation), "training", validation)
run.record_scores()
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
@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_command_that_is_killed_ends_in_the_bytes_of_an_unbroken_one(
    root, one_thread, monkeypatch, command
):
    monkeypatch.chdir(root)
    replace_notebook(root, "03_structural", PARAMETERS, NOTEBOOK)
    (root / "params" / "one.yaml").write_text("axes: {seed: [1]}")
    encoder = str(root / "encoder")
    Student.from_encoder(encoder, max_tokens=64, attention_window=16).save(root / "student")
    for seed in SEEDS.get(command[0], []):  # in this process: kernels take their time
        exec(NOTEBOOK, {"profile": "faults", "seed": seed, "structural_loss": "cosine"})
    unbroken = None if command[0] in SEEDS else docemb(*command)
    files = count_files(root)
    arrays = arrays_of(root)
    assert arrays
    shutil.rmtree(root / "outputs")
    moments = random.Random(SEED)
    for _ in range(KILLS):
        start_and_kill(root, command, moments.uniform(count_files(root), files))
    shutil.rmtree(root / "outputs" / "mine", ignore_errors=True)  # it was whole by then
    (root / "outputs" / "mine.npy").unlink(missing_ok=True)
    done = succeed(*command)
    assert unbroken is None or done.stdout == unbroken.stdout
    assert arrays_of(root) == arrays
    assert not list((root / "outputs").rglob("*.partial"))

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
OWN_DOCUMENTS = {  # by what they write
    "adapted": ["adapt", "student", "texts", "--dim", "3"],
    "embeddings.parquet": ["embed", "student", "texts"],
}
EVALUATE = ["evaluate", "student", "--profile", "faults", "--json"]
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
    process = start(command, root)
    while process.poll() is None and count_files(root) < files:
        time.sleep(0.02)
    kill(process)


def start(command: list[str], root: Path) -> subprocess.Popen:
    quiet = {
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        "stderr": subprocess.DEVNULL,
    }
    return subprocess.Popen([*DOCEMB, *command], cwd=root, env=AS_A_USER, **quiet)


def kill(process: subprocess.Popen) -> None:
    """Kill a process, and assert that all it has started ends."""
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
    moments = random.Random(SEED)
    for seeds, command in COMMANDS.items():
        for _ in range(KILLS):
            start_and_kill(root, command, moments.uniform(count_files(root), files[seeds]))
        # A second worker would cost more than it does for one run or two.
        alone = ["--workers", "1"] if "--workers" in command else []
        done = docemb(*command, *alone)
        assert done.returncode == 0, done.stderr
    assert arrays_of(root) == expected
    assert {file.suffix for file in expected} == ARRAYS
    assert not list((root / "outputs").rglob("*.partial"))


def content_of(out: Path) -> dict[Path, bytes]:
    """What a command has written, but for texts that name the folder."""
    files = [out] if out.is_file() else sorted(out.rglob("*.*"))
    kept = (file for file in files if file.is_file() and file.suffix not in {".md", ".lock"})
    return {file.relative_to(out): file.read_bytes() for file in kept}


@pytest.mark.slow
def test_adapt_embed_and_evaluate_that_are_killed_end_in_the_bytes_of_unbroken_ones(
    root, one_thread, monkeypatch
):
    monkeypatch.chdir(root)
    encoder = str(root / "encoder")
    Student.from_encoder(encoder, max_tokens=64, attention_window=16).save(root / "student")
    moments = random.Random(SEED)
    for name, command in OWN_DOCUMENTS.items():
        out = root / "out" / name
        begun = time.monotonic()
        assert docemb(*command, "-o", root / "expected" / name).returncode == 0
        seconds = time.monotonic() - begun
        for _ in range(KILLS):
            process = start([*command, "-o", str(out)], root)
            while process.poll() is None and not list(root.glob("out/.*")):
                time.sleep(0.02)  # its work begins
            time.sleep(moments.uniform(0, seconds))
            kill(process)
            if out.exists():  # it was whole by then
                assert content_of(out) == content_of(root / "expected" / name)
                shutil.rmtree(out) if out.is_dir() else out.unlink()
        assert docemb(*command, "-o", out).returncode == 0
        assert content_of(out) == content_of(root / "expected" / name)
    assert sorted(path.name for path in (root / "out").iterdir()) == sorted(OWN_DOCUMENTS)

    shutil.rmtree(root / "outputs", ignore_errors=True)  # the embeddings of `adapt`
    expected = docemb(*EVALUATE)
    assert expected.returncode == 0, expected.stderr
    files = count_files(root)
    arrays = arrays_of(root)
    shutil.rmtree(root / "outputs")
    for _ in range(KILLS):
        start_and_kill(root, EVALUATE, moments.uniform(count_files(root), files))
    assert docemb(*EVALUATE).stdout == expected.stdout
    assert arrays_of(root) == arrays
    assert not list((root / "outputs").rglob("*.partial"))

"""Commands that are killed at random moments end in the bytes of unbroken ones, and leave no process behind."""

import os
import random
import shutil
import subprocess
import time
from pathlib import Path

import psutil
import pytest
from conftest import AS_A_USER, DOCEMB

KILLS = int(os.environ.get("DOCEMB_KILLS", "1"))  # of each command; 20 take a quarter of an hour
COMMANDS = [
    ["run", "--profile", "faults"],
    ["sweep", "03", "--profile", "faults", "--grid", "params/two.yaml", "--workers", "2"],
]
ARRAYS = {".npy", ".npz", ".safetensors", ".arrow"}  # other files hold times


def start(root: Path, command: list[str]) -> subprocess.Popen:
    quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*DOCEMB, *command], cwd=root, env=AS_A_USER, text=True, **quiet)


def finish(root: Path, command: list[str]) -> float:
    """The seconds it took."""
    began = time.monotonic()
    process = start(root, command)
    _, stderr = process.communicate(timeout=600)
    assert process.returncode == 0, stderr
    return time.monotonic() - began


def arrays_of(root: Path) -> dict[Path, bytes]:
    found = [file for folder in ("artefacts", "records") for file in (root / "outputs" / folder).rglob("*.*")]
    return {file: file.read_bytes() for file in found if file.suffix in ARRAYS}


@pytest.mark.slow
def test_runs_and_sweeps_that_are_killed_end_in_the_bytes_of_unbroken_ones(make, tmp_path):
    make(root := tmp_path / "workspace")
    (root / "params" / "two.yaml").write_text("axes: {seed: [1, 2]}")
    seconds = [finish(root, command) for command in COMMANDS]
    expected = arrays_of(root)
    shutil.rmtree(root / "outputs")
    moments = random.Random(17)
    for command, whole in zip(COMMANDS, seconds, strict=True):
        for _ in range(KILLS):
            process = start(root, command)
            time.sleep(moments.uniform(0, whole))
            below = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            process.communicate(timeout=60)
            assert psutil.wait_procs(below, timeout=5)[1] == []
        finish(root, command)
    assert arrays_of(root) == expected
    assert {file.suffix for file in expected} == ARRAYS
    assert not list((root / "outputs").rglob("*.partial"))

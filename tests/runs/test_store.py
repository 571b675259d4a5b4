"""Artefacts: built once, whole or not at all, by one builder at a time, whatever is killed."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from docemb_lib.base.errors import InputError, Stopped
from docemb_lib.workspace import MANIFEST, Workspace, fingerprint_of, publish

COUNT_BUILDS = """
import sys, time
from pathlib import Path
from docemb_lib.workspace import Workspace

def build(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(0.5)
    (folder / "value.txt").write_text("42")

Workspace(sys.argv[1]).artefact("number", {"n": 42}, build)
"""

BUILD_SLOWLY = """
import sys, time
from docemb_lib.workspace import Workspace

def build(folder):
    done = len(list(folder.glob("step*")))
    for step in range(done, 3):
        (folder / f"step{step}").write_text("x")
        print(step, flush=True)
        time.sleep(30 if step == 1 and done == 0 else 0)

Workspace(sys.argv[1]).artefact("slow", {}, build, resumable=True)
"""


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def write_value(folder: Path) -> None:
    (folder / "value.txt").write_text("42", encoding="utf-8")


def files_in(workspace: Workspace) -> list[Path]:
    """All files but locks."""
    paths = workspace.outputs.rglob("*")
    return [path for path in paths if path.is_file() and path.suffix != ".lock"]


def test_an_artefact_is_built_once(workspace, monkeypatch):
    first = workspace.artefact("number", {"n": 42}, write_value)
    monkeypatch.setattr("docemb_lib.workspace.publish", lambda *a, **k: pytest.fail("built again"))
    second = workspace.artefact("number", {"n": 42}, write_value)
    assert second == first
    assert (second.path / "value.txt").read_text() == "42"


def test_the_manifest_of_an_artefact_says_what_made_it(workspace):
    manifest = workspace.artefact("number", {"n": 42}, write_value).manifest
    assert manifest["inputs"] == {"n": 42}
    assert manifest["files"] == {"value.txt": hashlib.sha256(b"42").hexdigest()}
    assert {"python", "numpy"} <= set(manifest["versions"])


def test_other_inputs_or_another_kind_make_another_artefact(workspace):
    built = (("a", {"n": 1}), ("a", {"n": 2}), ("b", {"n": 1}), ("a", {"n": 1, "m": None}))
    assert len({workspace.artefact(kind, inputs, write_value).path for kind, inputs in built}) == 4


def test_the_order_of_keys_does_not_change_a_fingerprint():
    inputs = {"a": 1, "b": {"c": 2, "d": 3}}
    assert fingerprint_of(inputs) == fingerprint_of({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize("error", [RuntimeError, InputError])
def test_a_failed_build_leaves_nothing_and_the_next_one_starts_afresh(workspace, error):
    def fail(folder):
        write_value(folder)
        raise error("half-way")

    with pytest.raises(error, match="half-way"):
        workspace.artefact("number", {"n": 42}, fail)
    assert files_in(workspace) == []
    artefact = workspace.artefact("number", {"n": 42}, write_value)
    assert (artefact.path / "value.txt").read_text() == "42"


def test_a_refused_resumable_build_keeps_its_files_for_the_next_one(workspace, refused):
    """For example a training that is resumed with another number of processes."""
    names = []

    def refuse(folder):
        write_value(folder)
        raise InputError("start it as that run")

    refused("start it as that run", workspace.artefact, "number", {"n": 42}, refuse, resumable=True)
    list_names = lambda folder: names.extend(path.name for path in folder.iterdir())  # noqa: E731
    workspace.artefact("number", {"n": 42}, list_names, resumable=True)
    assert names == ["value.txt"]


@pytest.mark.parametrize("resumable", [False, True])
def test_an_interrupted_build_says_what_was_stopped_and_publishes_nothing(workspace, resumable):
    def interrupted(folder):
        write_value(folder)
        raise KeyboardInterrupt

    inputs = {"n": 42}
    said = "^stopped while building teacher embeddings; give the same command again to go on$"
    with pytest.raises(Stopped, match=said):
        workspace.artefact("teacher-embeddings", inputs, interrupted, resumable=resumable)
    assert not workspace.is_built("teacher-embeddings", inputs)
    left = ["value.txt"] if resumable else []
    assert [path.name for path in files_in(workspace)] == left


def test_two_builders_of_one_artefact_build_it_once(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", COUNT_BUILDS, str(tmp_path), str(log)]
    builders = [subprocess.Popen(command) for _ in range(3)]
    assert [builder.wait(timeout=60) for builder in builders] == [0, 0, 0]
    assert log.read_text().splitlines() == ["built"]


def test_a_killed_resumable_build_goes_on_where_it_was(tmp_path):
    command = [sys.executable, "-c", BUILD_SLOWLY, str(tmp_path)]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    assert [killed.stdout.readline().strip() for _ in range(2)] == ["0", "1"]
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait(timeout=30)
    assert not list(tmp_path.glob(f"outputs/artefacts/slow/*/{MANIFEST}"))
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert resumed.stdout.split() == ["2"]
    (manifest,) = tmp_path.glob(f"outputs/artefacts/slow/*/{MANIFEST}")
    assert set(json.loads(manifest.read_text())["files"]) == {"step0", "step1", "step2"}


def test_publishing_can_replace_what_is_there(tmp_path):
    folder = tmp_path / "record"
    publish(folder, lambda f: (f / "old").touch(), inputs={})
    publish(folder, lambda f: (f / "new").touch(), inputs={}, replace=True)
    assert {path.name for path in folder.iterdir()} == {"new", MANIFEST}
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".")] == ["record"]


def test_a_link_is_relative_and_can_be_renewed(workspace, tmp_path):
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        link = workspace.link("students", "best", tmp_path / name)
        assert link.resolve() == tmp_path / name
        assert not os.path.isabs(os.readlink(link))  # a moved checkout keeps its links


def test_a_link_never_replaces_a_real_folder(workspace, tmp_path, refused):
    (workspace.outputs / "students" / "mine").mkdir(parents=True)
    refused("is in the way", workspace.link, "students", "mine", tmp_path)


@pytest.mark.parametrize(("resumable", "error"), [(True, OSError), (False, RuntimeError)])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    workspace, monkeypatch, resumable, error
):
    def fill(folder):
        if error is OSError:
            np.zeros(100_000).tofile("/dev/full")  # NumPy's error has no number
        else:
            torch.save(torch.zeros(100_000), "/dev/full")  # PyTorch's is no OSError

    # As long as there is room, the cause is something else.
    with pytest.raises(error, match=r"requested and|unexpected pos"):
        workspace.artefact("kind", {}, fill, resumable=resumable)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=512))
    message = "artefacts/kind: the disk is full; make room and give the same command again"
    with pytest.raises(InputError, match=message):
        workspace.artefact("kind", {}, fill, resumable=resumable)
    assert files_in(workspace) == []

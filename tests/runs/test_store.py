"""The store: built once, whole or not at all, by one builder at a time, whatever is killed."""

import hashlib
import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from docemb_lib.base.errors import InputError, Stopped
from docemb_lib.base.files import MANIFEST, fingerprint_of
from docemb_lib.runs import store
from docemb_lib.runs.store import cached, folder_of, is_whole, link, revision

COUNT_BUILDS = """
import sys, time
from pathlib import Path
from docemb_lib.runs.store import cached, kept_beside

def build(folder):
    with open(sys.argv[2], "a") as log:
        log.write("built\\n")
    time.sleep(0.5)

with kept_beside(Path(sys.argv[1])):
    cached("number", {"n": 42}, build)
"""
BUILD_SLOWLY = """
import sys, time
from pathlib import Path
from docemb_lib.runs.store import cached, kept_beside

def build(folder):
    done = len(list(folder.glob("step*")))
    for step in range(done, 3):
        (folder / f"step{step}").write_text("x")
        print(step, flush=True)
        time.sleep(30 if step == 1 and done == 0 else 0)

with kept_beside(Path(sys.argv[1])):
    cached("slow", {}, build, resumable=True)
"""


@pytest.fixture(autouse=True)
def shelves(tmp_path, monkeypatch):
    """A store outside of a working folder."""
    monkeypatch.chdir(tmp_path)
    with store.kept_beside(tmp_path / "mine"):
        yield tmp_path / "mine.embeddings" / "artefacts"


@pytest.fixture
def number():
    """The artefact of the number 42."""
    return partial(cached, "number", {"n": 42})


def write_value(folder: Path) -> None:
    (folder / "value.txt").write_text("42", encoding="utf-8")


def never(folder: Path) -> None:
    pytest.fail("it was built again")


def files_in(folder: Path) -> list[str]:
    """The names of all files but locks."""
    return sorted(
        path.name for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock"
    )


def test_an_artefact_is_built_once_and_says_what_made_it(number):
    folder = number(write_value)
    assert number(never) == folder
    manifest = json.loads((folder / MANIFEST).read_text())
    assert manifest["inputs"] == {"n": 42}
    assert manifest["files"] == {"value.txt": hashlib.sha256(b"42").hexdigest()}
    assert {"python", "numpy"} <= set(manifest["versions"])


def test_kind_inputs_and_version_name_an_artefact_and_their_order_does_not(monkeypatch):
    pairs = (("a", {"n": 1}), ("a", {"n": 2}), ("b", {"n": 1}), ("a", {"n": 1, "m": None}))
    folders = {folder_of(kind, inputs) for kind, inputs in pairs}
    monkeypatch.setattr(store, "VERSION", store.VERSION + 1)
    folders.add(folder_of("a", {"n": 1}))
    assert len({folder.name for folder in folders}) == 5
    ordered = {"a": 1, "b": {"c": 2, "d": 3}}
    assert fingerprint_of(ordered) == fingerprint_of({"b": {"d": 3, "c": 2}, "a": 1})


@pytest.mark.parametrize("name", ["value.txt", MANIFEST])
def test_a_damaged_artefact_is_built_again_with_one_line(number, caplog, monkeypatch, name):
    folder = number(write_value)
    file = folder / name
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])
    monkeypatch.setattr(store, "_opened", set())  # as in another process
    number(write_value)
    assert (folder / "value.txt").read_text() == "42"
    (line,) = caplog.messages
    assert line.startswith(f"{file} is damaged (its checksum differs): it is not used; ")
    assert number(never) == folder


def test_folders_that_have_changed_places_are_not_taken(number, caplog):
    folder = number(write_value)
    other = cached("number", {"n": 43}, lambda folder: (folder / "value.txt").write_text("43"))
    moved = folder.rename(folder.with_name("moved"))
    other.rename(folder)
    moved.rename(other)
    assert (number(write_value) / "value.txt").read_text() == "42"
    assert "artefact.json is damaged" in caplog.text


def test_inputs_that_are_no_json_are_refused():
    assert fingerprint_of({"a": Path("b")}) == fingerprint_of({"a": "b"})
    with pytest.raises(TypeError, match="ndarray"):
        fingerprint_of({"a": np.arange(5000)})


@pytest.mark.parametrize("error", [RuntimeError, InputError])
def test_a_failed_build_leaves_nothing_and_the_next_one_starts_afresh(number, tmp_path, error):
    def fail(folder):
        write_value(folder)
        raise error("half-way")

    with pytest.raises(error, match="half-way"):
        number(fail)
    assert files_in(tmp_path) == []
    assert files_in(number(write_value)) == [MANIFEST, "value.txt"]


@pytest.mark.parametrize("resumable", [False, True])
def test_an_interrupted_build_says_so_and_a_resumable_one_keeps_its_files(tmp_path, resumable):
    def interrupted(folder):
        write_value(folder)
        raise KeyboardInterrupt

    build = partial(cached, "student-with-words", {}, resumable=resumable)
    said = "^stopped while building student with words; give the same command again to go on$"
    with pytest.raises(Stopped, match=said):
        build(interrupted)
    assert not is_whole(folder_of("student-with-words", {}))
    left = ["value.txt"] if resumable else []
    assert files_in(tmp_path) == left
    folder = build(lambda folder: (folder / "late.txt").touch())
    assert files_in(folder) == [MANIFEST, "late.txt", *left]


def test_two_builders_of_one_artefact_build_it_once(tmp_path):
    log = tmp_path / "log"
    command = [sys.executable, "-c", COUNT_BUILDS, "mine", str(log)]
    builders = [subprocess.Popen(command) for _ in range(3)]
    assert [builder.wait(timeout=60) for builder in builders] == [0, 0, 0]
    assert log.read_text().splitlines() == ["built"]


def test_a_killed_build_goes_on_where_it_was_and_its_lock_blocks_no_one(shelves):
    command = [sys.executable, "-c", BUILD_SLOWLY, "mine"]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert [killed.stdout.readline().strip() for _ in range(2)] == ["0", "1"]
    killed.kill()
    killed.communicate(timeout=30)
    assert [path.suffix for path in (shelves / "slow").glob("[!.]*")] == [store.PARTIAL]
    assert [*(shelves / "slow").glob(".*.lock")]
    resumed = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert resumed.stdout.split() == ["2"]
    (folder,) = (shelves / "slow").glob("[!.]*")
    assert files_in(folder) == [MANIFEST, "step0", "step1", "step2"]
    assert is_whole(folder)


def test_a_link_is_relative_can_be_renewed_and_replaces_no_folder(workspace_root, refused):
    for name in ("first", "second"):
        (workspace_root / name).mkdir()
        path = link("students", "best", workspace_root / name)
        assert path.resolve() == workspace_root / name
        assert not os.path.isabs(os.readlink(path))  # a moved checkout keeps its links
    path.with_name("mine").mkdir()
    refused("is in the way", link, "students", "mine", workspace_root)


@pytest.mark.parametrize(("resumable", "error"), [(True, OSError), (False, RuntimeError)])
def test_a_full_disk_is_one_line_and_leaves_nothing_half_written(
    number, tmp_path, monkeypatch, resumable, error
):
    def fill(folder):
        if error is OSError:
            np.zeros(100_000).tofile("/dev/full")  # NumPy's error has no number
        else:
            torch.save(torch.zeros(100_000), "/dev/full")  # PyTorch's is no OSError

    # As long as there is room, the cause is something else.
    with pytest.raises(error, match=r"requested and|unexpected pos"):
        number(fill, resumable=resumable)
    monkeypatch.setattr("shutil.disk_usage", lambda path: SimpleNamespace(free=512))
    message = "/number: the disk is full; make room and give the same command again"
    with pytest.raises(InputError, match=message):
        number(fill, resumable=resumable)
    assert files_in(tmp_path) == []


def test_the_revision_is_that_of_git_and_marks_changed_trees(tmp_path):
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    assert revision(tmp_path) is None
    (tmp_path / "file").write_text("one")
    for command in (["init"], ["add", "."], ["commit", "-m", "one"]):
        subprocess.run([*git, *command], capture_output=True, check=True)
    commit = subprocess.check_output([*git, "rev-parse", "--short", "HEAD"], text=True).strip()
    assert revision(tmp_path) == commit
    (tmp_path / "file").write_text("two")
    assert revision(tmp_path) == f"{commit}+"

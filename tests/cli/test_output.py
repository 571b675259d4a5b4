"""Outputs that cannot be written are refused before the work."""

import os
import re
import shlex

import pytest
from conftest import docemb, write_files

ROW = b'{"id": "1", "text": "one"}\n'
CASES = [
    ("embed m in.jsonl -o file/out.npy", "-o file/out.npy: nothing can be written there"),
    ("adapt m in.jsonl -o file/out", "-o file/out: nothing can be written there"),
    ("embed m in.jsonl -o /proc/none/out.npy", "-o /proc/none/out.npy: nothing can be written"),
    ("embed m in.parquet -o in.parquet --force", "-o in.parquet: this is the input in.parquet"),
    ("embed m in.parquet -o hard.parquet --force", "this is the input in.parquet; name another"),
    ("embed m pipe.npy -o out.npy", "pipe.npy: this is not a data file; give .jsonl"),
    ("adapt m in.jsonl -o dangling/out", "-o dangling/out: nothing can be written there"),
    ("embed m '' -o out.npy", "INPUT: the argument is empty"),
    ("adapt m '' -o out", "CORPUS: the argument is empty"),
    ("init ''", "INPUT: the argument is empty"),
    ("embed '' in.jsonl -o out.npy", "MODEL: the name of the model is empty"),
]


@pytest.mark.parametrize(("command", "said"), CASES, ids=range(len(CASES)))
def test_an_output_that_cannot_be_written_is_refused_before_the_work(command, said, workspace_root):
    write_files(workspace_root, {"in.jsonl": ROW, "in.parquet": [{"id": "1", "text": "one"}]})
    write_files(workspace_root, {"file": b""})
    os.mkfifo(workspace_root / "pipe.npy")
    os.symlink("nowhere", workspace_root / "dangling")
    os.link(workspace_root / "in.parquet", workspace_root / "hard.parquet")
    before = sorted(workspace_root.rglob("*"))
    done = docemb(*shlex.split(command))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert re.search(said, done.stderr), done.stderr
    assert sorted(workspace_root.rglob("*")) == before


def test_folders_that_a_failing_command_made_are_removed(workspace_root):
    write_files(workspace_root, {"in.jsonl": ROW})
    done = docemb("embed", "no/model", "in.jsonl", "-o", "new/folder/out.npy")
    assert done.returncode == 2
    assert not (workspace_root / "new").exists()


def test_a_command_from_elsewhere_writes_nothing_into_the_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("results", "run", "evaluate m", "sweep 05 --grid structural"):
        done = docemb(*command.split())
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "--workspace FOLDER" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_a_working_folder_elsewhere_is_used_where_it_is_named_and_said(
    workspace_root, tmp_path, monkeypatch, caplog
):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    done = docemb("run", "--profile", "small", "--dry-run", "--workspace", "../workspace")
    assert done.returncode == 0, done.stderr
    assert "01_corpus" in done.stdout
    assert caplog.messages == [f"the working folder is {workspace_root}"]
    assert not [*elsewhere.iterdir()]

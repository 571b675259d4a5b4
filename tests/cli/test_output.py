"""Outputs that cannot be written are refused before the work."""

import errno
import os
import shlex
import shutil
from types import SimpleNamespace

import pytest
from conftest import docemb, write_files

from docemb_lib.cli.terminal import written_whole

ROW = b'{"id": "1", "text": "one"}\n'
LONG = "n" * 300  # no file has such a name
CASES = [
    ("embed m in.jsonl -o file/out.npy", "-o file/out.npy: nothing can be written there, or"),
    ("embed m in.jsonl -o /proc/none/out.npy", "-o /proc/none/out.npy: nothing can be written"),
    ("embed m in.parquet -o in.parquet", "-o in.parquet: this exists already; name a new file"),
    ("embed m pipe.npy -o out.npy", "pipe.npy: this is not a data file; give .jsonl"),
    ("adapt m in.jsonl -o dangling/out", "-o dangling/out: nothing can be written there, or"),
    ("embed m '' -o out.npy", "INPUT: the argument is empty"),
    ("embed '' in.jsonl -o out.npy", "MODEL: the name of the model is empty"),
    (f"embed {LONG} in.jsonl -o out.npy", "MODEL: the name of the model is empty or too long"),
    (f"embed m {LONG} -o out.npy", "n does not exist; name a folder of"),
    (f"run --profile {LONG}.yaml", "n.yaml' is unknown"),
    (f"embed m in.jsonl -o {LONG}.npy", "n.npy: nothing can be written there, or"),
]


@pytest.mark.parametrize(("command", "said"), CASES, ids=range(len(CASES)))
def test_an_output_that_cannot_be_written_is_refused_before_the_work(command, said, workspace_root):
    write_files(workspace_root, {"in.jsonl": ROW, "in.parquet": [{"id": "1", "text": "one"}]})
    write_files(workspace_root, {"file": b""})
    os.mkfifo(workspace_root / "pipe.npy")
    os.symlink("nowhere", workspace_root / "dangling")
    before = sorted(workspace_root.rglob("*"))
    done = docemb(*shlex.split(command))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done.stderr
    assert said in done.stderr
    assert sorted(workspace_root.rglob("*")) == before


def test_a_full_disk_is_one_line_with_the_output(workspace_root, monkeypatch, refused):
    def write():
        with written_whole(workspace_root / "out") as written:
            written.write_text("half")
            raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write()
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=0))
    refused("workspace: the disk is full; make room", write)
    assert not [*workspace_root.glob("*out*")]


def test_two_commands_do_not_write_one_output(workspace_root, refused):
    with written_whole(workspace_root / "out") as written:
        written.touch()
        refused("or another command does", written_whole(workspace_root / "out").__enter__)


def test_a_tilde_is_the_home_folder(workspace_root, monkeypatch):
    monkeypatch.setenv("HOME", str(workspace_root))
    done = docemb("embed", "m", "in.jsonl", "--out=~/params/small.yaml")
    assert f"-o {workspace_root}/params/small.yaml: embeddings" in done.stderr


def test_a_command_from_elsewhere_writes_nothing_into_the_checkout(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for command in ("results", "run", "evaluate m", "sweep 05 --grid structural"):
        done = docemb(*command.split())
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "DOCEMB_WORKSPACE=FOLDER" in done.stderr
    assert not [*tmp_path.iterdir()]

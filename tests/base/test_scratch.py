"""Temporary folders of processes that were killed."""

import subprocess
import sys

import pytest

from docemb_lib.base.scratch import scratch_folder

HELD = """
import sys, time
from docemb_lib.base.scratch import scratch_folder
with scratch_folder(sys.argv[1], sys.argv[2]) as folder:
    print(folder, flush=True)
    time.sleep(60)
"""
PREFIX = ".out.parquet."


@pytest.fixture
def held(tmp_path):
    """A process that holds a folder."""
    command = [sys.executable, "-c", HELD, PREFIX, str(tmp_path)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    process.stdout.readline()
    yield process
    process.kill()
    process.wait()


def test_the_folder_of_a_killed_process_is_removed_by_the_next(held, tmp_path):
    held.kill()
    held.wait()
    assert len([*tmp_path.iterdir()]) == 1
    with scratch_folder(PREFIX, tmp_path) as folder:
        assert [*tmp_path.iterdir()] == [folder]
    assert not [*tmp_path.iterdir()]


def test_the_folder_of_a_living_process_is_kept(held, tmp_path):
    with scratch_folder(PREFIX, tmp_path):
        assert len([*tmp_path.iterdir()]) == 2
    assert len([*tmp_path.iterdir()]) == 1


@pytest.mark.parametrize("name", [f"{PREFIX}abcdefgh", ".other.parquet.abcdefgh"])
def test_folders_of_other_programs_are_kept(name, tmp_path):
    (tmp_path / name).mkdir()
    with scratch_folder(PREFIX, tmp_path):
        pass
    assert (tmp_path / name).is_dir()

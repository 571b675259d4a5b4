"""A process that watches its parent ends with it."""

from __future__ import annotations

import subprocess
import sys

import psutil

CHILD = "import os, time; from docemb_lib.experiments.kernel import end_with_parent; end_with_parent({parent}, {folder!r}); time.sleep(60)"
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}.format(parent=os.getpid(), folder={folder!r})])
time.sleep(1.5)  # it would have ended by now if it took us for somebody else
print(child.pid if child.poll() is None else "gone", flush=True)
time.sleep(60)
"""


def test_a_process_ends_soon_after_its_parent_was_killed_and_not_before(tmp_path):
    folder = tmp_path / "sockets"
    folder.mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT.format(child=CHILD, folder=str(folder))], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert folder.is_dir()
    parent.kill()
    parent.wait()
    assert psutil.wait_procs([child], timeout=5)[1] == []
    assert not folder.exists()

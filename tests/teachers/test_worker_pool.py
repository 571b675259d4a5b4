import os
import subprocess
import sys

import psutil
import pytest

from docemb_lib.teachers import worker_pool
from docemb_lib.teachers.worker_pool import WorkerPool


def test_workers_hash_as_any_process_with_hash_seed_zero():
    command = [sys.executable, "-c", "print(hash('a text'))"]
    expected = subprocess.run(command, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, check=True)
    pool = WorkerPool(hash)
    found = dict(pool.map([("a text",), (7,), ("a text",)], jobs=2))
    pool.stop()
    assert found == {0: int(expected.stdout), 1: 7, 2: int(expected.stdout)}


def test_arguments_are_read_as_they_are_processed():
    read = []
    pool = WorkerPool(abs)
    finished = 0
    for _ in pool.map(((read.append(i) or i,) for i in range(20)), jobs=1):
        assert len(read) <= finished + 3  # one running, one waiting, one being submitted
        finished += 1
    pool.stop()
    assert finished == 20


def test_an_interrupt_ends_the_worker(tmp_path):
    started = tmp_path / "pid"

    def interrupt():
        if started.exists():
            raise KeyboardInterrupt

    pool = WorkerPool(exec)
    with pytest.raises(KeyboardInterrupt):
        pool.run(f"import os, time; open({str(started)!r}, 'w').write(str(os.getpid())); time.sleep(600)", meanwhile=interrupt)  # fmt: skip
    with pytest.raises(ProcessLookupError):
        os.kill(int(started.read_text()), 0)


PARENT = """
import os, time
from docemb_lib.teachers.worker_pool import WorkerPool
task = "import os, time; print(os.getpid(), flush=True); time.sleep(600)"
WorkerPool(exec).run(task, meanwhile=lambda: None)
"""


def test_a_worker_ends_soon_after_its_parent_was_killed():
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    worker = psutil.Process(int(parent.stdout.readline()))
    assert worker.ppid() == parent.pid
    parent.kill()
    parent.wait()
    worker.wait(timeout=5)  # its task sleeps for ten minutes


def test_only_a_worker_without_its_parent_is_ended(monkeypatch):
    ended = []
    monkeypatch.setattr(os, "_exit", ended.append)
    worker_pool.end_if_orphaned()  # this is no worker
    monkeypatch.setattr(worker_pool, "_parent", os.getppid())
    worker_pool.end_if_orphaned()
    assert ended == []
    monkeypatch.setattr(worker_pool, "_parent", os.getpid())  # not its parent
    worker_pool.end_if_orphaned()
    assert ended == [1]

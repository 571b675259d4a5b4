import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from docemb_lib.base.worker_pool import WorkerPool


def test_workers_hash_as_any_process_with_hash_seed_zero():
    command = [sys.executable, "-c", "print(hash('a text'))"]
    expected = subprocess.run(
        command, env=os.environ | {"PYTHONHASHSEED": "0"}, capture_output=True, check=True
    )
    pool = WorkerPool()
    hashes = list(pool.map(hash, [("a text",), (7,), ("a text",)], jobs=2))
    pool.stop()
    assert hashes == [int(expected.stdout), 7, int(expected.stdout)]


def test_arguments_are_read_as_they_are_processed():
    read = []
    pool = WorkerPool()
    finished = 0
    for _ in pool.map(abs, ((read.append(i) or i,) for i in range(20)), jobs=1):
        assert len(read) <= finished + 3  # one running, one waiting, one being submitted
        finished += 1
    pool.stop()
    assert finished == 20


def test_an_exception_ends_the_workers():
    pool = WorkerPool()
    workers = list(pool.map(os.getpid, [()], jobs=1))
    with pytest.raises(ZeroDivisionError):
        list(pool.map(divmod, [(1, 0), (1, 1)], jobs=1))
    assert pool.size == 0
    with pytest.raises(ProcessLookupError):
        os.kill(workers[0], 0)


def blocked() -> bool:
    """Whether this process puts off Ctrl-C."""
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_workers_get_no_ctrl_c_and_their_parent_does():
    pool = WorkerPool()
    in_workers = list(pool.map(blocked, [(), (), ()], jobs=2))
    pool.stop()
    assert (in_workers, blocked()) == ([True, True, True], False)


WORK = """
import time
from itertools import repeat
from docemb_lib.base.worker_pool import WorkerPool
list(WorkerPool().map(abs, [(1,), (2,)], jobs=2))
print('begins', flush=True)
while True:
    pool = WorkerPool()
    list(pool.map(time.sleep, repeat((0.02,), 200), jobs=2))
    pool.stop()
"""


def test_nothing_lives_when_a_process_is_killed_while_its_workers_work(tmp_path):
    def alive() -> list[str]:
        """The commands of all generations: orphans cannot be recognised by their parent."""
        commands = []
        for process in psutil.process_iter(["environ", "cmdline"]):
            if (process.info["environ"] or {}).get("TMPDIR") == str(tmp_path):
                commands.append(" ".join(process.info["cmdline"] or ["(ends as it is read)"]))
        return commands

    environment = os.environ | {"TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", WORK]
    start = time.monotonic()
    parent = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline() == "begins\n"  # workers have answered
    # Seconds; more where a machine is so busy that starts take long.
    limit = max(5.0, 5 * (time.monotonic() - start))
    time.sleep(random.Random(17).uniform(0, 1))
    assert len(alive()) >= 3  # with workers
    parent.kill()
    parent.wait()

    def semaphores():
        return [*Path("/dev/shm").glob(f"*-{parent.pid}[-_]*")]

    deadline = time.monotonic() + limit
    while (alive() or semaphores()) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive() == []
    assert semaphores() == []

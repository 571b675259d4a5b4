"""Workers: as many as there is room for, on this machine and of a running cluster."""

import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from docemb_lib.base.errors import InputError
from docemb_lib.runs import cluster

GB = 2**30
SAME = "make them the same there and start the workers anew"
TWICE = "would execute as many notebooks in one process"
SHARED = "workers need a file system that they share with the sweep"


@pytest.mark.parametrize(
    ("runs", "cores", "memory", "gpus", "workers"),
    [
        (45, 16, 20 * GB, 0, 5),
        (3, 16, 200 * GB, 0, 3),
        (45, 16, 1 * GB, 0, 1),
        (45, 16, 20 * GB, 8, 8),
    ],
)
def test_there_are_as_many_workers_as_gpus_or_as_cores_and_memory_allow(
    monkeypatch, runs, cores, memory, gpus, workers
):
    monkeypatch.setattr("dask.system.CPU_COUNT", cores)
    monkeypatch.setattr(cluster, "free_memory", lambda device: memory)
    monkeypatch.setattr(cluster, "_gpus", lambda: [str(number) for number in range(gpus)])
    assert cluster.default_workers(runs) == workers


def test_workers_share_out_cores_and_keep_what_the_user_has_set(monkeypatch):
    monkeypatch.setattr("dask.system.CPU_COUNT", 16)
    monkeypatch.setattr(cluster, "_gpus", list)
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    assert [cluster._environment(3)[name] for name in names] == ["5", "5", "10000"]
    assert cluster._environment(32)["OMP_NUM_THREADS"] == "1"
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert [cluster._environment(1)[name] for name in names] == ["3", "3", "7"]


@pytest.mark.parametrize(
    ("visible", "count", "given"),
    [("3,GPU-1a", 2, ["3", "GPU-1a", "3"]), (None, 2, ["0", "1", "0"]), ("", 0, ["", "", ""])],
)
def test_workers_share_out_the_visible_gpus(monkeypatch, visible, count, given):
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: count)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    of_all = cluster._environment(3)["CUDA_VISIBLE_DEVICES"]
    for number, gpu in enumerate(given):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", of_all)
        cluster.dask_setup(SimpleNamespace(name=number))
        assert os.environ["CUDA_VISIBLE_DEVICES"] == gpu


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(cluster, "TIMEOUT", 0.5)
    file = tmp_path / "scheduler.json"
    file.write_text("[]")
    with socket.create_server(("127.0.0.1", 0)) as silent, socket.create_server(("", 0)) as server:

        def answer():
            server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2")

        threading.Thread(target=answer, daemon=True).start()
        for scheduler, said in {
            f"tcp://127.0.0.1:{server.getsockname()[1]}": ".*MemoryError",
            f"tcp://127.0.0.1:{silent.getsockname()[1]}": "TimeoutError",
            "tcp://127.0.0.1:9": "TimeoutError",
            "tls://a:1": ".*TLS",
            str(file): "TypeError",
            "none.json": "FileNotFoundError: .*No such file",
        }.items():
            problem = rf"^scheduler {re.escape(scheduler)}: it does not answer \({said}.*; "
            line = rf"{problem}check that a Dask scheduler runs there .*$"
            with pytest.raises(InputError, match=line), cluster.workers_of(scheduler):
                pass


def test_own_workers_listen_on_the_loopback_and_refuse_who_has_no_key(monkeypatch):
    monkeypatch.setattr(cluster, "TIMEOUT", 1)
    with cluster.local_workers(1) as _:
        addresses = set()
        for process in (psutil.Process(), *psutil.Process().children(recursive=True)):
            for connection in process.net_connections("inet"):
                if connection.status == "LISTEN":
                    addresses.add(connection.laddr)
        assert len(addresses) >= 3  # of scheduler, nanny and worker
        assert {address.ip for address in addresses} == {"127.0.0.1"}
        for address in addresses:
            with (
                pytest.raises(InputError, match="check that a Dask scheduler runs there"),
                cluster.workers_of(f"tcp://127.0.0.1:{address.port}"),
            ):
                pass


@pytest.mark.parametrize(
    ("threads", "root", "changes", "said"),
    [
        (1, None, {}, None),
        (1, None, {"torch": "1.0"}, f"has torch {{torch}}, the sweep has 1.0; {SAME}"),
        (2, None, {}, f"has 2 threads and {TWICE}; start it with --nthreads 1"),
        (1, "/elsewhere", {}, f"does not see /elsewhere/notebooks; {SHARED}"),
    ],
)
def test_an_unfit_worker_is_refused(workspace_root, threads, root, changes, said):
    here = cluster.signature()
    worker = SimpleNamespace(state=SimpleNamespace(nthreads=threads))
    problem = cluster.unfit({**here, **changes}, Path(root or workspace_root), worker)
    assert problem == (said and said.format_map(here))


STARTING = """
import os, signal, threading
import distributed  # takes seconds, in which an interrupt may be lost
from docemb_lib.runs.cluster import local_workers
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background ignores it
threading.Timer(1.0, os.killpg, (0, signal.SIGINT)).start()  # as Ctrl-C in a terminal
try:
    with local_workers(1):
        print("started", flush=True)
        signal.pause()
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


@pytest.mark.slow
def test_workers_that_are_interrupted_while_they_start_end_without_a_traceback():
    command = [sys.executable, "-c", STARTING]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=120, start_new_session=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "interrupted"

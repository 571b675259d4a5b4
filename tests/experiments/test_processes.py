"""A kernel's client over real sockets, its sockets' folder, and its end; workers, as many as there is room for."""

import asyncio
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty
from types import SimpleNamespace

import dask
import nbclient
import nbformat
import psutil
import pytest
import zmq.asyncio
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from docemb_lib.errors import InputError
from docemb_lib.experiments import processes
from docemb_lib.workspace import Workspace

GB = 2**30
SOURCE = "docemb's source"
CHILD = "import os, time; from docemb_lib.experiments.processes import end_with_parent; end_with_parent({parent}, {folder!r}); time.sleep(60)"
PARENT = """
import os, subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {child!r}.format(parent=os.getpid(), folder={folder!r})])
time.sleep(1.5)  # enough for the child to end, if it took another process for its parent
print(child.pid if child.poll() is None else "gone", flush=True)
time.sleep(60)
"""


@pytest.fixture
def channel(monkeypatch):
    """A channel whose socket never notifies of a message that comes during a poll, and its other end."""
    monkeypatch.setattr(processes, "POLL", 0.05)
    context, session = zmq.asyncio.Context(), Session(key=b"key")
    near, far = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    far.bind("inproc://kernel")
    near.connect("inproc://kernel")
    poll = near.poll

    async def deaf(timeout=None, flags=zmq.POLLIN):
        if await poll(0, flags):
            return flags
        await asyncio.sleep(1e9 if timeout is None else timeout / 1000)
        return 0

    near.poll = deaf
    yield processes.PollingChannel(near, session), lambda: session.send(far, "execute_reply", {"status": "ok"})
    context.destroy(linger=0)


def test_a_message_without_a_notification_is_found_and_a_time_limit_holds(channel):
    near, send = channel

    async def talk():
        waiting = asyncio.ensure_future(near.get_msg())
        await asyncio.sleep(0.02)
        send()
        return await asyncio.wait_for(waiting, 5)

    assert asyncio.run(talk())["msg_type"] == "execute_reply"
    start = time.monotonic()
    with pytest.raises(Empty):
        asyncio.run(near.get_msg(timeout=0.12))
    assert time.monotonic() - start >= 0.12


def test_runs_are_executed_by_a_polling_client(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("6 * 7")])
    options = processes.kernel_options(str(tmp_path))
    client, used = nbclient.NotebookClient(notebook, kernel_name="python3", config=options["config"]), []
    client.on_notebook_start = lambda notebook: used.append(type(client.kc))
    client.execute()
    assert (used, notebook.cells[0].outputs[0]["data"]["text/plain"]) == ([processes.PollingClient], "42")


def test_sockets_fit_into_the_longest_path_that_systems_take(monkeypatch):
    root = tempfile.mkdtemp(dir="/tmp")
    longest = root + "/" + "x" * (processes.LONGEST_SOCKET - len(root) - 1 - len(processes.SOCKET))
    os.mkdir(longest)
    monkeypatch.setattr(tempfile, "tempdir", longest)
    with processes.socket_folder() as sockets:
        assert os.path.dirname(sockets) == longest
        manager = KernelManager(config=processes.kernel_options(sockets)["config"])
        assert len(f"{manager.ip}-10") == processes.LONGEST_SOCKET == 103
    os.rmdir(longest)
    os.rmdir(root)
    for longer in (f"{longest}x", longest[:-1] + "ä"):  # one byte too many
        monkeypatch.setattr(tempfile, "tempdir", longer)
        with processes.socket_folder() as sockets:
            assert os.path.dirname(sockets) == "/tmp"


def test_a_process_ends_soon_after_its_parent_was_killed_and_not_before(tmp_path):
    folder = tmp_path / "sockets"
    folder.mkdir()
    command = [sys.executable, "-c", PARENT.format(child=CHILD, folder=str(folder))]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert folder.is_dir()
    parent.kill()
    parent.wait()
    assert psutil.wait_procs([child], timeout=5)[1] == []
    assert not folder.exists()


@pytest.mark.parametrize(("runs", "cores", "memory", "gpus", "workers"), [
    (45, 2, 20 * GB, 0, 2), (45, 16, 20 * GB, 0, 5), (3, 16, 200 * GB, 0, 3), (45, 16, 1 * GB, 0, 1),
    (45, 16, 20 * GB, 8, 8), (2, 16, 20 * GB, 8, 2)])  # fmt: skip
def test_there_are_as_many_workers_as_gpus_or_as_cores_and_memory_allow(monkeypatch, runs, cores, memory, gpus, workers):  # fmt: skip
    monkeypatch.setattr("dask.system.CPU_COUNT", cores)
    monkeypatch.setattr(processes, "free_memory", lambda device: memory)
    monkeypatch.setattr(processes, "_gpus", lambda: [str(number) for number in range(gpus)])
    assert processes.default_workers(runs) == workers


def test_workers_share_out_cores_and_gpus_and_keep_what_the_user_has_set(monkeypatch):
    monkeypatch.setattr("dask.system.CPU_COUNT", 16)
    monkeypatch.setattr(processes, "_gpus", lambda: ["2", "5"])
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT")
    for name in names:
        monkeypatch.delenv(name, raising=False)
    environments = processes._environments(3)
    assert [environment["CUDA_VISIBLE_DEVICES"] for environment in environments] == ["2", "5", "2"]
    assert {environment["OMP_NUM_THREADS"] for environment in environments} == {"5"}
    monkeypatch.setattr(processes, "_gpus", list)
    assert all("CUDA_VISIBLE_DEVICES" not in environment for environment in processes._environments(32))
    assert processes._environments(32)[0]["OMP_NUM_THREADS"] == "1"
    assert [processes._environments(2)[0][name] for name in names] == ["8", "8", "10000"]
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("GOMP_SPINCOUNT", "7")
    assert [processes._environments(1)[0][name] for name in names] == ["3", "16", "7"]


def test_only_visible_gpus_are_given_out(monkeypatch):
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    for visible, gpus in (("3,GPU-1a", ["3", "GPU-1a"]), ("", [])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert processes._gpus() == gpus
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    assert processes._gpus() == ["0", "1"]


def test_a_scheduler_that_does_not_answer_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(processes, "TIMEOUT", 0.5)
    file = tmp_path / "scheduler.json"
    file.write_text("[]")
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        threading.Thread(target=lambda: server.accept()[0].sendall(b"SSH-2.0-OpenSSH_9.2"), daemon=True).start()
        for scheduler, said in {
            address: r"cannot be used \(.*MemoryError .*\); is a Dask scheduler running there, .* reached from here\?",
            "tcp://127.0.0.1:9": r"no answer within 0\.5 s \(TimeoutError\); .*", "tls://a:1": "cannot be used .* TLS config.*",
            str(file): "is not the file that a scheduler writes; remove it, .*", "none.json": "no such file; .*",
        }.items():  # fmt: skip
            with pytest.raises(InputError, match=f"^scheduler {re.escape(scheduler)}: {said}$"):
                processes.workers_of(scheduler, Workspace()).__enter__()


def test_an_address_without_a_scheme_has_that_of_dasks_configuration():
    assert processes._address_of("here:8786") == "tcp://here:8786"
    with dask.config.set({"distributed.comm.default-scheme": "tls"}):
        assert processes._address_of("here:8786") == "tls://here:8786"


def test_own_workers_listen_on_the_loopback_and_refuse_who_has_no_key(monkeypatch):
    monkeypatch.setattr(processes, "TIMEOUT", 1)
    with processes.local_workers(1) as _:
        ours = [psutil.Process(), *psutil.Process().children(recursive=True)]
        sockets = [
            socket for process in ours for socket in process.net_connections("inet") if socket.status == "LISTEN"
        ]
        assert len({socket.laddr.port for socket in sockets}) >= 3  # of scheduler, nanny and worker
        assert {socket.laddr.ip for socket in sockets} == {"127.0.0.1"}
        for socket in sockets:
            with pytest.raises((OSError, TimeoutError)):
                asyncio.run(processes._answer(f"tcp://127.0.0.1:{socket.laddr.port}"))


def test_workers_that_do_not_start_say_why_and_what_to_do(monkeypatch):
    def start(**_):
        raise RuntimeError("Nanny failed to start.") from OSError("Resource temporarily unavailable")

    monkeypatch.setattr("distributed.SpecCluster", start)
    said = r"^the 2 processes of the sweep did not start \(Resource temporarily unavailable\); .* give fewer --workers$"
    with pytest.raises(RuntimeError, match=said), processes.local_workers(2):
        pass


@pytest.mark.parametrize(("threads", "root", "changes", "said"), [
    (1, None, {}, None),
    (1, None, {"torch": "1.0"}, "has torch {torch}, the sweep has 1.0; install the same there and start the workers anew"),
    (1, None, {SOURCE: "0"}, f"has {SOURCE} {{{SOURCE}}}, the sweep has 0; install the same there and start the workers anew"),
    (1, None, {"numba": "1"}, "has numba missing, the sweep has 1; install the same there and start the workers anew"),
    (2, None, {}, "has 2 threads and would execute as many notebooks in one process; start it with --nthreads 1"),
    (1, "/elsewhere", {}, "does not see /elsewhere/notebooks; workers need a file system that they share with the sweep")])  # fmt: skip
def test_an_unfit_worker_is_refused(workspace_root, threads, root, changes, said):
    here = processes.signature()
    seen = Path(root) if root else Workspace().root
    worker = SimpleNamespace(state=SimpleNamespace(nthreads=threads))
    assert processes.unfit({**here, **changes}, seen, worker) == (None if said is None else said.format_map(here))


@pytest.mark.parametrize("services", [{"dashboard": "http://there:8787/status"}, {}])
def test_a_schedulers_dashboard_is_named_where_it_has_one(services):
    class Client:
        cluster = None
        dashboard_link = property(lambda self: services["dashboard"])

    assert processes.dashboard_of(Client()) == services.get("dashboard")

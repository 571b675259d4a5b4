"""Kernels: their client over real sockets, the folder of these, their start and their end."""

import ast
import asyncio
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from queue import Empty

import nbclient
import nbformat
import psutil
import pytest
import zmq.asyncio
from jupyter_client.session import Session

from docemb_lib.base import scratch
from docemb_lib.sweeps import forking, kernels

CHILD = """
import os, time
from docemb_lib.base.worker_pool import end_with_parent
end_with_parent(int(os.environ["JPY_PARENT_PID"]), {folder!r})
time.sleep(60)
"""
PARENT = """
import os, subprocess, sys, time
environment = {{**os.environ, "JPY_PARENT_PID": str(os.getpid())}}
child = subprocess.Popen([sys.executable, "-c", {child!r}], env=environment)
time.sleep(1.5)  # enough for the child to end, if it took another process for its parent
print(child.pid if child.poll() is None else "gone", flush=True)
time.sleep(60)
"""

RUNNING = """
import nbclient, nbformat
from docemb_lib.sweeps import kernels
kernels.may_fork = lambda: {forked}
source = "import os, time; open({pid!r}, 'w').write(str(os.getpid())); time.sleep(60)"
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
with kernels.socket_folder() as sockets:
    print(sockets, flush=True)
    options = kernels.kernel_options(sockets)
    nbclient.NotebookClient(notebook, **options).execute()
"""


@pytest.fixture(params=[False, True], ids=["started", "forked"])
def forked(request, monkeypatch):
    """Whether kernels are forked, as where there is no GPU."""
    monkeypatch.setattr(kernels, "may_fork", lambda: request.param)
    return request.param


@pytest.fixture
def channel(monkeypatch):
    """A channel whose socket never notifies of a message that comes during a poll, and its other
    end.
    """
    monkeypatch.setattr(kernels, "POLL", 0.05)
    context = zmq.asyncio.Context()
    session = Session(key=b"key")
    near = context.socket(zmq.PAIR)
    far = context.socket(zmq.PAIR)
    far.bind("inproc://kernel")
    near.connect("inproc://kernel")
    poll = near.poll

    async def deaf(timeout=None, flags=zmq.POLLIN):
        if await poll(0, flags):
            return flags
        await asyncio.sleep(1e9 if timeout is None else timeout / 1000)
        return 0

    near.poll = deaf
    yield (
        kernels.PollingChannel(near, session),
        lambda: session.send(far, "execute_reply", {"status": "ok"}),
    )
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
    options = kernels.kernel_options(str(tmp_path))
    client = nbclient.NotebookClient(notebook, kernel_name="python3", config=options["config"])
    used = []
    client.on_notebook_start = lambda notebook: used.append(type(client.kc))
    client.execute()
    assert (used, notebook.cells[0].outputs[0]["data"]["text/plain"]) == (
        [kernels.PollingClient],
        "42",
    )


def test_a_process_ends_soon_after_its_parent_was_killed_and_not_before(tmp_path):
    folder = tmp_path / "sockets"
    folder.mkdir()
    command = [sys.executable, "-c", PARENT.format(child=CHILD.format(folder=str(folder)))]
    parent = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    assert folder.is_dir()
    parent.kill()
    parent.wait()
    assert psutil.wait_procs([child], timeout=5)[1] == []
    assert not folder.exists()


def execute(*cells, sockets=None, **options):
    """What each cell gives, in a kernel as `execute_run` starts it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with kernels.socket_folder() as new_folder:
        given = kernels.kernel_options(sockets or new_folder)
        start = {"extra_arguments": given["extra_arguments"], "kernel_name": given["kernel_name"]}
        nbclient.NotebookClient(notebook, config=given["config"], **start, **options).execute()
    return [cell.outputs for cell in notebook.cells]


def text_of(outputs):
    return outputs[0]["data"]["text/plain"]


def test_each_kernel_is_a_new_process_with_short_paths_of_its_sockets(forked):
    kernel = "import os, ipykernel; os.getpid(), ipykernel.get_connection_file()"
    (first,) = execute(kernel)
    (second,) = execute(kernel)
    process, connection_file = ast.literal_eval(text_of(first))
    other_process, other_file = ast.literal_eval(text_of(second))
    assert process != other_process
    assert connection_file != other_file
    assert len(f"{connection_file}-ipc-12345") < 107


def test_a_kernel_has_the_environment_of_the_run_and_its_own_working_folder(
    tmp_path, monkeypatch, forked
):
    monkeypatch.setenv("OF_THE_RUN", "first")
    (outputs,) = execute(
        "import os; os.getcwd(), os.environ['OF_THE_RUN']",
        resources={"metadata": {"path": str(tmp_path)}},
    )
    assert ast.literal_eval(text_of(outputs)) == (str(tmp_path), "first")


def test_kernels_are_forks_of_one_process_that_has_imported_or_started_by_this_one(forked):
    cell = "import os, sys; 'torch' in sys.modules, os.getpid(), os.getppid()"
    results = [ast.literal_eval(text_of(execute(cell)[0])) for _ in range(2)]
    imported, processes, parents = zip(*results, strict=True)
    assert imported == (forked, forked)
    assert processes[0] != processes[1]
    assert parents[0] == parents[1]
    assert (parents[0] == os.getpid()) is not forked


@pytest.mark.parametrize(
    ("driver", "visible", "expected"),
    [(False, None, True), (True, None, False), (False, "0,1", False), (True, "", True)],
)
def test_kernels_are_forked_where_no_gpu_is_visible(
    tmp_path, monkeypatch, driver, visible, expected
):
    device = tmp_path / "nvidiactl"
    if driver:
        device.touch()
    monkeypatch.setattr(forking, "GPU_DRIVERS", (tmp_path / "kfd", device))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert forking.may_fork() is (expected and sys.platform == "linux")


def test_a_kernel_starts_without_the_process_that_forks_and_the_next_is_forked(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    cell = "import os; os.getppid()"
    (outputs,) = execute(cell)
    forking = psutil.Process(int(text_of(outputs)))
    forking.kill()
    forking.wait()
    (outputs,) = execute(cell)
    assert int(text_of(outputs)) == os.getpid()
    (outputs,) = execute(cell)
    assert int(text_of(outputs)) not in (os.getpid(), forking.pid)


def test_a_figure_of_a_forked_kernel_is_shown(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (outputs,) = execute("import matplotlib.pyplot as plt; _ = plt.plot([1])")
    assert "image/png" in outputs[0]["data"]


def test_a_kernel_is_found_and_ended(tmp_path, forked):
    this = psutil.Process()
    begun = tmp_path / "begun"
    running = []

    def end():
        while not begun.exists():
            time.sleep(0.05)
        running.extend(kernels.kernels_below(this))
        kernels._end_kernel(sockets)

    assert kernels.kernels_below(this) == []
    with kernels.socket_folder() as sockets:
        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        with pytest.raises(nbclient.exceptions.DeadKernelError):
            execute(
                f"open({str(begun)!r}, 'w').close(); import time; time.sleep(60)",
                sockets=sockets,
            )
        thread.join()
    (kernel,) = running
    assert not kernel.is_running()
    assert kernels.kernels_below(this) == []


def test_a_kernel_and_its_sockets_are_gone_soon_after_its_process_was_killed(tmp_path, forked):
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", RUNNING.format(pid=str(pid), forked=forked)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    sockets = Path(process.stdout.readline().strip())
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert sockets.is_dir()
    kernel = psutil.Process(int(pid.read_text()))
    process.kill()
    process.wait()
    assert psutil.wait_procs([kernel], timeout=5)[1] == []
    assert not sockets.exists()


@pytest.fixture
def folders_of_kernels(tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "SOCKETS", str(tmp_path))
    return tmp_path


def age(folder):
    long_ago = time.time() - 2 * scratch.NEW
    os.utime(folder, (long_ago, long_ago))


def test_the_folder_of_a_process_that_was_killed_with_its_kernel_is_removed(folders_of_kernels):
    abandoned = folders_of_kernels / "docemb-kernel-gone"
    abandoned.mkdir()
    (abandoned / "kernel.json").touch()
    age(abandoned)
    with kernels.socket_folder() as sockets:
        assert [str(path) for path in folders_of_kernels.iterdir()] == [sockets]


def test_folders_that_are_locked_or_new_are_kept(folders_of_kernels):
    with kernels.socket_folder() as in_use:
        age(in_use)
        new = folders_of_kernels / "docemb-kernel-new"
        new.mkdir()
        with kernels.socket_folder():
            assert Path(in_use).is_dir()
            assert new.is_dir()
    assert [*folders_of_kernels.iterdir()] == [new]

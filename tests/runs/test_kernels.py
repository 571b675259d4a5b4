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
from docemb_lib.sweeps import kernels

RUNNING = """
import nbclient, nbformat
from docemb_lib.sweeps import kernels
source = "import os, time; open({pid!r}, 'w').write(str(os.getpid())); time.sleep(60)"
notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
with kernels.socket_folder() as sockets:
    nbclient.NotebookClient(notebook, **kernels.kernel_options(sockets)).execute()
"""


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


def execute(cell, sockets, **options):
    """What a cell gives, and the client, in a kernel as `execute_run` starts it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell)])
    client = nbclient.NotebookClient(notebook, **kernels.kernel_options(sockets), **options)
    used = []
    client.on_notebook_start = lambda notebook: used.append(type(client.kc))
    client.execute()
    return notebook.cells[0].outputs[0]["data"]["text/plain"], used


def test_a_kernel_polls_and_has_short_socket_paths_environment_and_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("OF_THE_RUN", "first")
    cell = "import os, ipykernel; os.getcwd(), os.environ['OF_THE_RUN']"
    cell += ", ipykernel.get_connection_file()"
    with kernels.socket_folder() as sockets:
        text, used = execute(cell, sockets, resources={"metadata": {"path": str(tmp_path)}})
    assert used == [kernels.PollingClient]
    folder, variable, connection_file = ast.literal_eval(text)
    assert (folder, variable) == (str(tmp_path), "first")
    assert Path(connection_file).parent == Path(sockets)
    assert len(f"{connection_file}-ipc-12345") < 107


def test_a_kernel_is_found_and_ended(tmp_path):
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
            execute(f"open({str(begun)!r}, 'w').close(); import time; time.sleep(60)", sockets)
        thread.join()
    (kernel,) = running
    assert not kernel.is_running()
    assert kernels.kernels_below(this) == []


def test_a_kernel_is_gone_soon_after_its_process_was_killed(tmp_path):
    pid = tmp_path / "pid"
    command = [sys.executable, "-c", RUNNING.format(pid=str(pid))]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 60
    while not (pid.exists() and pid.read_text()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    kernel = psutil.Process(int(pid.read_text()))
    process.kill()
    process.wait()
    assert psutil.wait_procs([kernel], timeout=5)[1] == []


def test_the_folder_of_a_process_that_was_killed_is_removed_and_one_in_use_kept(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(kernels, "SOCKETS", str(tmp_path))
    long_ago = time.time() - 2 * scratch.NEW
    abandoned = tmp_path / "docemb-kernel-gone"
    abandoned.mkdir()
    (abandoned / "kernel.json").touch()
    with kernels.socket_folder() as in_use:
        for folder in (abandoned, in_use):
            os.utime(folder, (long_ago, long_ago))
        with kernels.socket_folder() as sockets:
            assert {str(path) for path in tmp_path.iterdir()} == {in_use, sockets}

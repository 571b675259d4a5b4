"""A kernel's client over real sockets, its sockets' folder, and its end."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
import time
from queue import Empty

import nbclient
import nbformat
import psutil
import pytest
import zmq.asyncio
from jupyter_client.manager import KernelManager
from jupyter_client.session import Session

from docemb_lib.experiments import kernel
from docemb_lib.experiments.kernel import PollingChannel, PollingClient, kernel_options, socket_folder

CHILD = "import os, time; from docemb_lib.experiments.kernel import end_with_parent; end_with_parent({parent}, {folder!r}); time.sleep(60)"
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
    monkeypatch.setattr(kernel, "POLL", 0.05)
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
    yield PollingChannel(near, session), lambda: session.send(far, "execute_reply", {"status": "ok"})
    context.destroy(linger=0)


def test_a_message_without_a_notification_is_found(channel):
    near, send = channel

    async def talk():
        waiting = asyncio.ensure_future(near.get_msg())
        await asyncio.sleep(0.02)
        send()
        return await asyncio.wait_for(waiting, 5)

    assert asyncio.run(talk())["msg_type"] == "execute_reply"


def test_a_time_limit_holds(channel):
    start = time.monotonic()
    with pytest.raises(Empty):
        asyncio.run(channel[0].get_msg(timeout=0.12))
    assert time.monotonic() - start >= 0.12


def test_runs_are_executed_by_a_polling_client(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("6 * 7")])
    options = kernel_options(str(tmp_path))
    client, used = nbclient.NotebookClient(notebook, kernel_name="python3", config=options["config"]), []
    client.on_notebook_start = lambda notebook: used.append(type(client.kc))
    client.execute()
    assert used == [PollingClient]
    assert notebook.cells[0].outputs[0]["data"]["text/plain"] == "42"


def test_sockets_fit_into_the_longest_path_that_systems_take(monkeypatch):
    root = tempfile.mkdtemp(dir="/tmp")
    longest = root + "/" + "x" * (kernel.LONGEST_SOCKET - len(root) - 1 - len(kernel.SOCKET))
    os.mkdir(longest)
    monkeypatch.setattr(tempfile, "tempdir", longest)
    with socket_folder() as sockets:
        assert os.path.dirname(sockets) == longest
        manager = KernelManager(config=kernel_options(sockets)["config"])
        assert len(f"{manager.ip}-10") == kernel.LONGEST_SOCKET == 103
    os.rmdir(longest)
    os.rmdir(root)
    for longer in (f"{longest}x", longest[:-1] + "ä"):  # one byte too many
        monkeypatch.setattr(tempfile, "tempdir", longer)
        with socket_folder() as sockets:
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

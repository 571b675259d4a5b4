"""The client that looks again, over real sockets, of which one says nothing."""

from __future__ import annotations

import asyncio
import time
from queue import Empty

import nbclient
import nbformat
import pytest
import zmq.asyncio
from jupyter_client.session import Session

from docemb_lib.experiments import kernel as kernel_client
from docemb_lib.experiments.execution import _kernel_options
from docemb_lib.experiments.kernel import LookingChannel, LookingClient


@pytest.fixture
def channel(monkeypatch):
    """A channel whose socket tells of nothing that comes while it is waited for, and its other end."""
    monkeypatch.setattr(kernel_client, "LOOK", 0.05)
    context, session = zmq.asyncio.Context(), Session(key=b"key")
    ours, theirs = context.socket(zmq.PAIR), context.socket(zmq.PAIR)
    theirs.bind("inproc://kernel")
    ours.connect("inproc://kernel")
    poll = ours.poll

    async def deaf(timeout=None, flags=zmq.POLLIN):
        if await poll(0, flags):  # asked, it answers
            return flags
        await asyncio.sleep(1e9 if timeout is None else timeout / 1000)
        return 0

    ours.poll = deaf
    yield LookingChannel(ours, session), lambda: session.send(theirs, "execute_reply", {"status": "ok"})
    context.destroy(linger=0)


def test_a_message_of_which_nothing_was_said_is_found(channel):
    ours, send = channel

    async def talk():
        waiting = asyncio.ensure_future(ours.get_msg())
        await asyncio.sleep(0.02)
        send()
        return await asyncio.wait_for(waiting, 5)

    assert asyncio.run(talk())["msg_type"] == "execute_reply"


def test_a_time_limit_holds(channel):
    ours, _ = channel
    start = time.monotonic()
    with pytest.raises(Empty):
        asyncio.run(ours.get_msg(timeout=0.12))
    assert time.monotonic() - start >= 0.12


def test_runs_are_executed_through_it(tmp_path):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("6 * 7")])
    options = _kernel_options(str(tmp_path))
    client, used = nbclient.NotebookClient(notebook, kernel_name="python3", config=options["config"]), []
    client.on_notebook_start = lambda notebook: used.append(type(client.kc))
    client.execute()
    assert used == [LookingClient]
    assert notebook.cells[0].outputs[0]["data"]["text/plain"] == "42"

"""Kernels: their client over real sockets, and their environment."""

import ast
import asyncio
from pathlib import Path
from queue import Empty

import nbformat
import pytest
import zmq.asyncio
from jupyter_client.session import Session

from docemb_lib.runs import kernels


@pytest.fixture
def sockets(monkeypatch):
    """Two connected sockets, of which the near one never notifies of a message during a poll."""
    monkeypatch.setattr(kernels, "POLL", 0.05)
    context = zmq.asyncio.Context()
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
    yield near, far
    context.destroy(linger=0)


def test_a_message_without_a_notification_is_found_and_a_time_limit_holds(sockets):
    near, far = sockets
    session = Session(key=b"key")
    channel = kernels.PollingChannel(near, session)

    async def talk():
        waiting = asyncio.ensure_future(channel.get_msg())
        await asyncio.sleep(0.02)
        session.send(far, "execute_reply", {"status": "ok"})
        return await asyncio.wait_for(waiting, 5)

    assert asyncio.run(talk())["msg_type"] == "execute_reply"
    with pytest.raises(Empty):
        asyncio.run(channel.get_msg(timeout=0.12))


CELL = """
import os, sys, ipykernel
for percent in range(3):
    print(f"\\rtraining: {percent}%|", end="", file=sys.stderr)
print((os.getcwd(), os.environ["OF_THE_RUN"], a, ipykernel.get_connection_file()))
"""


@pytest.fixture
def notebook(workspace_root, write_notebook):
    """The file of a notebook with a cell of parameters and this cell."""

    def written(cell):
        write_notebook("05_weighting", "a = 1", cell)
        return workspace_root / "notebooks" / "05_weighting.ipynb"

    return written


def test_a_kernel_polls_and_has_parameters_environment_folder_and_short_socket_paths(
    notebook, tmp_path, monkeypatch
):
    monkeypatch.setenv("OF_THE_RUN", "first")
    polled = []
    get_msg = kernels.PollingChannel.get_msg

    async def noted(channel, timeout=None):
        polled.append(timeout)
        return await get_msg(channel, timeout)

    monkeypatch.setattr(kernels.PollingChannel, "get_msg", noted)
    lines = []
    source = notebook(CELL)
    kernels.execute_notebook(source, tmp_path / "copy.ipynb", {"a": 2}, lines.append)
    assert polled
    assert lines[0] == "starting the notebook"
    assert lines[-1] == "training: 2%|"
    outputs = nbformat.read(tmp_path / "copy.ipynb", as_version=4).cells[-1].outputs
    text = {output.name: output.text for output in outputs}
    assert text["stderr"].split("\r")[-1] == "training: 2%|"
    assert "training: 1%" not in text["stderr"]
    folder, variable, parameter, connection_file = ast.literal_eval(text["stdout"])
    assert (folder, variable, parameter) == (str(source.parent), "first", 2)
    assert len(f"{connection_file}-ipc-12345") < 107
    assert not Path(connection_file).parent.exists()


ANSWERING = """
import matplotlib.pyplot as plt
plt.plot([0, 1])
plt.show()
"""


def test_a_copy_shows_its_parameters_once_and_what_was_found_below_its_title(tmp_path):
    cells = [
        nbformat.v4.new_markdown_cell("# 05 · Weighting"),
        nbformat.v4.new_code_cell(
            'lam = None  # weight, "as # is"\nseed = 0  # of all',
            metadata={"tags": ["parameters"]},
        ),
        nbformat.v4.new_code_cell(
            "%matplotlib inline\n" + ANSWERING, metadata={"tags": ["picture"]}
        ),
        nbformat.v4.new_markdown_cell("A line that rises.\n\nMore of it."),
        nbformat.v4.new_code_cell("print(f'λ is {lam}.')", metadata={"tags": ["found"]}),
    ]
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    source = tmp_path / "source.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata={"kernelspec": kernel}), source)
    kernels.execute_notebook(source, tmp_path / "copy.ipynb", {"lam": 0.7}, lambda line: None)
    _, answer, parameters, picture, _, found = nbformat.read(tmp_path / "copy.ipynb", 4).cells
    assert parameters.source == 'lam = 0.7  # weight, "as # is"\nseed = 0  # of all'
    assert "λ is 0.7." in answer.source
    assert answer.source.endswith("(attachment:found.png)\n\nA line that rises.")
    (drawn,) = [output for output in picture.outputs if "data" in output]
    assert answer.attachments["found.png"]["image/png"] == drawn.data["image/png"]
    assert kernels.printed([found]) == "λ is 0.7."

"""Kernels: their client over real sockets, their sockets' folder, how they start and how they end."""

import asyncio
import os
import subprocess
import sys
import threading
import time
from queue import Empty

import nbclient
import nbformat
import psutil
import pytest
import zmq.asyncio
from jupyter_client.session import Session

from docemb_lib.sweeps import kernels

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
FORKING = """
import os, time
from docemb_lib.sweeps import kernels
kernels.SERVER = {watching!r} + kernels.SERVER
with kernels.socket_folder() as sockets:
    line = f"{{kernels.kernel_options(sockets)['extra_arguments'][-1]}}; import torch; torch.cuda.is_available()"
    kernel = kernels.fork_kernel(["ipykernel_launcher", "-f", f"{{sockets}}/kernel.json", line], sockets, dict(os.environ))
    print(kernels._server.pid, kernel.pid, flush=True)
    time.sleep(60)
"""
WATCHING = """
import os, torch
for owner in (torch.cuda, torch.accelerator):
    for name in {{"is_available", "device_count", "init", "current_device"}} & {{*dir(owner)}}:
        setattr(owner, name, lambda *_, kept=getattr(owner, name), **__: open({asked!r}, "a").write(f"{{os.getpid()}}\\n") and kept(*_, **__))
"""


@pytest.fixture
def channel(monkeypatch):
    """A channel whose socket never notifies of a message that comes during a poll, and its other
    end.
    """
    monkeypatch.setattr(kernels, "POLL", 0.05)
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
    client, used = (
        nbclient.NotebookClient(notebook, kernel_name="python3", config=options["config"]),
        [],
    )
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


forked = pytest.mark.skipif(sys.platform != "linux", reason="kernels are forked on Linux alone")


@pytest.fixture
def started(monkeypatch):
    """The count of kernels that this process has started, as if it were none."""
    monkeypatch.setattr(kernels.Provisioner, "started", 0)
    return kernels.Provisioner


@pytest.fixture(scope="module")
def left():
    """The server that a test has started and leaves to the next one: to start another takes
    seconds.
    """
    return {"server": None}


def execute(*cells, sockets=None, **options):
    """What each cell gives, in a kernel as `execute_run` starts it."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    with kernels.socket_folder() as own:
        given = kernels.kernel_options(sockets or own)
        start = {"extra_arguments": given["extra_arguments"], "kernel_name": given["kernel_name"]}
        nbclient.NotebookClient(notebook, config=given["config"], **start, **options).execute()
    return [cell.outputs for cell in notebook.cells]


@forked
def test_from_the_third_on_kernels_are_forked_and_do_what_the_first_does(
    started, left, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OF_THE_RUN", "first")
    monkeypatch.setenv("OMP_NUM_THREADS", "2")  # pools of threads must survive the fork
    (tmp_path / "pandas.py").write_text("raise ImportError")  # beside a notebook
    monkeypatch.delenv("MPLBACKEND", raising=False)
    monkeypatch.setattr(
        kernels, "_server", None
    )  # its matplotlib has the backend of its environment
    cells = [
        "import os, sys, subprocess",
        "import matplotlib.pyplot as plt, torch; plt.plot([1, 2]); plt.show()",
        "(os.getcwd(), os.environ['OF_THE_RUN'], os.environ.get('MPLBACKEND'), sys.argv[0].endswith('py'), sys.path[1:])",
        "subprocess.run(['sh', '-c', 'exit 3']).returncode, (torch.ones(300, 300) @ torch.ones(300, 300)).sum().item()",
        "print(sys.stdin.read() if sys.stdin else '', os.getpgid(0) == os.getpid(), 'sentence_transformers' in sys.modules)",
    ]
    first, _ = execute(*cells), execute("1")
    monkeypatch.setenv("OF_THE_RUN", "second")
    second, third = execute(*cells), execute("import os; os.getppid()")
    left["server"] = kernels._server
    assert third[0][0]["data"]["text/plain"] == str(kernels._server.pid)
    assert first[1][0]["data"]["image/png"] == second[1][0]["data"]["image/png"]
    assert (
        first[2][0]["data"]["text/plain"].replace("first", "second")
        == second[2][0]["data"]["text/plain"]
    )
    assert first[3] == second[3]
    assert (first[4][0]["text"], second[4][0]["text"]) == (" True False\n", " True True\n")


def test_without_a_server_kernels_start_as_new_processes(started, monkeypatch):
    started.started = kernels.PLAIN
    monkeypatch.setattr(kernels, "SERVER", "raise SystemExit")
    monkeypatch.setattr(kernels, "_server", None)
    monkeypatch.setattr(started, "forks", True)
    for _ in range(2):
        assert execute("import os; os.getppid()")[0][0]["data"]["text/plain"] == str(os.getpid())


@forked
def test_a_forked_kernel_is_found_and_ended(started, left, tmp_path, monkeypatch):
    monkeypatch.setattr(kernels, "_server", left["server"] or kernels._server)
    started.started, ours = kernels.PLAIN, psutil.Process()
    assert kernels.kernels_below(ours) == []

    def end():
        while not (tmp_path / "begun").exists():
            time.sleep(0.05)
        found.extend((kernels.Forked(one.pid), one.ppid()) for one in kernels.kernels_below(ours))
        kernels._end_kernel(sockets)

    found = []
    with kernels.socket_folder() as sockets:
        thread = threading.Thread(target=end, daemon=True)
        thread.start()
        with pytest.raises(nbclient.exceptions.DeadKernelError):
            execute(
                f"open({str(tmp_path / 'begun')!r}, 'w').close(); import time; time.sleep(60)",
                sockets=sockets,
            )
        thread.join()
    ((kernel, parent),) = found
    assert (parent, kernel.is_running()) == (kernels._server.pid, False)
    assert kernels.kernels_below(ours) == []
    kernel.send_signal(15)  # jupyter_client sends one to a kernel that has just ended


@forked
def test_the_server_asks_for_no_gpu_and_ends_with_its_parent_and_its_kernels_with_it(tmp_path):
    """A fork of a process that has used CUDA cannot use it."""
    file, asked = tmp_path / "fork.py", tmp_path / "asked"
    file.write_text(FORKING.format(watching=WATCHING.format(asked=str(asked))))
    process = subprocess.Popen([sys.executable, str(file)], stdout=subprocess.PIPE, text=True)
    below = [psutil.Process(int(pid)) for pid in process.stdout.readline().split()]
    deadline = time.monotonic() + 60
    while not asked.exists() and time.monotonic() < deadline:
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert psutil.wait_procs(below, timeout=5)[1] == []
    assert {int(pid) for pid in asked.read_text().split()} == {
        below[1].pid
    }  # the kernel, which was told to ask

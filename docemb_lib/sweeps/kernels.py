"""The kernels of notebooks: their sockets, their start, and their end.

Each kernel has IPC sockets in a folder of its own, because kernels that start at the same time race
for TCP ports. A kernel ends with the process that started it, or on SIGTERM after its training has
written a checkpoint.

To start, a kernel imports packages for several seconds. From the third kernel of a process on, each
is therefore forked from a server that has imported them (Linux; other systems do not fork safely).
A server for fewer would save no time.
"""

import atexit
import gc
import importlib
import json
import os
import runpy
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout, suppress
from functools import cached_property
from queue import Empty
from typing import IO, Any, NoReturn, cast

import numpy
import psutil
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.connect import KernelConnectionInfo
from jupyter_client.manager import AsyncKernelManager
from jupyter_client.provisioning.local_provisioner import LocalProvisioner
from traitlets.config import Config

from docemb_lib.base import worker_pool
from docemb_lib.base.hardware import tune_environment
from docemb_lib.base.private import KERNEL_PROCESS

NAME = "python3"
GRACE = 120.0  # seconds that a kernel has for its checkpoint
POLL = 1.0  # seconds after which a silent socket is polled again
# the folder of sockets, whose paths may have 103 bytes: other temporary folders can be too long
SOCKETS = "/tmp"
PARENT = "JPY_PARENT_PID"  # variable in which jupyter_client tells a kernel its parent
PLAIN = 2  # first kernels of a process, which are started without a server
# The command of a server of forks, which like a kernel imports nothing from its working directory.
SERVER = f"import sys; sys.path[:] = filter(None, sys.path); from {__name__} import serve; serve()"
# Packages that take long to import. Not docemb: a kernel uses its source as it is when the kernel
# starts.
PRELOADED = (
    "ipykernel.kernelapp",
    "pandas",
    "torch",
    "transformers.trainer",
    "sentence_transformers",
    "datasets",
    "transformers.models.longformer.modeling_longformer",
    "scipy.stats",
    "sklearn.decomposition",
    "seaborn",
    "pydantic.types",
)

_kernels: dict[str, psutil.Process] = {}  # by the folder of their sockets
_server: subprocess.Popen[str] | None = None


class PollingChannel(AsyncZMQSocketChannel):
    """A channel that polls its socket every second.

    In an event loop, pyzmq waits for an edge-triggered notification of a message and sometimes
    misses it; then the kernel has answered and papermill waits for ever. Polling the socket again
    finds the message.
    """

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]
        """The next message; raises `Empty` after `timeout` seconds (None: never)."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = POLL if end is None else min(POLL, max(0.0, end - time.monotonic()))
            try:
                return await super().get_msg(left)
            except Empty:
                if end is not None and time.monotonic() >= end:
                    raise


class PollingClient(AsyncKernelClient):
    shell_channel_class = iopub_channel_class = control_channel_class = PollingChannel


def kernel_options(sockets: str) -> dict[str, Any]:
    """Arguments of `papermill.execute_notebook` for a kernel with its sockets in that folder."""
    # not `os.getppid()`: the parent may be gone already
    parent = f"int(__import__('os').environ['{PARENT}'])"
    end_with_us = f"__import__('{worker_pool.__name__}', fromlist=['']).end_with_parent({parent}, {sockets!r})"
    manager: dict[str, Any] = {"transport": "ipc", "connection_file": f"{sockets}/kernel.json"}
    manager["shutdown_wait_time"] = (
        2 * GRACE
    )  # of which half passes before SIGTERM is sent once more
    manager["client_factory"] = f"{__name__}.{PollingClient.__name__}"
    # Level 50 hides warnings that concern servers of kernels.
    extra = ["--IPKernelApp.log_level=50", f"--IPKernelApp.exec_lines={end_with_us}"]
    config = Config(KernelManager=manager, NotebookClient={"kernel_manager_class": KernelManager})
    return {"kernel_name": NAME, "config": config, "extra_arguments": extra}


@contextmanager
def socket_folder() -> Iterator[str]:
    """A new folder for the sockets of a kernel."""
    with tempfile.TemporaryDirectory(prefix="docemb-", dir=SOCKETS) as sockets:
        try:
            yield sockets
        finally:
            _kernels.pop(sockets, None)


@contextmanager
def ended_once(unwanted: Callable[[], bool] | None, sockets: str) -> Iterator[threading.Event]:
    """While the block runs, end the kernel once `unwanted` is true (each second: it may not have
    started yet).
    """
    left, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not left.wait(1.0):
            if ended.is_set() or (unwanted is not None and unwanted()):
                ended.set()
                _end_kernel(sockets)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield ended
    finally:
        left.set()


def kernels_below(process: psutil.Process) -> list[psutil.Process]:
    """The kernels that a process and those below it have started."""
    found = []
    for below in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            command, above = below.cmdline(), below.parent()
            forked = SERVER in command and above is not None and SERVER in above.cmdline()
            if KERNEL_PROCESS in command or forked:
                found.append(below)
    return found


def wait_for_kernels() -> None:
    """Wait until the kernels below this process have written their checkpoints and ended."""
    psutil.wait_procs(kernels_below(psutil.Process()), timeout=GRACE)


def _end_kernel(sockets: str) -> None:
    """End the kernel with these sockets, then the processes that it started: SIGTERM, and SIGKILL
    after a time.
    """
    with suppress(psutil.NoSuchProcess, KeyError):
        kernel = _kernels[sockets]
        for processes, timeout in (([kernel], GRACE), (kernel.children(recursive=True), 1.0)):
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.terminate()
            for process in psutil.wait_procs(processes, timeout=timeout)[1]:
                with suppress(psutil.NoSuchProcess):
                    process.kill()


class Provisioner(LocalProvisioner):
    """Starts the first kernels of this process as new processes, and forks the others from a
    server.
    """

    started = 0  # kernels
    forks = sys.platform == "linux"  # until a server has failed to start

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> KernelConnectionInfo:
        """Start the kernel of a command line; returns what connects to it."""
        Provisioner.started += 1
        ours = Provisioner.forks and cmd[0] == sys.executable and KERNEL_PROCESS in cmd
        kernel: psutil.Process | None = None
        if ours and Provisioner.started > PLAIN:
            folder, environment = (
                kwargs.get("cwd") or os.getcwd(),
                kwargs.get("env") or dict(os.environ),
            )
            kernel = fork_kernel(cmd[cmd.index(KERNEL_PROCESS) :], folder, environment)
            Provisioner.forks = kernel is not None
        if kernel is not None:
            self.process, self.pid, self.pgid = (
                cast("subprocess.Popen[Any]", kernel),
                kernel.pid,
                kernel.pid,
            )
        else:
            await super().launch_kernel(cmd, **kwargs)
            kernel = psutil.Process(self.pid)
        manager: Any = self.parent
        _kernels[os.path.dirname(manager.connection_file)] = kernel
        return self.connection_info


class KernelManager(AsyncKernelManager):
    @cached_property
    def provisioner(self) -> Provisioner:  # type: ignore[override]
        return Provisioner(kernel_id=self.kernel_id, kernel_spec=self.kernel_spec, parent=self)

    async def _async_interrupt_kernel(self) -> None:
        """Do nothing before a shutdown: an interrupted training would write no checkpoint."""

    async def _async_request_shutdown(self, restart: bool = False) -> None:
        """End the kernel by SIGTERM, which ends an idle kernel at once; it answers a message late
        or never.
        """
        await self.provisioner.terminate(restart=restart)


class Forked(psutil.Process):
    """A forked kernel, with what jupyter_client asks of a `Popen`."""

    stdin = stdout = stderr = None

    def poll(self) -> int | None:
        """None while the kernel runs, then 0: only the server knows its exit status."""
        with suppress(psutil.NoSuchProcess):
            return None if self.is_running() and self.status() != psutil.STATUS_ZOMBIE else 0
        return 0

    def send_signal(self, sig: int) -> None:
        with suppress(psutil.NoSuchProcess):  # it has ended
            super().send_signal(sig)


def fork_kernel(arguments: list[str], folder: str, environment: dict[str, str]) -> Forked | None:
    """A new kernel in a working directory, forked from the server; None if the server does not
    start.

    The server is started by the first call. Packages that read variables at import have read those
    of the server.
    """
    global _server
    if _server is None or _server.poll() is not None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        command = [sys.executable, "-c", SERVER]
        _server = subprocess.Popen(
            command, cwd=folder, env=environment, start_new_session=True, **pipes
        )
        for last in (
            _server.wait,
            _server.kill,
        ):  # called in reverse; waiting counts CPU time of kernels
            atexit.register(last)
    try:
        print(json.dumps([arguments, folder, environment]), file=_server.stdin, flush=True)
        return Forked(int(cast(IO[str], _server.stdout).readline()))
    except (BrokenPipeError, ValueError):  # the server has ended; an empty answer is no number
        return None
    except BaseException:  # an interrupt: the next answer would be that to this request
        _server.kill()
        raise


def serve() -> None:
    """Run as the server: for each line of stdin fork a kernel and write its process id, until the
    parent is gone.
    """
    tune_environment()
    os.environ.setdefault(
        "MPLBACKEND", "module://matplotlib_inline.backend_inline"
    )  # as in every kernel
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = (
        "1"  # the search for GPUs must not start CUDA, which forks cannot use
    )
    with redirect_stdout(sys.stderr):  # stdout is for the answers
        for name in PRELOADED:
            importlib.import_module(name)
    gc.freeze()  # collections in a kernel pass over what is imported here
    signal.signal(signal.SIGCHLD, _reap)
    own = os.getpid()
    for line in sys.stdin:
        if (pid := os.fork()) == 0:
            _become_kernel(own, *json.loads(line))
        print(pid, flush=True)
    os._exit(0)


def _reap(signum: int, frame: Any) -> None:
    """Wait for the kernels that have ended, whose CPU time then counts as the server's."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become_kernel(
    server: int, arguments: list[str], folder: str, environment: dict[str, str]
) -> NoReturn:
    """In a fork of the server: do what `python -m ipykernel_launcher` does."""
    os.setsid()  # jupyter_client sends signals to a group of processes
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)  # the pipes are the server's
    os.dup2(2, 1)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment | {PARENT: str(server)})
    numpy.random.seed()  # otherwise the same in each fork
    atexit.unregister(shutil.rmtree)  # of matplotlib's temporary folder, which is the server's
    for name in [name for name in sys.modules if name.partition(".")[0] == "docemb_lib"]:
        del sys.modules[name]  # as the source may have changed
    sys.argv = arguments
    runpy.run_module(KERNEL_PROCESS, run_name="__main__", alter_sys=True)
    sys.exit()

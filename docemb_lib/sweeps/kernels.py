"""The kernels of notebooks: their sockets, their start, and their end.

Each kernel is a new process with IPC sockets in a folder of its own, because kernels that start at
the same time race for TCP ports. A kernel ends with the process that started it, or on SIGTERM
after its training has written a checkpoint.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty
from typing import Any

import psutil
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.manager import AsyncKernelManager
from traitlets.config import Config

from docemb_lib.base import worker_pool
from docemb_lib.base.scratch import scratch_folder

NAME = "python3"
GRACE = 120.0  # seconds that a kernel has for its checkpoint
POLL = 1.0  # seconds after which a silent socket is polled again
# The paths of sockets may have 103 bytes, and other temporary folders can be longer than that.
SOCKETS = "/tmp"
# How the names of the folders of sockets begin, which stand in the arguments of each kernel.
FOLDERS = "docemb-kernel-"


class PollingChannel(AsyncZMQSocketChannel):
    """A channel that polls its socket every second.

    In an event loop, pyzmq waits for an edge-triggered notification of a message and sometimes
    misses it; then the kernel has answered and papermill waits for ever. Polling the socket again
    finds the message.
    """

    async def get_msg(  # type: ignore[override]
        self, timeout: float | None = None
    ) -> dict[str, Any]:
        """Return the next message; raise `Empty` after `timeout` seconds (None: never)."""
        end = float("inf") if timeout is None else time.monotonic() + timeout
        while True:
            left = max(0.0, end - time.monotonic())
            try:
                return await super().get_msg(min(POLL, left))
            except Empty:
                if time.monotonic() >= end:
                    raise


class PollingClient(AsyncKernelClient):
    """A client whose channels poll their sockets."""

    shell_channel_class = PollingChannel
    iopub_channel_class = PollingChannel
    control_channel_class = PollingChannel


class KernelManager(AsyncKernelManager):
    """A manager that ends a kernel by SIGTERM alone, on which a training writes a checkpoint."""

    async def _async_interrupt_kernel(self) -> None:
        """Do nothing before a shutdown: SIGTERM alone ends a kernel, whatever it does."""

    async def _async_request_shutdown(self, restart: bool = False) -> None:
        """Send SIGTERM, which ends an idle kernel at once; a kernel answers a message late."""
        if self.provisioner is not None:
            await self.provisioner.terminate(restart=restart)


def kernel_options(sockets: str) -> dict[str, Any]:
    """Arguments of `papermill.execute_notebook` for a kernel with its sockets in that folder."""
    manager = {
        "transport": "ipc",
        "connection_file": f"{sockets}/kernel.json",
        "client_factory": f"{__name__}.{PollingClient.__name__}",
        # The manager sends SIGTERM once more after half of this time.
        "shutdown_wait_time": 2 * GRACE,
    }
    # The kernel does not ask `os.getppid()` for its parent, which may be gone already.
    module = f"__import__('{worker_pool.__name__}', fromlist=[''])"
    first_line = f"{module}.end_with_parent({os.getpid()})"
    return {
        "kernel_name": NAME,
        "config": Config(
            KernelManager=manager, NotebookClient={"kernel_manager_class": KernelManager}
        ),
        "extra_arguments": [
            "--IPKernelApp.log_level=50",  # hides warnings that concern servers of kernels
            f"--IPKernelApp.exec_lines={first_line}",
        ],
    }


@contextmanager
def socket_folder() -> Iterator[str]:
    """Make a folder for the sockets of a kernel, and remove it at the end of the block.

    Where this process is killed, the folder stays until the next call in any process.
    """
    with scratch_folder(FOLDERS, SOCKETS) as sockets:
        yield str(sockets)


@contextmanager
def ended_once(unwanted: Callable[[], bool] | None, sockets: str) -> Iterator[threading.Event]:
    """While the block runs, end the kernel with these sockets once `unwanted` is true.

    The kernel may not have started yet, so this is tried each second. The event is set once the
    kernel is unwanted; whoever sets it ends the kernel, too.
    """
    block_has_ended = threading.Event()
    ended = threading.Event()

    def watch() -> None:
        while not block_has_ended.wait(1.0):
            if ended.is_set() or (unwanted is not None and unwanted()):
                ended.set()
                _end_kernel(sockets)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield ended
    finally:
        block_has_ended.set()


def kernels_below(process: psutil.Process, sockets: str = FOLDERS) -> list[psutil.Process]:
    """The kernels below a process; of these, the one with its sockets in that folder."""
    kernels = []
    for below in process.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if sockets in " ".join(below.cmdline()):
                kernels.append(below)
    return kernels


def wait_for_kernels() -> None:
    """Wait until the kernels below this process have written their checkpoints and ended."""
    psutil.wait_procs(kernels_below(psutil.Process()), timeout=GRACE)


def _end_kernel(sockets: str) -> None:
    """End the kernel with these sockets, then the processes that it started."""
    for kernel in kernels_below(psutil.Process(), sockets):
        with suppress(psutil.NoSuchProcess):
            children = kernel.children(recursive=True)
            _end([kernel], GRACE)
            _end(children, 1.0)


def _end(processes: Sequence[psutil.Process], seconds: float) -> None:
    """Send SIGTERM to processes, and SIGKILL to those that still run after some seconds."""
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    _, running = psutil.wait_procs(processes, timeout=seconds)
    for process in running:
        with suppress(psutil.NoSuchProcess):
            process.kill()

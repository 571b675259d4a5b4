"""The kernel of a run: how papermill starts it, how its client receives messages, how it ends.

Each kernel has IPC sockets in a folder of its own, because kernels that start at the same time race for TCP ports. A
kernel ends with the process that started it. A kernel that has to stop gets SIGTERM first, so that a training can write
a checkpoint.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from queue import Empty
from typing import Any

import psutil
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel

from docemb_lib.private import KERNEL_PROCESS

NAME = "python3"
GRACE = 120.0  # seconds that a kernel has for its checkpoint
POLL = 1.0  # seconds after which a silent socket is polled again
LONGEST_SOCKET = 103  # bytes of a socket's path that every system takes: macOS no more, Linux 107
SOCKET = "/docemb-12345678/kernel-ipc-10"  # as long as the longest path below the folder of temporary files


class PollingChannel(AsyncZMQSocketChannel):
    """A channel that polls its socket every second.

    In an event loop, pyzmq waits for an edge-triggered notification of a message and sometimes misses it; then the
    kernel has answered and papermill waits for ever. Polling the socket again finds the message.
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
    """A kernel's client with polling channels."""

    shell_channel_class = PollingChannel
    iopub_channel_class = PollingChannel
    control_channel_class = PollingChannel


def kernel_options(sockets: str) -> dict[str, Any]:
    """Arguments of `papermill.execute_notebook` for a kernel with its sockets in that folder."""
    from traitlets.config import Config

    end_with_us = f"__import__('{__name__}', fromlist=['']).end_with_parent({os.getpid()}, {sockets!r})"
    manager = {
        "transport": "ipc",
        "connection_file": f"{sockets}/kernel.json",
        "client_factory": f"{__name__}.{PollingClient.__name__}",
    }
    return {
        "kernel_name": NAME,
        "config": Config(KernelManager=manager),
        # Level 50 hides warnings that concern servers of kernels.
        "extra_arguments": ["--IPKernelApp.log_level=50", f"--IPKernelApp.exec_lines={end_with_us}"],
    }


@contextmanager
def socket_folder() -> Iterator[str]:
    """A new folder whose name leaves room for a socket's: among the temporary files, or in /tmp."""
    folder = tempfile.gettempdir()
    short = len(os.fsencode(folder + SOCKET)) <= LONGEST_SOCKET
    with tempfile.TemporaryDirectory(prefix="docemb-", dir=folder if short else "/tmp") as sockets:
        yield sockets


def end_with_parent(parent: int, folder: str) -> None:
    """In a kernel: end this process at once when process `parent` is gone, and remove the folder of its sockets."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.25)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


@contextmanager
def ended_on_sigterm(sockets: str) -> Iterator[None]:
    """While the block runs, SIGTERM ends the kernel and raises KeyboardInterrupt. For the main thread."""

    def pass_on(signum: int, frame: Any) -> None:
        _end_kernel(sockets)
        raise KeyboardInterrupt

    earlier = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


@contextmanager
def ended_once(unwanted: Callable[[], bool], sockets: str) -> Iterator[threading.Event]:
    """While the block runs, end the kernel once `unwanted` is true. Yields the event that this has happened.

    The kernel may not have started yet at that time. Therefore each later second ends it again.
    """
    left, ended = threading.Event(), threading.Event()

    def watch() -> None:
        while not left.wait(1.0):
            if ended.is_set() or unwanted():
                ended.set()
                _end_kernel(sockets)

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield ended
    finally:
        left.set()


def wait_for_kernels() -> None:
    """Wait until the kernels below this process have written their checkpoints and ended."""
    kernels = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if KERNEL_PROCESS in process.cmdline():
                kernels.append(process)
    psutil.wait_procs(kernels, timeout=GRACE)


def _end_kernel(sockets: str) -> None:
    """Send SIGTERM to the kernel with these sockets, then to the processes that it started."""
    for child in psutil.Process().children():
        with suppress(psutil.NoSuchProcess):
            if sockets in " ".join(child.cmdline()):
                workers = child.children(recursive=True)
                _terminate([child], timeout=GRACE)
                _terminate(workers, timeout=1.0)


def _terminate(processes: Sequence[psutil.Process], *, timeout: float) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    for process in psutil.wait_procs(processes, timeout=timeout)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()

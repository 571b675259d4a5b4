"""A kernel's client that looks again.

The sockets of pyzmq in an event loop are told once that a message has come, and now and then are not: the kernel has
long answered, and papermill waits for ever. Asking the socket itself finds the message.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from queue import Empty
from typing import Any

from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel

# ---- A kernel's client that looks again.


LOOK = 1.0  # seconds after which a socket that has said nothing is asked


class LookingChannel(AsyncZMQSocketChannel):
    """A channel that does not rely on being told."""

    async def get_msg(self, timeout: float | None = None) -> dict[str, Any]:  # type: ignore[override]
        """As of the parent: the next message, or `Empty` after `timeout` seconds (None: never)."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            left = LOOK if end is None else min(LOOK, max(0.0, end - time.monotonic()))
            try:
                return await super().get_msg(left)
            except Empty:
                if end is not None and time.monotonic() >= end:
                    raise


class LookingClient(AsyncKernelClient):
    """A client whose channels look again."""

    shell_channel_class = LookingChannel
    iopub_channel_class = LookingChannel
    control_channel_class = LookingChannel


# ---- ends a notebook's kernel within a second after the process


def end_with_parent(parent: int, folder: str) -> None:
    """End this process, at once and whatever it is doing, when it is no child of process `parent` any more.

    folder: of its sockets, which nobody else would remove then.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.25)
        shutil.rmtree(folder, ignore_errors=True)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()

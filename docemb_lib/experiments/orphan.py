"""Ends a notebook's kernel within a second after the process that started it, however that died.

ipykernel does so too, but only where orphans become children of process 1: on a desktop, under systemd, and in some
containers another process takes them in, and the kernel would train on for nobody.
"""

from __future__ import annotations

import os
import shutil
import threading
import time


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

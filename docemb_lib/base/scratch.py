"""Temporary folders that do not outlive their process: the next one removes what was left behind.

A process that is killed cannot clean up. The operating system frees its locks, and that is how
another process sees that a folder has no living owner.
"""

import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from filelock import FileLock, Timeout

LOCK = "docemb.lock"  # the file that the owner of a folder locks
PROGRAM = "docemb-"  # how names begin that no other program gives to folders
NEW = 60.0  # seconds after which a folder is locked, if its owner lives
SHARED_MEMORY = Path("/dev/shm")
UNUSED = 3600.0  # seconds after which a semaphore of a process that is gone is removed


@contextmanager
def scratch_folder(prefix: str, parent: Path | str | None = None) -> Iterator[Path]:
    """Make a folder in `parent` (None: the one for temporary files), and remove it at the end.

    Folders with this prefix whose owners were killed are removed first.
    """
    parent = parent or tempfile.gettempdir()
    _remove_abandoned(prefix, Path(parent))
    with (
        tempfile.TemporaryDirectory(prefix=prefix, dir=parent) as folder,
        FileLock(Path(folder, LOCK), thread_local=False),  # a finaliser may run in any thread
    ):
        yield Path(folder)


def _remove_abandoned(prefix: str, parent: Path) -> None:
    """Remove the folders of a prefix whose lock no process holds.

    A folder without a lock may be new, or of another program.
    """
    for folder in parent.iterdir():
        if not folder.name.startswith(prefix) or folder.is_symlink():
            continue
        with suppress(OSError, Timeout):  # of another user; in use
            lock = folder / LOCK
            is_old = time.time() - folder.stat().st_mtime > NEW
            if lock.is_file() or (is_old and prefix.startswith(PROGRAM)):
                with FileLock(lock, timeout=0):
                    shutil.rmtree(folder)


def remove_abandoned_semaphores() -> None:
    """Remove the semaphores of joblib's processes that were killed together with their tracker."""
    for file in SHARED_MEMORY.glob("sem.loky-*-*"):
        owner = re.match(r"sem\.loky-(\d+)-", file.name)
        with suppress(OSError):
            stat = file.stat()
            is_mine = stat.st_uid == os.getuid() and time.time() - stat.st_mtime > UNUSED
            if owner and is_mine and not psutil.pid_exists(int(owner[1])):
                file.unlink()

"""Temporary folders that do not outlive their process: the next one removes what was left behind.

A process that is killed cannot clean up. The operating system frees its locks, and that is how
another process sees that a folder has no living owner.
"""

import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = "docemb.lock"  # the file that the owner of a folder locks
PROGRAM = "docemb-"  # how names begin that no other program gives to folders
NEW = 60.0  # seconds after which a folder is locked, if its owner lives


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

"""Temporary folders that do not outlive their process: the next one removes what was left behind.

A process that is killed cannot clean up. The operating system frees its locks, and that is how
another process sees that a folder has no living owner.
"""

import glob
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

LOCK = "docemb.lock"  # the file that the owner of a folder locks


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
    """Remove the folders of a prefix with a lock that no process holds."""
    for lock in parent.glob(f"{glob.escape(prefix)}*/{LOCK}"):
        # An error: of another user; a timeout: in use.
        with suppress(OSError, Timeout), FileLock(lock, timeout=0):
            shutil.rmtree(lock.parent)

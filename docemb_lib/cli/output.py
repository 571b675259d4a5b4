"""Where a command writes: refused before the work, if it cannot be written."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from docemb_lib.base.errors import InputError


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """Give a place to write to, in the folder `.NAME.partial` beside `out`; it is moved to `out`.

    What a killed command has left in that folder is removed. Raises InputError at once where
    something is in the place of `out`, nothing can be written there, or another process writes it.
    """
    if out.exists():
        raise InputError(f"-o {out}: this exists already; name a new file or folder")
    folder = out.with_name(f".{out.name}.partial")
    written = folder / out.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        owner = os.open(folder, os.O_RDONLY)
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process
    except OSError as error:
        problem = f"nothing can be written there ({error.strerror})"
        raise InputError(f"-o {out}: {problem}; name another place") from None
    try:
        shutil.rmtree(written, ignore_errors=True)
        written.unlink(missing_ok=True)
        yield written
        written.replace(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)

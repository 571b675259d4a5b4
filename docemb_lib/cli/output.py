"""Where a command writes: refused before the work, if it cannot be written."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from docemb_lib.base.errors import InputError


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """Give a place to write to, in a folder of its own beside `out`; its content is moved there.

    Raises InputError at once where something is in the place of `out`, or nothing can be written
    there.
    """
    if out.exists():
        raise InputError(f"-o {out}: this exists already; name a new file or folder")
    with ExitStack() as stack:
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            beside = TemporaryDirectory(prefix=f".{out.name}.", dir=out.parent)
            folder = Path(stack.enter_context(beside))
        except OSError as error:
            problem = f"nothing can be written there ({error.strerror})"
            raise InputError(f"-o {out}: {problem}; name another place") from None
        yield folder / out.name
        (folder / out.name).replace(out)

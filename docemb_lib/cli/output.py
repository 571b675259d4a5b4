"""Where a command writes: refused before the work, if it cannot be written."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from docemb_lib.base.errors import InputError
from docemb_lib.base.scratch import scratch_folder


def given_path(text: str, argument: str) -> Path:
    """An argument as a path. Raises InputError for an empty one, as an unset variable gives."""
    if not text.strip():
        raise InputError(f"{argument}: the argument is empty; name a file or a folder")
    return Path(text)


def check_output(out: Path, inputs: Sequence[Path]) -> None:
    """Raise InputError where a command would write over an input, by whatever name."""
    for path in inputs:
        if out.exists() and out.samefile(path):
            mend = "name another one, because it would be lost"
            raise InputError(f"-o {out}: this is the input {path}; {mend}")


@contextmanager
def written_beside(out: Path) -> Iterator[Path]:
    """Give a folder beside `out` to write in; what is whole there is then moved to `out`.

    It is removed at the end, or by the next command that writes `out` if this one is killed. Raises
    InputError at once where nothing can be written there.
    """
    missing = [folder for folder in out.parents if not folder.exists()]
    with ExitStack() as stack:
        stack.callback(_remove_empty, missing)  # of a command that fails
        try:
            out.parent.mkdir(parents=True, exist_ok=True)
            folder = stack.enter_context(scratch_folder(f".{out.name}.", out.parent))
        except OSError as error:
            problem = f"nothing can be written there ({error.strerror})"
            raise InputError(f"-o {out}: {problem}; name another place") from None
        yield folder


def _remove_empty(folders: Sequence[Path]) -> None:
    """Remove those of the folders, the innermost first, in which nothing was written."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()

"""What the command line shows, plain text and tables that wrap, and where it may write."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from docemb_lib.base.errors import InputError, plain
from docemb_lib.base.files import room_in

if TYPE_CHECKING:
    import pandas as pd


UNFOLDED = 200  # columns of tables in a file or a pipe
in_terminal = sys.stdout.isatty() or "COLUMNS" in os.environ


class PlainConsole(Console):
    """A console that prints all text `plain`, so that no file name or label can command it."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, soft_wrap=True, **options)

    def render_str(self, text: str, **options: Any) -> Text:
        """Render a string, as rich does for every one, also in tables."""
        return super().render_str(plain(text), **options)


console = PlainConsole(width=None if in_terminal else UNFOLDED)
errors = PlainConsole(stderr=True)


def print_table(frame: pd.DataFrame, title: str | None = None) -> None:
    """Print a frame as a table that fits the terminal: texts become several lines.

    Numbers have three decimals unless those of a column are whole; nothing stands for NaN.
    """
    table = Table(title=title, title_justify="left")
    columns = []
    for name, column in frame.convert_dtypes().items():
        kind = column.dtype.kind
        is_number = kind in "if"
        justify: Any = "right" if is_number else "left"
        table.add_column(str(name), justify=justify, no_wrap=is_number, overflow="fold")
        cell = "{:.3f}" if kind == "f" else "{}"
        columns.append(column.astype(object).map(cell.format, na_action="ignore").fillna(""))
    for row in zip(*columns, strict=True):
        table.add_row(*row)
    console.print(table, soft_wrap=False)


def print_lines(lines: Mapping[str, object]) -> None:
    """Print names and values, a line each."""
    for name, value in lines.items():
        console.print(f"{name + ':':<20}{value}")


def print_json(content: object) -> None:
    sys.stdout.write(json.dumps(content, ensure_ascii=False, indent=1) + "\n")


def rows_of(frame: pd.DataFrame) -> Any:
    """The rows of a frame for `print_json`."""
    return json.loads(frame.to_json(orient="records"))


@contextmanager
def written_whole(out: Path) -> Iterator[Path]:
    """Give a place to write to, in the folder `.NAME.partial` beside `out`; it is moved to `out`.

    What a killed command has left in that folder is removed. Raises InputError at once where
    something is in the place of `out`, nothing can be written there, or another process writes it.
    """
    if os.path.exists(out):  # False for a name that is too long, too
        raise InputError(f"-o {out}: this exists already; name a new file or folder")
    folder = out.with_name(f".{out.name}.partial")
    written = folder / out.name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        owner = os.open(folder, os.O_RDONLY)
        fcntl.flock(owner, fcntl.LOCK_EX | fcntl.LOCK_NB)  # ends with the process
    except OSError as error:
        problem = f"nothing can be written there, or another command does ({error.strerror})"
        raise InputError(f"-o {out}: {problem}; name another place") from None
    try:
        shutil.rmtree(written, ignore_errors=True)
        written.unlink(missing_ok=True)
        with room_in(folder.parent):
            yield written
            written.replace(out)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(owner)

"""Text progress bars, one per long loop.

A bar is plain text, which a saved notebook shows as it is. It goes to stderr, or in a notebook to
stdout, because Jupyter colours stderr as an error. `docemb run` reads the bar of the notebook that
it executes.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Sized
from typing import Any, TypeVar, cast

from tqdm import tqdm

from docemb_lib.base.errors import Stopped, plain
from docemb_lib.base.private import KERNEL_STREAM

Item = TypeVar("Item")
BAR = "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt} {unit} [{elapsed}<{remaining}]"
BAR_WITHOUT_END = "{desc}: {n_fmt} {unit} [{elapsed}]"


def is_bar(line: str) -> bool:
    """Whether a line is the state of a bar."""
    return re.search(r" \[[\d:]+(<[\d:?]+)?\]$", line) is not None


def in_kernel() -> bool:
    """Whether this process is the kernel of a notebook."""
    return type(sys.stdout).__module__ == KERNEL_STREAM


def live_cell() -> str | None:
    """Id of the cell that a person runs; None under papermill and nbconvert, which send no id."""
    import IPython

    shell = IPython.get_ipython()
    request = shell.get_parent() if hasattr(shell, "get_parent") else {}
    cell = request.get("metadata", {}).get("cellId")
    return None if cell is None else str(cell)


def log_to_notebook() -> None:
    """In a notebook, show the warnings of this package and an interruption as plain text."""
    if not in_kernel():
        return
    import IPython

    handler = logging.StreamHandler(sys.stdout)
    handler.format = lambda record: plain(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("docemb_lib").handlers = [handler]

    def show(
        shell: Any, kind: type, stop: BaseException, trace: object, tb_offset: int | None = None
    ) -> None:
        line = stop if isinstance(stop, Stopped) else stopped("stopped")
        shell.showtraceback((Stopped, line, trace))

    IPython.get_ipython().set_custom_exc((KeyboardInterrupt,), show)


def stopped(state: str, since: str = "") -> Stopped:
    """The exception for what a person has stopped in this state.

    since: the state that it goes on from, if it is an earlier one.
    """
    again = "run the cell again" if in_kernel() else "give the same command again"
    return Stopped(f"{state}; {again} to go on{since}")


def progress(
    items: Iterable[Item] | None = None,
    *,
    desc: str,
    total: int | None = None,
    done: int = 0,
    unit: str = "",
) -> tqdm[Item]:
    """A bar over `items`, or a bar to `update` by hand where `items` is None.

    The bar is written at most once a second, and not at all for one or two items. The first `done`
    are in it from the beginning, and not in its pace.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    bar = tqdm(
        items,
        plain(desc),
        total,
        initial=done,
        unit=unit,
        bar_format=BAR_WITHOUT_END if total is None else BAR,
        mininterval=1.0,
        disable=total is not None and total <= 2,
        file=sys.stdout if in_kernel() else sys.stderr,
    )
    return cast("tqdm[Item]", bar)

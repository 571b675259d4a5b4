"""One text progress bar per long loop: what, how far, how long still.

Plain text, in a terminal on stderr. In a notebook on stdout, since Jupyter paints stderr in the colour of errors; from
there `docemb run` takes the bar of the notebook that it executes. Never widgets: a saved bar has to read well on paper.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sized
from typing import TypeVar, cast

from tqdm import tqdm

Item = TypeVar("Item")
BAR = "{desc}: {percentage:3.0f}% {n_fmt}/{total_fmt} {unit} [{elapsed}<{remaining}]"
BAR_WITHOUT_END = "{desc}: {n_fmt} {unit} [{elapsed}]"


def is_bar(line: str) -> bool:
    """Whether a line is the state of a bar."""
    return re.search(r" \[[\d:]+(<[\d:?]+)?\]$", line) is not None


def progress(items: Iterable[Item] | None = None, *, desc: str, total: int | None = None, unit: str = "") -> tqdm[Item]:
    """A bar over `items`, or one to `update` by hand where `items` is None; at most a line a second.

    A single item has none: its bar would say nothing before its end.
    """
    known = total is not None or hasattr(items, "__len__")
    bar = tqdm(
        items,
        desc=desc,
        total=total,
        unit=unit,
        bar_format=BAR if known else BAR_WITHOUT_END,
        mininterval=1.0,
        disable=isinstance(items, Sized) and len(items) == 1,
        file=sys.stdout if type(sys.stdout).__module__ == "ipykernel.iostream" else sys.stderr,
    )
    return cast("tqdm[Item]", bar)

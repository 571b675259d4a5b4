"""The exception for bad input, and the functions that make text fit for a terminal."""

import difflib
import re
from collections.abc import Collection, Sequence
from typing import TypeVar

Name = TypeVar("Name")
# Characters of an error. A longer one keeps its beginning, and its end, which says what to do.
LONGEST = 1000
# Control characters but line feed and tab (an escape sequence moves the cursor or names the
# window), unpaired surrogates, and the characters that change the direction of writing.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class InputError(ValueError):
    """A file, field or parameter that the user must change.

    The message is one line: the file or parameter, its value, and what to write instead. The
    command line prints this line and exits with 2. A notebook shows it without a traceback,
    because IPython calls `_render_traceback_`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(as_line(message))

    def _render_traceback_(self) -> list[str]:
        return [f"InputError: {self}"]


class Stopped(KeyboardInterrupt):
    """A person has stopped what can go on later; a notebook shows one line without a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def nearest(name: str, allowed: Collection[str]) -> str:
    """The end of an error about an unknown name: the most similar allowed name, and all of them."""
    return f"{did_you_mean(name, allowed)} (allowed: {', '.join(allowed)})"


def did_you_mean(name: str, allowed: Collection[str]) -> str:
    """The question that names the most similar allowed name, in any case; "" if none is similar."""
    by_folded = {each.casefold(): each for each in allowed}
    similar = difflib.get_close_matches(name.casefold(), by_folded, n=1, cutoff=0.66)
    return f"; did you mean {by_folded[similar[0]]}?" if similar else ""


def plain(text: str) -> str:
    """The text with U+FFFD for every character that controls a terminal or has no display."""
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def as_line(text: object) -> str:
    """The text as one plain line of at most `LONGEST` characters."""
    lines = (line.strip() for line in str(text).splitlines())
    line = plain(" ".join(filter(None, lines)))
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST * 2 // 3 - 3]} … {line[-(LONGEST // 3) :]}"


def repeated(names: Sequence[Name]) -> Name | None:
    """The first name that stands earlier in `names`, too; None if all are different."""
    again = (name for number, name in enumerate(names) if name in names[:number])
    return next(again, None)

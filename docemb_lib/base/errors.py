"""The exception for bad input, and the one place where text is made fit for a terminal."""

import difflib
import re
from collections.abc import Collection

# characters of an error; a longer one keeps its beginning and its end, which says what to do
LONGEST = 1000
# Control characters but line feed and tab (an escape sequence moves the cursor or names the
# window), unpaired surrogates, and the characters that change the direction of writing.
UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)


class InputError(ValueError):
    """A file, field or parameter that the user must change. The command line prints its one line
    and exits with 2.

    The message is one line: the file or parameter, the value found, and what to write instead. A
    notebook shows this line without a traceback, because IPython calls `_render_traceback_`.
    """

    def __init__(self, message: str) -> None:
        super().__init__(as_line(message))

    def _render_traceback_(self) -> list[str]:
        return [f"InputError: {self}"]


def nearest(name: str, allowed: Collection[str]) -> str:
    """The end of an error about an unknown name: the most similar allowed name, and all allowed
    ones.
    """
    close = "".join(
        f"; did you mean {found}?" for found in difflib.get_close_matches(name, allowed, n=1)
    )
    return f"{close} (allowed: {', '.join(allowed)})"


def plain(text: str) -> str:
    """The text with every character that controls a terminal, or has no display, replaced by
    U+FFFD.
    """
    return UNSAFE.sub("\N{REPLACEMENT CHARACTER}", text)


def as_line(text: object) -> str:
    """The text as one plain line of at most `LONGEST` characters."""
    line = plain(" ".join(filter(None, map(str.strip, str(text).splitlines()))))
    return (
        line
        if len(line) <= LONGEST
        else f"{line[: LONGEST * 2 // 3 - 3]} … {line[-(LONGEST // 3) :]}"
    )

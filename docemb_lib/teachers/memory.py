"""How much memory a Paragraph Vector takes while it is trained, known from the counts of its corpus' words."""

from __future__ import annotations

import logging
from typing import NamedTuple

from docemb_lib.errors import InputError

logger = logging.getLogger(__name__)

FLOAT = 4  # bytes of a weight
PER_WORD = 8 + 4 + 4  # its count, its sampling threshold, its place in the table that noise words are drawn from
# Measured with half a million words of eleven letters, and rounded up:
NAME = 300  # a kept word's string, its places in gensim's list and dictionary, and the copy that its threads read
COUNTED = 120  # a word's string and its place in the dictionary while gensim counts
LINE = 40  # a document's number in gensim's list
ADDRESSED = 2**32  # numbers of one array: gensim multiplies row and width as 32-bit integers, which wrap around


class TrainingMemory(NamedTuple):
    """Bytes at the peak of a training. The first two are arrays, known exactly; the last two are about right."""

    words: int  # vectors and output weights of the vocabulary
    documents: int  # their vectors
    names: int  # the vocabulary's strings
    counting: int  # the dictionary of all different words, before the rare ones are dropped and the arrays are made

    @property
    def arrays(self) -> int:
        return self.words + self.documents

    @property
    def total(self) -> int:
        """The dictionary is gone when the arrays come."""
        return max(self.arrays + self.names, self.names + self.counting)

    @property
    def shown(self) -> str:
        """The total, for people."""
        return _shown(self.total)

    def __str__(self) -> str:
        return (
            f"{self.shown} of memory (words {_shown(self.words)}, documents {_shown(self.documents)}, "
            f"strings {_shown(self.names)}; while counting {_shown(self.counting)})"
        )


def training_memory(*, vocabulary: int, types: int, lines: int, vector_size: int) -> TrainingMemory:
    """What training takes with `vocabulary` words kept of `types`, and `lines` documents."""
    return TrainingMemory(
        words=vocabulary * (2 * vector_size * FLOAT + PER_WORD),
        documents=lines * vector_size * FLOAT,
        names=vocabulary * NAME + lines * LINE,
        counting=types * COUNTED,
    )


def warn_of_shared_rows(*, vocabulary: int, lines: int, vector_size: int, label: str) -> None:
    """Say where gensim lets several rows of an array share one place, which it does without a word (seen in 4.4.0).

    No error: the thesis' last teachers, 8.3 million documents at 1,024 dimensions, were trained so.
    """
    most = ADDRESSED // vector_size
    for name, rows, mend in (
        ("words", vocabulary, "a larger min_count"),
        ("documents", lines, "fewer documents"),
    ):
        if rows > most:
            logger.warning(
                "%s: gensim tells %s vectors of %d numbers apart, so of the %s %s those beyond share a vector with "
                "others while training; a smaller vector_size or %s avoids it",
                label, f"{most:,}", vector_size, f"{rows:,}", name, mend,
            )  # fmt: skip


def check_memory(needed: TrainingMemory, free: int, label: str) -> None:
    """Refuse a training that does not fit into `free` bytes."""
    if needed.total > free:
        raise InputError(
            f"{label}: training takes about {needed}, {_shown(free)} are free; use a larger min_count, a smaller "
            "vector_size, a max_vocab_size, or fewer documents"
        )


def _shown(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if size >= 2**29 else f"{size / 2**20:.1f} MiB"

"""Tokens of texts of any length.

A long text is taken apart first, because the output of a tokenizer takes much memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Item = TypeVar("Item")
SLICE = 256  # texts tokenised at a time: a tokenizer's output takes a hundred bytes per token
PIECE = 2**16  # characters of a text that is tokenised whole, some 10,000 words
# The place before white space and a word. No tokenizer joins what stands before this place with
# what follows.
BETWEEN_WORDS = re.compile(r"(?<=\S)(?=\s+\w)")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items, the last one shorter: Python 3.12 has this as `itertools.batched`."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def pieces(text: str, size: int | None = None) -> Iterator[str]:
    """The text in pieces of `size` (None: `PIECE`) to twice as many characters.

    The text is cut between words; a longer word is cut, too.
    """
    size = size or PIECE
    start = 0
    while len(text) - start > size:
        latest = start + 2 * size
        cut = BETWEEN_WORDS.search(text, start + size, latest)
        end = cut.start() if cut else latest
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """The number of tokens of each text, without special tokens and truncation.

    A word of more than 2 * `PIECE` characters is counted in parts.
    """
    counts = [0] * len(texts)
    parts = ((row, part) for row, text in enumerate(texts) for part in pieces(text))
    for batch in batched(parts, SLICE):
        encodings = tokenizer.encode_batch_fast(
            [part for _, part in batch], add_special_tokens=False
        )
        for (row, _), encoding in zip(batch, encodings, strict=True):
            counts[row] += len(encoding)
    return counts


def heads(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[str]:
    """The beginnings of the texts: each is cut between two words after more than `most` tokens.

    Truncation of a beginning to `most` tokens keeps the same tokens as truncation of the text. The
    tokenizer must not truncate on its own.
    """
    beginnings = [next(pieces(text, 16 * most), "") for text in texts]
    cut = [row for row, text in enumerate(texts) if len(beginnings[row]) < len(text)]
    counts = count_tokens(tokenizer, [beginnings[row] for row in cut])
    for row, count in zip(cut, counts, strict=True):
        if count <= most:  # the text has hardly any words
            beginnings[row] = texts[row]
    return beginnings

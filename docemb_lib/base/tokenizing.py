"""Tokens of texts of any length: a long text is taken apart first, as the output of a tokenizer
takes much memory.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Item = TypeVar("Item")
SLICE = 256  # texts tokenised at a time: a tokenizer's output takes a hundred bytes per token
PIECE = 2**16  # characters of a text that is tokenised whole, some 10,000 words
# The place before white space and a word. No tokenizer joins what stands before it with what
# follows.
BETWEEN_WORDS = re.compile(r"(?<=\S)(?=\s+\w)")


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Lists of `size` items, the last one shorter, as of `itertools.batched` from Python 3.12 on."""
    remaining = iter(items)
    while batch := list(islice(remaining, size)):
        yield batch


def pieces(text: str, size: int | None = None) -> Iterator[str]:
    """The text in pieces of `size` (None: `PIECE`) to twice as many characters, cut between words
    or in longer ones.
    """
    start, size = 0, size or PIECE
    while len(text) - start > size:
        cut = BETWEEN_WORDS.search(text, start + size, start + 2 * size)
        end = cut.start() if cut else start + 2 * size
        yield text[start:end]
        start = end
    if start < len(text):
        yield text[start:]


def count_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> list[int]:
    """Number of tokens of each text, without special tokens and truncation; of a long text each
    word is counted once.

    A repeated word has the same tokens everywhere, so time and memory follow the different words of
    a long text. A word of more than 2 * `PIECE` characters is counted in parts.
    """
    counts = [0] * len(texts)
    words = (
        chain.from_iterable(map(BETWEEN_WORDS.split, pieces(one))) if len(one) > PIECE else [one]
        for one in texts
    )
    parts = ((row, *item) for row, own in enumerate(words) for item in Counter(own).items())
    for batch in batched(parts, SLICE):
        encodings = tokenizer.encode_batch_fast(
            [part for _, part, _ in batch], add_special_tokens=False
        )
        for (row, _, times), encoding in zip(batch, encodings, strict=True):
            counts[row] += times * len(encoding)
    return counts


def heads(tokenizer: Tokenizer, texts: Sequence[str], most: int) -> list[str]:
    """The texts, each cut between two words after more than `most` tokens: truncation to so many
    keeps the same ones.

    tokenizer: without truncation of its own.
    """
    found = [next(pieces(text, 16 * most), "") for text in texts]
    cut = [row for row, head in enumerate(found) if len(head) < len(texts[row])]
    for row, n in zip(cut, count_tokens(tokenizer, [found[row] for row in cut]), strict=True):
        if n <= most:  # hardly any words
            found[row] = texts[row]
    return found

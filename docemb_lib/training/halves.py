"""Two texts from one document: each sentence goes to either by the toss of a coin (SimDE, Section 3)."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from docemb_lib.corpus.sentences import split_sentences

END = -1  # stands after each sentence among token ids, and is none


class EncodedSentences(NamedTuple):
    """Token ids of each text without special tokens, every sentence closed by `END`."""

    sequences: list[np.ndarray]
    truncated: int  # texts of which both halves, cut at the encoder's limit, leave something out


def encode_sentences(
    tokenizer: Any, texts: Sequence[str], *, max_tokens: int, language: str = "en"
) -> EncodedSentences:
    """Tokenise whole texts, so that every token is the one it is in its text, and tell where sentences end.

    max_tokens: of one half, special tokens included. A sentence without tokens is left out.
    """
    if not texts:
        return EncodedSentences([], 0)
    encodings = tokenizer(list(texts), add_special_tokens=False, truncation=False, verbose=False).encodings
    room = 2 * (max_tokens - len(tokenizer("")["input_ids"]))
    sequences = [
        _close_sentences(encoding, split_sentences(text, language=language))
        for text, encoding in zip(texts, encodings, strict=True)
    ]
    return EncodedSentences(sequences, sum(len(encoding) > room for encoding in encodings))


def _close_sentences(encoding: Any, sentences: Iterable[str]) -> np.ndarray:
    """A token belongs to the sentence in which its last character stands: its first may be the space before."""
    ids = np.asarray(encoding.ids, dtype=np.int32)
    token_ends = np.array([end for _, end in encoding.offsets], dtype=np.int64)
    ends = np.cumsum([len(sentence) for sentence in sentences])  # in characters
    after = np.unique(np.searchsorted(token_ends, ends, side="right"))  # tokens up to each end
    return np.insert(ids, after[after > 0], END)


def sentences_of(sequence: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """The token ids of each sentence of a document that `encode_sentences` made."""
    tokens = np.asarray(sequence, dtype=np.int64)
    ends = np.flatnonzero(tokens == END)
    return [tokens[begin:end] for begin, end in zip(np.append(0, ends[:-1] + 1), ends, strict=False)]


def draw_halves(n: int, rng: np.random.Generator) -> np.ndarray:
    """Which of n sentences go to the first half, (n,) bool; drawn again while a half is empty.

    Raises ValueError for fewer than two sentences, which have no halves.
    """
    if n < 2:
        raise ValueError(f"a document of {n} sentences has no halves: leave it out")
    while True:
        first = rng.random(n) < 0.5
        if first.any() and not first.all():
            return first


def generator_of(document: str, *, seed: int, epoch: int) -> np.random.Generator:
    """Chance for one document in one epoch: the same whoever draws, in whatever order, however often."""
    digest = np.frombuffer(hashlib.sha256(document.encode()).digest(), dtype=np.uint32)
    return np.random.default_rng([seed, epoch, *digest.tolist()])

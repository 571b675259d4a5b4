"""Passages of a document, and why two documents are similar.

A passage is a window of tokens, and its embedding is the mean of their states. The states have
seen the whole document ("late chunks", Guenther et al. 2024), so the mean of the passages, weighted
as their tokens are, is the document's embedding.

But for its length, an embedding is linear in the states of tokens and in the vectors of words. So
a cosine is the sum of the products of all pairs of tokens, and of all pairs of words, of the two
documents; this is exact and needs no perturbation. What is attributed to a passage are its states
*in context*: a document without the passage would have other states elsewhere, too. Where
embeddings are centred, the mean that is subtracted is spread evenly over the tokens of a passage
and over the counted words, so there is no further constant.

P: passages of a document; D: width of the half of meaning; V: its distinct words; L: width of the
half of words.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import chain, pairwise
from numbers import Integral
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from docemb_lib.base.errors import InputError
from docemb_lib.student.encoder import MEANS, Encoder, means, segment_sums

if TYPE_CHECKING:
    import pandas as pd
    from tokenizers import Encoding

    from docemb_lib.packed.packing import PackedBatch
    from docemb_lib.student.words_module import WordsHalf


LEAST = 8  # tokens of a passage: with fewer, one could hold a special token alone


class Passages(NamedTuple):
    """The P passages of a document, in the order of its text.

    spans: (P, 2), the first character of each passage and the one after its last; special tokens
    have none. weights: (P,), the tokens of each passage as the mean counts them, special ones
    included: pooling "lead" counts the first ones several times. embeddings: (P, D), float32; their
    mean by these weights is the first D columns of the document's embedding.
    """

    spans: np.ndarray
    weights: np.ndarray
    embeddings: np.ndarray


def check_passages(encoder: Encoder, size: int) -> None:
    """Raise InputError for passages of too few tokens, or of an encoder that averages no states."""
    if not isinstance(size, Integral) or size < LEAST:
        raise InputError(f"passages: got {size!r} tokens for each; give {LEAST} or more")
    if encoder.pooling not in MEANS:
        problem = f"pooling {encoder.pooling!r} is the state of one token and no mean over tokens"
        mend = f"give a student with pooling {', '.join(MEANS[:-1])} or {MEANS[-1]}"
        raise InputError(f"{problem}, so that no passage has a part in an embedding; {mend}")


def passage_sizes(tokens: int, size: int) -> list[int]:
    """Return the tokens of each passage of a document: as few passages as possible, of equal size.

    Sizes are at most `size` and differ by one at most, so that no last passage is a few words.
    """
    count = -(-tokens // size)
    ends = [tokens * place // count for place in range(count + 1)]
    return np.diff(ends).tolist()


def rows_with_passages(encoder: Encoder, batch: PackedBatch, size: int) -> Tensor:
    """Compute the mean of each of B documents, and then the sums of its passages.

    Returns (B, (1 + P) * D) for the P passages of the longest possible document; those that a
    shorter one lacks are zero. size: most tokens of a passage.
    """
    states, totals = encoder.weighted_states(batch)
    sizes = [passage_sizes(tokens, size) for tokens in batch.sizes]
    counts = [len(of_document) for of_document in sizes]
    sums = segment_sums(states, list(chain.from_iterable(sizes))).split(counts)
    most = len(passage_sizes(encoder.max_tokens, size))
    rows = states.new_zeros(len(sizes), 1 + most, encoder.dim)
    rows[:, 0] = means(states, totals, batch)
    for row, passages in zip(rows, sums, strict=True):
        row[1 : 1 + len(passages)] = passages
    return rows.flatten(1)


def outline(encoding: Encoding, encoder: Encoder, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return spans and weights of the passages of a tokenised document, see `Passages`."""
    bounds = np.cumsum([0, *passage_sizes(len(encoding), size)])
    weights = np.diff(bounds)
    for first, more in encoder.leads:
        weights = weights + more * np.diff(np.minimum(bounds, first))
    characters = np.array(encoding.offsets)  # (tokens, 2)
    of_text = np.array(encoding.special_tokens_mask) == 0
    spans = np.zeros((len(weights), 2), dtype=np.int64)
    for passage, (start, end) in enumerate(pairwise(bounds.tolist())):
        places = characters[start:end][of_text[start:end]]
        if len(places):  # an empty text has special tokens alone
            spans[passage] = places.min(), places.max()
    return np.maximum(spans - len(encoder.prompts.document), 0), weights


def passage_means(row: np.ndarray, weights: np.ndarray, half: WordsHalf | None) -> np.ndarray:
    """Compute the embeddings of the passages of a document, (P, D), from its row of sums.

    With a half of words, its centring, map and weight apply to the passages, and so does the factor
    that gives the document's half of meaning its length: it subtracts the mean of a collection from
    each state, so from each token alike. row: (1 + P, D) or more, see `rows_with_passages`.
    """
    document = row[0].astype(np.float64)
    embeddings = row[1 : 1 + len(weights)].astype(np.float64) / weights[:, None]
    if half is not None:
        mean = half.meaning_mean.cpu().double().numpy()
        mapping = half.meaning_map.cpu().double().numpy()
        length = np.linalg.norm((document - mean) @ mapping)
        scale = np.sqrt(1 - float(half.weight)) / max(length, 1e-12)
        embeddings = (embeddings - mean) @ mapping * scale
    return embeddings.astype(np.float32)


class Parts(NamedTuple):
    """The parts that the embedding of a document sums."""

    passages: list[str]  # P texts
    meaning: np.ndarray  # what each passage adds, (P, D)
    words: list[str]  # V
    vectors: np.ndarray  # what each word adds, (V, L)

    @property
    def length(self) -> float:
        """The length of the embedding."""
        halves = [self.meaning.sum(axis=0), self.vectors.sum(axis=0)]
        return float(np.linalg.norm(np.concatenate(halves)))


def parts_of(text: str, passages: Passages, half: WordsHalf | None) -> Parts:
    """Return the parts of a text's embedding. There are no words without a half of words."""
    shares = passages.weights / passages.weights.sum()
    meaning = shares[:, None] * passages.embeddings.astype(np.float64)
    texts = [text[start:end] for start, end in passages.spans.tolist()]
    if half is None:
        return Parts(texts, meaning, [], np.zeros((0, 1)))
    frequencies = half.frequencies([text])  # (1, vocabulary)
    words = [half.vocabulary[column] for column in frequencies.indices]
    vectors = frequencies.data[:, None] * half.vectors[frequencies.indices].astype(np.float64)
    vectors /= max(np.linalg.norm(vectors.sum(axis=0)), 1e-12)
    # The mean that centres is spread over the words by their term frequencies.
    shares = frequencies.data / frequencies.data.sum()
    centred = vectors - shares[:, None] * half.words_mean.cpu().double().numpy()
    scale = np.sqrt(float(half.weight)) / max(np.linalg.norm(centred.sum(axis=0)), 1e-12)
    return Parts(texts, meaning, words, scale * centred)


def explained(first: Parts, second: Parts) -> pd.DataFrame:
    """Take the cosine of two documents apart, see `Student.explain`."""
    import pandas as pd

    pairs = first.meaning @ second.meaning.T
    rows: list[tuple[str, str, str, float]] = []
    for (i, j), product in np.ndenumerate(pairs):
        rows.append(("passages", first.passages[i], second.passages[j], float(product)))
    added: defaultdict[str, float] = defaultdict(float)
    for document, partner in ((first, second), (second, first)):
        # Half of the products of each word with all words of the other document.
        halves = document.vectors @ partner.vectors.sum(axis=0) / 2
        for word, half in zip(document.words, halves.tolist(), strict=True):
            added[word] += half
    for word, product in added.items():
        rows.append(("word", word, word, product))
    frame = pd.DataFrame(rows, columns=["part", "of A", "of B", "contribution"])
    frame["contribution"] /= max(first.length * second.length, 1e-24)
    return frame.sort_values("contribution", ascending=False, kind="stable")

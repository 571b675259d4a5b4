"""Passages of a document: windows of tokens, and the means of their states.

The states have seen the whole document ("late chunks", Guenther et al. 2024), so the mean of the
passages, weighted as their tokens are, is the document's embedding.

P: passages of a document; D: width of the dense half.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch import Tensor

from docemb_lib.base.errors import InputError
from docemb_lib.student.encoder import MEANS, Encoder, means, segment_sums

if TYPE_CHECKING:
    from tokenizers import Encoding

    from docemb_lib.packed.packing import PackedBatch
    from docemb_lib.student.lexical_module import LexicalHalf

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
    if size < LEAST:
        raise InputError(f"passages: got {size} tokens for each; give {LEAST} or more")
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
    return np.maximum(spans - len(encoder.prompt), 0), weights


def passage_means(row: np.ndarray, weights: np.ndarray, half: LexicalHalf | None) -> np.ndarray:
    """Compute the embeddings of the passages of a document, (P, D), from its row of sums.

    With a lexical half, its centring, map and weight apply to the passages, and so does the factor
    that gives the document's dense half its length: it subtracts the mean of a collection from each
    state, so from each token alike. row: (1 + P, D) or more, see `rows_with_passages`.
    """
    document = row[0].astype(np.float64)
    embeddings = row[1 : 1 + len(weights)].astype(np.float64) / weights[:, None]
    if half is not None:
        mean = half.dense_mean.cpu().double().numpy()
        mapping = half.dense_map.cpu().double().numpy()
        length = np.linalg.norm((document - mean) @ mapping)
        scale = np.sqrt(1 - float(half.weight)) / max(length, 1e-12)
        embeddings = (embeddings - mean) @ mapping * scale
    return embeddings.astype(np.float32)

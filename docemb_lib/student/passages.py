"""Passages of a document: windows of tokens, and the means of their states.

The states have seen the whole document ("late chunks", Guenther et al. 2024), so the mean of the
passages, weighted as their tokens are, is the document's embedding.

N: documents; P: passages of a document; D: width of the dense half; T: tokens of a batch.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from torch import Tensor

from docemb_lib.base.errors import InputError
from docemb_lib.student.embedding import Encoder

if TYPE_CHECKING:
    from tokenizers import Encoding

    from docemb_lib.packed.packing import PackedBatch
    from docemb_lib.student.lexical_module import LexicalHalf

PIECE = 64  # tokens summed one after the other
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


class Embedded(NamedTuple):
    """N documents: their embeddings, float32 (N, width), and the passages of each, if asked for."""

    embeddings: np.ndarray
    passages: list[Passages]


class Mean(Encoder):
    """An encoder that averages states; `Student` is one."""

    @property
    @abstractmethod
    def max_tokens(self) -> int:
        """The limit of a document."""

    @abstractmethod
    def weighted_states(self, batch: PackedBatch) -> tuple[Tensor, Tensor]:
        """Compute weighted states, (T, D), and the sum of weights of each document, (B,)."""


class PassageEncoder(Encoder):
    """A student whose rows are a document's mean and then the sums of its passages.

    A row is (1 + P) * D numbers wide for the P passages of the longest possible document; those
    that a shorter one lacks are zero. size: most tokens of a passage, `LEAST` or more.
    """

    def __init__(self, student: Mean, size: int) -> None:
        super().__init__()
        if size < LEAST:
            raise InputError(f"passages: got {size} tokens for each; give {LEAST} or more")
        self.student = student
        self.size = size
        self.train(student.training)

    @property
    def device(self) -> torch.device:
        return self.student.device

    @property
    def most(self) -> int:
        """P of the longest possible document."""
        return len(passage_sizes(self.student.max_tokens, self.size))

    @property
    def dim(self) -> int:
        return (1 + self.most) * self.student.dim

    def padded(self, tokens: int) -> int:
        return self.student.padded(tokens)

    def forward(self, batch: PackedBatch) -> Tensor:
        states, totals = self.student.weighted_states(batch)
        documents = means(states, totals, batch)  # (B, D)
        B, D = documents.shape
        sizes = [passage_sizes(tokens, self.size) for tokens in batch.sizes]
        counts = [len(each) for each in sizes]  # passages of each document
        lengths = torch.from_numpy(np.concatenate(sizes)).to(states.device)
        sums = torch.segment_reduce(states, "sum", lengths=lengths, axis=0, unsafe=True)
        rows = documents.new_zeros(B, 1 + self.most, D)
        rows[:, 0] = documents
        for row, passages in zip(rows, sums.split(counts), strict=True):
            row[1 : 1 + len(passages)] = passages
        return rows.flatten(1)  # (B, (1 + most) * D)

    def compile_if_possible(self, run: Callable[[], object]) -> None:
        self.student.compile_if_possible(run)


def means(states: Tensor, totals: Tensor, batch: PackedBatch) -> Tensor:
    """Divide the sum over each document's rows of (T, D) by its total of `totals`, (B,): (B, D).

    A GPU sums a segment row by row, so sum pieces of a document in parallel first, then their sums.
    Scattered additions would also be fast, but in another order every time.
    """
    pieces = []  # rows of each piece
    counts = []  # pieces of each document
    for size in batch.sizes:
        full, rest = divmod(size, PIECE)
        pieces += [PIECE] * full + [rest] * (rest > 0)
        counts.append(full + (rest > 0))
    for lengths in (pieces, counts):
        on_device = torch.tensor(lengths).to(states.device, non_blocking=True)
        states = torch.segment_reduce(states, "sum", lengths=on_device, axis=0, unsafe=True)
    return states / totals[:, None]


def passage_sizes(tokens: int, size: int) -> list[int]:
    """Return the tokens of each passage of a document: as few passages as possible, of equal size.

    Sizes are at most `size` and differ by one at most, so that no last passage is a few words.
    """
    count = -(-tokens // size)
    ends = [tokens * place // count for place in range(count + 1)]
    return np.diff(ends).tolist()


def passages_of(
    encoding: Encoding,
    row: np.ndarray,
    dim: int,
    size: int,
    *,
    leads: Sequence[tuple[int, int]],
    prompt: int,
    half: LexicalHalf | None,
) -> Passages:
    """Return the passages of a tokenised document from its row of `PassageEncoder`.

    With a lexical half, its centring, map and weight apply to the passages, and so does the factor
    that gives the document's dense half its length: it subtracts the mean of a collection from each
    state, so from each token alike.

    Args:
        dim: D, the width of the dense half.
        size: the most tokens of a passage.
        leads: a token among so many first ones counts so many times more.
        prompt: characters of a prompt before the text, which are in no span.
    """
    bounds = np.cumsum([0, *passage_sizes(len(encoding), size)])
    weights = np.diff(bounds)
    for first, more in leads:
        weights = weights + more * np.diff(np.minimum(bounds, first))
    characters = np.array(encoding.offsets)  # (tokens, 2)
    of_text = np.array(encoding.special_tokens_mask) == 0
    spans = np.zeros((len(weights), 2), dtype=np.int64)
    for passage, (start, end) in enumerate(pairwise(bounds.tolist())):
        places = characters[start:end][of_text[start:end]]
        if len(places):  # an empty text has special tokens alone
            spans[passage] = places.min(), places.max()

    document, *sums = row.astype(np.float64).reshape(-1, dim)
    embeddings = np.array(sums[: len(weights)]) / weights[:, None]
    if half is not None:
        mean = half.dense_mean.cpu().double().numpy()
        mapping = half.dense_map.cpu().double().numpy()
        length = np.linalg.norm((document - mean) @ mapping)
        scale = np.sqrt(1 - float(half.weight)) / max(length, 1e-12)
        embeddings = (embeddings - mean) @ mapping * scale
    return Passages(np.maximum(spans - prompt, 0), weights, embeddings.astype(np.float32))

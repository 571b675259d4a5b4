"""Why two documents are similar: their cosine as a sum over pairs of passages and over words.

But for its length, an embedding is linear in the states of tokens and in the vectors of words. So
a cosine is the sum of the products of all pairs of tokens, and of all pairs of words, of the two
documents; this is exact and needs no perturbation. What is attributed to a passage are its states
*in context*, which have seen the tokens around it: a document without the passage would have other
states elsewhere, too.

P, Q: passages of the two documents; V: distinct words of a document; L: width of the lexical half.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from docemb_lib.student.lexical_module import LexicalHalf
    from docemb_lib.student.passages import Passages


class Pair(NamedTuple):
    """What the passages of these numbers, counted from 0, add to a cosine."""

    first: int
    second: int
    contribution: float


class WordVectors(NamedTuple):
    """The known words of a document, and what each adds to its lexical half, (V, L)."""

    words: list[str]
    parts: np.ndarray


class Parts(NamedTuple):
    """The length of a document's embedding, and the parts that it sums."""

    length: float
    passages: Passages
    words: WordVectors


@dataclass(frozen=True, repr=False)
class Explanation:
    """The parts of a cosine, which they sum to.

    Where the embeddings are centred, the mean that is subtracted is spread evenly over the tokens
    of a passage and over the counted words, so there is no further constant.

    Attributes:
        cosine: of the two embeddings.
        pairs: (P, Q), what each pair of passages adds.
        spans: of both documents, (P, 2) and (Q, 2): first character of a passage, and the one
            after its last.
        words: what each word adds, strongest first. A product of two different words counts half
            for each of them. Empty without a lexical half.
    """

    cosine: float
    pairs: np.ndarray
    spans: tuple[np.ndarray, np.ndarray]
    words: Mapping[str, float]

    @property
    def meaning(self) -> float:
        """What all pairs of passages add to the cosine."""
        return float(self.pairs.sum())

    @property
    def lexical(self) -> float:
        """What all words add to the cosine."""
        return sum(self.words.values())

    def strongest_pairs(self, count: int = 5) -> list[Pair]:
        """Return the pairs of passages that add most, largest contribution first."""
        order = np.argsort(-self.pairs, axis=None, kind="stable")[:count]
        columns = self.pairs.shape[1]
        pairs = []
        for place in order.tolist():
            row, column = divmod(place, columns)
            pairs.append(Pair(row, column, float(self.pairs.flat[place])))
        return pairs

    def __str__(self) -> str:
        """One line, with passages counted from 1: shares of the parts, or parts with signs.

        Shares are only given where no part is negative, and words only where there are any.
        """
        (strongest,) = self.strongest_pairs(1)
        where = f"between passages {strongest.first + 1} and {strongest.second + 1}"
        if self.meaning > 0 and self.lexical >= 0 and strongest.contribution <= self.meaning:
            words = self.lexical / (self.lexical + self.meaning)
            parts = f"{words:.0%} words, {1 - words:.0%} meaning, " if self.words else ""
            parts += f"of it {strongest.contribution / self.meaning:.0%} {where}"
            return f"cosine {self.cosine:.3f}: {parts.replace('%', ' %')}"
        parts = f"{self.lexical:+.3f} words, {self.meaning:+.3f} meaning, " if self.words else ""
        return f"cosine {self.cosine:.3f}: {parts}with {strongest.contribution:+.3f} {where}"

    def __repr__(self) -> str:
        first, second = self.pairs.shape
        return f"<Explanation {self}; {first} × {second} passages, {len(self.words)} words>"


def explained(first: Parts, second: Parts) -> Explanation:
    """Take the cosine of two documents apart."""
    scale = 1 / max(first.length * second.length, 1e-24)
    pairs = scale * first.passages.parts @ second.passages.parts.T
    added: defaultdict[str, float] = defaultdict(float)
    for document, partner in ((first.words, second.words), (second.words, first.words)):
        # Half of the products of each word with all words of the other document.
        halves = document.parts @ partner.parts.sum(axis=0) / 2
        for word, half in zip(document.words, halves.tolist(), strict=True):
            added[word] += scale * half
    strongest_first = sorted(added, key=lambda word: -abs(added[word]))
    cosine = float(pairs.sum() + sum(added.values()))
    by_word = {word: added[word] for word in strongest_first}
    return Explanation(cosine, pairs, (first.passages.spans, second.passages.spans), by_word)


def word_vectors(half: LexicalHalf | None, text: str) -> WordVectors:
    """Return the vectors whose sum is the lexical columns of a text's embedding.

    The mean that centres is spread over the words by their term frequencies. There are none without
    a known word or a lexical half.
    """
    if half is None:
        return WordVectors([], np.zeros((0, 1)))
    frequencies = half.frequencies([text])  # (1, vocabulary)
    vectors = frequencies.data[:, None] * half.vectors[frequencies.indices].astype(np.float64)
    length = np.linalg.norm(vectors.sum(axis=0)) if len(vectors) else 0.0
    words = [half.vocabulary[column] for column in frequencies.indices]
    if not length:
        return WordVectors([], vectors[:0])
    shares = frequencies.data / frequencies.data.sum()
    centred = vectors / length - shares[:, None] * half.lexical_mean.cpu().double().numpy()
    scale = np.sqrt(float(half.weight)) / max(np.linalg.norm(centred.sum(axis=0)), 1e-12)
    return WordVectors(words, scale * centred)

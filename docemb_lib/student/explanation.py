"""Why two documents are similar: their cosine as a sum over pairs of passages and over words.

But for its length, an embedding is linear in the states of tokens and in the vectors of words. So
a cosine is the sum of the products of all pairs of tokens, and of all pairs of words, of the two
documents; this is exact and needs no perturbation. What is attributed to a passage are its states
*in context*, which have seen the tokens around it: a document without the passage would have other
states elsewhere, too. Where embeddings are centred, the mean that is subtracted is spread evenly
over the tokens of a passage and over the counted words, so there is no further constant.

P: passages of a document; D: width of the dense half; V: its distinct words; L: width of the
lexical half.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

    from docemb_lib.student.lexical_module import LexicalHalf
    from docemb_lib.student.passages import Passages


class Parts(NamedTuple):
    """The parts that the embedding of a document sums."""

    passages: list[str]  # P texts
    dense: np.ndarray  # what each passage adds, (P, D)
    words: list[str]  # V
    lexical: np.ndarray  # what each word adds, (V, L)

    @property
    def length(self) -> float:
        """The length of the embedding."""
        halves = [self.dense.sum(axis=0), self.lexical.sum(axis=0)]
        return float(np.linalg.norm(np.concatenate(halves)))


def parts_of(text: str, passages: Passages, half: LexicalHalf | None) -> Parts:
    """Return the parts of a text's embedding. There are no words without a lexical half."""
    shares = passages.weights / passages.weights.sum()
    dense = shares[:, None] * passages.embeddings.astype(np.float64)
    texts = [text[start:end] for start, end in passages.spans.tolist()]
    if half is None:
        return Parts(texts, dense, [], np.zeros((0, 1)))
    frequencies = half.frequencies([text])  # (1, vocabulary)
    words = [half.vocabulary[column] for column in frequencies.indices]
    vectors = frequencies.data[:, None] * half.vectors[frequencies.indices].astype(np.float64)
    vectors /= max(np.linalg.norm(vectors.sum(axis=0)), 1e-12)
    # The mean that centres is spread over the words by their term frequencies.
    shares = frequencies.data / frequencies.data.sum()
    centred = vectors - shares[:, None] * half.lexical_mean.cpu().double().numpy()
    scale = np.sqrt(float(half.weight)) / max(np.linalg.norm(centred.sum(axis=0)), 1e-12)
    return Parts(texts, dense, words, scale * centred)


def explained(first: Parts, second: Parts) -> pd.DataFrame:
    """Take the cosine of two documents apart, see `Student.explain`."""
    import pandas as pd

    pairs = first.dense @ second.dense.T
    rows: list[tuple[str, str, str, float]] = []
    for (i, j), product in np.ndenumerate(pairs):
        rows.append(("passages", first.passages[i], second.passages[j], float(product)))
    added: defaultdict[str, float] = defaultdict(float)
    for document, partner in ((first, second), (second, first)):
        # Half of the products of each word with all words of the other document.
        halves = document.lexical @ partner.lexical.sum(axis=0) / 2
        for word, half in zip(document.words, halves.tolist(), strict=True):
            added[word] += half
    for word, product in added.items():
        rows.append(("word", word, word, product))
    frame = pd.DataFrame(rows, columns=["part", "of A", "of B", "contribution"])
    frame["contribution"] /= max(first.length * second.length, 1e-24)
    return frame.sort_values("contribution", ascending=False, kind="stable")

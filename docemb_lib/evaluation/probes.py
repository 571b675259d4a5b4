"""Measurements without a task: planes of spaces, distances, what a model reads.

For the last, a document is cut into K passages of equal length. Passage k is exchanged for that of
another document: how far does the embedding move? A model that reads whole documents answers alike
for all k; one that truncates them does not for the last ones.

D: width of an embedding; K: passages of a document; N: documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import chain, pairwise
from typing import Literal, NamedTuple, Self

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import by_cosine, rank_documents, unit
from docemb_lib.evaluation.uncertainty import TAILS, bootstrap_over_tasks, resampled_means
from docemb_lib.teachers import SBERT, preprocess

Distance = Literal["cosine", "mse"]
Embed = Callable[[list[str]], np.ndarray]  # M texts to (M, D)
PASSAGES = 5  # of a document
# A text is cut before white space and after the stops of Chinese and Japanese.
GAP = r"(?=\s)|(?<=[。、，！？；])"


class Plane(NamedTuple):
    """The first two principal components of a space."""

    points: np.ndarray  # (N, 2)
    explained: float  # share of the variance on both axes; NaN where all documents are one point


def principal_plane(embeddings: np.ndarray) -> Plane:
    """Return the plane of (N, D) embeddings; the largest weight of each axis is positive."""
    from sklearn.decomposition import PCA

    pca = PCA(2, svd_solver="full")
    with np.errstate(invalid="ignore"):  # no variance at all
        points = pca.fit_transform(np.asarray(embeddings, dtype=np.float64))
    return Plane(points, float(pca.explained_variance_ratio_.sum()))


def measure_distances(
    student: np.ndarray, teacher: np.ndarray, *, distance: Distance, negatives: int = 20
) -> np.ndarray:
    """Measure how far documents are from their teacher embedding and from those of other documents.

    student, teacher: (N, D), row i of both is document i; distance: "mse" is the squared L2
    distance over D; negatives: the number K of other documents, drawn for each at random. Returns
    (N, 1 + K), the distance from its own embedding first.
    """
    n = len(student)
    shifts = np.tile(np.arange(1, n), (n, 1))
    drawn = np.random.default_rng(0).permuted(shifts, axis=1)[:, :negatives]
    # A shift from 1 to n - 1 never gives the document itself, which is the first one.
    rows = (np.arange(n)[:, None] + np.pad(drawn, ((0, 0), (1, 0)))) % n
    if distance == "mse":
        return np.square(student[:, None] - teacher[rows]).mean(axis=2)
    return 1 - np.einsum("nd,nkd->nk", unit(student), unit(teacher)[rows])


def tidy_distances(distances: np.ndarray) -> pd.DataFrame:
    """Return a row per distance: kind (positive or negative) and value."""
    frame = pd.DataFrame(distances).melt(var_name="kind")
    frame["kind"] = np.where(frame["kind"] == 0, "positive", "negative")
    return frame


def spread(embeddings: np.ndarray) -> float:
    """Return the mean cosine distance of every two of N documents, (N, D)."""
    X = unit(embeddings)
    n = len(X)
    # The squared norm of the sum holds the cosine of each pair twice, and n ones.
    cosines = (np.square(X.sum(axis=0)).sum() - n) / (n * (n - 1))
    return float(1 - cosines)


def cut(text: str, count: int) -> list[str]:
    """Cut a text into `count` pieces, at the gaps nearest to equal numbers of characters.

    Gaps are white space, with which the next piece begins, and the places after stops. With fewer
    gaps than that, there are fewer pieces. Side by side they are the text without its margins.
    """
    text = text.strip()
    gaps = [match.start() for match in re.finditer(GAP, text)]
    cuts = {0, len(text)}
    for number in range(1, count):
        wanted = number * len(text) // count
        cuts.add(min(gaps, key=lambda gap: abs(gap - wanted), default=0))
    return [text[start:end] for start, end in pairwise(sorted(cuts))]


class Versions(NamedTuple):
    """N documents, the shortest first, and K versions of each."""

    documents: list[str]
    exchanged: list[list[str]]  # the document with another's passage k in place of its own

    @classmethod
    def of(cls, texts: Sequence[str], count: int = PASSAGES) -> Self:
        """Cut the texts, and exchange passage k of each for that of a document of similar length.

        It is the next longer one, and for the longest the next shorter one. Texts of fewer than
        `count` passages are left out; of a single one there are no versions.
        """
        cuts = [cut(text, count) for text in sorted(texts, key=len)]
        whole = [parts for parts in cuts if len(parts) == count and all(map(str.strip, parts))]
        others = [*whole[1:], *whole[-2:-1]]  # the next longer ones
        documents = []
        exchanged = []
        for parts, other in zip(whole, others, strict=False):
            documents.append("".join(parts))
            exchanged.append(
                ["".join([*parts[:k], other[k], *parts[k + 1 :]]) for k in range(count)]
            )
        return cls(documents, exchanged)


def exchange_passages(embed: Embed, versions: Versions) -> np.ndarray:
    """Return 1 - cosine of each document and its version with passage k exchanged: (N, K)."""
    documents = unit(embed(versions.documents))
    exchanged = unit(embed([*chain(*versions.exchanged)]))
    by_document = exchanged.reshape(len(documents), -1, documents.shape[1])  # (N, K, D)
    cosines = np.einsum("nd,nkd->nk", documents, by_document)
    return np.maximum(0, 1 - cosines)  # the rounding of a cosine of 1


def by_position(values: np.ndarray) -> pd.DataFrame:
    """Return the mean over N documents of each of K passages: columns position, value, low, high.

    Position runs from 0 to 1, and is that of the middle of the passage; intervals are a bootstrap
    over documents. values: (N, K).
    """
    K = values.shape[1]
    frame = pd.DataFrame(bootstrap_over_tasks([values.T]).T, columns=["value", "low", "high"])
    frame.insert(0, "position", (np.arange(K) + 0.5) / K)
    return frame


def audited(model: str, texts: pd.Series) -> pd.DataFrame:
    """Count what a sentence encoder that truncates does not read of N texts, and what that changes.

    Returns the index of the texts, and the columns words, unread, the words that never reach the
    model, and changed: how many of the 10 nearest texts are others where it reads everything, in
    chunks.
    """
    teacher = SBERT(model)
    documents = [*texts]
    truncated = teacher.embed(documents)
    spaces = [truncated, SBERT(model, long="chunks").embed(documents, truncated)]
    rows = range(len(texts))
    ranked = [rank_documents(by_cosine(X), rows, candidates=np.array(rows)) for X in spaces]
    parts = texts.to_frame("words").assign(unread=texts.map(teacher.unread))
    return parts.map(lambda text: len(preprocess(text, "none"))).assign(
        changed=[
            np.setdiff1d(near[:10], others[:10]).size for near, others in zip(*ranked, strict=True)
        ]
    )


class Ending(NamedTuple):
    """How much the last passage counts beside the first, with its 95% interval."""

    ending: float
    low: float
    high: float


def ending(moved: np.ndarray) -> Ending:
    """Divide how far the last passage moves documents by how far the first one does.

    0: endings do not count; 1: as much as beginnings; NaN where the first passage moves none. The
    interval is a bootstrap over documents.

    moved: see `exchange_passages`.
    """
    ends = moved[:, [0, -1]].T  # (2, N)
    first, last = np.vstack([ends.mean(axis=1), resampled_means(ends, seed=0)]).T
    ratio, *drawn = last / np.where(first > 0, first, np.nan)
    return Ending(ratio, *np.quantile(drawn, TAILS))

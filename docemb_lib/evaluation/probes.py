"""Measurements without a task: the plane of a space, what a student keeps of a teacher, and more.

`redundancy` and `sentence_similarity` are the analyses of the SimDE paper (Tables 4 and 5).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Literal, NamedTuple, Self

import numpy as np
import pandas as pd

from docemb_lib.base.progress import progress
from docemb_lib.corpus.rows import split_sentences, tag_words
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.teachers.words import spaced

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

ALPHAS = np.logspace(-6, 6, 25)  # ridge penalties, for student embeddings of mean variance 1
ALL = "all"  # the bucket of all documents
EDGES = (0, 50, 100, 200, 300, np.inf)  # words between which Table 4 divides documents
BINS = ("0-50", "51-100", "101-200", "201-300", "over 300")
ALL_LENGTHS = "All"  # the last row of Table 4
SHORTEST = 3  # words of a compared sentence; shorter ones are headings, dates and signatures

Distance = Literal["cosine", "mse"]


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


def fit_ridge(student: np.ndarray, teacher: np.ndarray) -> Pipeline:
    """Fit a ridge regression with an intercept; leave-one-out chooses the penalty from ALPHAS.

    A factor scales all student dimensions to a mean variance of 1, so that a penalty means the same
    for embeddings of any norm.

    student: (N, S); teacher: (N, D).
    """
    from sklearn.linear_model import RidgeCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import FunctionTransformer

    X = np.asarray(student, dtype=np.float64)
    scale = float(np.sqrt(X.var(axis=0).mean())) or 1.0  # a collapsed student is not scaled
    scaled = FunctionTransformer(lambda X: X / scale)
    model = make_pipeline(scaled, RidgeCV(alphas=ALPHAS))
    return model.fit(X, np.asarray(teacher, dtype=np.float64))


def probe(
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    buckets: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """Measure how much of a teacher a linear map reads: columns bucket, documents, r2.

    train, validation: student (N, S) and teacher (N, D) embeddings; buckets: masks (N,) over the
    validation documents, to which ALL is added. r2: variance-weighted over the teacher's
    dimensions, against the mean of the bucket.
    """
    from sklearn.metrics import r2_score

    student, teacher = (np.asarray(side, dtype=np.float64) for side in validation)
    predicted = fit_ridge(*train).predict(student)
    rows = []
    for name, chosen in {ALL: np.ones(len(teacher), dtype=bool), **buckets}.items():
        n = int(chosen.sum())
        r2 = np.nan
        if n > 1:
            r2 = r2_score(teacher[chosen], predicted[chosen], multioutput="variance_weighted")
        rows.append((name, n, r2))
    return pd.DataFrame(rows, columns=["bucket", "documents", "r2"])


class Distances(NamedTuple):
    """Distances between student and teacher embeddings of N documents."""

    positive: np.ndarray  # (N,) to the teacher embedding of the same document
    negative: np.ndarray  # (N, K) to those of other documents, in the order of their draw

    def part(self, chosen: np.ndarray, negatives: int) -> Self:
        """Return those of the documents of a mask (N,), with the first `negatives` others."""
        return type(self)(self.positive[chosen], self.negative[chosen, :negatives])


def measure_distances(
    student: np.ndarray, teacher: np.ndarray, *, distance: Distance, negatives: int = 20
) -> Distances:
    """Measure how far documents are from their teacher embedding and from those of other documents.

    student, teacher: (N, D), row i of both is document i; distance: "mse" is the squared L2
    distance over D; negatives: the number of other documents, drawn for each at random.
    """
    n = len(student)
    shifts = np.tile(np.arange(1, n), (n, 1))
    drawn = np.random.default_rng(0).permuted(shifts, axis=1)[:, :negatives]
    # A shift from 1 to n - 1 never gives the document itself.
    others = (np.arange(n)[:, None] + drawn) % n
    positive = _distance(student, teacher, distance)
    negative = [_distance(student, teacher[column], distance) for column in others.T]
    return Distances(positive, np.stack(negative, axis=1))


def _distance(a: np.ndarray, b: np.ndarray, distance: Distance) -> np.ndarray:
    if distance == "mse":
        return np.square(a - b).mean(axis=1)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return 1 - (a * b).sum(axis=1) / np.maximum(norms, 1e-16)


def separation(distances: Distances, *, gamma: float = 1.0) -> tuple[float, float]:
    """Return AUC and loss.

    AUC is the probability that a positive distance is below a negative one, where ties count half;
    the loss is the mean max-margin loss, positive - gamma * mean negative (Eq. 4.1).
    """
    from scipy.stats import mannwhitneyu

    positive, negative = (each.astype(np.float64) for each in distances)
    wins = mannwhitneyu(negative.ravel(), positive, method="asymptotic").statistic
    loss = positive - gamma * distances.negative.mean(axis=1)
    return float(wins / (positive.size * negative.size)), float(loss.mean())


def tidy_distances(distances: Distances) -> pd.DataFrame:
    """Return a row per distance: kind (positive or negative), value, and the AUC of all as auc."""
    positive, negative = distances
    columns = {
        "kind": ["positive"] * positive.size + ["negative"] * negative.size,
        "value": np.concatenate([positive, negative.ravel()]),
    }
    return pd.DataFrame(columns).assign(auc=separation(distances)[0])


def redundancy(texts: Sequence[str]) -> pd.DataFrame:
    """Count words (split at white space) and redundancy: two columns, a row per text.

    redundancy is nouns and verbs / distinct lemmas of these: 1 where none is repeated, NaN without
    any. English. Tags are textblob's, lemmas LemmInflect's; the paper's (A.2) are spaCy's, which
    publishes its models outside PyPI; a copy by a third party there is not used.
    """
    from lemminflect import getLemma

    lemma_of = cache(getLemma)
    rows = []
    for text in progress(texts, desc="nouns and verbs", unit="documents"):
        lemmas = []
        for word, part in tag_words(text):
            if part in ("noun", "verb"):
                lemmas.append(lemma_of(word.lower(), upos=part.upper())[0])
        ratio = len(lemmas) / len(set(lemmas)) if lemmas else np.nan
        rows.append((len(text.split()), ratio))
    return pd.DataFrame(rows, columns=["words", "redundancy"])


def redundancy_by_length(documents: pd.DataFrame) -> pd.DataFrame:
    """Return a row of Table 4: mean redundancy by length in words, index BINS and ALL_LENGTHS.

    documents: see `redundancy`.
    """
    length = pd.cut(documents["words"], list(EDGES), labels=list(BINS))
    means = documents.groupby(length, observed=False)["redundancy"].mean()
    means.index = pd.Index(means.index.astype(str), name="words")
    means.loc[ALL_LENGTHS] = documents["redundancy"].mean()
    return means.to_frame()


def sentence_similarity(
    texts: Sequence[str], embed: Callable[[list[str]], np.ndarray], *, language: str = "en"
) -> dict[str, float]:
    """Return the mean cosine of every two sentences `inside` a document and `across` documents.

    It is NaN where there are no such two. Ignored are sentences of fewer than SHORTEST words and
    documents of fewer than two different sentences.
    """
    documents = []
    for text in texts:
        split = [" ".join(part.split()) for part in split_sentences(text, language=language)]
        sentences = {each: None for each in split if len(spaced(each).split()) >= SHORTEST}
        if len(sentences) > 1:
            documents.append(list(sentences))
    if not documents:
        return {"inside": np.nan, "across": np.nan}
    X = unit(embed(list(chain.from_iterable(documents))))
    n = np.array([len(sentences) for sentences in documents])
    # The squared norm of a sum of unit vectors is the sum of the cosines of every ordered pair,
    # each vector with itself, too.
    S = np.add.reduceat(X, n.cumsum() - n)  # (documents, D), the sum of each document's sentences
    itself = np.square(X).sum()
    inside = np.square(S).sum()
    every = np.square(S.sum(axis=0)).sum()
    return {
        "inside": (inside - itself) / ((n * (n - 1)).sum() or np.nan),
        "across": (every - inside) / (n.sum() ** 2 - (n**2).sum() or np.nan),
    }


def spread(embeddings: np.ndarray) -> float:
    """Return the mean cosine distance of every two of N documents, (N, D)."""
    X = unit(embeddings)
    n = len(X)
    # The squared norm of the sum holds the cosine of each pair twice, and n ones.
    cosines = (np.square(X.sum(axis=0)).sum() - n) / (n * (n - 1))
    return float(1 - cosines)

"""Measurements without a task: the plane of a space, what a student keeps of a teacher, and the
SimDE paper's analyses.

The analyses are `redundancy` (Table 4) and `sentence_similarity` (Table 5).
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple, Self

import numpy as np
import pandas as pd
from scipy.stats import mannwhitneyu
from sklearn.decomposition import PCA
from sklearn.linear_model import RidgeCV
from sklearn.metrics import r2_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

from docemb_lib.base.progress import progress
from docemb_lib.corpus.rows import split_sentences, tag_words
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.teachers.words import spaced

ALPHAS = np.logspace(-6, 6, 25)  # ridge penalties, for student embeddings of mean variance 1
ALL = "all"  # the bucket of all documents
EDGES = (0, 50, 100, 200, 300, np.inf)  # words between which Table 4 divides documents
BINS = ("0-50", "51-100", "101-200", "201-300", "over 300")
ALL_LENGTHS = "All"  # the last row of Table 4
SHORTEST = 3  # words of a compared sentence; shorter ones are headings, dates and signatures

Distance = Literal["cosine", "mse"]


class Plane(NamedTuple):
    points: np.ndarray  # (N, 2)
    explained: (
        float  # share of the variance that both axes hold; NaN where all documents are one point
    )


def principal_plane(embeddings: np.ndarray) -> Plane:
    """The first two principal components of (N, D) embeddings; the largest weight of each axis is
    positive.
    """
    pca = PCA(2, svd_solver="full")
    with np.errstate(invalid="ignore"):  # no variance at all
        points = pca.fit_transform(np.asarray(embeddings, dtype=np.float64))
    return Plane(points, float(pca.explained_variance_ratio_.sum()))


def fit_ridge(student: np.ndarray, teacher: np.ndarray) -> Pipeline:
    """Ridge regression with an intercept; leave-one-out cross-validation chooses the penalty from
    ALPHAS.

    student: (N, D); teacher: (N, d). One factor scales all student dimensions to a mean variance of
    1, so that a penalty means the same for embeddings of any norm.
    """
    student, teacher = (np.asarray(side, dtype=np.float64) for side in (student, teacher))
    scale = float(np.sqrt(student.var(axis=0).mean())) or 1.0  # a collapsed student is not scaled
    return make_pipeline(FunctionTransformer(lambda X: X / scale), RidgeCV(alphas=ALPHAS)).fit(
        student, teacher
    )


def probe(
    train: tuple[np.ndarray, np.ndarray],
    validation: tuple[np.ndarray, np.ndarray],
    buckets: Mapping[str, np.ndarray],
) -> pd.DataFrame:
    """How much of a teacher a linear map reads from a student: columns bucket, documents, r2.

    train, validation: student (N, D) and teacher (N, d) embeddings; buckets: masks (N,) over the
    validation documents, to which ALL is added. r2: variance-weighted over the teacher's
    dimensions, against the mean of the bucket.
    """
    student, teacher = (np.asarray(side, dtype=np.float64) for side in validation)
    predicted = fit_ridge(*train).predict(student)
    rows = []
    for name, chosen in {ALL: np.ones(len(teacher), dtype=bool), **buckets}.items():
        n = int(chosen.sum())
        r2 = (
            r2_score(teacher[chosen], predicted[chosen], multioutput="variance_weighted")
            if n > 1
            else np.nan
        )
        rows.append((name, n, r2))
    return pd.DataFrame(rows, columns=["bucket", "documents", "r2"])


class Distances(NamedTuple):
    documents: np.ndarray  # (N,) rows of the embeddings
    positive: np.ndarray  # (N,) to the teacher embedding of the same document
    others: np.ndarray  # (N, K) rows of other documents, in the order in which they were drawn
    negative: np.ndarray  # (N, K) to the teacher embeddings of `others`

    def part(self, chosen: np.ndarray, negatives: int) -> Self:
        """The documents of a mask (N,), with the first `negatives` others."""
        documents, positive, others, negative = self
        return type(self)(
            documents[chosen],
            positive[chosen],
            others[chosen, :negatives],
            negative[chosen, :negatives],
        )


def measure_distances(
    student: np.ndarray,
    teacher: np.ndarray,
    *,
    distance: Distance,
    negatives: int = 20,
    seed: int = 0,
) -> Distances:
    """The distance of each document to its own teacher embedding and to those of `negatives` others
    drawn with `seed`.

    student, teacher: (N, D), row i of both is document i. distance: "mse" is the squared L2
    distance over D.
    """
    n = len(student)
    shifts = np.random.default_rng(seed).permuted(np.tile(np.arange(1, n), (n, 1)), axis=1)[
        :, :negatives
    ]
    own = np.arange(n)
    others = (own[:, None] + shifts) % n  # a shift from 1 to n - 1 never gives the document itself
    negative = [_distance(student, teacher[column], distance) for column in others.T]
    return Distances(own, _distance(student, teacher, distance), others, np.stack(negative, axis=1))


def _distance(a: np.ndarray, b: np.ndarray, distance: Distance) -> np.ndarray:
    if distance == "mse":
        return np.square(a - b).mean(axis=1)
    norms = np.linalg.norm(a, axis=1) * np.linalg.norm(b, axis=1)
    return 1 - (a * b).sum(axis=1) / np.maximum(norms, 1e-16)


def separation(distances: Distances, *, gamma: float = 1.0) -> tuple[float, float]:
    """AUC and loss.

    AUC is the probability that a positive distance is below a negative one, ties counting half; the
    loss is the mean max-margin loss, positive - gamma * mean negative (Eq. 4.1).
    """
    positive, negative = (
        distances.positive.astype(np.float64),
        distances.negative.ravel().astype(np.float64),
    )
    auc = mannwhitneyu(negative, positive, method="asymptotic").statistic / (
        positive.size * negative.size
    )
    loss = positive - gamma * distances.negative.mean(axis=1)
    return float(auc), float(loss.mean())


def mistaken(distances: Distances, *, k: int = 10) -> pd.DataFrame:
    """The k pairs of documents that the student confuses most, largest `ahead` first.

    Columns document, other (rows), and ahead: how much nearer the student's embedding is to the
    teacher embedding of the other document than to its own.
    """
    documents, positive, others, negative = distances
    ahead = positive[:, None] - negative  # (N, K)
    top = np.unravel_index(np.argsort(-ahead, axis=None, kind="stable")[:k], ahead.shape)
    return pd.DataFrame({"document": documents[top[0]], "other": others[top], "ahead": ahead[top]})


def tidy_distances(distances: Distances) -> pd.DataFrame:
    """A row per distance: document, other (rows), kind ("positive" or "negative"), value, and the
    AUC of all as auc.
    """
    documents, positive, others, negative = distances
    of_own = {"document": documents, "other": documents, "kind": "positive", "value": positive}
    rows = np.repeat(documents, others.shape[1])
    of_others = {
        "document": rows,
        "other": others.ravel(),
        "kind": "negative",
        "value": negative.ravel(),
    }
    frame = pd.concat([pd.DataFrame(of_own), pd.DataFrame(of_others)], ignore_index=True)
    return frame.assign(auc=separation(distances)[0])


def redundancy(texts: Sequence[str]) -> pd.DataFrame:
    """Columns words (split at white space) and redundancy, a row per text.

    redundancy is nouns and verbs / distinct lemmas of these: 1 where none is repeated, NaN without
    any. English. Tags are textblob's, lemmas LemmInflect's; the paper's (A.2) are spaCy's, which
    publishes its models outside PyPI; a copy by a third party there is not used.
    """
    from lemminflect import getLemma

    lemma = cache(lambda word, part: getLemma(word, upos=part.upper())[0])
    rows = []
    for text in progress(texts, desc="nouns and verbs", unit="documents"):
        content = [lemma(word.lower(), part) for word, part in tag_words(text) if part != "other"]
        rows.append((len(text.split()), len(content) / len(set(content)) if content else np.nan))
    return pd.DataFrame(rows, columns=["words", "redundancy"])


def redundancy_by_length(documents: pd.DataFrame) -> pd.DataFrame:
    """A row of Table 4: mean redundancy of `documents` by length in words, index BINS and
    ALL_LENGTHS.
    """
    length = pd.cut(documents["words"], list(EDGES), labels=list(BINS))
    means = documents.groupby(length, observed=False)["redundancy"].mean()
    means.index = pd.Index(means.index.astype(str), name="words")
    means.loc[ALL_LENGTHS] = documents["redundancy"].mean()
    return means.to_frame()


def sentence_similarity(
    texts: Sequence[str], embed: Callable[[list[str]], np.ndarray], *, language: str = "en"
) -> dict[str, float]:
    """Mean cosine of every two sentences `inside` a document and `across` documents; NaN where
    there are no such two.

    Ignored are sentences of fewer than SHORTEST words and documents of fewer than two different
    sentences.
    """
    documents: list[list[str]] = []
    for text in texts:
        split = (
            " ".join(sentence.split()) for sentence in split_sentences(text, language=language)
        )
        own = list(
            dict.fromkeys(
                sentence for sentence in split if len(spaced(sentence).split()) >= SHORTEST
            )
        )
        documents += [own] if len(own) > 1 else []
    if not documents:
        return {"inside": np.nan, "across": np.nan}
    X = unit(embed([sentence for own in documents for sentence in own])).astype(np.float64)
    n = np.array([len(own) for own in documents])
    # The squared norm of a sum of unit vectors is the sum of the cosines of every ordered pair,
    # each with itself, too.
    S = np.add.reduceat(X, n.cumsum() - n)  # (documents, D), the sum of each document's sentences
    itself, inside, every = np.square(X).sum(), np.square(S).sum(), np.square(S.sum(axis=0)).sum()
    pairs = {
        "inside": (n * (n - 1)).sum() or np.nan,
        "across": n.sum() ** 2 - (n**2).sum() or np.nan,
    }
    return {
        "inside": (inside - itself) / pairs["inside"],
        "across": (every - inside) / pairs["across"],
    }

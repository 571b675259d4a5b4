"""How much a document repeats itself (the SimDE paper, Tables 4 and 5): why its halves are a pair.

By words: nouns and verbs for each distinct one. By sentences: how similar those of one document are, beside those of
different documents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pandas as pd

from docemb_lib.corpus.parts_of_speech import tag_words
from docemb_lib.corpus.sentences import split_sentences
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

LIMITS = (0, 50, 100, 200, 300)  # words between which Table 4 divides documents
BINS = ("0-50", "51-100", "101-200", "201-300", "over 300")
ALL = "All"
SHORTEST = 3  # words of a sentence that is compared: headings, dates and signatures are similar without saying anything

T = TypeVar("T")


def redundancy(texts: Sequence[str]) -> pd.DataFrame:
    """A row per text: words (divided by white space), content (nouns and verbs), distinct ones, and redundancy.

    redundancy is content / distinct: 1 where nothing comes twice, NaN where there is neither a noun nor a verb. Words
    are told apart by their forms, whatever their capitals (the paper does not say). English.
    """
    rows = []
    for text in progress(texts, desc="nouns and verbs", unit="documents"):
        content = [word.text.lower() for word in tag_words(text) if word.part in {"noun", "verb"}]
        rows.append((len(text.split()), len(content), len(set(content))))
    documents = pd.DataFrame(rows, columns=["words", "content", "distinct"])
    documents["redundancy"] = documents["content"] / documents["distinct"]
    return documents


def redundancy_by_length(documents: pd.DataFrame) -> pd.DataFrame:
    """As a row of Table 4: the mean redundancy of the documents of each length in words, and how many they are.

    documents: what `redundancy` gives; those without a noun or verb do not count. Index words: BINS and "All".
    """
    counted = documents.dropna(subset="redundancy")
    if counted.empty:
        raise InputError(f"redundancy: none of the {len(documents)} documents has a noun or a verb; is it English?")
    place = pd.cut(counted["words"], [*LIMITS, np.inf], labels=list(BINS))
    table = counted.groupby(place, observed=False)["redundancy"].agg(["mean", "size"])
    table = table.set_axis(["redundancy", "documents"], axis="columns")
    table.index = pd.Index(table.index.astype(str), name="words")
    table.loc[ALL] = [counted["redundancy"].mean(), len(counted)]
    return table.astype({"documents": int})


def sentence_similarity(
    texts: Sequence[str],
    embed: Callable[[list[str]], np.ndarray],
    *,
    pairs: int = 1000,
    seed: int = 0,
    language: str = "en",
) -> pd.DataFrame:
    """Cosines of sentences: a row per pair, kind "inside" (two of one document) or "across" (of two documents).

    Of each kind as many as `pairs`, drawn by the seed: documents evenly, then a sentence of each, so that a long
    document counts no more than a short one. embed: N sentences to (N, D). Sentences of fewer than `SHORTEST` words do
    not count, nor do documents of fewer than two different ones. Raises InputError for fewer than two documents.
    """
    sentences = [found for text in texts if len(found := _sentences(text, language)) > 1]
    if len(sentences) < 2:
        raise InputError(
            f"sentence_similarity: {len(sentences)} of {len(texts)} documents have two sentences or more, expected two"
        )
    rng = np.random.default_rng(seed)
    drawn: list[tuple[str, str]] = []
    for _ in range(pairs):
        inside = sentences[rng.integers(len(sentences))]
        drawn.append(_two(inside, rng))
        one, other = _two(sentences, rng)
        drawn.append((one[rng.integers(len(one))], other[rng.integers(len(other))]))
    unique = list(dict.fromkeys(sentence for pair in drawn for sentence in pair))
    embeddings = np.asarray(embed(unique), dtype=np.float64)
    embeddings /= np.linalg.norm(embeddings, axis=1, keepdims=True)
    row_of = {sentence: row for row, sentence in enumerate(unique)}
    first, second = (embeddings[[row_of[pair[side]] for pair in drawn]] for side in (0, 1))
    kinds = ["inside", "across"] * pairs
    return pd.DataFrame({"kind": kinds, "cosine": (first * second).sum(axis=1)})


def _sentences(text: str, language: str) -> list[str]:
    found = [" ".join(sentence.split()) for sentence in split_sentences(text, language=language)]
    return list(dict.fromkeys(sentence for sentence in found if len(sentence.split()) >= SHORTEST))


def _two(items: Sequence[T], rng: np.random.Generator) -> tuple[T, T]:
    """Two different ones, each couple as probable as any."""
    one, other = rng.choice(len(items), size=2, replace=False)
    return items[one], items[other]

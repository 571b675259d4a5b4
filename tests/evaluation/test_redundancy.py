"""Redundancy by hand and against a slow loop; sentence pairs that are what they are said to be."""

from __future__ import annotations

import logging
import re

import numpy as np
import pandas as pd
import pytest

from docemb_lib.corpus.sentences import tag_words
from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import ALL_LENGTHS, BINS, redundancy, redundancy_by_length, sentence_similarity

SHIPS = "The ships left the harbour. Two ships stayed in the old harbour. The harbour closed."


def test_redundancy_is_nouns_and_verbs_for_each_distinct_one():
    found = redundancy([SHIPS, "He is very old.", "", "And 3 of 4!"])
    # ships left harbour ships stayed harbour harbour closed: eight, and five of them differ
    assert found["content"].tolist() == [8, 1, 0, 0]
    assert found["distinct"].tolist() == [5, 1, 0, 0]
    assert found["words"].tolist() == [15, 4, 0, 4]
    assert found["redundancy"].tolist()[:2] == [8 / 5, 1.0]
    assert found["redundancy"].isna().tolist() == [False, False, True, True]


def test_capitals_make_no_other_word_and_a_text_twice_is_twice_as_redundant():
    (one,) = redundancy(["Ships sail. ships Sail."])["redundancy"]
    assert one == 2
    once, twice = redundancy([str(logging.__doc__), f"{logging.__doc__} " * 2])["redundancy"]
    assert twice == pytest.approx(2 * once, rel=0.02)


def test_lengths_are_divided_as_in_table_4():
    words = [1, 50, 51, 100, 101, 200, 201, 300, 301, 10_000]
    documents = pd.DataFrame({"words": [*words, 7], "redundancy": [*np.arange(1.0, 11.0), np.nan]})
    table = redundancy_by_length(documents)
    assert table.index.tolist() == [*BINS, ALL_LENGTHS]
    assert table["redundancy"].tolist() == [1.5, 3.5, 5.5, 7.5, 9.5, 5.5]
    assert table["documents"].tolist() == [2, 2, 2, 2, 2, 10]


def test_the_table_equals_a_slow_loop_over_real_documents():
    texts = [str(module.__doc__) * times for module in (logging, re, np, pd) for times in (1, 3)]
    table = redundancy_by_length(redundancy(texts))
    sums = {name: [] for name in [*BINS, ALL_LENGTHS]}
    for text in texts:
        length, seen, count = len(text.split()), [], 0
        for word in tag_words(text):
            if word.part == "noun" or word.part == "verb":
                count += 1
                if word.text.lower() not in seen:
                    seen.append(word.text.lower())
        name = "0-50" if length <= 50 else "51-100" if length <= 100 else "101-200" if length <= 200 else "201-300"
        sums["over 300" if length > 300 else name].append(count / len(seen))
        sums[ALL_LENGTHS].append(count / len(seen))
    for name, values in sums.items():
        assert table.loc[name, "documents"] == len(values)
        np.testing.assert_allclose(table.loc[name, "redundancy"], np.mean(values) if values else np.nan)


def test_documents_without_a_word_to_count_are_refused():
    with pytest.raises(InputError, match="none of the 2 documents has a noun or a verb; is it English"):
        redundancy_by_length(redundancy(["1 2", ""]))


# Two sentences a document and a document a topic, but for one of a single sentence and one of the same sentence twice.
DOCUMENTS = [f"The {topic} is here now. We like the {topic} there." for topic in ("cat", "ship", "tree")]
ODD = ["Only one sentence here.", "Twice the same sentence. Twice the same sentence.", "", "No. Yes. Oh."]


def by_topic(sentences: list[str]) -> np.ndarray:
    """Sentences of a topic are the same up to their length, those of two topics at right angles."""
    rows = np.zeros((len(sentences), 3))
    for row, sentence in zip(rows, sentences, strict=True):
        for column, topic in enumerate(("cat", "ship", "tree")):
            row[column] = (topic in sentence) * len(sentence)
    assert (rows.sum(axis=1) > 0).all(), "a sentence of a document that has no two"
    assert len(set(sentences)) == len(sentences), "embedded once each"
    return rows


def test_sentences_are_of_one_document_inside_and_of_two_across():
    pairs = sentence_similarity([*DOCUMENTS, *ODD], by_topic, pairs=50)
    assert pairs["kind"].value_counts().to_dict() == {"inside": 50, "across": 50}
    np.testing.assert_allclose(pairs.loc[pairs["kind"] == "inside", "cosine"], 1)
    np.testing.assert_allclose(pairs.loc[pairs["kind"] == "across", "cosine"], 0)


def test_the_means_are_those_over_all_couples_of_sentences():
    rng = np.random.default_rng(0)
    documents = [f"This is {n} apples. That is {n} pears. Here is {n} plums." for n in range(4)]
    vectors: dict[str, np.ndarray] = {}

    def embed(sentences: list[str]) -> np.ndarray:
        return np.array([vectors.setdefault(sentence, rng.normal(size=4)) for sentence in sentences])

    means = sentence_similarity(documents, embed, pairs=4000).groupby("kind")["cosine"].mean()
    units = {sentence: vector / np.linalg.norm(vector) for sentence, vector in vectors.items()}
    couples = [(a, b) for a in units for b in units if a != b]
    for kind, same in (("inside", True), ("across", False)):
        all_of_them = [units[a] @ units[b] for a, b in couples if (a.split()[2] == b.split()[2]) == same]
        assert means[kind] == pytest.approx(np.mean(all_of_them), abs=0.03)


def test_pairs_are_drawn_by_the_seed():
    one, again, other = (
        sentence_similarity(DOCUMENTS, lambda s: np.array([[len(x), 9.0] for x in s]), pairs=9, seed=k)
        for k in (0, 0, 1)
    )
    pd.testing.assert_frame_equal(one, again)
    assert not one.equals(other)


def test_fewer_than_two_documents_of_two_sentences_are_refused():
    with pytest.raises(InputError, match="1 of 5 documents have two sentences or more, expected two"):
        sentence_similarity([DOCUMENTS[0], *ODD], by_topic)

"""Cosines alone, against scipy, plain counting, and what a common offset hides."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cosine, pdist

from docemb_lib.evaluation import Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval
from docemb_lib.evaluation.protocols import asks_what_belongs_together, score_cosines, spread

TEXTS = [f"text {i}" for i in range(8)]
PAIRS = LabelledPairs(TEXTS[:4], TEXTS[4:], [1, 0, 1, 0])


def test_spread_is_the_mean_cosine_distance_of_all_couples():
    X = np.random.default_rng(0).standard_normal((30, 5)) + 1
    assert spread(X) == pytest.approx(pdist(X, "cosine").mean())
    assert spread(np.ones((4, 3))) == pytest.approx(0)
    assert spread(np.array([[1.0, 0.0], [-2.0, 0.0]])) == pytest.approx(2)


@pytest.mark.parametrize("seed", range(4))
def test_pairs_are_judged_by_how_often_one_that_belongs_together_is_nearer(seed):
    task = Pairs("pairs", {"train": PAIRS, "test": PAIRS})
    rows = dict(zip(TEXTS, np.random.default_rng(seed).standard_normal((8, 3)), strict=True))
    embeddings = np.array([rows[text] for text in task.texts("test")])
    distances = [cosine(rows[a], rows[b]) for a, b in zip(PAIRS.first, PAIRS.second, strict=True)]
    expected = np.mean([distances[i] < distances[j] for i in (0, 2) for j in (1, 3)])
    assert score_cosines(task, embeddings) == pytest.approx(expected)


def test_retrieval_keeps_its_own_metric():
    task = Retrieval("ranking", {"test": Ranking(TEXTS[:3], [0], [[2]])})
    assert score_cosines(task, np.array([[1.0, 0], [1.0, 0.2], [1.0, 0.5]])) == 0.5


def test_without_a_common_offset_the_same_embeddings_are_further_apart():
    X = np.random.default_rng(0).standard_normal((50, 4))
    assert spread(X + 10) < 0.1 < 0.9 < spread(X)


@pytest.mark.parametrize(
    ("labels", "answered"),
    [([1, 0, 1, 0], True), (["1", "0", "1", "0"], True), (["match", "nonmatch"] * 2, False), ([0, 1, 2, 0], False)],
)
def test_only_labels_of_which_it_is_known_what_they_say_are_answered_by_cosines(labels, answered):
    pairs = LabelledPairs(TEXTS[:4], TEXTS[4:], labels)
    assert asks_what_belongs_together(Pairs("pairs", {"train": pairs, "test": pairs})) is answered


def test_pairs_with_labels_from_a_file_are_judged_alike():
    as_read = LabelledPairs(PAIRS.first, PAIRS.second, ["1", "0", "1", "0"])
    embeddings = np.random.default_rng(0).standard_normal((8, 3))
    assert score_cosines(Pairs("p", {"train": as_read, "test": as_read}), embeddings) == score_cosines(
        Pairs("p", {"train": PAIRS, "test": PAIRS}), embeddings
    )


def test_classes_are_no_question_for_cosines():
    assert not asks_what_belongs_together(Classification("c", {"train": Labelled(TEXTS[:2], [0, 1])}))

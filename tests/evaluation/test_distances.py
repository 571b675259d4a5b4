"""Distances to the teacher, against loops and scikit-learn's area under the ROC curve."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cosine
from sklearn.metrics import roc_auc_score

from docemb_lib.errors import InputError
from docemb_lib.evaluation.distances import teacher_distances


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_every_distance_is_that_of_the_pair_it_names_and_the_auc_is_scikit_learns(distance):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((12, 5))
    student = teacher + rng.standard_normal((12, 5))
    frame = teacher_distances(student, teacher, distance=distance, negatives=4, seed=1)
    assert len(frame) == 12 + 12 * 4
    for row in frame.itertuples():
        a, b = student[row.document], teacher[row.other]
        assert row.value == pytest.approx(cosine(a, b) if distance == "cosine" else ((a - b) ** 2).mean())
        assert (row.kind == "positive") == (row.document == row.other)
    assert frame["auc"].nunique() == 1
    assert frame["auc"][0] == pytest.approx(roc_auc_score(frame["kind"] == "negative", frame["value"]))


def test_negatives_are_distinct_others_and_all_of_them_where_fewer_exist():
    frame = teacher_distances(np.eye(4), np.eye(4), distance="cosine", negatives=20)
    negatives = frame[frame["kind"] == "negative"]
    assert negatives.groupby("document")["other"].nunique().tolist() == [3, 3, 3, 3]


def test_a_perfect_student_is_told_apart_and_a_collapsed_one_is_at_chance():
    teacher = np.random.default_rng(0).standard_normal((30, 6))
    assert teacher_distances(teacher, teacher, distance="mse")["auc"][0] == 1
    constant = teacher_distances(np.ones((30, 6)), np.ones((30, 6)), distance="cosine")
    assert constant["auc"][0] == 0.5


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="expected equal"):
        teacher_distances(np.ones((3, 2)), np.ones((3, 4)), distance="mse")
    with pytest.raises(InputError, match="two documents or more"):
        teacher_distances(np.ones((1, 2)), np.ones((1, 2)), distance="mse")

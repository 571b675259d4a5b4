"""Distances to the teacher, against loops, scikit-learn's area under the ROC curve, scipy's test and our own loss."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.spatial.distance import cosine
from scipy.stats import ks_2samp
from sklearn.metrics import roc_auc_score

from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import measure_distances, mistaken, separation, tidy_distances
from docemb_lib.losses import MaxMargin


def noisy(n=12, d=5, noise=1.0):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((n, d))
    return teacher + noise * rng.standard_normal((n, d)), teacher


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_every_distance_is_that_of_the_pair_it_names(distance):
    student, teacher = noisy()
    frame = tidy_distances(measure_distances(student, teacher, distance=distance, negatives=4, seed=1))
    assert len(frame) == 12 + 12 * 4
    for row in frame.itertuples():
        a, b = student[row.document], teacher[row.other]
        assert row.value == pytest.approx(cosine(a, b) if distance == "cosine" else ((a - b) ** 2).mean())
        assert (row.kind == "positive") == (row.document == row.other)
    assert frame["auc"].nunique() == 1
    assert frame["auc"][0] == pytest.approx(roc_auc_score(frame["kind"] == "negative", frame["value"]))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("ties", [False, True])
def test_auc_and_overlap_are_those_of_scikit_learn_and_scipy(seed, ties):
    rng = np.random.default_rng(seed)
    found = measure_distances(*noisy(), distance="mse", negatives=7, seed=seed)
    if ties:
        found = found._replace(positive=rng.integers(0, 4, 12) / 1.0, negative=rng.integers(1, 5, (12, 7)) / 1.0)
    told = separation(found)
    labels = np.repeat([0, 1], [12, 84])
    assert told.auc == pytest.approx(roc_auc_score(labels, np.concatenate([found.positive, found.negative.ravel()])))
    assert told.overlap == pytest.approx(1 - ks_2samp(found.positive, found.negative.ravel()).statistic)


@pytest.mark.parametrize("distance", ["cosine", "mse"])
@pytest.mark.parametrize("gamma", [0.0, 0.4, 1.5])
def test_with_all_others_as_negatives_the_loss_is_max_margin(distance, gamma):
    student, teacher = noisy()
    found = measure_distances(student, teacher, distance=distance, negatives=11)
    loss = MaxMargin(distance=distance, gamma=gamma)(torch.from_numpy(student), torch.from_numpy(teacher))
    assert separation(found, gamma=gamma).loss == pytest.approx(loss.mean().item())


def test_a_part_has_the_chosen_documents_and_their_first_negatives():
    found = measure_distances(*noisy(), distance="mse", negatives=6)
    chosen = np.arange(12) % 3 == 0
    part = found.part(chosen, 2)
    assert part.documents.tolist() == [0, 3, 6, 9]
    for place, document in enumerate([0, 3, 6, 9]):
        assert part.positive[place] == found.positive[document]
        assert part.others[place].tolist() == found.others[document, :2].tolist()
        assert part.negative[place].tolist() == found.negative[document, :2].tolist()
    with pytest.raises(InputError, match="no documents are chosen"):
        separation(found.part(np.zeros(12, dtype=bool), 2))


def test_the_most_mistaken_pairs_are_those_of_a_loop_over_all():
    student, teacher = noisy(noise=3.0)
    found = measure_distances(student, teacher, distance="mse", negatives=6).part(np.arange(12) > 2, 4)
    pairs = []
    for place, document in enumerate(found.documents):
        own = ((student[document] - teacher[document]) ** 2).mean()
        for other in found.others[place]:
            pairs.append((own - ((student[document] - teacher[other]) ** 2).mean(), document, other))
    expected = sorted(pairs, reverse=True)[:5]
    told = mistaken(found, k=5)
    assert told[["document", "other"]].to_numpy().tolist() == [[document, other] for _, document, other in expected]
    np.testing.assert_allclose(told["ahead"], [ahead for ahead, _, _ in expected])
    np.testing.assert_allclose(told["own"] - told["to_other"], told["ahead"])


def test_negatives_are_distinct_others_and_all_of_them_where_fewer_exist():
    found = measure_distances(np.eye(4), np.eye(4), distance="cosine", negatives=20)
    assert [sorted(row) for row in found.others.tolist()] == [[1, 2, 3], [0, 2, 3], [0, 1, 3], [0, 1, 2]]


def test_a_perfect_student_is_told_apart_and_a_collapsed_one_is_at_chance():
    teacher = np.random.default_rng(0).standard_normal((30, 6))
    perfect = separation(measure_distances(teacher, teacher, distance="mse"))
    assert (perfect.auc, perfect.overlap) == (1, 0)
    constant = separation(measure_distances(np.ones((30, 6)), np.ones((30, 6)), distance="cosine"))
    assert (constant.auc, constant.overlap) == (0.5, 1)


def test_what_does_not_fit_is_refused():
    with pytest.raises(InputError, match="expected equal"):
        measure_distances(np.ones((3, 2)), np.ones((3, 4)), distance="mse")
    with pytest.raises(InputError, match="two documents or more"):
        measure_distances(np.ones((1, 2)), np.ones((1, 2)), distance="mse")

"""The probe, against closed forms, normal equations in numpy and neighbours counted by hand."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.distance import cdist

from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import fit_ridge, neighbour_overlap, probe


def spaces(*, seed=0, n=120, wide=8, to=5, noise=0.0):
    """Student embeddings (n, wide), and teacher embeddings that are a linear map of them, an offset and noise."""
    rng = np.random.default_rng(seed)
    student = rng.standard_normal((n, wide)) * 3 + 1
    teacher = student @ rng.standard_normal((wide, to)) + rng.standard_normal(to)
    return student, teacher + noise * rng.standard_normal(teacher.shape)


def halves(student, teacher):
    n = len(student) // 2
    return (student[:n], teacher[:n]), (student[n:], teacher[n:])


def test_a_teacher_that_is_a_linear_map_of_the_student_is_read_whole():
    row = probe(*halves(*spaces()), {}).iloc[0]
    assert (row["bucket"], row["documents"]) == ("all", 60)
    assert row["r2"] == pytest.approx(1, abs=1e-9)
    assert row["overlap"] == 1


def test_nothing_is_read_from_noise():
    rng = np.random.default_rng(0)
    student, teacher = rng.standard_normal((400, 6)), rng.standard_normal((400, 4))
    row = probe(*halves(student, teacher), {}, k=10).iloc[0]
    assert row["r2"] <= 0
    assert row["overlap"] == pytest.approx(10 / 199, abs=0.03)  # chance


def test_a_collapsed_student_knows_the_mean_alone():
    _, teacher = spaces()
    train, validation = halves(np.ones((120, 8)), teacher)
    row = probe(train, validation, {}).iloc[0]
    residual = ((validation[1] - train[1].mean(0)) ** 2).sum()
    assert row["r2"] == pytest.approx(1 - residual / ((validation[1] - validation[1].mean(0)) ** 2).sum())


def test_the_ridge_is_that_of_the_normal_equations_at_the_penalty_it_chose():
    student, teacher = spaces(noise=4.0)
    ridge = fit_ridge(student, teacher)
    X = student / np.sqrt(student.var(axis=0).mean())
    centred, target = X - X.mean(0), teacher - teacher.mean(0)
    weights = np.linalg.solve(centred.T @ centred + ridge.model.alpha_ * np.eye(8), centred.T @ target)
    np.testing.assert_allclose(ridge.predict(student), centred @ weights + teacher.mean(0), atol=1e-8)


def test_the_penalty_is_the_one_that_leaving_out_one_document_at_a_time_likes_best():
    student, teacher = spaces(n=15, noise=4.0)
    ridge = fit_ridge(student, teacher)
    X = student / np.sqrt(student.var(axis=0).mean())

    def error(alpha):
        total = 0.0
        for left_out in range(15):
            kept = np.arange(15) != left_out
            mean_x, mean_y = X[kept].mean(0), teacher[kept].mean(0)
            centred = X[kept] - mean_x
            weights = np.linalg.solve(centred.T @ centred + alpha * np.eye(8), centred.T @ (teacher[kept] - mean_y))
            total += (((X[left_out] - mean_x) @ weights + mean_y - teacher[left_out]) ** 2).sum()
        return total

    alphas = ridge.model.alphas
    assert ridge.model.alpha_ == min(alphas, key=error)
    assert alphas.min() < ridge.model.alpha_ < alphas.max()


def test_the_norm_of_the_student_changes_nothing():
    student, teacher = spaces(noise=4.0)
    small, large = (probe(*halves(scale * student, teacher), {}).iloc[0] for scale in (1e-3, 1e3))
    assert small["r2"] == pytest.approx(large["r2"])
    assert small["overlap"] == large["overlap"]


def test_overlap_is_the_share_of_common_neighbours():
    # On the half circle; in `moved`, document 2 has gone over to 4.
    def on_circle(*degrees):
        return np.array([[np.cos(np.radians(d)), np.sin(np.radians(d))] for d in degrees])

    here, moved = on_circle(0, 10, 25, 60, 90), on_circle(0, 10, 95, 60, 90)
    # nearest two of each: here {1,2} {0,2} {1,0} {4,2} {3,2}; moved {1,3} {0,3} {4,3} {4,2} {2,3}
    assert neighbour_overlap(here, moved, k=2).tolist() == [0.5, 0.5, 0.0, 1.0, 1.0]


def test_overlap_equals_a_plain_loop():
    rng = np.random.default_rng(1)
    a, b = rng.standard_normal((30, 4)), rng.standard_normal((30, 7))
    expected = []
    for i in range(30):
        nearest = [
            set(sorted((j for j in range(30) if j != i), key=lambda j, row=row: row[j])[:5])
            for row in (cdist(a, a, "cosine")[i], cdist(b, b, "cosine")[i])
        ]
        expected.append(len(nearest[0] & nearest[1]) / 5)
    assert neighbour_overlap(a, b, k=5).tolist() == expected


def test_buckets_are_judged_by_themselves_among_all_documents():
    student, teacher = spaces(noise=6.0)
    train, validation = halves(student, teacher)
    short = np.arange(60) % 3 == 0
    frame = probe(
        train, validation, {"short": short, "long": ~short, "one": np.arange(60) == 7, "none": short & ~short}
    )
    assert frame["bucket"].tolist() == ["all", "short", "long", "one", "none"]
    assert frame["documents"].tolist() == [60, 20, 40, 1, 0]
    predicted = fit_ridge(*train).predict(validation[0])
    truth = validation[1][short]
    r2 = 1 - ((truth - predicted[short]) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum()
    assert frame["r2"][1] == pytest.approx(r2)
    assert frame["overlap"][1] == pytest.approx(neighbour_overlap(predicted, validation[1], k=10)[short].mean())
    assert frame["overlap"][0] == pytest.approx((20 * frame["overlap"][1] + 40 * frame["overlap"][2]) / 60)
    assert np.isnan(frame["r2"][3])
    assert np.isnan(frame["overlap"][4])


def test_among_few_documents_fewer_neighbours_count():
    student, teacher = spaces(n=24, noise=6.0)
    train, validation = halves(student, teacher)
    predicted = fit_ridge(*train).predict(validation[0])
    overlap = probe(train, validation, {})["overlap"][0]
    assert overlap == neighbour_overlap(predicted, validation[1], k=2).mean()  # a fifth of 11 others


def test_what_does_not_belong_together_is_refused():
    with pytest.raises(InputError, match="4 student and 5 teacher embeddings"):
        fit_ridge(np.ones((4, 2)), np.ones((5, 2)))
    with pytest.raises(InputError, match="give 3 or more"):
        fit_ridge(np.ones((2, 2)), np.ones((2, 2)))

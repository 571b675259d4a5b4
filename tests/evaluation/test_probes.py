"""Planes, probes and distances against numpy, scikit-learn, scipy and slow loops."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, cosine
from sklearn.metrics import roc_auc_score

from docemb_lib.evaluation import probes


def test_the_plane_is_spanned_by_the_leading_singular_vectors():
    X = np.random.default_rng(0).standard_normal((20, 6)) * [5, 4, 1, 1, 1, 1] + 3
    U, s, _ = np.linalg.svd(X - X.mean(axis=0), full_matrices=False)
    plane = probes.principal_plane(X)
    np.testing.assert_allclose(np.abs(plane.points), np.abs(U[:, :2] * s[:2]), atol=1e-9)
    assert plane.explained == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())
    collapsed = probes.principal_plane(np.ones((5, 4)))
    assert np.isnan(collapsed.explained)
    np.testing.assert_allclose(collapsed.points, 0, atol=1e-12)


def spaces(*, seed=0, n=120, wide=8, to=5, noise=0.0):
    """Student embeddings (n, wide), and teacher embeddings that are a linear map of them, an offset
    and noise.
    """
    rng = np.random.default_rng(seed)
    student = rng.standard_normal((n, wide)) * 3 + 1
    teacher = student @ rng.standard_normal((wide, to)) + rng.standard_normal(to)
    return student, teacher + noise * rng.standard_normal(teacher.shape)


def halves(student, teacher):
    n = len(student) // 2
    return (student[:n], teacher[:n]), (student[n:], teacher[n:])


def test_the_mean_is_read_from_a_collapsed_student():
    train, validation = halves(np.ones((120, 8)), spaces()[1])
    teacher = validation[1]
    errors = ((teacher - train[1].mean(0)) ** 2).sum()
    r2 = 1 - errors / ((teacher - teacher.mean(0)) ** 2).sum()
    assert probes.probe(train, validation, {})["r2"][0] == pytest.approx(r2)


def test_the_ridge_solves_the_normal_equations_at_the_best_leave_one_out_penalty():
    student, teacher = spaces(n=15, noise=4.0)
    ridge = probes.fit_ridge(student, teacher)
    X = student / np.sqrt(student.var(axis=0).mean())

    def predict(alpha, kept, unseen):
        mean_x = X[kept].mean(0)
        mean_y = teacher[kept].mean(0)
        centred = X[kept] - mean_x
        weights = np.linalg.solve(
            centred.T @ centred + alpha * np.eye(8), centred.T @ (teacher[kept] - mean_y)
        )
        return (X[unseen] - mean_x) @ weights + mean_y

    def error(alpha):
        return sum(
            ((predict(alpha, np.arange(15) != n, n) - teacher[n]) ** 2).sum() for n in range(15)
        )

    alphas, chosen = ridge[-1].alphas, ridge[-1].alpha_
    assert chosen == min(alphas, key=error)
    assert alphas.min() < chosen < alphas.max()
    everyone = np.arange(15)
    np.testing.assert_allclose(
        ridge.predict(student), predict(chosen, everyone, everyone), atol=1e-8
    )


def test_buckets_are_judged_by_themselves():
    train, validation = halves(*spaces(noise=6.0))
    short = np.arange(60) % 3 == 0
    buckets = {"short": short, "long": ~short, "one": np.arange(60) == 7, "none": short & ~short}
    frame = probes.probe(train, validation, buckets)
    sizes = {"all": 60, "short": 20, "long": 40, "one": 1, "none": 0}
    assert dict(zip(frame["bucket"], frame["documents"], strict=True)) == sizes
    predicted = probes.fit_ridge(*train).predict(validation[0])
    truth = validation[1][short]
    r2 = 1 - ((truth - predicted[short]) ** 2).sum() / ((truth - truth.mean(0)) ** 2).sum()
    assert frame["r2"][1] == pytest.approx(r2)
    assert np.isnan(frame["r2"][3:]).all()


def noisy(n=12, d=5, noise=1.0):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((n, d))
    return teacher + noise * rng.standard_normal((n, d)), teacher


@pytest.mark.parametrize("distance", ["cosine", "mse"])
def test_distances_are_those_to_the_own_embedding_and_to_all_others(distance):
    student, teacher = noisy()
    measured = probes.measure_distances(student, teacher, distance=distance, negatives=20)
    D = cdist(student, teacher, "cosine")
    if distance == "mse":
        D = cdist(student, teacher, "sqeuclidean") / 5
    np.testing.assert_allclose(measured.positive, np.diag(D))
    others = [np.delete(row, n) for n, row in enumerate(D)]
    np.testing.assert_allclose(np.sort(measured.negative), np.sort(others))
    frame = probes.tidy_distances(measured)
    assert len(frame) == 12 + 12 * 11
    auc = roc_auc_score(frame["kind"] == "negative", frame["value"])
    values = frame.groupby("kind")["value"].apply(list)
    assert probes.separation(values["positive"], values["negative"]) == pytest.approx(auc)


def test_no_auc_is_above_1_where_many_float32_distances_are_ranked():
    assert probes.separation(np.zeros(5000, np.float32), np.ones(45_000, np.float32)) == 1.0


def test_the_spread_is_the_mean_distance_of_every_two_documents():
    X = np.random.default_rng(0).standard_normal((7, 5))
    pairs = [(i, j) for i in range(7) for j in range(i)]
    distances = [cosine(X[i], X[j]) for i, j in pairs]
    assert probes.spread(X) == pytest.approx(np.mean(distances))

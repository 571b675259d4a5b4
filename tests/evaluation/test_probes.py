"""Planes, probes and distances against numpy, scikit-learn, scipy and slow loops."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, cosine
from sklearn.linear_model import RidgeCV

from docemb_lib.evaluation import probes


def test_the_plane_of_equal_embeddings_is_a_point_that_explains_nothing():
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


@pytest.mark.parametrize("norm", [1e-4, 1, 1e4])
def test_a_penalty_means_the_same_for_embeddings_of_any_norm(norm):
    """The penalty that leave-one-out chooses is not the least or the largest one."""
    student, teacher = spaces(n=15, noise=4.0)
    X = student / np.sqrt(student.var(axis=0).mean())
    ridge = RidgeCV(probes.ALPHAS).fit(X, teacher)
    assert 1e-5 < ridge.alpha_ < 1e5
    predicted = probes.predict_by_ridge(norm * student, teacher, norm * student)
    np.testing.assert_allclose(predicted, ridge.predict(X))


def test_buckets_are_judged_by_themselves():
    train, validation = halves(*spaces(noise=6.0))
    short = np.arange(60) % 3 == 0
    buckets = {"short": short, "long": ~short, "one": np.arange(60) == 7, "none": short & ~short}
    frame = probes.probe(train, validation, buckets)
    sizes = {"all": 60, "short": 20, "long": 40, "one": 1, "none": 0}
    assert dict(zip(frame["bucket"], frame["documents"], strict=True)) == sizes
    predicted = probes.predict_by_ridge(*train, validation[0])
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
    np.testing.assert_allclose(measured[:, 0], np.diag(D))
    others = [np.delete(row, n) for n, row in enumerate(D)]
    np.testing.assert_allclose(np.sort(measured[:, 1:]), np.sort(others))
    frame = probes.tidy_distances(measured)
    assert frame["kind"].value_counts().to_dict() == {"negative": 12 * 11, "positive": 12}


def test_the_spread_is_the_mean_distance_of_every_two_documents():
    X = np.random.default_rng(0).standard_normal((7, 5))
    pairs = [(i, j) for i in range(7) for j in range(i)]
    distances = [cosine(X[i], X[j]) for i, j in pairs]
    assert probes.spread(X) == pytest.approx(np.mean(distances))

"""Planes and distances against numpy, scikit-learn, scipy and slow loops."""

import numpy as np
import pytest
from scipy.spatial.distance import cdist, pdist

from docemb_lib.evaluation import probes


def test_the_plane_of_equal_embeddings_is_a_point_that_explains_nothing():
    collapsed = probes.principal_plane(np.ones((5, 4)))
    assert np.isnan(collapsed.explained)
    np.testing.assert_allclose(collapsed.points, 0, atol=1e-12)


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
    assert probes.spread(X) == pytest.approx(pdist(X, "cosine").mean())

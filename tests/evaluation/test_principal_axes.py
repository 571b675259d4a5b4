"""The plane of a space, against numpy's singular values."""

from __future__ import annotations

import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation.probes import principal_plane


def test_the_plane_is_spanned_by_the_leading_singular_vectors():
    X = np.random.default_rng(0).standard_normal((20, 6)) * [5, 4, 1, 1, 1, 1] + 3
    centred = X - X.mean(axis=0)
    U, s, _ = np.linalg.svd(centred, full_matrices=False)
    plane = principal_plane(X)
    np.testing.assert_allclose(np.abs(plane.points), np.abs(U[:, :2] * s[:2]), atol=1e-9)
    assert plane.explained == pytest.approx((s[:2] ** 2).sum() / (s**2).sum())


def test_a_collapsed_space_has_no_variance_to_explain():
    plane = principal_plane(np.ones((5, 4)))
    assert np.isnan(plane.explained)
    np.testing.assert_allclose(plane.points, 0, atol=1e-12)


@pytest.mark.parametrize("shape", [(2, 5), (5, 1)])
def test_too_little_for_a_plane_is_refused(shape):
    with pytest.raises(InputError, match="3 and 2 or more"):
        principal_plane(np.ones(shape))

"""What 04_projections defines in its cells, beside scikit-learn and plain loops."""

import numpy as np
import pytest
import torch
from scipy.spatial.distance import pdist
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import cross_val_predict

NOTEBOOK = "04_projections.py"


@pytest.fixture
def spaces():
    """Embeddings (N, D), and those of a teacher (N, C): a linear map of them, an offset, noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((60, 8)) * 3 + 1
    C = X @ rng.standard_normal((8, 5)) + rng.standard_normal(5)
    return X, C + 4 * rng.standard_normal(C.shape)


@pytest.fixture
def predicted(defined):
    called = {"RidgeCV": RidgeCV, "cross_val_predict": cross_val_predict}
    defined.predicted_by_linear_map.__globals__.update(called)
    return defined.predicted_by_linear_map


@pytest.mark.parametrize("norm", [1e-4, 1, 1e4])
def test_a_linear_map_reads_embeddings_of_any_norm_alike(predicted, spaces, norm):
    X, C = spaces
    np.testing.assert_allclose(predicted(norm * X + 7, C), predicted(X, C))


def test_no_document_is_predicted_by_a_map_that_was_fitted_on_it(predicted, spaces):
    X, C = spaces
    before = predicted(X, C)
    C[3] += 100
    after = predicted(X, C)
    np.testing.assert_allclose(after[:12], before[:12])  # the fold of document 3
    assert not np.allclose(after[12:], before[12:])


def test_the_spread_is_the_mean_cosine_distance_of_pairs(defined):
    z = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    assert defined.spread(z) == pytest.approx(pdist(z, "cosine").mean(), rel=1e-5)

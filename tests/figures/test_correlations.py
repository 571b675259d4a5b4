"""SoftCCA finds what two views have in common, and with decorrelation each feature finds something else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.cross_decomposition import CCA

from docemb_lib.figures.losses import DELTA, STEPS, canonical_correlations, plot_soft_cca, train_projections, two_views


@pytest.fixture(scope="module")
def known():
    """The canonical correlations by scikit-learn."""
    X, Y = two_views()
    ours, theirs = CCA(n_components=2, max_iter=5000, tol=1e-9).fit_transform(X.numpy(), Y.numpy())
    return [np.corrcoef(ours[:, k], theirs[:, k]).item(1) for k in range(2)]


def test_canonical_correlations_are_those_of_scikit_learn(known):
    found = canonical_correlations(*two_views())
    assert len(found) == 4
    assert found[:2] == pytest.approx(known, abs=1e-4)
    assert found[2] < 0.3  # noise


def test_without_decorrelation_both_features_find_the_same(known):
    trace = train_projections(*two_views(), delta=0.0)
    assert trace.between[-1] == pytest.approx([known[0], known[0]], abs=0.01)
    assert trace.within[-1] > 0.99


def test_with_decorrelation_each_finds_its_own(known):
    trace = train_projections(*two_views(), delta=DELTA)
    assert sorted(trace.between[-1], reverse=True) == pytest.approx(known, abs=0.05)
    assert trace.within[-1] < 0.3


@pytest.mark.parametrize("delta", [0.0, DELTA])
def test_views_shrink_while_correlations_rise(delta):
    trace = train_projections(*two_views(), delta=delta)
    assert trace.scale[-1] < 0.3 * trace.scale[0]
    assert (trace.between[-1] > trace.between[0] + 0.3).all()


def test_training_is_repeatable_and_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    first = train_projections(*two_views())
    torch.testing.assert_close(torch.rand(3), expected)
    np.testing.assert_array_equal(first.within, train_projections(*two_views()).within)


def test_the_figure_shows_both_trainings():
    axes = plot_soft_cca()
    for ax, delta in zip(axes, (0.0, DELTA), strict=True):
        trace = train_projections(*two_views(), delta=delta)
        drawn = [line.get_ydata() for line in ax.lines[:3]]
        np.testing.assert_allclose(np.transpose(drawn), np.column_stack([trace.between, trace.within]))
        assert len(drawn[0]) == STEPS + 1
        assert f"δ = {delta:g}" in ax.get_title()
        assert [text.get_text() for text in ax.texts] == [
            f"{value:.2f}" for value in canonical_correlations(*two_views())[:2]
        ]

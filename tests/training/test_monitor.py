"""Spread and validation against loops; canonical correlation against SciPy."""

import copy
import math

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag, eigh
from scipy.spatial.distance import pdist
from sklearn.decomposition import PCA
from sklearn.preprocessing import FunctionTransformer

from docemb_lib.losses import ObjectiveOutput
from docemb_lib.training import monitor
from docemb_lib.training.batches import Cut
from docemb_lib.training.monitor import (
    Means,
    Monitor,
    canonical_correlation,
    validate,
)


def test_a_single_embedding_has_no_spread():
    means = Means()
    means.add(ObjectiveOutput(torch.tensor(0.0), {}, torch.ones(1, 5), None))
    assert means.values()["spread"] == 0


def test_speed_counts_documents_and_tokens_since_the_row_before(monkeypatch):
    monkeypatch.setattr("time.perf_counter", iter([10.0, 12.0, 12.0]).__next__)
    rows = Monitor()
    for documents, tokens in ((4, 26), (2, 12)):
        output = ObjectiveOutput(torch.tensor(0.0), {}, torch.ones(documents, 5), None)
        rows.add_pass(output, tokens=tokens)
    row = rows.row()
    assert row["documents_per_second"] == 6 / 2
    assert row["tokens_per_second"] == 38 / 2


def two_views(seed, n=90, widths=(7, 5), noise=0.5):
    """Views of three shared signals, each mixed into features of other scales, and noise."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 3))
    mixed = [
        shared @ rng.standard_normal((3, P)) + noise * rng.standard_normal((n, P)) for P in widths
    ]
    return [X * rng.uniform(0.1, 3, X.shape[1]) + rng.standard_normal(X.shape[1]) for X in mixed]


def as_generalised_eigenvectors(fitted, rest, k, ridge):
    """[[0, S12], [S21, 0]] w = rho [[S11 + r1 I, 0], [0, S22 + r2 I]] w.

    The halves of each w = (p, q) are a pair of directions of CCA.
    """
    P = fitted[0].shape[1]
    S = np.cov(np.hstack(fitted), rowvar=False)
    ridges = []
    for block in (S[:P, :P], S[P:, P:]):
        ridges.append(ridge * np.trace(block) / len(block) * np.eye(len(block)))
    between, within = between_and_within(S, P, ridges)
    w = eigh(between, within)[1][:, ::-1][:, :k]
    p = np.vstack([w[:P], 0 * w[P:]])
    q = np.vstack([0 * w[:P], w[P:]])
    between, within = between_and_within(np.cov(np.hstack(rest), rowvar=False), P, ridges)
    return [
        a @ between @ b / np.sqrt((a @ within @ a) * (b @ within @ b))
        for a, b in zip(p.T, q.T, strict=True)
    ]


def between_and_within(S, P, ridges):
    """The covariances between two views, and those within each with its ridge."""
    within = block_diag(S[:P, :P], S[P:, P:])
    return S - within, within + block_diag(*ridges)


@pytest.mark.parametrize(("ridge", "k"), [(1e-9, 5), (0.1, 2), (2.0, 5)])
def test_canonical_correlation_is_that_of_held_out_halves(ridge, k, monkeypatch):
    monkeypatch.setattr(monitor, "RIDGE", ridge)
    monkeypatch.setattr(monitor, "COMPONENTS", k)
    views = two_views(0, n=91)
    expected = []
    for half in (0, 1):
        expected += as_generalised_eigenvectors(
            [X[half::2] for X in views], [X[1 - half :: 2] for X in views], k, ridge
        )
    X, Y = map(torch.from_numpy, views)
    assert canonical_correlation(X, Y) == pytest.approx(np.mean(expected), abs=1e-4)


@pytest.mark.parametrize("values", [slice(None), 7])
def test_the_correlation_of_a_view_that_is_constant_or_not_finite_is_nan(values):
    first, second = map(torch.from_numpy, two_views(1, n=400, widths=(6, 6)))
    second[values] = math.inf if values == 7 else 1.0
    assert math.isnan(canonical_correlation(first, second))


@pytest.mark.parametrize("widths", [(60, 50), (60, 5), (5, 60)])
def test_wide_views_are_reduced_to_components_of_the_half_that_fits(widths, monkeypatch):
    """Of 80 documents: to 20 components of 40 documents."""
    monkeypatch.setattr(monitor, "COMPONENTS", 4)
    views = two_views(3, n=80, widths=widths)
    expected = []
    for half in (0, 1):
        fitted, rest = [], []
        for X in views:
            pca = PCA(20, svd_solver="full") if X.shape[1] > 40 else FunctionTransformer()
            fitted.append(pca.fit_transform(X[half::2]))
            rest.append(pca.transform(X[1 - half :: 2]))
        expected += as_generalised_eigenvectors(fitted, rest, 4, 0.01)
    X, Y = map(torch.from_numpy, views)
    assert canonical_correlation(X, Y) == pytest.approx(np.mean(expected), abs=1e-6)


@pytest.mark.parametrize(("n", "measured"), [(19, False), (20, True), (25, True)])
@pytest.mark.parametrize("budget", [1, 100_000])
def test_validation_has_the_correlations_of_views_and_of_embeddings(n, measured, budget, distil):
    objective = distil.make_objective(more=True)
    documents = distil.make_documents(n, 2, more=True)
    means = validate(objective, documents, Cut(4, budget))
    assert ("cca" in means) == measured
    batch, targets = documents.pack([list(range(n))])
    teaching = objective.teachings[1]  # the first contextual one, whose views are 12 wide
    with torch.no_grad():
        y, c = objective.eval().student(batch), targets.teachers[teaching.name]
        views = teaching.views(y, c)
    assert ("cca_embeddings" in means) == measured
    if measured:
        of_embeddings = canonical_correlation(y, c)
        assert means["cca_embeddings"] == pytest.approx(of_embeddings, abs=1e-5)
        assert means["cca"] == pytest.approx(canonical_correlation(*views), abs=1e-5)


@pytest.mark.parametrize("budget", [1, 100, 100_000])
@pytest.mark.parametrize(("n", "parts"), [(9, [4, 5]), (11, [4, 4, 3]), (3, [3])])
@pytest.mark.parametrize("more", [False, True])
def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was(
    budget, n, parts, more, distil
):
    objective = distil.make_objective(more=more).train()
    before = copy.deepcopy(objective.state_dict())
    documents = distil.make_documents(n, 2, more=more)
    means = validate(objective, documents, Cut(4, budget))
    objective.eval()
    rows, embeddings = [], []
    # A single document left over joins the last batch.
    for start, size in zip(np.cumsum([0, *parts]).tolist(), parts, strict=False):
        batch, targets = documents.pack([list(range(start, start + size))])
        with torch.no_grad():
            output = objective(batch, **targets._asdict())
        losses = {"loss": output.loss, **output.parts}
        rows.append({name: loss.item() * size for name, loss in losses.items()})
        embeddings.append(output.embeddings.double().numpy())
    for name in rows[0]:
        assert means[name] == pytest.approx(sum(row[name] for row in rows) / n, rel=1e-6)
    # The loss, a part for each teacher, l2 and sdl of each SoftCCA, and one balanced delta.
    assert len(rows[0]) == (10 if more else 6)
    y = np.concatenate(embeddings)
    assert means["spread"] == pytest.approx(pdist(y, "cosine").mean(), abs=1e-6)
    assert means["norm"] == pytest.approx(np.linalg.norm(y, axis=1).mean(), rel=1e-6)
    torch.testing.assert_close(objective.state_dict(), before, rtol=0, atol=0)

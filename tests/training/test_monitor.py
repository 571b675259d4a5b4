"""Spread and validation against loops; canonical correlation against scikit-learn, SciPy and closed
forms.
"""

import copy
import math

import numpy as np
import pytest
import torch
from scipy.linalg import block_diag, eigh
from sklearn import cross_decomposition

from docemb_lib.losses import ObjectiveOutput
from docemb_lib.training.monitor import (
    Means,
    Monitor,
    canonical_correlation,
    documents_for_correlation,
    validate,
)


def test_spread_is_that_of_a_loop_over_pairs():
    def spread(y):
        means = Means(["loss"], dim=y.shape[1], device=y.device)
        means.add([torch.tensor(0.0)], y)
        return means.values()["spread"]

    y = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = [
        1 - torch.cosine_similarity(y[i], y[j], dim=0).item()
        for i in range(7)
        for j in range(7)
        if i != j
    ]
    assert spread(y) == pytest.approx(np.mean(distances))
    assert spread(torch.tensor([[0.0, 1.0]] * 4)) == pytest.approx(0)
    assert spread(y[:1]) == 0


@pytest.mark.parametrize("processes", [1, 3])
def test_speed_counts_the_documents_and_tokens_of_all_processes(processes, monkeypatch):
    """Each of the processes adds the same passes: of 4 and 2 documents, 26 and 12 tokens."""
    monkeypatch.setattr("docemb_lib.training.monitor.all_reduced", lambda sums: sums * processes)
    monkeypatch.setattr("time.perf_counter", iter([10.0, 12.0, 12.0]).__next__)
    monitor = Monitor([], dim=5, device=torch.device("cpu"))
    for documents, tokens in ((4, 26), (2, 12)):
        output = ObjectiveOutput(torch.tensor(0.0), {}, torch.ones(documents, 5), None)
        monitor.add(output, tokens=tokens)
    row = monitor.row()
    assert row["documents_per_second"] == processes * 6 / 2
    assert row["tokens_per_second"] == processes * 38 / 2


def two_views(seed, n=90, widths=(7, 5), noise=0.5):
    """Views of three shared signals, each mixed into features of other scales, and noise."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal((n, 3))
    mixed = [
        shared @ rng.standard_normal((3, P)) + noise * rng.standard_normal((n, P)) for P in widths
    ]
    return [X * rng.uniform(0.1, 3, X.shape[1]) + rng.standard_normal(X.shape[1]) for X in mixed]


def scikit_learns(fitted, rest, k, ridge):
    a, b = cross_decomposition.CCA(k, max_iter=10_000, tol=1e-12).fit(*fitted).transform(*rest)
    return [np.corrcoef(a[:, i], b[:, i])[0, 1] for i in range(k)]


def as_generalised_eigenvectors(fitted, rest, k, ridge):
    """[[0, S12], [S21, 0]] w = rho [[S11 + r1 I, 0], [0, S22 + r2 I]] w, whose w = (p, q) are the
    directions of CCA.
    """
    P, (S, T) = (
        fitted[0].shape[1],
        (np.cov(np.hstack(views), rowvar=False) for views in (fitted, rest)),
    )
    ridges = [
        ridge * np.trace(block) / len(block) * np.eye(len(block))
        for block in (S[:P, :P], S[P:, P:])
    ]
    (between, within), (between_rest, within_rest) = (
        (C - (own := block_diag(C[:P, :P], C[P:, P:])), own + block_diag(*ridges)) for C in (S, T)
    )
    w = eigh(between, within)[1][:, ::-1][:, :k]
    p, q = np.split(np.vstack([w[:P], 0 * w[P:], 0 * w[:P], w[P:]]), 2)
    pairs = zip(p.T, q.T, strict=True)
    return [
        a @ between_rest @ b / np.sqrt((a @ within_rest @ a) * (b @ within_rest @ b))
        for a, b in pairs
    ]


@pytest.mark.parametrize(
    ("reference", "ridge", "k"),
    [
        (scikit_learns, 1e-9, 3),
        (as_generalised_eigenvectors, 1e-9, 5),
        (as_generalised_eigenvectors, 0.1, 2),
        (as_generalised_eigenvectors, 2.0, 5),
    ],
)
def test_canonical_correlation_is_that_of_held_out_halves(reference, ridge, k):
    views = two_views(0, n=91)
    expected = []
    for half in (0, 1):
        expected += reference(
            [X[half::2] for X in views], [X[1 - half :: 2] for X in views], k, ridge
        )
    found = canonical_correlation(*map(torch.from_numpy, views), components=k, ridge=ridge)
    assert found == pytest.approx(np.mean(expected), abs=1e-4)


def test_canonical_correlation_is_1_of_a_map_0_of_independent_views_and_the_same_at_any_scale():
    X, Y = (torch.from_numpy(view) for view in two_views(1, n=400, widths=(6, 6)))
    Q = torch.linalg.qr(
        torch.randn(6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    ).Q
    assert canonical_correlation(X, X @ Q + 3, ridge=1e-9) == pytest.approx(1)
    scaled = canonical_correlation(100 * X @ Q, Y.float() / 50 - 7)
    assert scaled == pytest.approx(canonical_correlation(X, Y), abs=1e-5)
    narrow = torch.cat([X[:, :1], 1e-6 * X[:, 1:]], dim=1)  # where rounding is most of a direction
    assert canonical_correlation(narrow, narrow) == pytest.approx(1 / 6, abs=0.01)
    independent = [
        torch.randn(200, 80, generator=torch.Generator().manual_seed(seed)) for seed in (2, 3)
    ]
    assert (
        abs(canonical_correlation(*independent)) < 0.1
    )  # on the documents that they are fitted on: nearly 1
    for broken in (torch.ones(400, 6), X.clone().index_fill_(0, torch.tensor([7]), math.inf)):
        assert math.isnan(canonical_correlation(X, broken))


@pytest.mark.parametrize(("n", "measured"), [(23, False), (24, True), (25, True)])
@pytest.mark.parametrize("budget", [1, 100_000])
def test_validation_has_the_correlation_of_all_views_where_a_feature_has_two_documents(
    n, measured, budget, distil
):
    objective, documents = distil.make_objective(more=True), distil.make_documents(n, 2, more=True)
    means = validate(objective, documents, batch_size=4, budget=budget)
    assert (documents_for_correlation(12), documents_for_correlation(3), "cca" in means) == (
        24,
        20,
        measured,
    )
    batch, targets = documents.pack([list(range(n))])
    teaching = objective.teachings[1]  # the first contextual one, whose views are 12 wide
    with torch.no_grad():
        views = teaching.views(objective.eval().student(batch), targets.teachers[teaching.name])
    if measured:
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
    means = validate(objective, documents, batch_size=4, budget=budget)
    objective.eval()
    rows, embeddings = [], []
    for start, size in zip(
        np.cumsum([0, *parts]).tolist(), parts, strict=False
    ):  # a last lone one joins a batch
        batch, targets = documents.pack([list(range(start, start + size))])
        with torch.no_grad():
            output = objective(batch, **targets._asdict())
        rows.append(
            {"loss": output.loss.item() * size}
            | {name: p.item() * size for name, p in output.parts.items()}
        )
        embeddings.append(output.embeddings.double().numpy())
    for name in rows[0]:
        assert means[name] == pytest.approx(sum(row[name] for row in rows) / n, rel=1e-6)
    assert len(rows[0]) == (5 if more else 3)
    y = np.concatenate(embeddings)
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    distances = [1 - unit[i] @ unit[j] for i in range(n) for j in range(n) if i != j]
    assert means["spread"] == pytest.approx(np.mean(distances), abs=1e-6)
    assert means["norm"] == pytest.approx(np.linalg.norm(y, axis=1).mean(), rel=1e-6)
    torch.testing.assert_close(objective.state_dict(), before, rtol=0, atol=0)

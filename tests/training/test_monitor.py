"""Spread and validation against loops, canonical correlation against scikit-learn and closed forms."""

import math

import numpy as np
import pytest
import torch
from sklearn import cross_decomposition
from sklearn.decomposition import PCA

from docemb_lib.training.documents import Bank
from docemb_lib.training.monitor import canonical_correlation, spread, validate


def test_spread_is_that_of_a_loop_over_pairs():
    y = torch.randn(7, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    distances = [1 - torch.cosine_similarity(y[i], y[j], dim=0).item() for i in range(7) for j in range(7) if i != j]
    assert spread(torch.nn.functional.normalize(y, dim=1).sum(0), 7) == pytest.approx(np.mean(distances))
    assert spread(torch.tensor([0.0, 4.0]), 4) == pytest.approx(0)


def test_canonical_correlation_is_scikit_learns_over_principal_components():
    rng = np.random.default_rng(0)
    shared = rng.standard_normal((80, 3))
    X1 = shared @ rng.standard_normal((3, 20)) + 0.5 * rng.standard_normal((80, 20))
    X2 = shared @ rng.standard_normal((3, 12)) + 0.5 * rng.standard_normal((80, 12))
    found = canonical_correlation(torch.from_numpy(X1), torch.from_numpy(X2), components=5)
    leading = [PCA(5).fit_transform(X) for X in (X1, X2)]
    a, b = cross_decomposition.CCA(5, max_iter=10_000, tol=1e-12).fit_transform(*leading)
    assert found == pytest.approx(np.mean([np.corrcoef(a[:, k], b[:, k])[0, 1] for k in range(5)]), abs=1e-4)
    X = torch.randn(60, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    Q, _ = torch.linalg.qr(torch.randn(8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64))
    assert canonical_correlation(X, X @ Q + 3, components=8) == pytest.approx(1)
    assert math.isnan(canonical_correlation(X[:3], X[:3]))


@pytest.mark.parametrize("budget", [1, 100, 100_000])
@pytest.mark.parametrize(("n", "parts"), [(9, [4, 5]), (11, [4, 4, 3]), (3, [3])])
@pytest.mark.parametrize("more", [False, True])
def test_validation_means_are_those_of_a_loop_and_leave_the_objective_as_it_was(budget, n, parts, more, distil):
    objective = distil.make_objective(more=more).train()
    before = {name: tensor.clone() for name, tensor in objective.state_dict().items()}
    documents = distil.make_documents(n, 2, more=more)
    bank = Bank(distil.make_documents(50, 1, more=True), objective, batch_size=4, seed=5) if more else None
    means = validate(objective, documents, batch_size=4, bank=bank, budget=budget)
    objective.eval()
    rows, embeddings = [], []
    for start, size in zip(np.cumsum([0, *parts]).tolist(), parts, strict=False):  # a last lone one joins a batch
        batch, targets = documents.pack([list(range(start, start + size))], bank)
        with torch.no_grad():
            output = objective(batch, **targets._asdict())
        rows.append({"loss": output.loss.item() * size} | {name: p.item() * size for name, p in output.parts.items()})
        embeddings.append(output.embeddings.double().numpy())
    for name in rows[0]:
        assert means[name] == pytest.approx(sum(row[name] for row in rows) / n, rel=1e-6)
    assert len(rows[0]) == (5 if more else 3)
    y = np.concatenate(embeddings)
    unit = y / np.linalg.norm(y, axis=1, keepdims=True)
    distances = [1 - unit[i] @ unit[j] for i in range(n) for j in range(n) if i != j]
    assert means["spread"] == pytest.approx(np.mean(distances), abs=1e-6)
    assert means["norm"] == pytest.approx(np.linalg.norm(y, axis=1).mean(), rel=1e-6)
    for name, tensor in objective.state_dict().items():
        assert torch.equal(tensor, before[name]), f"validation changed {name}"

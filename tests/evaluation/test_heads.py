"""Stacked heads against heads trained alone and against the same head written with torch's own
modules.
"""

import math

import numpy as np
import pytest
import torch
from torch import nn

from docemb_lib.evaluation import Classification, Labelled, heads
from docemb_lib.settings.sections import HeadSettings

CPU = torch.device("cpu")


def blobs(
    n: int, classes: int, dim: int, seed: int, spread: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    centres = np.random.default_rng(99).normal(size=(classes, dim)) * 3
    return (centres[labels] + spread * rng.normal(size=(n, dim))).astype(np.float32), labels


def train(features, labels, *, classes, settings, seeds):
    jobs = [heads.HeadJob(np.arange(len(labels)), seed) for seed in seeds]
    return heads.train_jobs(features, labels, jobs, settings, classes=classes)


@pytest.mark.parametrize(
    "update",
    [{}, {"dropout": 0.0}, {"max_grad_norm": 0.05}],
)
def test_heads_of_any_rows_trained_together_are_those_trained_alone(update):
    # Folds and rounds in one call: sizes with as many steps and with others.
    features, labels = blobs(150, 3, 10, seed=4)
    rng = np.random.default_rng(0)
    settings = HeadSettings(epochs=3, learning_rate=1e-3).model_copy(update=update)
    jobs = [
        heads.HeadJob(rng.permutation(150)[:n], seed)
        for n in (150, 149, 129, 128, 40, 7)
        for seed in (0, 1)
    ]
    together = heads.train_jobs(features, labels, jobs, settings, classes=3)
    assert together.W1.shape == (len(jobs), 10, 50)
    for k, job in enumerate(jobs):
        X = features[job.rows]
        y = labels[job.rows]
        alone = train(X, y, classes=3, settings=settings, seeds=[job.seed])
        for stacked, single in zip(together, alone, strict=True):
            torch.testing.assert_close(stacked[k : k + 1], single, atol=2e-6, rtol=0)
    assert len({round(float(weights.abs().sum()), 4) for weights in together.W1}) == len(jobs)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
@pytest.mark.parametrize("dropout", [True, False])
def test_the_loss_of_a_stack_is_the_weighted_sum_of_torchs_losses(dropout, smoothing):
    generator = torch.Generator().manual_seed(0)
    single = [heads.initial_head(6, 4, hidden=5, generator=generator) for _ in range(3)]
    stack = heads.Heads(
        *(torch.cat(parts).double().requires_grad_() for parts in zip(*single, strict=True))
    )
    x = torch.randn(3, 7, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(4, (3, 7), generator=generator)
    keep = torch.empty(3, 7, 5, dtype=torch.float64).bernoulli_(0.6, generator=generator) / 0.6
    weight = torch.rand(3, 7, generator=generator, dtype=torch.float64)
    hidden = torch.relu(x @ stack.W1 + stack.b1) * (keep if dropout else 1)
    logits = hidden @ stack.W2 + stack.b2
    loss = nn.CrossEntropyLoss(label_smoothing=smoothing, reduction="none")
    expected = sum(loss(logits[k], y[k]) @ weight[k] for k in range(3))
    with torch.no_grad():
        gradients = heads.loss_gradient(
            stack, x, y, keep=keep if dropout else None, weight=weight, smoothing=smoothing
        )
    by_autograd = torch.autograd.grad(expected, stack)
    torch.testing.assert_close(tuple(gradients), by_autograd, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("longer", "last"), [(10, 2), (12, 4)])
def test_every_epoch_sees_every_row_once_and_shorter_heads_wait_with_weight_0(
    longer: int, last: int
) -> None:
    settings = HeadSettings(batch_size=4, epochs=2, hidden=3)
    jobs = [heads.HeadJob(np.arange(100, 100 + longer), 0), heads.HeadJob(np.arange(200, 209), 1)]
    steps = list(
        heads.batches(
            jobs, settings, [torch.Generator().manual_seed(job.seed) for job in jobs], CPU
        )
    )
    assert [rows.shape[1] for rows, _, _ in steps] == [4, 4, last] * 2
    for k, job in enumerate(jobs):
        orders = []
        for epoch in (steps[:3], steps[3:]):
            seen = [
                int(rows[k, b])
                for rows, _, weight in epoch
                for b in range(rows.shape[1])
                if weight[k, b] > 0
            ]
            assert sorted(seen) == job.rows.tolist()
            orders.append(seen)
        assert orders[0] != orders[1]
    for _, _, weight in steps:
        # a mean over the batch of each head
        torch.testing.assert_close(weight.sum(1), torch.ones(2))


def masks_of(settings):
    jobs = [heads.HeadJob(np.arange(2000), k) for k in range(2)]
    generators = [torch.Generator().manual_seed(k) for k in range(2)]
    return [keep for _, keep, _ in heads.batches(jobs, settings, generators, CPU)]


@pytest.mark.parametrize("p", [0.5, 0.2])
def test_dropout_keeps_its_share_and_the_expectation(p):
    for masks in torch.cat(masks_of(HeadSettings(dropout=p)), dim=1):
        assert set(masks.unique().tolist()) <= {0.0, float(np.float32(1) / np.float32(1 - p))}
        assert masks.mean().item() == pytest.approx(1.0, abs=0.01)


def plain_head(features, labels, settings, seed):
    """A head trained in the usual way, and the norms of its gradients before they are clipped."""
    X = torch.tensor(features)
    y = torch.tensor(labels)
    generator = torch.Generator().manual_seed(seed)
    start = heads.initial_head(X.shape[1], 3, hidden=settings.hidden, generator=generator)
    hidden = nn.Linear(X.shape[1], settings.hidden)
    out = nn.Linear(settings.hidden, 3)
    hidden.load_state_dict({"weight": start.W1[0].T, "bias": start.b1[0, 0]})
    out.load_state_dict({"weight": start.W2[0].T, "bias": start.b2[0, 0]})
    net = nn.Sequential(hidden, nn.ReLU(), out)
    groups = [
        {"params": [hidden.weight, out.weight], "weight_decay": settings.weight_decay},
        {"params": [hidden.bias, out.bias], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=settings.learning_rate)
    steps = settings.epochs * math.ceil(len(X) / settings.batch_size)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    loss = nn.CrossEntropyLoss(label_smoothing=settings.label_smoothing)
    norms = []
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(X), generator=generator).split(settings.batch_size):
            optimizer.zero_grad()
            loss(net(X[rows]), y[rows]).backward()
            norms.append(nn.utils.clip_grad_norm_(net.parameters(), settings.max_grad_norm))
            optimizer.step()
            schedule.step()
    return net, norms


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.05])
def test_a_head_is_what_torch_modules_and_optimisers_make_of_it(
    max_grad_norm: float,
) -> None:
    features, labels = blobs(75, 3, 12, seed=1)
    settings = HeadSettings(dropout=0.0, epochs=5, learning_rate=3e-3, max_grad_norm=max_grad_norm)
    stacked = train(features, labels, classes=3, settings=settings, seeds=[7])
    net, norms = plain_head(features, labels, settings, seed=7)
    assert len(norms) == 5 * 3  # 75 examples: two batches of 32 and one of 11
    assert max(norms) > max_grad_norm  # the clipping is part of what is compared
    for found, parameter in zip(stacked, net.parameters(), strict=True):
        torch.testing.assert_close(found[0].T.squeeze(1), parameter.data, atol=2e-6, rtol=0)
    unseen, _ = blobs(40, 3, 12, seed=2, spread=4.0)
    np.testing.assert_array_equal(
        stacked.predict(unseen)[0], net(torch.tensor(unseen)).argmax(dim=1).numpy()
    )


def test_the_initial_weights_fill_the_range_of_a_linear_layer() -> None:
    head = heads.initial_head(400, 11, hidden=50, generator=torch.Generator().manual_seed(0))
    assert head.W1.shape == (1, 400, 50)
    assert head.W1.abs().max() <= 1 / 20
    assert head.b2.abs().max() <= 1 / math.sqrt(50)
    assert head.W1.std().item() == pytest.approx(nn.Linear(400, 50).weight.std().item(), rel=0.02)


def test_each_head_is_clipped_by_its_own_norm() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = [
        torch.randn(3, 4, 5, generator=generator),
        torch.randn(3, 1, 5, generator=generator),
    ]
    for gradient in gradients:
        gradient[1] *= 1e-3  # this head stays below the limit
    expected = [gradient.clone() for gradient in gradients]
    for k in range(3):
        alone = [nn.Parameter(torch.zeros_like(gradient[k])) for gradient in gradients]
        for weight, gradient in zip(alone, expected, strict=True):
            weight.grad = gradient[k].clone()
        nn.utils.clip_grad_norm_(alone, 1.0)
        for weight, gradient in zip(alone, expected, strict=True):
            assert weight.grad is not None
            gradient[k] = weight.grad
    heads.clip_each_head(gradients, max_norm=1.0)
    torch.testing.assert_close(gradients, expected)


def test_pair_features_are_both_embeddings_or_their_comparison_in_either_order():
    first, second = np.array([[1.0, -2.0]]), np.array([[3.0, 5.0]])
    assert heads.pair_features(first, second).tolist() == [[1, -2, 3, 5]]
    for ordered in ((first, second), (second, first)):
        np.testing.assert_allclose(
            heads.pair_features(*ordered, "interaction"), [[2, 7, 3 * 2**0.5, -10 * 2**0.5]]
        )


def test_a_head_without_a_hidden_layer_is_a_logistic_regression_on_unit_length() -> None:
    from sklearn.linear_model import LogisticRegression

    rng = np.random.default_rng(3)
    X, labels = 40 * rng.normal(size=(60, 6)).astype(np.float32), list(rng.integers(0, 3, 60))
    names = [str(row) for row in range(60)]
    task = Classification(
        "t", {"train": Labelled(names[:40], labels[:40]), "test": Labelled(names[40:], labels[40:])}
    )
    unit = X * len(X[:40]) ** 0.5 / np.linalg.norm(X[:40])
    expected = (
        LogisticRegression(C=10, max_iter=1000).fit(unit[:40], labels[:40]).predict(unit[40:])
        == labels[40:]
    )
    score = task.score(X, head=HeadSettings(hidden=0, epochs=1), seeds=2)
    np.testing.assert_array_equal(score.per_example["accuracy"], [expected, expected])

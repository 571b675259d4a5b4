"""Heads that are trained together against torch's own modules and scikit-learn, one head a time."""

import math

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

from docemb_lib.evaluation import Classification, Labelled, heads
from docemb_lib.settings.sections import HeadSettings


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Three overlapping clouds: (n, 10) and the number of the cloud of each row."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(3, size=n)
    centres = np.random.default_rng(99).normal(size=(3, 10)) * 3
    return (centres[labels] + 4 * rng.normal(size=(n, 10))).astype(np.float32), labels


def plain_head(X: np.ndarray, y: np.ndarray, settings: HeadSettings, seed: int):
    """A head that is trained in the usual way, and its largest gradient before the clipping."""
    generator = torch.Generator().manual_seed(seed)
    rng = np.random.default_rng(seed)
    hidden, out = nn.Linear(10, settings.hidden), nn.Linear(settings.hidden, 3)
    net = nn.Sequential(hidden, nn.ReLU(), out)
    start = heads.initial_weights(10, settings.hidden, 3, generator)
    for parameter, weights in zip(net.parameters(), start, strict=True):
        parameter.data = weights.T.squeeze(1).contiguous()
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
        order = torch.randperm(len(X), generator=generator)
        for rows in order.split(settings.batch_size):
            uniform = rng.random((len(rows), settings.hidden), dtype=np.float32)
            keep = torch.from_numpy(uniform) < 1 - settings.dropout
            states = net[:2](torch.tensor(X)[rows]) * keep / (1 - settings.dropout)
            optimizer.zero_grad()
            loss(out(states), torch.tensor(y)[rows]).backward()
            norms.append(nn.utils.clip_grad_norm_(net.parameters(), settings.max_grad_norm))
            optimizer.step()
            schedule.step()
    return net, max(norms)


@pytest.mark.parametrize(
    "update", [{}, {"dropout": 0.0, "label_smoothing": 0.0}, {"max_grad_norm": 0.05}]
)
def test_heads_of_any_rows_are_what_torch_makes_of_each_alone(update):
    """Folds and rounds in one call: sizes with as many steps and with others."""
    X, y = blobs(150, seed=4)
    unseen, _ = blobs(40, seed=2)
    settings = HeadSettings(epochs=3, learning_rate=1e-3).model_copy(update=update)
    rng = np.random.default_rng(0)
    jobs = []
    for n in (150, 149, 129, 128, 40, 7):
        jobs += [(rng.permutation(150)[:n], seed) for seed in (0, 1)]
    predictions = heads.train_and_predict(X, y, unseen, jobs, settings)
    together = heads.train_stack(torch.tensor(X), torch.tensor(y), jobs[:6], settings)  # 5 steps
    for k, (rows, seed) in enumerate(jobs):
        net, largest = plain_head(X[rows], y[rows], settings, seed)
        assert largest > settings.max_grad_norm  # the clipping is part of what is compared
        np.testing.assert_array_equal(predictions[k], net(torch.tensor(unseen)).argmax(dim=1))
        for stacked, parameter in zip(together if k < 6 else (), net.parameters(), strict=k < 6):
            torch.testing.assert_close(stacked[k].T.squeeze(1), parameter.data, atol=2e-6, rtol=0)


def test_the_initial_weights_fill_the_range_of_a_linear_layer():
    W1, _, _, b2 = heads.initial_weights(400, 50, 11, torch.Generator().manual_seed(0))
    assert W1.shape == (400, 50)
    assert W1.abs().max() <= 1 / 20
    assert b2.abs().max() <= 1 / math.sqrt(50)
    assert W1.std().item() == pytest.approx(nn.Linear(400, 50).weight.std().item(), rel=0.02)


def test_pair_features_are_both_embeddings_or_their_comparison_in_either_order():
    first = np.array([[1.0, -2.0]])
    second = np.array([[3.0, 5.0]])
    assert heads.pair_features(first, second).tolist() == [[1, -2, 3, 5]]
    expected = [[2, 7, 3 * 2**0.5, -10 * 2**0.5]]
    for pair in ((first, second), (second, first)):
        np.testing.assert_allclose(heads.pair_features(*pair, "interaction"), expected)


@pytest.mark.parametrize(("scale", "dtype"), [(40, np.float32), (1e-3, np.float32), (50, np.int8)])
def test_a_head_without_a_hidden_layer_is_a_logistic_regression_on_unit_length(scale, dtype):
    rng = np.random.default_rng(3)
    X = (scale * rng.normal(size=(60, 6))).astype(dtype)
    labels = rng.integers(0, 3, 60).tolist()
    names = [str(row) for row in range(60)]
    train = Labelled(names[:40], labels[:40])
    task = Classification("t", {"train": train, "test": Labelled(names[40:], labels[40:])})
    unit = X * 40**0.5 / np.linalg.norm(X[:40])
    model = LogisticRegression(C=10, max_iter=1000).fit(unit[:40], labels[:40])
    expected = model.predict(unit[40:]) == labels[40:]
    score = task.score(X, head=HeadSettings(hidden=0, epochs=1), seeds=2)
    np.testing.assert_array_equal(score.per_example["accuracy"], [expected, expected])

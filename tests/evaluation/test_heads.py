"""Stacked heads against heads trained alone and against the same head written with torch's own modules."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from docemb_lib.errors import InputError
from docemb_lib.evaluation.heads import HeadSettings, clip_each_head, initial_head, pair_features, train_heads
from docemb_lib.evaluation.metrics import accuracy


def blobs(n: int, classes: int, dim: int, seed: int, spread: float = 1.0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    centres = np.random.default_rng(99).normal(size=(classes, dim)) * 3
    return (centres[labels] + spread * rng.normal(size=(n, dim))).astype(np.float32), labels


def test_the_defaults_are_those_of_the_thesis() -> None:
    assert HeadSettings() == HeadSettings(
        hidden=50,
        dropout=0.5,
        epochs=10,
        batch_size=32,
        learning_rate=1e-4,
        weight_decay=0.1,
        label_smoothing=0.1,
        max_grad_norm=1.0,
        pair_features="concat",
    )


def test_heads_trained_together_are_those_trained_alone() -> None:
    features, labels = blobs(75, 4, 20, seed=0)
    settings = HeadSettings(epochs=4, learning_rate=1e-3)
    together = train_heads(features, labels, classes=4, settings=settings, seeds=[5, 0, 11])
    for k, seed in enumerate([5, 0, 11]):
        alone = train_heads(features, labels, classes=4, settings=settings, seeds=[seed])
        for stacked, single in zip(together, alone, strict=True):
            torch.testing.assert_close(stacked[k : k + 1], single, atol=1e-6, rtol=0)
    assert (together.W1[0] - together.W1[1]).abs().max() > 0.1


@pytest.mark.parametrize("max_grad_norm", [1.0, 0.05])
def test_a_head_is_what_torch_modules_and_optimisers_make_of_it(max_grad_norm: float) -> None:
    features, labels = blobs(75, 3, 12, seed=1)
    settings = HeadSettings(dropout=0.0, epochs=5, learning_rate=3e-3, max_grad_norm=max_grad_norm)
    ours = train_heads(features, labels, classes=3, settings=settings, seeds=[7])

    generator = torch.Generator().manual_seed(7)
    start = initial_head(12, 3, hidden=50, generator=generator)
    net = nn.Sequential(nn.Linear(12, 50), nn.ReLU(), nn.Linear(50, 3))
    net.load_state_dict(
        {"0.weight": start.W1[0].T, "0.bias": start.b1[0, 0], "2.weight": start.W2[0].T, "2.bias": start.b2[0, 0]}
    )
    optimizer = torch.optim.AdamW(
        [
            {"params": [net[0].weight, net[2].weight], "weight_decay": 0.1},
            {"params": [net[0].bias, net[2].bias], "weight_decay": 0.0},
        ],
        lr=3e-3,
    )
    total, step, clipped = 5 * 3, 0, 0  # 75 examples are two batches of 32 and one of 11
    loss = nn.CrossEntropyLoss(label_smoothing=0.1)
    X, y = torch.tensor(features), torch.tensor(labels)
    for _ in range(5):
        order = torch.randperm(75, generator=generator)
        for rows in order.split(32):
            for group in optimizer.param_groups:
                group["lr"] = 3e-3 * 0.5 * (1 + math.cos(math.pi * step / total))
            optimizer.zero_grad()
            loss(net(X[rows]), y[rows]).backward()
            clipped += int(nn.utils.clip_grad_norm_(net.parameters(), max_grad_norm) > max_grad_norm)
            optimizer.step()
            step += 1
    assert clipped > 0  # the clipping is part of what is compared
    torch.testing.assert_close(ours.W1[0].T, net[0].weight.data, atol=2e-6, rtol=0)
    torch.testing.assert_close(ours.b1[0, 0], net[0].bias.data, atol=2e-6, rtol=0)
    torch.testing.assert_close(ours.W2[0].T, net[2].weight.data, atol=2e-6, rtol=0)
    torch.testing.assert_close(ours.b2[0, 0], net[2].bias.data, atol=2e-6, rtol=0)
    unseen, _ = blobs(40, 3, 12, seed=2, spread=4.0)
    np.testing.assert_array_equal(ours.predict(unseen)[0], net(torch.tensor(unseen)).argmax(dim=1).numpy())


def test_the_initial_weights_fill_the_range_of_a_linear_layer() -> None:
    head = initial_head(400, 11, hidden=50, generator=torch.Generator().manual_seed(0))
    reference = nn.Linear(400, 50)
    assert head.W1.shape == (1, 400, 50)
    assert head.W1.abs().max() <= 1 / 20
    assert head.b2.abs().max() <= 1 / math.sqrt(50)
    assert head.W1.std().item() == pytest.approx(reference.weight.std().item(), rel=0.02)


def test_each_head_is_clipped_by_its_own_norm() -> None:
    generator = torch.Generator().manual_seed(0)
    gradients = [torch.randn(3, 4, 5, generator=generator), torch.randn(3, 1, 5, generator=generator)]
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
    clip_each_head(gradients, max_norm=1.0)
    torch.testing.assert_close(gradients, expected)


def test_dropout_changes_training_but_not_the_draw_of_the_first_weights() -> None:
    features, labels = blobs(40, 2, 6, seed=0)
    small = HeadSettings(epochs=1, learning_rate=1e-9, weight_decay=0.0)
    without = HeadSettings(epochs=1, learning_rate=1e-9, weight_decay=0.0, dropout=0.0)
    a = train_heads(features, labels, classes=2, settings=small, seeds=[3])
    b = train_heads(features, labels, classes=2, settings=without, seeds=[3])
    torch.testing.assert_close(a.W1, b.W1, atol=1e-7, rtol=0)
    strong = HeadSettings(epochs=1, learning_rate=1e-2)
    c = train_heads(features, labels, classes=2, settings=strong, seeds=[3])
    d = train_heads(
        features, labels, classes=2, settings=HeadSettings(epochs=1, learning_rate=1e-2, dropout=0.0), seeds=[3]
    )
    assert (c.W1 - d.W1).abs().max() > 1e-3


def test_separable_classes_are_learnt_and_random_labels_are_not() -> None:
    settings = HeadSettings(learning_rate=1e-2)
    features, labels = blobs(300, 5, 16, seed=0, spread=0.3)
    unseen, truth = blobs(500, 5, 16, seed=1, spread=0.3)
    heads = train_heads(features, labels, classes=5, settings=settings, seeds=range(3))
    np.testing.assert_array_equal(accuracy(heads.predict(unseen), truth), [1.0, 1.0, 1.0])
    rng = np.random.default_rng(2)
    noise, unrelated = rng.normal(size=(2300, 16)), rng.integers(5, size=2300)
    heads = train_heads(noise[:300], unrelated[:300], classes=5, settings=settings, seeds=range(3))
    np.testing.assert_allclose(accuracy(heads.predict(noise[300:]), unrelated[300:]), 1 / 5, atol=0.04)


def test_features_may_be_read_only_and_of_any_float_type() -> None:
    features, labels = blobs(40, 2, 6, seed=0)
    wide = features.astype(np.float64)
    wide.flags.writeable = False
    a = train_heads(features, labels, classes=2, settings=HeadSettings(epochs=1), seeds=[0])
    b = train_heads(wide, labels, classes=2, settings=HeadSettings(epochs=1), seeds=[0])
    torch.testing.assert_close(a.W1, b.W1, atol=0, rtol=0)


def test_pair_features_are_the_two_embeddings_or_their_comparison() -> None:
    first, second = np.array([[1.0, -2.0]]), np.array([[3.0, 5.0]])
    assert pair_features(first, second).tolist() == [[1, -2, 3, 5]]
    assert pair_features(first, second, "interaction").tolist() == [[2, 7, 3, -10]]
    np.testing.assert_array_equal(
        pair_features(first, second, "interaction"), pair_features(second, first, "interaction")
    )


def test_few_pairs_teach_a_head_on_the_comparison_but_none_on_the_concatenation() -> None:
    rng = np.random.default_rng(0)

    def pairs(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        first, labels = rng.normal(size=(n, 32)), np.tile([1, 0], n // 2)
        second = first + rng.normal(size=(n, 32)) / 2
        second[labels == 0] = np.roll(second[labels == 0], 1, axis=0)
        return first, second, labels

    (a, b, labels), (c, d, truth) = pairs(400), pairs(1000)
    scores = {}
    for how in ("concat", "interaction"):
        heads = train_heads(pair_features(a, b, how), labels, classes=2, seeds=range(3))
        scores[how] = accuracy(heads.predict(pair_features(c, d, how)), truth).mean()
    assert scores["interaction"] > 0.7
    assert scores["concat"] < 0.56


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("hidden", 0),
        ("epochs", 0),
        ("batch_size", 0),
        ("dropout", 1.0),
        ("label_smoothing", -0.1),
        ("learning_rate", 0.0),
        ("learning_rate", math.nan),
        ("max_grad_norm", 0.0),
        ("weight_decay", -1.0),
        ("pair_features", "sum"),
    ],
)
def test_a_setting_out_of_range_is_refused_with_its_name_and_value(field: str, value: object) -> None:
    with pytest.raises(ValidationError, match=rf"(?s){field}.*{value}"):
        HeadSettings(**{field: value})  # type: ignore[arg-type]


def test_heads_need_a_seed() -> None:
    with pytest.raises(InputError, match="no seed"):
        train_heads(np.zeros((2, 2)), np.array([0, 1]), classes=2, seeds=[])

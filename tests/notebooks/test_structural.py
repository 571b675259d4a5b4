"""What 03_structural defines in its cells, beside torch and plain loops."""

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

NOTEBOOK = "03_structural.py"


@pytest.fixture
def views():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 5, 7, generator=generator, dtype=torch.float64)


def test_three_steps_of_adamw_and_clipping_are_those_of_torch(defined):
    generator = torch.Generator().manual_seed(1)
    by_hand = [torch.randn(4, 3, generator=generator), torch.randn(3, generator=generator)]
    by_torch = [weight.clone().requires_grad_() for weight in by_hand]
    groups = [{"params": by_torch[:1]}, {"params": by_torch[1:], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=0.1, weight_decay=0.3)
    means = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in by_hand]
    for step in (1, 2, 3):
        gradients = [torch.randn(weight.shape, generator=generator) for weight in by_hand]
        for weight, gradient in zip(by_torch, gradients, strict=True):
            weight.grad = gradient.clone()
        expected = torch.nn.utils.clip_grad_norm_(by_torch, 1.5)
        optimizer.step()
        clipped, norm = defined.clip(gradients, 1.5)
        assert_close(norm, expected)
        for weight, gradient, (m, v) in zip(by_hand, clipped, means, strict=True):
            defined.adamw(weight, gradient, m, v, step=step, rate=0.1, decay=0.3)
    assert_close(by_hand, [weight.detach() for weight in by_torch])


def test_a_short_gradient_is_not_clipped(defined):
    gradients = [torch.tensor([0.3, 0.4])]
    clipped, norm = defined.clip(gradients, 1.0)
    assert norm.item() == pytest.approx(0.5)
    assert_close(clipped, gradients)


def test_the_four_losses_are_those_of_plain_loops(defined, views):
    y, t = views
    distances = {"mse": defined.mse(y, t), "cosine": defined.cosine(y, t)}
    margin = defined.max_margin(distances["mse"], 0.7)
    contrastive = defined.contrastive(distances["cosine"], 0.2)
    for i in range(5):
        cosines = [torch.dot(y[i], t[j]) / y[i].norm() / t[j].norm() for j in range(5)]
        squares = [sum((y[i, k] - t[j, k]) ** 2 for k in range(7)) / 7 for j in range(5)]
        others = [squares[j] for j in range(5) if j != i]
        assert_close(distances["mse"][i], torch.stack(squares))
        assert_close(distances["cosine"][i], 1 - torch.stack(cosines))
        assert_close(margin[i], squares[i] - 0.7 * sum(others) / 4)
        exponentials = [torch.exp(value / 0.2) for value in cosines]
        assert_close(contrastive[i], -torch.log(exponentials[i] / sum(exponentials)))


def test_the_gradient_of_max_margin_depends_on_y_unless_gamma_is_one(defined, views):
    y, t = views
    for gamma, is_constant in ((0.5, False), (1.0, True), (1.5, False)):
        here = defined.gradient_of_margin(y, t, gamma)
        there = defined.gradient_of_margin(3 * y + 1, t, gamma)
        assert torch.allclose(here, there) == is_constant


def test_dense_attention_is_that_of_torch_on_each_document_alone(defined):
    query, key, value = torch.randn(3, 12, 2, 4, generator=torch.Generator().manual_seed(2))
    context, seen = defined.dense_attention(query, key, value, [5, 7], window=12)
    for tokens in (slice(5), slice(5, 12)):
        parts = [part[tokens].transpose(0, 1) for part in (query, key, value)]
        alone = F.scaled_dot_product_attention(*parts).transpose(0, 1)
        assert_close(context[tokens], alone)
    assert int(seen.sum()) == 5 * 5 + 7 * 7

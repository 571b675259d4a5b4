"""What 03_structural defines in its cells and does not assert to be the library's, beside torch."""

import pytest
import torch
from torch.testing import assert_close

NOTEBOOK = "03_structural.py"


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

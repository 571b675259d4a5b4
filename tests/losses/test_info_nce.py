"""InfoNCE against a plain loop, and what it pulls and pushes."""

from __future__ import annotations

import math

import pytest
import torch

from docemb_lib.errors import InputError
from docemb_lib.losses.pairs import InfoNCE


def cosine(a, b):
    dot = sum(x * y for x, y in zip(a, b, strict=True))
    return dot / math.sqrt(sum(x * x for x in a)) / math.sqrt(sum(x * x for x in b))


def by_hand(first, second, temperature):
    losses = []
    for i, h in enumerate(first):
        similar = [math.exp(cosine(h, other) / temperature) for other in second]
        losses.append(-math.log(similar[i] / (similar[i] + sum(similar[:i]) + sum(similar[i + 1 :]))))
    return losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.05, 1.0])
@pytest.mark.parametrize("symmetric", [False, True])
def test_it_is_the_papers_formula(dtype, temperature, symmetric):
    generator = torch.Generator().manual_seed(1)
    first, second = torch.randn(2, 5, 3, dtype=dtype, generator=generator)
    expected = by_hand(first.tolist(), second.tolist(), temperature)
    if symmetric:
        back = by_hand(second.tolist(), first.tolist(), temperature)
        expected = [(a + b) / 2 for a, b in zip(expected, back, strict=True)]
    found = InfoNCE(temperature, symmetric=symmetric)(first, second)
    torch.testing.assert_close(found, torch.tensor(expected, dtype=dtype))


def test_the_gradient_is_that_of_finite_differences():
    first, second = torch.randn(2, 4, 3, dtype=torch.float64, requires_grad=True).unbind()
    assert torch.autograd.gradcheck(InfoNCE(0.5, symmetric=True), (first, second))


def test_indistinguishable_texts_cost_the_logarithm_of_the_batch_and_a_perfect_match_nothing():
    alike = torch.ones(8, 3)
    torch.testing.assert_close(InfoNCE()(alike, alike), torch.full((8,), math.log(8)))
    apart = torch.eye(8)
    torch.testing.assert_close(InfoNCE()(apart, 3 * apart), torch.full((8,), 7 * math.exp(-20)), atol=1e-6, rtol=0)


def test_one_pair_has_no_negatives():
    with pytest.raises(InputError, match="one pair has no negatives"):
        InfoNCE()(torch.ones(1, 3), torch.ones(1, 3))


@pytest.mark.parametrize("temperature", [0, -1, float("inf"), float("nan")])
def test_temperatures_that_make_no_sense_are_refused(temperature):
    with pytest.raises(InputError, match="temperature must be a number above 0"):
        InfoNCE(temperature)


def test_halves_that_are_no_pairs_are_refused():
    with pytest.raises(InputError, match="must hold pairs"):
        InfoNCE()(torch.ones(3, 2), torch.ones(2, 2))

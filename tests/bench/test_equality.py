"""Equal weights are found equal, and each kind of difference shows in its row."""

from __future__ import annotations

import math
from types import SimpleNamespace

import pytest
import torch
from torch import nn

from docemb_lib.bench.equality import equality_rows, gradient_cosine, gradient_difference

CPU = torch.device("cpu")


def verdicts(sides):
    rows = equality_rows(sides.stock, sides.ours, sides.documents, seed=0, device=CPU)
    return [row.verdict for row in rows], [row.ours for row in rows]


def test_the_same_weights_give_the_same_numbers(sides):
    assert verdicts(sides)[0] == ["ok", "ok", "ok", "ok"]
    assert all(parameter.grad is None for parameter in sides.stock.model.parameters())


def test_a_weight_that_differs_shows(sides):
    with torch.no_grad():
        sides.ours.model.model.encoder.layer[0].output.dense.weight[0] += 1
    found, (hidden, cosine, gradient, half_gradient) = verdicts(sides)
    assert found == ["below", "below", "below", "below"]
    assert (hidden > 1e-3, cosine < 0.9999, gradient > 1e-3, half_gradient < 0.99) == (True,) * 4


def test_a_window_that_differs_shows(sides):
    sides.ours.model.model.encoder.layer[0].attention.self.one_sided_attn_window_size = 16
    found = verdicts(sides)[0]
    assert (found[0], found[2]) == ("below", "below")


def test_the_difference_of_gradients_is_relative_and_the_largest():
    def model(*gradients):
        found = nn.ParameterDict({name: nn.Parameter(torch.zeros(2)) for name in ("a", "b", "frozen")})
        for name, gradient in zip("ab", gradients, strict=True):
            found[name].grad = torch.tensor(gradient)
        return found

    assert gradient_difference(model([3.0, 4.5], [10.0, 0.0]), model([3.0, 4.0], [10.0, 0.0])) == pytest.approx(0.1)
    assert math.isnan(gradient_difference(model([3.0, 4.0], [math.nan, 0.0]), model([3.0, 4.0], [10.0, 0.0])))
    assert gradient_cosine(model([3.0, 4.0], [0.0, 2.0]), model([3.0, 4.0], [1.0, 1.0])) == pytest.approx(0.5**0.5)


def test_the_keys_biases_have_no_gradient_to_compare():
    def model(noise):
        parameters = {"self.key.bias": torch.zeros(2), "dense.bias": torch.zeros(2)}
        named = {name: nn.Parameter(value) for name, value in parameters.items()}
        named["self.key.bias"].grad, named["dense.bias"].grad = torch.tensor([noise, 0.0]), torch.ones(2)
        return SimpleNamespace(named_parameters=named.items)

    assert gradient_difference(model(1e-9), model(-1e-9)) == 0

"""Weights by length against numbers written out; settings refuse weightings without meaning."""

import dataclasses

import pytest
import torch
from pydantic import ValidationError

from docemb_lib.losses import Weighting
from docemb_lib.settings import Parameters


def test_weights_by_length_fall_linearly_between_the_two_lengths():
    lengths = torch.tensor([1, 384, 1384, 2384, 3384, 4384, 9000])
    falling = torch.tensor([1, 1, 0.75, 0.5, 0.25, 0, 0])
    for lam, factor in ((0.8, 0.8), (None, 1.0)):
        structural, contextual = Weighting(lam, lam_by_length="linear:384:4384").weights(lengths)
        torch.testing.assert_close(structural, factor * falling)
        torch.testing.assert_close(contextual, 1 - factor * falling)
    structural, contextual = Weighting(0.8, 2000, "linear:384:4384", form="contextual_full").weights(lengths)
    torch.testing.assert_close(structural, 0.8 * falling * (lengths <= 2000))
    assert contextual.tolist() == [1] * 7


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lam", 1.2, r"must lie in \[0, 1\] or be None"),
        ("lam", float("nan"), "finite number"),
        ("lam", "null", "write None"),
        ("lam", True, "must be a number"),
        ("max_structural_len", "None", "write None"),
        ("max_structural_len", 0, "greater than or equal to 1"),
        ("lam_by_length", "null", "write None"),
        ("lam_by_length", "linear:4096:384", "FIRST < LAST"),
        ("lam_by_length", "cosine:1:2", "as in linear:384:4096"),
        ("lam_by_length", 384, "valid string"),
        ("form", "half", "'weighted', 'half_means_sum' or 'contextual_full'"),
    ],
)
def test_a_weighting_without_meaning_is_refused_by_the_settings(name, value, message):
    with pytest.raises(ValidationError, match=message):
        Parameters(**{name: value})


def test_a_weighting_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Weighting().lam = 0.5

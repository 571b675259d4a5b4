"""Structural losses against loops over documents written from the formulas."""

import doctest
import importlib
import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from docemb_lib.losses import MSE, Contrastive, Cosine, MaxMargin, structural_loss
from docemb_lib.settings.parameters import Parameters

MARGINS = [
    MaxMargin(distance, gamma)
    for distance in ("mse", "cosine")
    for gamma in (0.0, 0.1, 0.5, 1.0, 1.5)
]
LOSSES = [MSE(), Cosine(), *MARGINS, Contrastive(), Contrastive(temperature=0.05)]
MASKS = [None, [1, 1, 1, 1, 1, 1], [1, 0, 1, 1, 0, 1], [0, 0, 1, 0, 0, 0], [0, 0, 0, 0, 0, 0]]


def views(
    seed: int, B: int = 6, D: int = 5, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(
        torch.randn(B, D, dtype=torch.float64, generator=generator).to(dtype) for _ in range(2)
    )


def mse(y, t):
    return sum((a - b) ** 2 for a, b in zip(y, t, strict=True)) / len(y)


def cosine(y, t):
    return sum(a * b for a, b in zip(y, t, strict=True)) / math.sqrt(
        sum(a * a for a in y) * sum(b * b for b in t)
    )


def reference(loss, y, t, mask):
    """One document after the other, in plain Python."""
    kept = [i for i in range(len(y)) if mask is None or mask[i]]
    out = [0.0] * len(y)
    for i in kept:
        if isinstance(loss, MSE):
            out[i] = mse(y[i], t[i])
        elif isinstance(loss, Cosine):
            out[i] = 1 - cosine(y[i], t[i])
        elif isinstance(loss, MaxMargin):
            distance = mse if loss.distance == "mse" else lambda a, b: 1 - cosine(a, b)
            negatives = [distance(y[i], t[j]) for j in kept if j != i]
            out[i] = distance(y[i], t[i]) - loss.gamma * (
                sum(negatives) / len(negatives) if negatives else 0
            )
        else:
            tau = loss.temperature or 1
            scores = [math.exp(cosine(y[i], t[j]) / tau) for j in kept]
            out[i] = -math.log(math.exp(cosine(y[i], t[i]) / tau) / sum(scores))
    return out


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_each_loss_equals_a_loop_over_documents_in_double_and_single_precision(loss, mask):
    for seed, dtype, tolerance in (
        (0, torch.float64, 1e-12),
        (1, torch.float64, 1e-12),
        (2, torch.float32, 2e-5),
    ):
        y, t = views(seed, dtype=dtype)
        expected = reference(loss, y.tolist(), t.tolist(), mask)
        for kind in (torch.bool, torch.int64, torch.float32):
            got = loss(y, t, None if mask is None else torch.tensor(mask, dtype=kind))
            assert got.dtype == dtype
            np.testing.assert_allclose(got.numpy(), expected, rtol=tolerance, atol=tolerance)


def test_small_distances_survive_single_precision():
    y, _ = views(5, D=768, dtype=torch.float32)
    torch.testing.assert_close(
        MaxMargin("mse", 0.0)(y, y + 1e-4), torch.full((6,), 1e-8), rtol=2e-3, atol=0
    )


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
@pytest.mark.parametrize("mask", MASKS, ids=str)
def test_gradients_agree_with_finite_differences(loss, mask):
    kept = None if mask is None else torch.tensor(mask)
    assert torch.autograd.gradcheck(
        lambda y, t: loss(y, t, kept), [view.requires_grad_() for view in views(7, D=3)]
    )


@pytest.mark.parametrize("loss", [Cosine(), MaxMargin("cosine"), Contrastive()], ids=repr)
def test_zero_embeddings_have_finite_losses_and_gradients(loss):
    y, t = views(6)
    y[0] = 0
    t[1] = 0
    y.requires_grad_()
    values = loss(y, t)
    values.sum().backward()
    assert values.isfinite().all()
    assert y.grad.isfinite().all()
    if isinstance(loss, Cosine):
        assert values[:2].tolist() == [1, 1]  # cos = 0


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_views_that_do_not_fit_are_refused_with_both_sizes(loss, refused):
    for *shapes, message in (
        ((2, 384), (2, 768), r"got \(2, 384\) of the student and \(2, 768\) of the teacher"),
        ((2, 4), (3, 4), r"\(3, 4\) of the teacher"),
        ((2, 4), (2, 4), (3,), r"expected 2, got \(3,\)"),
    ):
        refused(message, loss, *map(torch.zeros, shapes))


def test_the_notebook_names_give_their_losses():
    assert type(structural_loss("mse")) is MSE
    assert type(structural_loss("cosine")) is Cosine
    sharp = structural_loss("contrastive", temperature=0.05)
    assert (type(sharp), sharp.temperature, structural_loss("contrastive").temperature) == (
        Contrastive,
        0.05,
        None,
    )
    margin = structural_loss("max-margin", distance="cosine", gamma=0.5)
    assert (type(margin), margin.distance, margin.gamma) == (MaxMargin, "cosine", 0.5)


def test_a_loss_of_ones_own_is_named_by_its_import_path(tmp_path, monkeypatch, refused):
    (tmp_path / "distances_of_mine.py").write_text(
        "from docemb_lib.losses import StructuralLoss\n"
        "class Dot(StructuralLoss):\n"
        "    def document_losses(self, student, teacher, keep):\n"
        "        return -(student * teacher).sum(dim=1)\n"
        "plain = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = Parameters(structural_loss="distances_of_mine:Dot").structural_loss
    student = torch.ones(3, 2)
    teacher = torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    losses = structural_loss(name)(student, teacher, torch.tensor([1.0, 0.0, 1.0]))
    assert losses.tolist() == [-3.0, 0.0, -11.0]  # the base class applies the mask
    for wrong, message in (
        ("nowhere:Dot", "cannot be imported"),
        ("distances_of_mine:Dott", "distances_of_mine has no class Dott; did you mean Dot"),
        ("distances_of_mine:plain", "distances_of_mine has no class plain"),
        ("collections:Counter", "not a subclass"),
    ):
        refused(f"structural_loss: {wrong}:? .*{message}", structural_loss, wrong)
    with pytest.raises(
        ValidationError, match=r"no such loss .*mse, cosine, max-margin, contrastive"
    ):
        Parameters(structural_loss="huber")


@pytest.mark.parametrize("module", ["contextual", "structural"])
def test_the_examples_in_docstrings_run(module):
    found = doctest.testmod(
        importlib.import_module(f"docemb_lib.losses.{module}"), extraglobs={"torch": torch}
    )
    assert (found.attempted > 0, found.failed) == (True, 0)

"""Structural losses against loops over documents, written from the formulas with SciPy."""

import numpy as np
import pytest
import torch
from conftest import normal
from pydantic import ValidationError
from scipy.spatial.distance import cdist
from scipy.special import log_softmax
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
    return normal(2, B, D, seed=seed).to(dtype).unbind()


def reference(loss, y, t, mask):
    """One document after the other, with the distances of SciPy."""
    by_mse = isinstance(loss, MSE) or getattr(loss, "distance", "") == "mse"
    D = cdist(y, t, "sqeuclidean") / y.shape[1] if by_mse else cdist(y, t, "cosine")
    kept = np.array(mask or [1] * len(y)) > 0
    out = np.zeros(len(y))
    for i in np.flatnonzero(kept):
        out[i] = D[i, i]
        others = kept & (np.arange(len(y)) != i)
        if isinstance(loss, MaxMargin) and others.any():
            out[i] -= loss.gamma * D[i, others].mean()
        elif isinstance(loss, Contrastive):
            out[i] = -log_softmax((1 - D[i]) / (loss.temperature or 1) - 1e9 * ~kept)[i]
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
        expected = reference(loss, y, t, mask)
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


def test_a_loss_of_ones_own_is_named_by_its_import_path(tmp_path, monkeypatch, refused):
    (tmp_path / "distances_of_mine.py").write_text(
        "from docemb_lib.losses import StructuralLoss\n"
        "class Dot(StructuralLoss):\n"
        "    def document_losses(self, student, teacher, keep):\n"
        "        return student\n"
        "plain = 1\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    name = Parameters(structural_loss="distances_of_mine:Dot").structural_loss
    assert type(structural_loss(name)).__name__ == "Dot"
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

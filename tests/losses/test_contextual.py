"""SoftCCA against a step-by-step NumPy version; CCA against NumPy's
decompositions.
"""

import copy

import numpy as np
import pytest
import torch
from conftest import normal
from torch import Tensor

from docemb_lib.losses import (
    CCA,
    MSE,
    SDL,
    Cosine,
    InfoNCE,
    SoftCCA,
    contextual_loss,
)


class NumpySDL:
    """The five lines of the formula with cell-by-cell sums, and batch normalisation by hand."""

    def __init__(self, P, beta, reduction, form="correlation"):
        self.Phi = np.zeros((P, P))
        self.b = 0.0
        self.mean = np.zeros(P)
        self.var = np.ones(P)
        self.beta = beta
        self.reduction = reduction
        self.form = form

    def step(self, Z, training):
        B, P = Z.shape
        mean, var = (Z.mean(0), Z.var(0)) if training else (self.mean, self.var)
        Zb = (Z - mean) / np.sqrt(var + 1e-5)
        if self.form == "covariance":
            Zb = Z - Z.mean(0)
        Sigma = sum(np.outer(z, z) for z in Zb) / (B - 1)
        Phi = self.beta * self.Phi + Sigma
        b = self.beta * self.b + 1
        if training:
            self.Phi = Phi
            self.b = b
            self.mean = 0.9 * self.mean + 0.1 * mean
            self.var = 0.9 * self.var + 0.1 * Z.var(0, ddof=1)
        total = sum(abs(Phi[i, j] / b) for i in range(P) for j in range(P) if i != j)
        return total / (P * P - P) if self.reduction == "mean" else total


@pytest.mark.parametrize("form", ["correlation", "covariance"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("beta", [0.0, 0.5, 0.95])
def test_sdl_equals_its_formula_over_training_and_evaluation_steps(form, reduction, beta):
    sdl = SDL(4, beta, reduction, form).double()
    reference = NumpySDL(4, beta, reduction, form)
    for step in range(12):
        Z = normal(6, 4, seed=step) @ normal(4, 4, seed=100) + step
        sdl.train(step % 4 != 0)
        assert sdl(Z).item() == pytest.approx(reference.step(Z.numpy(), step % 4 != 0), rel=1e-12)
    np.testing.assert_allclose(sdl.covariance, reference.Phi, rtol=1e-12)
    assert sdl.normaliser.item() == pytest.approx(reference.b)


@pytest.mark.parametrize("form", ["correlation", "covariance"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("delta", [0.3, "balance"])
def test_soft_cca_is_the_distance_plus_delta_times_both_decorrelations(delta, reduction, form):
    """A balanced delta is the ratio of their sums over the first twenty training batches."""
    loss = SoftCCA(5, delta, reduction=reduction, form=form).double()
    left, right = (NumpySDL(5, 0.95, reduction, form) for _ in range(2))
    sums = np.zeros(3)
    for step in range(26):
        training = step != 4
        z1 = normal(6, 5, seed=step)
        z2 = 4 * normal(6, 5, seed=50 + step)
        l2 = ((z1 - z2) ** 2).mean(dim=1).numpy()
        sdl = left.step(z1.numpy(), training) + right.step(z2.numpy(), training)
        counted = sums + np.array([1, l2.mean(), sdl]) if sums[0] < 20 else sums
        weight = counted[1] / counted[2] if delta == "balance" else delta
        losses = loss.train(training)(z1, z2)
        np.testing.assert_allclose(losses.numpy(), l2 + weight * sdl, rtol=1e-12)
        if training:
            sums = counted


def test_a_balanced_delta_has_no_gradient_of_its_own():
    z1 = normal(6, 4, seed=1).requires_grad_()
    z2 = normal(6, 4, seed=2)
    loss = SoftCCA(4, "balance").double()
    loss(z1, z2).mean().backward()
    same = z1.detach().clone().requires_grad_()
    delta = float(loss.balance[1] / loss.balance[2])
    SoftCCA(4, delta).double()(same, z2).mean().backward()
    torch.testing.assert_close(z1.grad, same.grad)


@pytest.mark.parametrize("delta", [0.3, "balance"])
def test_soft_cca_is_the_sum_of_the_parts_that_it_reports(delta):
    loss = SoftCCA(5, delta).double()
    for step in range(3):
        views = normal(6, 5, seed=step), normal(6, 5, seed=50 + step)
        expected = copy.deepcopy(loss)(*views)
        losses, parts = loss.with_parts(*views)
        weight = parts.get("delta", delta)
        torch.testing.assert_close(losses, expected)
        torch.testing.assert_close(parts["l2"] + weight * parts["sdl"], expected)
    assert ("delta" in parts) == (delta == "balance")


def test_gradients_of_sdl_flow_through_the_current_batch_alone():
    past = normal(6, 4, seed=1).requires_grad_()
    now = normal(6, 4, seed=2).requires_grad_()
    sdl = SDL(4).double()
    first = sdl(past)
    sdl(now).backward(retain_graph=True)
    assert past.grad is None
    first.backward()  # the statistics moved on without disturbing the earlier graph
    assert past.grad.abs().sum() > 0


@pytest.mark.parametrize("training", [True, False])
def test_soft_cca_gradients_agree_with_finite_differences(training):
    loss = SoftCCA(4, delta=0.5).double()
    loss(normal(6, 4, seed=8), normal(6, 4, seed=9))
    loss.train(training)
    z1 = normal(6, 4, seed=1).requires_grad_()
    z2 = normal(6, 4, seed=2).requires_grad_()
    assert torch.autograd.gradcheck(lambda a, b: copy.deepcopy(loss)(a, b), (z1, z2))


@pytest.mark.parametrize("make", [lambda: SoftCCA(8), CCA], ids=["SoftCCA", "CCA"])
def test_autocast_leaves_the_losses_in_float32(make):
    z1 = normal(6, 8, seed=1).float()
    z2 = normal(6, 8, seed=2).float()
    plain = make()(z1, z2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(make()(z1, z2), plain)
        half = make()(z1.bfloat16(), z2.bfloat16())
    assert half.dtype == torch.float32
    assert torch.equal(half, make()(z1.bfloat16().float(), z2.bfloat16().float()))


def correlated_views(seed: int, B: int = 60, P: int = 5, Q: int = 4) -> tuple[Tensor, Tensor]:
    """Views that share two hidden causes."""
    hidden = normal(B, 2, seed=seed) * torch.tensor([2.0, 0.8], dtype=torch.float64)
    z1 = hidden @ normal(2, P, seed=seed + 1) + normal(B, P, seed=seed + 2) + 3
    return z1, hidden @ normal(2, Q, seed=seed + 3) + normal(B, Q, seed=seed + 4) - 1


def inverse_root(S: np.ndarray) -> np.ndarray:
    values, vectors = np.linalg.eigh(S)
    kept = values > 1e-9
    return vectors[:, kept] / np.sqrt(values[kept]) @ vectors[:, kept].T


@pytest.mark.parametrize("B", [2, 4, 60])
@pytest.mark.parametrize("ridge", [0.0, 1e-3, 0.5])
def test_cca_is_minus_the_nuclear_norm_of_the_whitened_cross_covariance(B, ridge):
    z1, z2 = correlated_views(5, B=B)
    X1, X2 = (z.numpy() - z.numpy().mean(0) for z in (z1, z2))
    S11, S22 = (X.T @ X / (B - 1) + ridge * np.eye(X.shape[1]) for X in (X1, X2))
    A = inverse_root(S11) @ (X1.T @ X2 / (B - 1)) @ inverse_root(S22)
    assert CCA(ridge=ridge)(z1, z2)[0].item() == pytest.approx(-np.linalg.norm(A, "nuc"), rel=1e-6)
    largest = np.linalg.svd(A, compute_uv=False)[:2].sum()
    assert CCA(2, ridge=ridge)(z1, z2)[0].item() == pytest.approx(-largest, rel=1e-6)


@pytest.mark.parametrize(("B", "components"), [(30, None), (30, 1), (30, 3), (4, None), (2, None)])
def test_cca_gradients_agree_with_finite_differences_also_in_small_batches(B, components):
    z1, z2 = correlated_views(40, B=B)
    assert torch.autograd.gradcheck(
        CCA(components, ridge=1e-3), (z1.requires_grad_(), z2.requires_grad_()), atol=1e-6
    )


@pytest.mark.parametrize("ridge", [0.0, 1e-3])
def test_constant_views_have_no_correlation(ridge):
    constant = torch.ones(6, 3, requires_grad=True)
    value = CCA(ridge=ridge)(constant, normal(6, 3, seed=1).float())
    (gradient,) = torch.autograd.grad(value.sum(), constant)
    assert value.abs().max().item() == 0
    assert gradient.isfinite().all()


@pytest.mark.parametrize(
    ("named", "call"),
    [
        (
            "2 documents or more, got a batch of 1",
            lambda: SoftCCA(3)(torch.ones(1, 3), torch.ones(1, 3)),
        ),
        (
            "2 documents or more, got a batch of 1",
            lambda: CCA()(torch.ones(1, 3), torch.ones(1, 3)),
        ),
        (
            "views of width 4, got a student's of 5 and a teacher's of 4",
            lambda: SoftCCA(4)(torch.ones(6, 5), torch.ones(6, 4)),
        ),
        ("form: got 'sum'; give correlation or covariance", lambda: SDL(4, form="sum")),
    ],
)
def test_what_has_no_meaning_is_refused_by_name(named, call, refused):
    refused(named, call)


def test_the_notebook_names_give_their_losses():
    """`tests/runs/test_students.py` has SoftCCA and CCA, with their settings."""
    assert type(contextual_loss("mse", 7)) is MSE
    assert type(contextual_loss("cosine", 7)) is Cosine
    assert (type(contextual_loss("infonce", 7)), InfoNCE().temperature) == (InfoNCE, 0.05)


@pytest.mark.parametrize(
    ("name", "asked", "form"),
    [
        ("soft-cca", "correlation", "correlation"),
        ("soft-cca", "covariance", "covariance"),
        ("soft-cca:covariance", "correlation", "covariance"),
        ("soft-cca:correlation", "covariance", "correlation"),
    ],
)
def test_a_name_with_a_form_takes_it_whatever_the_settings_say(name, asked, form):
    loss = contextual_loss(name, 7, form=asked)
    assert [loss.student_decorrelation.form, loss.teacher_decorrelation.form] == [form, form]


def test_a_balanced_delta_is_that_of_the_sum_where_the_sum_is_taken():
    assert contextual_loss("soft-cca", 7, delta="balance", reduction="sum").delta == "balance"


@pytest.mark.parametrize(("P", "cells"), [(1, 1), (2, 2), (7, 42)])
def test_the_thesis_sum_with_its_delta_is_the_same_loss(P, cells):
    summed = contextual_loss("soft-cca", P, delta=0.3, reduction="sum").double()
    assert (summed.delta, summed.student_decorrelation.reduction) == (0.3 / cells, "sum")
    mean = contextual_loss("soft-cca", P, delta=0.3).double()
    for step in range(3):
        z1 = normal(6, P, seed=step)
        z2 = normal(6, P, seed=9 + step)
        torch.testing.assert_close(summed(z1, z2), mean(z1, z2), rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("side", [0, 1])
def test_cca_of_a_view_that_is_not_finite_is_no_number_rather_than_an_error(side):
    views = [torch.randn(8, 3, requires_grad=True), torch.randn(8, 4)]
    with torch.no_grad():
        views[side][2, 1] = float("nan")
    loss = CCA()(*views)
    assert loss.shape == (8,)
    assert loss.isnan().all()
    loss.mean().backward()  # the trainer looks at the loss; until then nothing breaks

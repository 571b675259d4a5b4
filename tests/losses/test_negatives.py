"""Losses with a pool of negatives against loops over the pool, one row after the other."""

import math

import numpy as np
import pytest
import torch

from docemb_lib.losses import Contrastive, Cosine, MaxMargin, NegativePool
from docemb_lib.losses import negatives as module


def mse(y, t):
    return sum((a - b) ** 2 for a, b in zip(y, t, strict=True)) / len(y)


def cosine(y, t):
    product = sum(a * b for a, b in zip(y, t, strict=True))
    return product / math.sqrt(sum(a * a for a in y) * sum(b * b for b in t))


LOSSES = [
    MaxMargin("mse", 1.0),
    MaxMargin("mse", 0.3),
    MaxMargin("cosine", 1.5),
    Contrastive(),
    Contrastive(temperature=0.05),
]
B, D, POOL = 5, 4, 11


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 3)


def data(seed, *, has_own):
    """Student and teacher embeddings, and a pool whose rows 2, 4, ... are the batch's own."""
    rng = np.random.default_rng(seed)
    student = torch.tensor(rng.standard_normal((B, D)))
    embeddings = rng.standard_normal((POOL + 6, D)).astype("float32")
    rows = np.sort(rng.choice(POOL + 6, size=POOL, replace=False))
    if has_own:
        teacher = embeddings[rows[2 : 2 + B]]
    else:
        teacher = rng.standard_normal((B, D)).astype("float32")
    pool = NegativePool(embeddings, rows, has_own=has_own)
    return student, torch.tensor(teacher, dtype=torch.float64), pool


def looped(loss, student, teacher, pool, i):
    """The loss of document i, in plain Python."""
    y, t = student[i].tolist(), teacher[i].tolist()
    others = [pool.embeddings[row].tolist() for row in pool.rows]
    if pool.has_own:
        others = [other for other in others if other != t]
        assert len(others) == POOL - 1
    if isinstance(loss, Contrastive):
        tau = loss.temperature or 1
        scores = [math.exp(cosine(y, other) / tau) for other in (t, *others)]
        return -math.log(scores[0] / sum(scores))
    distance = mse if loss.distance == "mse" else lambda a, b: 1 - cosine(a, b)
    mean = sum(distance(y, other) for other in others) / len(others)
    return distance(y, t) - loss.gamma * mean


@pytest.mark.parametrize("has_own", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_loss_against_a_pool_equals_a_loop_over_the_pool(loss, has_own):
    student, teacher, pool = data(0, has_own=has_own)
    expected = [looped(loss, student, teacher, pool, i) for i in range(B)]
    got = loss(student, teacher, negatives=pool)
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-10)


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_documents_that_the_mask_hides_have_no_loss_beside_an_empty_pool(loss):
    student, teacher, _ = data(0, has_own=True)
    pool = NegativePool(teacher.numpy(), np.arange(0), has_own=True)
    got = loss(student, teacher, torch.zeros(B), negatives=pool)
    np.testing.assert_array_equal(got.numpy(), np.zeros(B))


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_single_precision_loses_no_small_distance_to_a_far_pool(loss):
    student, teacher, pool = data(1, has_own=True)
    exact = loss(student, teacher, negatives=pool)
    got = loss(student.float(), teacher.float(), negatives=pool)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("has_own", [True, False])
@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_gradients_against_a_pool_agree_with_finite_differences(loss, has_own):
    student, teacher, pool = data(2, has_own=has_own)
    assert torch.autograd.gradcheck(
        lambda y: loss(y, teacher, negatives=pool), student.requires_grad_()
    )


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_a_masked_document_has_no_loss_against_a_pool(loss):
    student, teacher, pool = data(3, has_own=False)
    mask = torch.tensor([1, 0, 1, 1, 0])
    expected = mask * loss(student, teacher, negatives=pool)
    torch.testing.assert_close(loss(student, teacher, mask, pool), expected)


@pytest.mark.parametrize("loss", [MaxMargin("mse"), MaxMargin("cosine")], ids=repr)
def test_max_margin_with_an_empty_pool_is_the_plain_distance(loss):
    student, teacher, _ = data(4, has_own=False)
    empty = NegativePool(np.zeros((3, D), dtype="float32"), np.array([], dtype=int))
    plain = type(loss)(loss.distance, gamma=0.0)
    torch.testing.assert_close(loss(student, teacher, negatives=empty), plain(student, teacher))


def test_contrastive_with_an_empty_pool_is_zero():
    student, teacher, _ = data(5, has_own=False)
    empty = NegativePool(np.zeros((3, D), dtype="float32"), np.array([], dtype=int))
    assert Contrastive()(student, teacher, negatives=empty).abs().max() < 1e-12


@pytest.mark.parametrize("loss", LOSSES, ids=repr)
def test_the_memory_for_gradients_does_not_grow_with_the_pool(loss):
    def saved(size):
        numbers = []
        student, teacher, _ = data(6, has_own=False)
        pool = NegativePool(np.random.default_rng(0).standard_normal((size, D)).astype("float32"))
        student.requires_grad_()

        def save(tensor):
            numbers.append(tensor.numel())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(save, lambda tensor: tensor):
            loss(student, teacher, negatives=pool)
        return sum(numbers)

    assert saved(30) == saved(3000) > 0


def test_a_loss_without_negatives_refuses_a_pool(refused):
    student, teacher, pool = data(7, has_own=False)
    refused("Cosine has none beyond the batch; write batch", Cosine(), student, teacher, None, pool)


def test_a_large_pool_takes_nothing_from_rows_outside_it():
    student, teacher, pool = data(8, has_own=False)
    changed = pool.embeddings.copy()
    changed[np.setdiff1d(np.arange(len(changed)), pool.rows)] = np.nan
    other = NegativePool(changed, pool.rows)
    for loss in LOSSES:
        a = loss(student, teacher, negatives=pool)
        torch.testing.assert_close(a, loss(student, teacher, negatives=other), rtol=0, atol=0)

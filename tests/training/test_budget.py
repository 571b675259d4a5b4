"""How many tokens fit: what a token keeps, counted by hand; and what follows from the memory that is free."""

from __future__ import annotations

import torch

from docemb_lib.training import memory as budget


def test_a_tokens_activations_are_those_counted_by_hand(distil):
    """A layer without dropout keeps, in float32: queries, keys, values, their mixture, and twice what LayerNorm takes
    and gives (8 D), the inner layer before and after GELU, and two pairs of mean and deviation. The embeddings keep
    what their LayerNorm takes and gives, a pair, and two ids of 8 bytes."""
    student = distil.make_objective(dropout=0.0).student
    D, inner, layers = student.dim, student.config.intermediate_size, 2
    by_hand = 4 * (layers * (8 * D + 2 * inner + 4) + 2 * D + 2) + 2 * 8
    assert budget.activation_bytes(student, dtype=None) == by_hand


def test_checkpointing_leaves_more_room(distil):
    student = distil.make_objective().student
    everything = budget.activation_bytes(student, dtype=None)
    student.checkpointing = True
    assert budget.activation_bytes(student, dtype=None) < everything / 2


def test_the_budget_is_a_power_of_two_that_fits_half_of_the_free_memory(distil, monkeypatch):
    student = distil.make_objective().student
    cost = budget.activation_bytes(student, dtype=None)
    for tokens in (100, 5000):
        monkeypatch.setattr(budget, "free_memory", lambda _, tokens=tokens: 2 * tokens * cost)
        found = budget.batch_tokens_for(student, dtype=None, processes=1)
        assert found == {100: 64, 5000: 4096}[tokens]
    assert budget.batch_tokens_for(student, dtype=None, processes=2) == 2048  # they share the memory of one machine
    monkeypatch.setattr(budget, "free_memory", lambda _: 1)
    assert budget.batch_tokens_for(student, dtype=None, processes=1) == student.max_tokens  # one document at least
    monkeypatch.setattr(budget, "free_memory", lambda _: 2**60)
    assert budget.batch_tokens_for(student, dtype=None, processes=1) == budget.LARGEST["cpu"]


def test_counting_draws_no_random_numbers_and_leaves_no_trace(distil):
    student = distil.make_objective(dropout=0.3).student.eval()
    before = torch.get_rng_state()
    budget.activation_bytes(student, dtype=torch.bfloat16)
    assert torch.equal(before, torch.get_rng_state())
    assert not student.training
    assert all(parameter.grad is None for parameter in student.parameters())


def test_checkpointing_is_for_batches_that_would_not_fit(distil, monkeypatch):
    student = distil.make_objective().student
    longest = 4 * student.max_tokens * budget.activation_bytes(student, dtype=None)
    for free, needed in ((2.1 * longest, False), (1.9 * longest, True)):
        monkeypatch.setattr(budget, "free_memory", lambda _, free=free: free)
        assert budget.needs_checkpointing(student, batch_size=4, dtype=None, processes=1) is needed

"""Memory of a token, counted by hand, and the budget that follows from the free memory; precision of a device."""

import pytest
import torch

from docemb_lib.errors import InputError
from docemb_lib.training import precision_of
from docemb_lib.training import run as memory


@pytest.fixture
def student(distil):
    return distil.make_objective().student


def test_a_tokens_activations_are_those_counted_by_hand(distil):
    """A layer without dropout keeps, in float32: queries, keys, values, their mixture, and twice what LayerNorm takes
    and gives (8 D), the inner layer before and after GELU, and two pairs of mean and deviation. The embeddings keep
    what their LayerNorm takes and gives, a pair, and two ids of 8 bytes."""
    student = distil.make_objective(dropout=0.0).student
    D, inner, layers = student.dim, student.config.intermediate_size, 2
    by_hand = 4 * (layers * (8 * D + 2 * inner + 4) + 2 * D + 2) + 2 * 8
    assert memory.activation_bytes(student, dtype=None) == by_hand


def test_checkpointing_leaves_more_room(student):
    everything = memory.activation_bytes(student, dtype=None)
    student.checkpointing = True
    assert memory.activation_bytes(student, dtype=None) < everything / 2


def test_the_budget_is_a_power_of_two_that_fits_half_of_the_free_memory(student, monkeypatch):
    cost = memory.activation_bytes(student, dtype=None)
    for tokens in (100, 5000):
        monkeypatch.setattr(memory, "free_memory", lambda _, tokens=tokens: 2 * tokens * cost)
        found = memory.batch_tokens_for(student, dtype=None, processes=1)
        assert found == {100: 64, 5000: 4096}[tokens]
    assert memory.batch_tokens_for(student, dtype=None, processes=2) == 2048  # they share the memory of one machine
    monkeypatch.setattr(memory, "free_memory", lambda _: 1)
    assert memory.batch_tokens_for(student, dtype=None, processes=1) == student.max_tokens  # one document at least
    monkeypatch.setattr(memory, "free_memory", lambda _: 2**60)
    assert memory.batch_tokens_for(student, dtype=None, processes=1) == memory.LARGEST["cpu"]


def test_counting_draws_no_random_numbers_and_leaves_no_trace(distil):
    student = distil.make_objective(dropout=0.3).student.eval()
    before = torch.get_rng_state()
    memory.activation_bytes(student, dtype=torch.bfloat16)
    assert torch.equal(before, torch.get_rng_state())
    assert not student.training
    assert all(parameter.grad is None for parameter in student.parameters())


def test_checkpointing_is_for_batches_that_would_not_fit(student, monkeypatch):
    longest = 4 * student.max_tokens * memory.activation_bytes(student, dtype=None)
    for free, needed in ((2.1 * longest, False), (1.9 * longest, True)):
        monkeypatch.setattr(memory, "free_memory", lambda _, free=free: free)
        assert memory.needs_checkpointing(student, batch_size=4, dtype=None, processes=1) is needed


def test_precision_fits_the_device(monkeypatch):
    cpu, gpu = torch.device("cpu"), torch.device("cuda")
    for fast, expected in ((True, ("bf16", "bf16")), (False, ("fp32", "fp16"))):
        monkeypatch.setattr(memory, "fast_bf16", lambda _, fast=fast: fast)
        assert (precision_of(None, cpu), precision_of(None, gpu)) == expected
    assert precision_of("fp32", gpu) == "fp32"
    with pytest.raises(InputError, match="fp16 needs a GPU"):
        precision_of("fp16", cpu)
    with pytest.raises(InputError, match="this GPU has no bf16"):
        precision_of("bf16", gpu)

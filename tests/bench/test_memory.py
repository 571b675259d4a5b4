"""Memory is measured at full depth where that fits, else extrapolated, and said so."""

from __future__ import annotations

import pytest
import torch

from docemb_lib.bench import memory
from docemb_lib.bench.measure import peak_memory
from docemb_lib.bench.memory import extrapolate, measure, memory_rows, stock_bytes
from docemb_lib.bench.workload import Workload

CPU = torch.device("cpu")
GiB = 2**30


@pytest.fixture
def asked(monkeypatch, tiny):
    """What `measure` is asked for, answered by a straight line in the layers; `free` bytes in the machine."""
    calls = []

    def answer(workload, depths, documents, precision, device):
        calls.append((tuple(depths), documents, precision))
        return [100 + 50 * depth for depth in depths], [80 + 5 * depth for depth in depths]

    def with_free(free):
        monkeypatch.setattr(memory, "free_memory", lambda device: free)
        return calls

    monkeypatch.setattr(memory, "measure", answer)
    return with_free


def test_a_shallow_model_is_measured_whole(asked):
    calls = asked(1000 * GiB)
    (row,) = memory_rows(Workload(layers=3), precisions=("fp32",), device=CPU)
    assert calls == [((3,), 6, "fp32")]
    assert (row.peer, row.ours, row.verdict, row.note) == (250, 95, "below", "6 documents of 4096 tokens")


def test_a_deep_one_is_extrapolated_on_a_cpu(asked):
    calls = asked(1000 * GiB)
    (row,) = memory_rows(Workload(size="base", layers=12), precisions=("fp32",), device=CPU)
    assert calls == [((1, 2), 6, "fp32")]
    assert (row.peer, row.ours, row.verdict) == (700, 140, "ok")
    assert row.note == "6 documents of 4096 tokens, extrapolated from 1 and 2 layers"


def test_fewer_documents_are_taken_where_memory_is_short(asked):
    workload = Workload(layers=3)
    calls = asked(stock_bytes(workload, 2, 2) / 0.8 * 1.01)
    (row,) = memory_rows(workload, precisions=("fp32",), device=CPU)
    assert calls == [((1, 2), 2, "fp32")]
    assert row.note.startswith("2 documents of 4096 tokens, 6 would not fit into")


def test_nothing_is_measured_where_one_document_does_not_fit(asked):
    calls = asked(1000)
    (row,) = memory_rows(Workload(layers=3), precisions=("fp32",), device=CPU)
    assert (calls, row.ours, row.verdict, row.note) == ([], None, "", "stock does not fit")


def test_a_system_that_does_not_tell_is_said_not_to(monkeypatch, tiny):
    monkeypatch.setattr(memory, "peak_memory", lambda run, device: None)
    (row,) = memory_rows(Workload(layers=1, longest=512), precisions=("fp32",), device=CPU)
    assert (row.ours, row.note) == (None, "this system does not tell a process its peak")


def test_the_line_through_two_depths():
    assert extrapolate((1, 2), (10, 13), 12) == 43
    assert extrapolate((3,), (10,), 3) == 10


@pytest.mark.skipif(peak_memory(lambda: None, CPU) is None, reason="this system does not tell a process its peak")
def test_the_estimate_for_stock_is_enough_and_not_far_too_much(tiny):
    workload = Workload(layers=2, longest=1024)
    stock, ours = measure(workload, (2,), 2, "fp32", CPU)
    assert 1 <= stock_bytes(workload, 2, 2) / stock[0] <= 3
    assert ours[0] < stock[0] / 2

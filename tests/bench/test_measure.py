"""Timings take turns and wait for the device; memory is what a run takes at its peak, no more and no less."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from docemb_lib.bench import measure
from docemb_lib.bench.measure import interleaved, peak_memory

CPU = torch.device("cpu")
MiB = 2**20


def test_runs_take_turns_and_each_is_waited_for_on_both_sides(monkeypatch):
    events = []
    monkeypatch.setattr(measure, "synchronize", lambda device: events.append(f"wait {device}"))
    monkeypatch.setattr(measure.time, "perf_counter", lambda: float(events.append("clock") or len(events)))
    seconds = interleaved({"A": lambda: events.append("A"), "B": lambda: events.append("B")}, 2, "cuda")
    assert events == [event for run in "ABAB" for event in ("wait cuda", "clock", run, "wait cuda", "clock")]
    assert seconds == {"A": [3.0, 3.0], "B": [3.0, 3.0]}


@pytest.mark.skipif(peak_memory(lambda: None, CPU) is None, reason="this system does not tell a process its peak")
def test_the_peak_is_that_of_this_run_alone():
    def take(mebibytes):
        np.ones(mebibytes * MiB, dtype=np.uint8)

    assert peak_memory(lambda: take(200), CPU) / MiB == pytest.approx(200, abs=16)
    assert peak_memory(lambda: take(50), CPU) / MiB == pytest.approx(50, abs=16)  # the mark of 200 is gone
    assert peak_memory(lambda: (take(60), take(60)), CPU) / MiB == pytest.approx(60, abs=16)
    kept = np.ones(300 * MiB, dtype=np.uint8)
    assert peak_memory(lambda: take(40), CPU) / MiB == pytest.approx(40, abs=16)
    assert kept[0]


def test_where_the_system_does_not_tell_nothing_is_run(monkeypatch, tmp_path):
    monkeypatch.setattr(measure, "PROCESS", tmp_path / "no-proc")
    assert peak_memory(lambda: pytest.fail("was run"), CPU) is None


def test_the_peak_on_a_gpu_is_that_of_its_tensors_above_those_before(monkeypatch):
    memory = SimpleNamespace(now=70, peak=900)

    def run():
        memory.peak = max(memory.peak, 270)

    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: setattr(memory, "peak", memory.now))
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: memory.now)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: memory.peak)
    assert peak_memory(run, torch.device("cuda")) == 200

"""The benchmark as a whole: what it refuses, and what it says of how it was measured."""

from __future__ import annotations

import pytest
import torch

from docemb_lib.bench import Row, bench_student, student
from docemb_lib.errors import InputError


@pytest.mark.parametrize(
    ("device", "said"),
    [("tpu", "device: got 'tpu', give cpu or cuda"), ("cuda", "device: got cuda, torch sees no GPU here; give cpu")],
)
def test_a_device_that_is_not_here_is_refused(monkeypatch, device, said):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match=f"^{said}$"):
        bench_student(device=device)


def test_settings_and_notes_say_how_it_was_measured(monkeypatch):
    asked = []

    def measure(workload, budgets, precisions, device, notes):
        asked.append((workload.layers, budgets, precisions, device))
        return [Row("speed", 2.0, "tokens/s", peer=1.0)], {}

    monkeypatch.setattr(student, "_measure", measure)
    monkeypatch.setattr(student, "fast_bf16", lambda device: False)
    report = bench_student(device="cpu", quick=True, documents=3)
    assert asked == [(1, {"ours": 8192, "stock": 8192}, ("fp32",), torch.device("cpu"))]
    assert [note.partition(":")[0] for note in report.notes] == [
        "dropout is 0 on both sides",
        "bf16 is not timed",
        "quick",
    ]
    assert report.settings["documents"] == len(report.settings["lengths"]) == 3
    assert report.settings["tokens"] == sum(report.settings["lengths"])
    assert (report.machine["threads"], report.versions["torch"]) == (torch.get_num_threads(), torch.__version__)

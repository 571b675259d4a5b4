"""Speeds are tokens by seconds, shares are operations by the peak, and ratios are judged by the budgets."""

from __future__ import annotations

import pytest
import torch

from docemb_lib.bench import speed
from docemb_lib.bench.speed import Speed, compare_speed, failure, growth_rows, measure_growth, run_compiled, speed_rows
from docemb_lib.student.longformer import forward_flops

CPU = torch.device("cpu")
GiB = 2**30


def measured(what, side, precision, *repeats):
    middle = sorted(repeats)[len(repeats) // 2]
    return Speed(what, side, precision, middle, 600 / middle, 0.1 / middle, list(repeats))


def test_rows_compare_with_stock_at_full_and_at_the_same_precision():
    speeds = [
        measured("forward", "stock", "fp32", 8.0, 12.0, 10.0),
        measured("forward", "stock", "bf16", 4.0, 4.0, 4.0),
        measured("forward", "ours", "fp32", 1.0, 1.0, 1.25),
        measured("forward", "ours", "bf16", 0.5, 0.5, 1.0),
    ]
    rows = {row.name: row for row in speed_rows(speeds, CPU)}
    assert [(name, row.ratio, row.spread, row.must_reach, row.verdict) for name, row in rows.items()] == [
        ("forward: ours fp32, stock fp32", 10.0, (8.0, 12.0), "≥ 9", "ok"),
        ("forward: ours bf16, stock fp32", 20.0, (10.0, 24.0), "≥ 18", "ok"),
        ("forward: ours bf16, stock bf16", 8.0, (4.0, 8.0), "", ""),
        ("forward: share of fp32 peak, ours", pytest.approx(10.0), None, "", ""),
        ("forward: share of bf16 peak, ours", pytest.approx(8.0), None, "", ""),
    ]
    (below,) = [row for row in speed_rows(speeds, torch.device("cuda")) if row.name.endswith("bf16, stock bf16")]
    assert (below.must_reach, below.verdict) == ("≥ 10", "below")


def test_speeds_count_real_tokens_and_three_times_the_arithmetic_for_training(sides, monkeypatch):
    monkeypatch.setattr(speed, "matmul_peak", lambda device, dtype: {torch.float32: 1e9, torch.bfloat16: 4e9}[dtype])
    common = {
        "budgets": {"ours": 400, "stock": 700},
        "precisions": ("fp32", "bf16"),
        "repeats": 3,
        "seed": 0,
        "device": CPU,
        "notes": [],
    }
    speeds = compare_speed(sides.stock, sides.ours, sides.documents, **common)
    assert {(s.what, s.side, s.precision) for s in speeds} == {
        (what, side, precision)
        for what in ("forward", "forward + backward")
        for side in ("stock", "ours")
        for precision in ("fp32", "bf16")
        if (side, precision) != ("stock", "bf16")  # slower on a CPU than in fp32
    }
    flops = forward_flops(sides.ours.model.config, [40, 7, 300, 12, 150])
    for s in speeds:
        assert s.seconds == sorted(s.repeats)[1]
        assert s.tokens_per_s == pytest.approx(509 / s.seconds)
        work = flops * (3 if "backward" in s.what else 1) / (4 if s.precision == "bf16" else 1)
        assert s.share_of_peak == pytest.approx(work / s.seconds / 1e9)
    assert all(parameter.grad is None for parameter in sides.ours.model.parameters())


def test_a_compiler_that_fails_is_told_in_one_line_and_leaves_the_student_as_it_was(sides):
    def run():
        assert sides.ours.model.compiled
        raise RuntimeError("no\n  compiler")

    assert failure(lambda: run_compiled(sides.ours, run)) == "RuntimeError: no compiler"
    assert not sides.ours.model.compiled
    assert failure(lambda: run_compiled(sides.ours, lambda: None)) is None


@pytest.mark.parametrize(
    ("free", "ours", "stock"), [(139 * GiB, 65536, 16384), (24 * GiB, 24576, 6144), (2 * GiB, 4096, 4096)]
)
def test_batches_on_a_gpu_fit_its_memory(monkeypatch, free, ours, stock):
    monkeypatch.setattr(speed, "free_memory", lambda device: free)
    found = [speed.token_budget(torch.device("cuda"), side) for side in ("ours", "stock")]
    assert found == [ours, stock]


def test_growth_has_a_fixed_total_for_the_length_and_a_fixed_length_for_the_number(sides):
    points = measure_growth(
        sides.ours, tokens=512, longest=256, budget=512, precision="fp32", repeats=1, seed=0, device=CPU
    )
    shapes = {name: [(p["documents"], p["tokens_per_document"]) for p in points[name]] for name in points}
    assert shapes == {
        "growth_length": [(32, 16), (16, 32), (8, 64), (4, 128), (2, 256)],
        "growth_number": [(1, 64), (2, 64), (4, 64), (8, 64)],
    }
    longer, more = growth_rows(points["growth_length"], points["growth_number"])
    first, *_, last = points["growth_length"]
    assert longer.ours == last["seconds_per_token"] / first["seconds_per_token"]
    assert (
        more.ours == points["growth_number"][3]["seconds_per_token"] / points["growth_number"][0]["seconds_per_token"]
    )

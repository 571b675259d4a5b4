"""Timings take turns, memory is that of one run, rows are judged at their bounds, reports hold
every row.
"""

import io
import json
import math
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest
import torch
from rich.console import Console
from scipy import stats

from docemb_lib.bench import harness
from docemb_lib.bench.harness import LONGEST, SHORTEST, Report, Row, peak_memory, thesis_lengths
from docemb_lib.cli.terminal import print_table

CPU = torch.device("cpu")
GiB = 2**30
ROWS = [
    Row("speed", 3000.0, "tokens/s", peer=300.0, at_least=10, ratio_low=9.0, ratio_high=11.0),
    Row("memory", 3.0, "GiB", peer=8.0, at_most=0.25),
    Row("share", 0.5, "of the peak", at_least=0.4),
    Row("gone", math.nan, "GiB", peer=math.nan, at_most=0.25),
]
REPORT = Report("student", "stock", {"layers": 3}, ROWS)


def test_runs_take_turns_and_the_device_is_synchronised_on_both_sides(monkeypatch):
    events = []
    monkeypatch.setattr(harness, "_wait_for", lambda device: events.append(f"wait {device}"))
    monkeypatch.setattr(
        harness.time, "perf_counter", lambda: float(events.append("clock") or len(events))
    )
    seconds = harness.interleaved(
        {"A": lambda: events.append("A"), "B": lambda: events.append("B")}, 2, "cuda"
    )
    assert events == [
        event for run in "ABAB" for event in ("wait cuda", "clock", run, "wait cuda", "clock")
    ]
    assert seconds == {"A": [3.0, 3.0], "B": [3.0, 3.0]}


@pytest.mark.skipif(
    math.isnan(peak_memory(lambda: None, CPU)), reason="needs Linux with glibc, to read the peak"
)
def test_the_peak_is_that_of_this_run_alone():
    def take(*mebibytes):
        for number in mebibytes:
            np.ones(number * 2**20, dtype=np.uint8)

    for given, peak in (([200], 200), ([50], 50), ([60, 60], 60)):  # the peak of 200 is reset
        assert 1024 * peak_memory(lambda given=given: take(*given), CPU) == pytest.approx(
            peak, abs=16
        )


def test_a_peak_that_is_not_to_be_had_is_no_number(monkeypatch, tmp_path):
    assert math.isnan(peak_memory(Mock(side_effect=torch.OutOfMemoryError), CPU))
    monkeypatch.setattr(harness, "PROCESS", tmp_path / "no-proc")
    assert math.isnan(peak_memory(lambda: pytest.fail("was run"), CPU))


def test_the_peak_on_a_gpu_is_that_of_its_tensors_above_those_before(monkeypatch):
    memory = SimpleNamespace(now=70 * GiB, peak=900 * GiB)
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda device: setattr(memory, "peak", memory.now)
    )
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: memory.now)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: memory.peak)
    assert peak_memory(lambda: setattr(memory, "peak", 270 * GiB), torch.device("cuda")) == 200


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        (Row("", 10.0, "", peer=1.0, at_least=10), "ok"),
        (Row("", 9.99, "", peer=1.0, at_least=10), "below"),
        (Row("", 1.0, "", peer=4.0, at_most=0.25), "ok"),
        (Row("", 1.01, "", peer=4.0, at_most=0.25), "below"),
        (Row("", 0.4, "%", at_least=0.4), "ok"),
        (Row("", 0.0, "", at_most=1e-5), "ok"),
        (Row("", 5.0, "", peer=1.0), ""),
        (Row("", math.nan, "", at_most=1e-5), ""),
    ],
)
def test_a_row_is_judged_by_its_ratio_or_by_ours(row, verdict):
    assert row.verdict == verdict


def test_ratios_are_of_medians_with_the_spread_of_the_pairs():
    row = harness.ratio_row("", 60, "words/s", [2.0, 2.0, 4.0], [20.0, 30.0, 20.0], at_least=10)
    assert (row.ours, row.peer, row.ratio, row.ratio_low, row.ratio_high, row.verdict) == (
        30,
        3,
        10,
        5,
        15,
        "ok",
    )


def test_the_json_holds_every_row_and_the_table_shows_what_is_measured():
    content = json.loads(REPORT.json())
    assert content["results"][0] == {
        "name": "speed",
        "peer": 300.0,
        "ours": 3000.0,
        "unit": "tokens/s",
        "ratio": 10.0,
        "ratio_low": 9.0,
        "ratio_high": 11.0,
        "budget": "≥ 10",
        "verdict": "ok",
    }
    rows = [(row["name"], row["ours"], row["ratio"], row["verdict"]) for row in content["results"]]
    assert rows[1:] == [
        ("memory", 3, 0.375, "below"),
        ("share", 0.5, None, "ok"),
        ("gone", None, None, ""),
    ]
    assert (content["machine"]["threads"], content["machine"]["torch"]) == (
        torch.get_num_threads(),
        torch.__version__,
    )
    console = Console(width=160, file=io.StringIO())
    print_table(REPORT.table(), console, REPORT.title)
    title, *lines = console.file.getvalue().splitlines()
    assert title.startswith("student: ours against stock on ")
    rows = [line.replace("│", " ").split() for line in lines]
    assert ["speed", "300", "3,000", "tokens/s", "10", "≥", "10", "ok"] in rows
    assert ["memory", "8", "3", "GiB", "0.375", "≤", "0.25", "below"] in rows
    assert ["share", "0.5", "of", "the", "peak", "≥", "0.4", "ok"] in rows
    assert ["gone", "GiB", "≤", "0.25"] in rows


def test_lengths_follow_the_log_normal_of_the_thesis_cut_at_4096():
    sigma = math.sqrt(math.log(1 + (1723 / 1371) ** 2))
    thesis = stats.lognorm(sigma, scale=1371 / math.exp(sigma**2 / 2))
    assert (thesis.mean(), thesis.std()) == (pytest.approx(1371), pytest.approx(1723))
    expected = np.clip(thesis.ppf((np.arange(50_000) + 0.5) / 50_000), SHORTEST, LONGEST)
    lengths = np.array(thesis_lengths(5000, seed=3))
    np.testing.assert_allclose(
        np.quantile(lengths, [0.1, 0.5, 0.9]), np.quantile(expected, [0.1, 0.5, 0.9]), rtol=0.01
    )
    assert (lengths.mean(), lengths.max()) == (pytest.approx(expected.mean(), rel=0.005), LONGEST)
    assert (lengths == LONGEST).mean() == pytest.approx(thesis.sf(LONGEST), abs=0.001)
    assert all(
        0.8 < np.mean(thesis_lengths(8, seed=seed)) / lengths.mean() < 1.25 for seed in range(30)
    )
    # they depend on their seed and are in random order
    first = thesis_lengths(20, seed=1)
    assert first == thesis_lengths(20, seed=1)
    assert first not in (thesis_lengths(20, seed=2), sorted(first))
    assert max(thesis_lengths(20, seed=1, scale=1 / 8)) == 512

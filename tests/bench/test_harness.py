"""Timings, peak memory, rows at their bounds, reports, and the lengths of documents."""

import io
import json
import math
from functools import partial
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


def test_runs_take_turns_between_two_readings_of_the_clock(monkeypatch):
    events = []

    def clock():
        events.append("clock")
        return float(len(events))

    monkeypatch.setattr(harness, "timer", clock)
    seconds = harness.interleaved(
        {"A": lambda: events.append("A"), "B": lambda: events.append("B")}, 2
    )
    assert events == [event for run in "ABAB" for event in ("clock", run, "clock")]
    assert seconds == {"A": [2.0, 2.0], "B": [2.0, 2.0]}


def test_the_clock_waits_for_a_gpu(monkeypatch):
    events = []
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda: events.append("wait"))
    harness.interleaved({"A": lambda: events.append("A")}, 1)
    assert events == ["wait", "A", "wait"]


@pytest.mark.skipif(
    math.isnan(peak_memory(lambda: None, CPU)), reason="needs Linux with glibc, to read the peak"
)
def test_the_peak_is_that_of_this_run_alone():
    def take(*mebibytes):
        for number in mebibytes:
            np.ones(number * 2**20, dtype=np.uint8)

    for sizes, peak in (([200], 200), ([50], 50), ([60, 60], 60)):  # the peak of 200 is reset
        measured = 1024 * peak_memory(partial(take, *sizes), CPU)
        assert measured == pytest.approx(peak, abs=16)


def test_a_peak_without_enough_memory_is_no_number():
    assert math.isnan(peak_memory(Mock(side_effect=torch.OutOfMemoryError), CPU))


def test_a_peak_that_the_system_does_not_report_is_no_number(monkeypatch, tmp_path):
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
    assert (row.ours, row.peer, row.ratio) == (30, 3, 10)
    assert (row.ratio_low, row.ratio_high, row.verdict) == (5, 15, "ok")


def test_the_json_holds_the_fields_of_a_row():
    assert json.loads(REPORT.json())["results"][0] == {
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


def test_the_json_holds_every_row():
    rows = json.loads(REPORT.json())["results"]
    assert [(row["name"], row["ours"], row["ratio"], row["verdict"]) for row in rows[1:]] == [
        ("memory", 3, 0.375, "below"),
        ("share", 0.5, None, "ok"),
        ("gone", None, None, ""),
    ]


def test_the_json_names_the_machine_and_the_versions():
    machine = json.loads(REPORT.json())["machine"]
    assert machine["threads"] == torch.get_num_threads()
    assert machine["torch"] == torch.__version__


def test_the_table_shows_what_is_measured():
    console = Console(width=160, file=io.StringIO())
    print_table(REPORT.table(), console, REPORT.title)
    title, *lines = console.file.getvalue().splitlines()
    assert title.startswith("student: ours against stock on ")
    rows = [line.replace("│", " ").split() for line in lines]
    assert ["speed", "300", "3,000", "tokens/s", "10", "≥", "10", "ok"] in rows
    assert ["memory", "8", "3", "GiB", "0.375", "≤", "0.25", "below"] in rows
    assert ["share", "0.5", "of", "the", "peak", "≥", "0.4", "ok"] in rows
    assert ["gone", "GiB", "≤", "0.25"] in rows


def expected_lengths():
    """Quantiles of the thesis' log-normal, cut at 4096, and the share of its tail."""
    sigma = math.sqrt(math.log(1 + (1723 / 1371) ** 2))
    thesis = stats.lognorm(sigma, scale=1371 / math.exp(sigma**2 / 2))
    assert (thesis.mean(), thesis.std()) == (pytest.approx(1371), pytest.approx(1723))
    quantiles = thesis.ppf((np.arange(50_000) + 0.5) / 50_000)
    return np.clip(quantiles, SHORTEST, LONGEST), thesis.sf(LONGEST)


def test_lengths_follow_the_log_normal_of_the_thesis_cut_at_4096():
    expected, tail = expected_lengths()
    lengths = np.array(thesis_lengths(5000, seed=3))
    np.testing.assert_allclose(
        np.quantile(lengths, [0.1, 0.5, 0.9]), np.quantile(expected, [0.1, 0.5, 0.9]), rtol=0.01
    )
    assert (lengths.mean(), lengths.max()) == (pytest.approx(expected.mean(), rel=0.005), LONGEST)
    assert (lengths == LONGEST).mean() == pytest.approx(tail, abs=0.001)


def test_a_few_lengths_have_about_the_mean_of_many():
    expected, _ = expected_lengths()
    means = [np.mean(thesis_lengths(8, seed=seed)) for seed in range(30)]
    assert all(0.8 < mean / expected.mean() < 1.25 for mean in means)


def test_lengths_are_in_a_random_order_of_their_seed():
    lengths = thesis_lengths(20, seed=1)
    assert lengths == thesis_lengths(20, seed=1)
    assert lengths not in (thesis_lengths(20, seed=2), sorted(lengths))


def test_scaled_lengths_are_cut_at_the_scaled_limit():
    assert max(thesis_lengths(20, seed=1, scale=1 / 8)) == 512

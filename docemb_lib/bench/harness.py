"""What all benchmarks share: interleaved timing, peak memory, findings judged by budgets, and their
report.
"""

import ctypes
import gc
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import psutil
import torch
import transformers
from joblib import cpu_count
from scipy.stats import lognorm

from docemb_lib.base import __version__

Name = TypeVar("Name")
PROCESS = Path("/proc/self")
# Tokens of a training document (thesis, Section 4.1), of which the student reads at most LONGEST.
THESIS_MEAN, THESIS_STD = 1371, 1723
SHORTEST, LONGEST = 8, 4096


@dataclass(frozen=True)
class Row:
    """One finding.

    A row with a peer is judged by the ratio `ours / peer`, any other row by `ours`.
    """

    name: str
    ours: float  # NaN: not measured
    unit: str
    peer: float = math.nan  # NaN: there is none
    at_least: float | None = None  # the budget; a row has at most one of the two bounds
    at_most: float | None = None
    ratio_low: float = math.nan  # smallest and largest ratio of the repeats
    ratio_high: float = math.nan

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def budget(self) -> str:
        """The bound in words, e.g. `≥ 0.9`; empty without one."""
        sign, bound = ("≤", self.at_most) if self.at_least is None else ("≥", self.at_least)
        return "" if bound is None else f"{sign} {bound:g}"

    @property
    def verdict(self) -> str:
        """`ok` or `below`; empty without a budget or a measurement."""
        judged = self.ours if math.isnan(self.peer) else self.ratio
        if not self.budget or math.isnan(judged):
            return ""
        reached = (
            judged <= (self.at_most or 0) if self.at_least is None else judged >= self.at_least
        )
        return "ok" if reached else "below"


@dataclass(frozen=True)
class Report:
    """All that a benchmark found, and on which machine."""

    benchmark: str
    peer: str
    settings: dict[str, Any]
    rows: list[Row]
    device: str = "cpu"

    def frame(self) -> pd.DataFrame:
        """A row per finding: the fields of `Row`, and ratio, budget and verdict."""
        rows = [
            asdict(r) | {"ratio": r.ratio, "budget": r.budget, "verdict": r.verdict}
            for r in self.rows
        ]
        return pd.DataFrame(rows).drop(columns=["at_least", "at_most"])

    def json(self) -> str:
        """Machine, versions, settings, and findings; NaN is null."""
        content: dict[str, Any] = {
            "benchmark": self.benchmark,
            "peer": self.peer,
            "machine": machine(self.device),
        }
        content |= {"settings": self.settings, "results": self.frame().to_dict("records")}
        return (
            str(pd.Series(content).to_json(indent=1, double_precision=12, force_ascii=False)) + "\n"
        )

    def table(self) -> pd.DataFrame:
        """The findings in words, for a terminal."""
        frame = self.frame()[["name", "peer", "ours", "unit", "ratio", "budget", "verdict"]]
        numbers = ["peer", "ours", "ratio"]
        frame[numbers] = frame[numbers].map(_in_words)
        return frame.rename(columns={"peer": self.peer})

    @property
    def title(self) -> str:
        return f"{self.benchmark}: ours against {self.peer} on {machine(self.device)['name']}"


def interleaved(
    runs: Mapping[Name, Callable[[], object]], repeats: int, device: torch.device | str = "cpu"
) -> dict[Name, list[float]]:
    """Seconds of each run, each measured `repeats` times, in the order of measurement.

    The runs take turns, so that a machine that slows down slows all of them. Warm the runs up
    before.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            _wait_for(device)
            start = time.perf_counter()
            run()
            _wait_for(device)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio_row(
    name: str,
    amount: float,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    at_least: float | None = None,
) -> Row:
    """`amount` per second of both sides, from the seconds of their interleaved repeats; medians,
    with the spread.
    """
    ratios = [slow / fast for slow, fast in zip(peer, ours, strict=True)]
    rates = amount / median(ours), amount / median(peer)
    return Row(
        name, rates[0], unit, rates[1], at_least, ratio_low=min(ratios), ratio_high=max(ratios)
    )


def peak_memory(run: Callable[[], object], device: torch.device) -> float:
    """GiB that a run takes at its peak above the level before. NaN: out of memory, or not reported
    by the system.

    On a GPU this is the memory of torch's tensors; on a CPU it is the resident set of the process,
    whose maximum Linux resets on request.
    """
    gc.collect()
    try:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            run()
            return (torch.cuda.max_memory_allocated(device) - before) / 2**30
        ctypes.CDLL(None).malloc_trim(
            0
        )  # memory that is free already would be used again without being counted
        (PROCESS / "clear_refs").write_text("5")
        before = psutil.Process().memory_info().rss
        run()
        peak = re.search(r"VmHWM:\s+(\d+) kB", (PROCESS / "status").read_text())
        return max(0, int(peak[1]) * 1024 - before) / 2**30 if peak else math.nan
    except (
        torch.OutOfMemoryError,
        OSError,
        AttributeError,
        TypeError,
    ):  # the last three: not Linux with glibc
        return math.nan


def thesis_lengths(n: int, *, seed: int, scale: float = 1.0) -> list[int]:
    """Tokens of n documents: log-normal with the thesis' mean and deviation, scaled, cut to what
    the student reads.

    One length is drawn from each of n equally likely intervals: even few documents have about its
    mean and its tail.
    """
    generator = np.random.default_rng(seed)
    variance = math.log(1 + (THESIS_STD / THESIS_MEAN) ** 2)
    shares = (np.arange(n) + generator.uniform(0.001, 0.999, n)) / n
    lengths = scale * lognorm.ppf(
        shares, math.sqrt(variance), scale=THESIS_MEAN * math.exp(-variance / 2)
    )
    return [
        int(length)
        for length in generator.permutation(lengths.round().clip(SHORTEST, LONGEST * scale))
    ]


def machine(device: str = "cpu") -> dict[str, Any]:
    """The machine that is measured on, and the versions.

    The load average shows whether anything else ran.
    """
    name = (
        torch.cuda.get_device_name(device)
        if device == "cuda"
        else torch.cpu.get_capabilities().get("cpu_name", "")
    )
    computes = {
        "name": name,
        "device": device,
        "cores": cpu_count(),
        "threads": torch.get_num_threads(),
    }
    versions = {module.__name__: str(module.__version__) for module in (torch, transformers, np)}
    return computes | {"load_average": psutil.getloadavg()[0], "docemb": __version__, **versions}


def _wait_for(device: torch.device | str) -> None:
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def _in_words(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"

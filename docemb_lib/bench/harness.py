"""What all benchmarks share: interleaved timing, peak memory, and a report of rows with budgets."""

import ctypes
import gc
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from timeit import timeit
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import psutil
import torch
import transformers
from joblib import cpu_count
from scipy.stats import lognorm
from torch.utils.benchmark import timer

from docemb_lib.base import __version__

Name = TypeVar("Name")
PROCESS = Path("/proc/self")
# Mean and standard deviation of the tokens of a training document (thesis, Section 4.1). The
# student reads at most LONGEST of them.
THESIS_MEAN = 1371
THESIS_STD = 1723
SHORTEST = 8
LONGEST = 4096


@dataclass(frozen=True)
class Row:
    """One measurement.

    A row with a peer is judged by the ratio `ours / peer`, any other row by `ours`.
    """

    name: str
    ours: float  # NaN: not measured
    unit: str
    peer: float = math.nan  # NaN: there is none
    at_least: float = -math.inf  # the budget; a row has at most one of the two bounds
    at_most: float = math.inf
    ratio_low: float = math.nan  # smallest and largest ratio of the repeats
    ratio_high: float = math.nan

    @property
    def ratio(self) -> float:
        return self.ours / self.peer

    @property
    def budget(self) -> str:
        """The bound in words, e.g. `≥ 0.9`; empty without one."""
        if self.at_least > -math.inf:
            return f"≥ {self.at_least:g}"
        return f"≤ {self.at_most:g}" if self.at_most < math.inf else ""

    @property
    def verdict(self) -> str:
        """`ok` or `below`; empty without a budget or a measurement."""
        judged = self.ours if math.isnan(self.peer) else self.ratio
        if not self.budget or math.isnan(judged):
            return ""
        return "ok" if self.at_least <= judged <= self.at_most else "below"


@dataclass(frozen=True)
class Report:
    """All rows of a benchmark, and the machine that they were measured on."""

    benchmark: str
    peer: str
    settings: dict[str, Any]
    rows: list[Row]
    device: str = "cpu"
    columns: tuple[str, ...] = ()  # further fields of the rows that the table shows

    def frame(self) -> pd.DataFrame:
        """The fields of each `Row`, and its ratio, budget and verdict."""
        frame = pd.DataFrame(map(asdict, self.rows)).drop(columns=["at_least", "at_most"])
        for name in ("ratio", "budget", "verdict"):
            frame[name] = [getattr(row, name) for row in self.rows]
        return frame

    def json(self) -> str:
        """Machine, versions, settings, and rows; NaN is null."""
        content = {
            "benchmark": self.benchmark,
            "peer": self.peer,
            "machine": machine(self.device),
            "settings": self.settings,
            "results": self.frame().to_dict("records"),
        }
        text = pd.Series(content).to_json(indent=1, double_precision=12, force_ascii=False)
        return f"{text}\n"

    def table(self) -> pd.DataFrame:
        """The rows in words, for a terminal."""
        names = ["name", "peer", "ours", "unit", "ratio", *self.columns, "budget", "verdict"]
        frame = self.frame()[names]
        numbers = ["peer", "ours", "ratio", *self.columns]
        frame[numbers] = frame[numbers].map(_in_words)
        return frame.rename(columns={"peer": self.peer})

    @property
    def title(self) -> str:
        return f"{self.benchmark}: ours against {self.peer} on {machine(self.device)['name']}"


def _in_words(value: float) -> str:
    if math.isnan(value):
        return ""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"


def interleaved(runs: Mapping[Name, Callable[[], object]], repeats: int) -> dict[Name, list[float]]:
    """Seconds of each run, each measured `repeats` times, in the order of measurement.

    The runs take turns, so that a machine that slows down slows all of them. Warm the runs up
    before. The clock waits for a GPU. `Timer.blocked_autorange` would repeat each run to find the
    size of a block, where one run of stock takes half a minute.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            seconds[name].append(timeit(run, timer=timer, number=1))
    return seconds


def ratio_row(
    name: str,
    amount: float,
    unit: str,
    ours: Sequence[float],
    peer: Sequence[float],
    *,
    at_least: float = -math.inf,
) -> Row:
    """`amount` per second of both sides, from the seconds of their interleaved repeats.

    The rates are those of the medians; the spread is that of the repeats.
    """
    ratios = np.divide(peer, ours)
    return Row(
        name,
        amount / median(ours),
        unit,
        amount / median(peer),
        at_least,
        ratio_low=ratios.min(),
        ratio_high=ratios.max(),
    )


def peak_memory(run: Callable[[], object], device: torch.device) -> float:
    """GiB that a run takes at its peak above the level before.

    On a GPU this is the memory of torch's tensors; on a CPU it is the resident set of the process,
    whose maximum Linux resets on request. The result is NaN where memory runs out, and where the
    system does not report it.
    """
    gc.collect()
    try:
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            before = torch.cuda.memory_allocated(device)
            run()
            return (torch.cuda.max_memory_allocated(device) - before) / 2**30
        # Memory that is free already would be used again without being counted.
        ctypes.CDLL(None).malloc_trim(0)
        (PROCESS / "clear_refs").write_text("5")
        before = psutil.Process().memory_info().rss
        run()
        (kibibytes,) = re.findall(r"VmHWM:\s+(\d+) kB", (PROCESS / "status").read_text())
        return max(0, int(kibibytes) * 1024 - before) / 2**30
    except (torch.OutOfMemoryError, OSError, AttributeError, TypeError, ValueError):
        return math.nan  # the last four errors: the system is not Linux with glibc


def thesis_lengths(n: int, *, seed: int, scale: float = 1.0) -> list[int]:
    """Tokens of n documents: log-normal with the thesis' mean and deviation, scaled and cut.

    They are cut to what the student reads. One length is drawn from each of n equally likely
    intervals, so that even few documents have about its mean and its tail.
    """
    generator = np.random.default_rng(seed)
    variance = math.log(1 + (THESIS_STD / THESIS_MEAN) ** 2)
    shares = (np.arange(n) + generator.uniform(0.001, 0.999, n)) / n
    distribution = lognorm(math.sqrt(variance), scale=THESIS_MEAN * math.exp(-variance / 2))
    lengths = (scale * distribution.ppf(shares)).round().clip(SHORTEST, LONGEST * scale)
    return generator.permutation(lengths).astype(int).tolist()


def machine(device: str = "cpu") -> dict[str, Any]:
    """The machine that is measured on, and the versions.

    The load average shows whether anything else ran.
    """
    on_gpu = device == "cuda"
    cpu = torch.cpu.get_capabilities().get("cpu_name", "")
    return {
        "name": torch.cuda.get_device_name(device) if on_gpu else cpu,
        "device": device,
        "cores": cpu_count(),
        "threads": torch.get_num_threads(),
        "load_average": psutil.getloadavg()[0],
        "docemb": __version__,
        "torch": str(torch.__version__),
        "transformers": transformers.__version__,
        "numpy": np.__version__,
    }

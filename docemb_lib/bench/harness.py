"""What all benchmarks share: interleaved timing, peak memory, findings judged by budgets, and their report."""

from __future__ import annotations

import ctypes
import gc
import math
import os
import platform
import re
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

import numpy as np
import pandas as pd
import psutil
import torch
import transformers

from docemb_lib import __version__
from docemb_lib.hardware import free_memory, synchronize

Name = TypeVar("Name")
PROCESS = Path("/proc/self")
# Tokens of a training document (thesis, Section 4.1), of which the student reads at most LONGEST.
THESIS_MEAN, THESIS_STD = 1371, 1723
SHORTEST, LONGEST = 8, 4096


@dataclass(frozen=True)
class Row:
    """One finding. A row with a peer is judged by the ratio `ours / peer`, any other row by `ours`."""

    name: str
    ours: float | None  # None: not measured; `note` gives the reason
    unit: str
    peer: float | None = None
    at_least: float | None = None  # the budget; a row has at most one of the two bounds
    at_most: float | None = None
    spread: tuple[float, float] = (math.nan, math.nan)  # smallest and largest ratio of the repeats
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Ours divided by the peer; None without both."""
        return self.ours / self.peer if self.ours is not None and self.peer is not None else None

    @property
    def budget(self) -> str:
        """The bound in words, e.g. `≥ 90 %`; empty without one."""
        sign, bound = ("≤", self.at_most) if self.at_least is None else ("≥", self.at_least)
        if bound is None:
            return ""
        return f"{sign} {100 * bound:g} %" if self.unit == "%" else f"{sign} {bound:g}"

    @property
    def verdict(self) -> str:
        """`ok` or `below`; empty without a budget or a measurement."""
        judged = self.ours if self.peer is None else self.ratio
        if judged is None or not self.budget:
            return ""
        reached = judged >= self.at_least if self.at_least is not None else judged <= (self.at_most or 0)
        return "ok" if reached else "below"


@dataclass(frozen=True)
class Report:
    """All that a benchmark found, and on which machine."""

    benchmark: str
    peer: str
    settings: dict[str, Any]
    rows: list[Row]
    notes: list[str] = field(default_factory=list)
    device: str = "cpu"

    def frame(self) -> pd.DataFrame:
        """A row per finding: name, peer, ours, unit, ratio, ratio_low, ratio_high, budget, verdict, note."""
        columns = ["name", "peer", "ours", "unit", "ratio", "ratio_low", "ratio_high", "budget", "verdict", "note"]
        rows = [(r.name, r.peer, r.ours, r.unit, r.ratio, *r.spread, r.budget, r.verdict, r.note) for r in self.rows]
        return pd.DataFrame(rows, columns=columns)

    def json(self) -> str:
        """Machine, versions, settings, and findings; a number that is not finite is null."""
        content: dict[str, Any] = {"benchmark": self.benchmark, "peer": self.peer, "machine": machine(self.device)}
        content |= {"versions": versions(), "settings": self.settings, "notes": self.notes}
        content["results"] = self.frame().to_dict("records")
        return str(pd.Series(content).to_json(indent=1, double_precision=12, force_ascii=False)) + "\n"

    def remarks(self) -> list[str]:
        """The notes of single rows, then those of the whole benchmark."""
        return [f"{row.name}: {row.note}" for row in self.rows if row.note] + self.notes

    @property
    def title(self) -> str:
        return f"{self.benchmark}: ours against {self.peer} on {machine(self.device)['name']}"

    def table(self) -> pd.DataFrame:
        """The findings in words, for a terminal: finding, the peer's name, ours, ratio, budget, verdict."""
        rows = []
        for row in self.rows:
            ours = "not measured" if row.ours is None else _number(row.ours, row.unit)
            peer = "" if row.peer is None else _number(row.peer, row.unit)
            ratio = "" if row.ratio is None else f"{row.ratio:.3g}×"
            rows.append((row.name, peer, ours, ratio, row.budget, row.verdict))
        return pd.DataFrame(rows, columns=["finding", self.peer, "ours", "ratio", "budget", "verdict"])


def interleaved(
    runs: Mapping[Name, Callable[[], object]], repeats: int, device: torch.device | str = "cpu"
) -> dict[Name, list[float]]:
    """Seconds of each run, `repeats` of each, in the order of time.

    The runs take turns, so that a machine that slows down slows all of them. Warm them up before.
    """
    seconds: dict[Name, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            synchronize(device)
            start = time.perf_counter()
            run()
            synchronize(device)
            seconds[name].append(time.perf_counter() - start)
    return seconds


def ratio_row(
    name: str, amount: float, unit: str, ours: Sequence[float], peer: Sequence[float], *, at_least: float | None = None
) -> Row:
    """`amount` per second of both sides, from the seconds of their interleaved repeats; medians, with the spread."""
    ratios = [slow / fast for slow, fast in zip(peer, ours, strict=True)]
    rates = amount / median(ours), amount / median(peer)
    return Row(name, rates[0], unit, peer=rates[1], at_least=at_least, spread=(min(ratios), max(ratios)))


def peak_memory(run: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that a run takes at its peak above the level before; None: the system does not report it, nothing runs.

    On a GPU these are the bytes of torch's tensors; on a CPU they are the resident set of the process, whose maximum
    Linux resets on request.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        run()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    try:
        ctypes.CDLL(None).malloc_trim(0)  # memory that is free already would be used again without being counted
        (PROCESS / "clear_refs").write_text("5")
        before = _resident("VmRSS")
    except (OSError, AttributeError, TypeError):  # another system or C library
        return None
    run()
    return max(0, _resident("VmHWM") - before)


def thesis_lengths(n: int, *, seed: int, scale: float = 1.0) -> list[int]:
    """Tokens of n documents: log-normal with the thesis' mean and deviation, scaled, cut to what the student reads.

    One length is drawn from each n-th of the distribution, so that few documents have its mean and its tail.
    """
    from scipy.stats import lognorm

    generator = np.random.default_rng(seed)
    variance = math.log(1 + (THESIS_STD / THESIS_MEAN) ** 2)
    shares = (np.arange(n) + generator.uniform(0.001, 0.999, n)) / n
    lengths = scale * lognorm.ppf(shares, math.sqrt(variance), scale=THESIS_MEAN * math.exp(-variance / 2))
    return [int(length) for length in generator.permutation(lengths.round().clip(SHORTEST, LONGEST * scale))]


def machine(device: str = "cpu") -> dict[str, Any]:
    """What is measured on. The load average shows whether anything else ran."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    name = torch.cuda.get_device_name(device) if device == "cuda" else _cpu_name()
    computes = {"device": device, "cpu": _cpu_name(), "cores": cores, "threads": torch.get_num_threads()}
    room = {"free_memory_gib": free_memory(device) / 2**30, "load_average": psutil.getloadavg()[0]}
    return {"name": name, **computes, **room, "system": platform.platform()}


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    modules = {module.__name__: str(module.__version__) for module in (torch, transformers, np)}
    return {"docemb": __version__, "python": platform.python_version(), **modules, "cuda": torch.version.cuda or ""}


def _resident(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status: no {field}")
    return int(found[1]) * 1024


def _number(value: float, unit: str) -> str:
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB"
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.6f}" if 0.99 < value < 1 else f"{value:.3g}"
    return f"{shown} {unit}".strip()


def _cpu_name() -> str:
    with suppress(OSError):  # on another system
        if found := re.search(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE):
            return found[1].strip()
    return platform.processor() or platform.machine()

"""What a benchmark found: rows of ours against the peer, judged by the budgets; as a table, JSON, CSV and a figure."""

from __future__ import annotations

import csv
import json
import math
import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from docemb_lib import __version__
from docemb_lib.errors import InputError
from docemb_lib.hardware import free_memory

COLUMNS = ("name", "peer", "ours", "unit", "ratio", "ratio_low", "ratio_high", "must_reach", "verdict", "note")


@dataclass(frozen=True)
class Row:
    """One finding. With a peer it is judged by the ratio ours / peer, else by ours."""

    name: str
    ours: float | None  # None: not measured, `note` says why
    unit: str
    peer: float | None = None
    at_least: float | None = None  # budgets
    at_most: float | None = None
    spread: tuple[float, float] | None = None  # smallest and largest ratio of the repeats
    note: str = ""

    @property
    def ratio(self) -> float | None:
        return self.ours / self.peer if self.ours is not None and self.peer is not None else None

    @property
    def must_reach(self) -> str:
        bound = self.at_most if self.at_least is None else self.at_least
        if bound is None:
            return ""
        shown = f"{100 * bound:g} %" if self.unit == "%" else f"{bound:g}"
        return f"{'≤' if self.at_least is None else '≥'} {shown}"

    @property
    def verdict(self) -> str:
        """ok or below, empty without a budget or a measurement."""
        judged = self.ours if self.peer is None else self.ratio
        if judged is None or not self.must_reach:
            return ""
        reached = judged >= self.at_least if self.at_least is not None else judged <= (self.at_most or 0)
        return "ok" if reached else "below"

    def record(self) -> dict[str, Any]:
        low, high = self.spread or (None, None)
        values = (self.name, self.peer, self.ours, self.unit, self.ratio, low, high, self.must_reach, self.verdict)
        return dict(zip(COLUMNS, (*values, self.note), strict=True))


@dataclass(frozen=True)
class Report:
    """All that a benchmark found, and on what."""

    benchmark: str
    peer: str
    machine: dict[str, Any]
    versions: dict[str, str]
    settings: dict[str, Any]
    rows: list[Row]
    points: dict[str, list[dict[str, Any]]] = field(default_factory=dict)  # measured values behind rows and figure
    notes: list[str] = field(default_factory=list)

    def json(self) -> str:
        content = asdict(self) | {"results": [row.record() for row in self.rows]} | self.points
        del content["rows"], content["points"]
        return json.dumps(_rounded(content), allow_nan=False, indent=1) + "\n"

    def remarks(self) -> list[str]:
        """What to read with the table: of single rows, then of all."""
        return [f"{row.name}: {row.note}" for row in self.rows if row.note] + self.notes

    def table(self) -> Table:
        title = f"{self.benchmark}: ours against {self.peer} on {self.machine['name']}"
        table = Table(title=escape(title), title_justify="left", box=SIMPLE_HEAD)
        table.add_column("")
        for name in (self.peer, "ours", "ratio", "must reach", ""):
            table.add_column(escape(name), justify="right", no_wrap=True)
        for row in self.rows:
            ours = "not measured" if row.ours is None else _number(row.ours, row.unit)
            peer = "" if row.peer is None else _number(row.peer, row.unit)
            ratio = "" if row.ratio is None else f"{row.ratio:.3g}×"
            colour = {"ok": "[green]ok", "below": "[red]below"}.get(row.verdict, "")
            table.add_row(escape(row.name), peer, ours, ratio, row.must_reach, colour)
        return table


def machine(device: torch.device) -> dict[str, Any]:
    """What is measured on; the load average tells whether anything else ran."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "name": gpu or _cpu_name(),
        "device": device.type,
        "cpu": _cpu_name(),
        "cores": cores,
        "threads": torch.get_num_threads(),
        "free_memory_gib": free_memory(device) / 2**30,
        "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(),
    }


def versions() -> dict[str, str]:
    return {
        "docemb": __version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "numpy": np.__version__,
        "cuda": torch.version.cuda or "",
    }


def check_folder(folder: Path) -> None:
    """Raise InputError for a folder that cannot be written into, before anything is measured."""
    if folder.exists() and not folder.is_dir():
        raise InputError(f"out: {folder} is a file, give a folder")


def write_report(report: Report, folder: Path) -> list[Path]:
    """Write <benchmark>.json, .csv and, where matplotlib is installed, .png and .svg; returns what was written."""
    check_folder(folder)
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / f"{report.benchmark}.json", folder / f"{report.benchmark}.csv"]
    written[0].write_text(report.json(), encoding="utf-8")
    with written[1].open("w", encoding="utf-8", newline="") as file:
        table = csv.DictWriter(file, COLUMNS)
        table.writeheader()
        table.writerows(_rounded([row.record() for row in report.rows]))
    try:
        from docemb_lib.bench.figure import draw
    except ImportError:
        return written
    figure = draw(report)
    for suffix in (".png", ".svg"):
        written.append(folder / f"{report.benchmark}{suffix}")
        figure.savefig(written[-1], dpi=150, bbox_inches="tight")
    return written


def _number(value: float, unit: str) -> str:
    """Three digits and the unit."""
    if unit == "%":
        return f"{100 * value:.1f} %"
    if unit == "bytes":
        return f"{value / 2**30:.2f} GiB"
    shown = f"{value:,.0f}" if value >= 1000 else f"{value:.6f}" if 0.99 < value < 1 else f"{value:.3g}"
    return f"{shown} {unit}".strip()


def _rounded(value: Any) -> Any:
    """Floats in lists and dicts at seven digits: readable, and far more exact than any measurement; what is no number
    as None, which JSON has."""
    if isinstance(value, float):
        return float(f"{value:.7g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(item) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [_rounded(item) for item in value]
    return value


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()

"""Seconds and memory of a function, on a CPU or a GPU."""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import torch

from docemb_lib.hardware import synchronize

Name = TypeVar("Name")
PROCESS = Path("/proc/self")


def interleaved(
    runs: Mapping[Name, Callable[[], object]], repeats: int, device: torch.device | str
) -> dict[Name, list[float]]:
    """Seconds of each run, `repeats` of them in the order of time.

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


def peak_memory(run: Callable[[], object], device: torch.device) -> int | None:
    """Bytes that a run takes at its peak above the level before; None: this system does not tell, nothing is run.

    On a GPU those of torch's tensors; on a CPU the resident set of the whole process, whose high-water mark Linux
    resets on request.
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
        ctypes.CDLL(None).malloc_trim(0)  # what is free already must not be used again unseen
        (PROCESS / "clear_refs").write_text("5")
        before = _resident("VmRSS")
    except (OSError, AttributeError, TypeError):  # another system or C library
        return None
    run()
    return max(0, _resident("VmHWM") - before)


def _resident(field: str) -> int:
    """Bytes of a field of /proc/self/status."""
    found = re.search(rf"^{field}:\s+(\d+) kB", (PROCESS / "status").read_text(), re.MULTILINE)
    if found is None:
        raise OSError(f"/proc/self/status: no {field}")
    return int(found[1]) * 1024

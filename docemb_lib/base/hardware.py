"""The machine: its devices, their precision and speed, and the memory that is free."""

from __future__ import annotations

import atexit
import ctypes
import gc
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from docemb_lib.base.errors import InputError

if TYPE_CHECKING:
    import torch

# The libraries of torch read these variables once, when they are loaded.
ENVIRONMENT = {
    # Waiting threads spin long by default, which makes training three times slower beside other
    # work.
    "GOMP_SPINCOUNT": "10000",
    # oneDNN caches code for a thousand shapes of products. Packed batches hardly repeat a shape,
    # and the cache grows to gigabytes.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
}
# Parameters of glibc's malloc. By default malloc gives the memory of large tensors back to the
# system and asks for it again in each step. Keeping it makes training on a CPU a quarter faster.
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
KEPT = 2**29  # bytes; releases up to about 2.31 refuse so much
# Collections of younger objects between full ones: with Python's 10, imports take a fifth longer.
FULL_COLLECTIONS = 300
# Threads that compute side by side at most: more would wait for each other in Python.
MOST_THREADS = 8
PRECISION = "DOCEMB_PRECISION"  # the environment variable that chooses the precision of all models
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def tune_environment() -> None:
    """Set up Python's collector, the variables of `ENVIRONMENT` and malloc for training.

    Variables that the user has set stay. Call this function before torch is loaded.
    """
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTIONS)
    # Collections at the end of a process would pass over all that it has imported, for a second.
    atexit.register(gc.freeze)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt  # returns 0 for a size that it refuses
        if mallopt(MMAP_THRESHOLD, KEPT):
            mallopt(TRIM_THRESHOLD, KEPT)  # this one alone makes training slower


def asked_precision() -> Literal["auto", "bf16", "fp32"]:
    """The value of the environment variable DOCEMB_PRECISION, or "auto" where it is not set.

    Raises InputError for any other value than "auto", "bf16" and "fp32".
    """
    match os.environ.get(PRECISION) or "auto":
        case "auto" | "bf16" | "fp32" as precision:
            return precision
        case other:
            raise InputError(f"{PRECISION}={other}: set it to auto, bf16 or fp32, or unset it")


def uses_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether models compute in bfloat16 on a device where nothing else chooses their precision.

    An argument or a field of a profile comes first, then DOCEMB_PRECISION. With "auto", the
    default, models compute in bfloat16 on a device that `fast_bf16` says is fast.
    """
    asked = asked_precision()
    return fast_bf16(device) if asked == "auto" else asked == "bf16"


def fast_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether a device multiplies matrices faster in bfloat16 than in float32.

    Intel's processors do so with AMX only: products with their AVX-512 instructions for bfloat16
    take longer than those in float32. The answer depends on the device alone, not on a measurement,
    because cached results depend on it.
    """
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    fast = ["amx_bf16", "bf16"]
    if not str(capabilities.get("cpu_name")).startswith("Intel"):
        fast.append("avx512_bf16")
    return any(capabilities.get(name) for name in fast)


def devices_at_hand() -> list[str]:
    """The names of all GPUs, or the CPU's where there is none."""
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


@contextmanager
def side_by_side(calls: int) -> Iterator[Callable[..., Iterator[Any]]]:
    """Give a `map` for so many calls of torch on the CPU, each with its share of the cores.

    All cores together on one call wait for each other in every layer. Few calls go one after the
    other, with all cores and in the calling thread: in another one OpenMP starts a second team of
    threads, at half the speed.
    """
    import torch

    cores = torch.get_num_threads()
    n_threads = min(cores, MOST_THREADS)
    if n_threads == 1 or calls < 2 * n_threads:
        yield map
        return
    share = partial(torch.set_num_threads, cores // n_threads)
    threads = ThreadPoolExecutor(n_threads, initializer=share)
    try:
        yield threads.map
    finally:
        threads.shutdown(cancel_futures=True)  # after an error, calls that have not begun
        torch.set_num_threads(cores)  # a new thread takes over what was set last


def free_memory(device: torch.device | str) -> int:
    """Free bytes of a GPU, or of the machine within the limits of this process' control groups.

    The limits are those of Linux' control groups of version 2. Elsewhere the machine alone counts.
    """
    import psutil
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = [int(psutil.virtual_memory().available)]
    for folder in _control_groups():
        with suppress(OSError, ValueError):  # there is no such file, or "max": no limit
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            statistics = (folder / "memory.stat").read_text().splitlines()
            cached = int(dict(map(str.split, statistics))["inactive_file"])  # freed at once
            free.append(max(0, limit - used + cached))
    return min(free)


def _control_groups() -> list[Path]:
    """The folders of this process' control group and of those above, whose limits hold, too."""
    with suppress(OSError):  # another system has no such file
        group = CGROUPS / OWN_CGROUPS.read_text().partition("0::/")[2].strip()
        return [group, *group.parents]
    return []

"""The machine: its devices, the precision that they compute in, their speed, and the memory that is
free.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from docemb_lib.base.errors import InputError

if TYPE_CHECKING:
    import torch

PEAK_SIZE = {
    "cuda": 8192,
    "cpu": 2048,
}  # rows of the square matrices: large, so that only the products take time
PEAK_SECONDS = 0.3  # of products for a measured peak
ENVIRONMENT = {  # the libraries of torch read these variables once, when they are loaded
    # Waiting threads spin long by default, which makes training three times slower beside other
    # work.
    "GOMP_SPINCOUNT": "10000",
    # oneDNN caches code for a thousand shapes of products; packed batches hardly repeat one, and it
    # grows to gigabytes.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
}
# Parameters of glibc's malloc. By default it gives the memory of large tensors back to the system
# and asks for it again in each step; to keep it makes training on a CPU a quarter faster.
TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
KEPT = (2**29, 2**25)  # bytes; releases up to about 2.31 refuse the first as M_MMAP_THRESHOLD
# collections of younger objects between full ones: with Python's 10 imports take a fifth longer
FULL_COLLECTIONS = 300
PRECISION = "DOCEMB_PRECISION"  # the environment variable that chooses the precision of all models
AskedPrecision = Literal["auto", "bf16", "fp32"]
CGROUPS, OWN_CGROUPS = Path("/sys/fs/cgroup"), Path("/proc/self/cgroup")


def tune_environment() -> None:
    """Set the parameters of malloc, `FULL_COLLECTIONS` and the variables of `ENVIRONMENT` that the
    user has not set.

    Call it before torch is loaded.
    """
    gc.set_threshold(*gc.get_threshold()[:2], FULL_COLLECTIONS)
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with suppress(AttributeError, OSError, TypeError):  # another C library than glibc
        mallopt = ctypes.CDLL(None).mallopt  # returns 0 for a size that it refuses
        if any(mallopt(MMAP_THRESHOLD, size) for size in KEPT):
            mallopt(TRIM_THRESHOLD, KEPT[0])  # alone it makes training slower


def asked_precision() -> AskedPrecision:
    """The value of the environment variable DOCEMB_PRECISION; "auto" where it is not set.

    Raises InputError for any other value than "auto", "bf16" and "fp32".
    """
    asked = os.environ.get(PRECISION) or "auto"
    for allowed in get_args(AskedPrecision):
        if asked == allowed:
            return allowed
    raise InputError(f"{PRECISION}={asked}: set it to auto, bf16 or fp32, or unset it")


def uses_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether models compute in bfloat16 on a device, where no argument and no field of a profile
    says it.

    DOCEMB_PRECISION decides; with "auto", its default, it is whether the device is `fast_bf16`.
    """
    asked = asked_precision()
    if asked == "auto":
        return fast_bf16(device)
    return asked == "bf16"


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
    by_intel = str(capabilities.get("cpu_name", "")).startswith("Intel")
    fast = ("amx_bf16", "bf16") if by_intel else ("amx_bf16", "bf16", "avx512_bf16")
    return any(capabilities.get(name, False) for name in fast)


def devices_at_hand() -> list[str]:
    """All GPUs, or the CPU."""
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


@lru_cache
def matmul_peak(device: str, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product: the median of several, measured once per process."""
    import torch
    from torch.utils.benchmark import Timer

    kind = torch.device(device).type
    n = PEAK_SIZE.get(kind, PEAK_SIZE["cpu"])
    generator = torch.Generator(device).manual_seed(0)
    with (
        torch.no_grad(),
        torch.autocast(kind, enabled=False),
    ):  # random numbers: GPUs are faster at zeros
        A, B = (torch.randn(n, n, generator=generator, device=device).to(dtype) for _ in range(2))
        product = {
            "mm": torch.mm,
            "A": A,
            "B": B,
            "out": torch.empty(n, n, device=device, dtype=dtype),
        }
        timer = Timer("mm(A, B, out=out)", globals=product, num_threads=torch.get_num_threads())
        return 2 * n**3 / timer.blocked_autorange(min_run_time=PEAK_SECONDS).median


def free_memory(device: torch.device | str) -> int:
    """Free bytes of a GPU, or of the machine within the limits of this process' control groups
    (Linux, version 2).
    """
    import psutil
    import torch

    if (device := torch.device(device)).type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    free = [int(psutil.virtual_memory().available)]
    with suppress(OSError):  # another system
        own = next(
            (line for line in OWN_CGROUPS.read_text().splitlines() if line.startswith("0::")),
            "0::/",
        )
        group = CGROUPS / own.removeprefix("0::").lstrip("/")
        for folder in (group, *group.parents):  # limits of the groups above hold, too
            with suppress(OSError, ValueError):  # no such file, or "max": no limit
                limit, used = (
                    int((folder / name).read_text()) for name in ("memory.max", "memory.current")
                )
                counts = dict(
                    line.split() for line in (folder / "memory.stat").read_text().splitlines()
                )
                cached = int(counts["inactive_file"])  # which Linux frees at once
                free.append(max(0, limit - used + cached))
    return min(free)

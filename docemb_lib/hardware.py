"""What the machine at hand is fast at, how fast it is at its best, and how much memory it has left."""

from __future__ import annotations

import os
import statistics
import time
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

PEAK_SIZE = {
    "cuda": 8192,
    "cpu": 2048,
}  # rows of the square matrices: large enough that nothing but the products counts
PEAK_SECONDS = 0.3  # of products for a measured peak
# What torch's libraries read once, when they are loaded.
ENVIRONMENT = {
    # Threads that wait for each other spin long by default: beside other work that costs a factor of three.
    "GOMP_SPINCOUNT": "10000",
    # oneDNN keeps what it compiles for every shape of a product, a thousand of them; packed batches hardly repeat one,
    # and a training grew by gigabytes.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
}
CGROUPS = Path("/sys/fs/cgroup")
OWN_CGROUPS = Path("/proc/self/cgroup")


def tune_environment() -> None:
    """Set `ENVIRONMENT` for this process and its children, where the user has not; call it before torch is loaded."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)


def fast_bf16(device: torch.device | str = "cpu") -> bool:
    """Whether matrix products in bfloat16 are faster than in float32 there: by the processor's own instructions."""
    import torch

    if torch.device(device).type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    capabilities = torch.cpu.get_capabilities()
    return any(capabilities.get(name, False) for name in ("amx_bf16", "avx512_bf16", "bf16"))


def devices_at_hand() -> list[str]:
    """All GPUs, or the CPU."""
    import torch

    return [f"cuda:{index}" for index in range(torch.cuda.device_count())] or ["cpu"]


def synchronize(device: torch.device | str) -> None:
    """Wait until a device has done all it was given; a CPU has."""
    import torch

    if torch.device(device).type == "cuda":
        torch.cuda.synchronize(device)


def matmul_peak(device: torch.device | str, dtype: torch.dtype) -> float:
    """FLOP/s of a large square matrix product, measured once per process: the median of several, after a warm-up.

    Random numbers, because a GPU multiplies zeros faster. With the threads and the float32 precision set at the first
    call.
    """
    import torch

    return _matmul_peak(torch.device(device), dtype)


@lru_cache
def _matmul_peak(device: torch.device, dtype: torch.dtype) -> float:
    import torch

    n = PEAK_SIZE.get(device.type, PEAK_SIZE["cpu"])
    generator = torch.Generator(device).manual_seed(0)
    with torch.no_grad(), torch.autocast(device.type, enabled=False):
        A, B = (torch.randn(n, n, generator=generator, device=device).to(dtype) for _ in range(2))
        out = torch.empty(n, n, device=device, dtype=dtype)
        torch.mm(A, B, out=out)
        synchronize(device)
        seconds: list[float] = []
        while sum(seconds) < PEAK_SECONDS:
            start = time.perf_counter()
            torch.mm(A, B, out=out)
            synchronize(device)
            seconds.append(time.perf_counter() - start)
    return 2 * n**3 / statistics.median(seconds)


def free_memory(device: torch.device | str) -> int:
    """Bytes that can still be taken there: of a GPU, or of the machine within the limits of our control group."""
    import torch

    device = torch.device(device)
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    import psutil  # accelerate brings it

    return min([int(psutil.virtual_memory().available), *_cgroup_room()])


def _cgroup_room() -> list[int]:
    """Bytes left under each memory limit that Linux sets this process: of its control group and those above it."""
    try:
        lines = OWN_CGROUPS.read_text().splitlines()
    except OSError:  # another system
        return []
    rooms = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if not controllers:  # version 2
            root, names = CGROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root, names = CGROUPS / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        own = root / path.lstrip("/")  # missing where a container shows its own group as the root
        above = [folder for folder in (own, *own.parents) if folder.is_relative_to(root)]
        rooms += [room for folder in above if (room := _room(folder, *names)) is not None]
    return rooms


def _room(folder: Path, limit: str, usage: str, cache: str) -> int | None:
    """Limit minus use, the cache of files that Linux gives back at once not counted; None: no limit here."""
    try:
        most = (folder / limit).read_text().strip()
        used = int((folder / usage).read_text())
        counts = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except OSError:
        return None
    return None if most == "max" else max(0, int(most) - used + int(counts.get(cache, 0)))

"""Speed in bfloat16 follows the processor's flags; free memory is the least that machine and control groups leave."""

import time

import psutil
import pytest
import torch

from docemb_lib import hardware
from docemb_lib.hardware import fast_bf16, free_memory, matmul_peak

GiB = 2**30
UNLIMITED_V1 = 9223372036854771712


@pytest.mark.parametrize(("name", "flags", "fast"), [
    ("Intel Xeon", {"avx512_bf16", "amx_bf16"}, True), ("Intel Xeon", {"avx512_bf16"}, False),
    ("AMD Zen 4", {"avx512_bf16"}, True), ("AMD Zen 2", {"avx2"}, False), ("ARM", {"bf16"}, True)])  # fmt: skip
def test_fast_bfloat16_follows_the_processors_flags(monkeypatch, name, flags, fast):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"cpu_name": name, **dict.fromkeys(flags, True)})
    assert fast_bf16("cpu") is fast_bf16(torch.device("cpu")) is fast


def test_the_peak_is_operations_by_seconds_and_measured_once(monkeypatch):
    products = []

    def product(A, B, *, out):
        products.append((A.shape, A.dtype, B.dtype))
        clock[0] += 0.1

    clock = [0.0]
    monkeypatch.setattr(hardware, "PEAK_SIZE", {"cpu": 64})
    monkeypatch.setattr(torch, "mm", product)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])
    matmul_peak.cache_clear()
    assert matmul_peak("cpu", torch.bfloat16) == pytest.approx(2 * 64**3 / 0.1)
    assert set(products) == {((64, 64), torch.bfloat16, torch.bfloat16)}
    n = len(products)
    assert n >= 3
    assert (matmul_peak("cpu", torch.bfloat16), len(products)) == (pytest.approx(2 * 64**3 / 0.1), n)
    matmul_peak.cache_clear()


def test_the_peak_is_what_plain_products_reach():
    matmul_peak.cache_clear()
    A = torch.randn(1024, 1024)
    start = time.perf_counter()
    A @ A
    assert matmul_peak("cpu", torch.float32) > 0.1 * 2 * 1024**3 / (time.perf_counter() - start)


@pytest.fixture
def cgroups(tmp_path, monkeypatch):
    monkeypatch.setattr(hardware, "CGROUPS", tmp_path)
    monkeypatch.setattr(hardware, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(psutil, "virtual_memory", lambda: type("Memory", (), {"available": 20 * GiB}))

    def write(own, **files):
        (tmp_path / "own").write_text(own)
        for folder, (limit, usage, cache) in files.items():
            v1 = folder.startswith("memory")
            path = tmp_path / folder.replace("__", "/")
            path.mkdir(parents=True, exist_ok=True)
            (path / ("memory.limit_in_bytes" if v1 else "memory.max")).write_text(f"{limit}\n")
            (path / ("memory.usage_in_bytes" if v1 else "memory.current")).write_text(f"{usage}\n")
            key = "total_inactive_file" if v1 else "inactive_file"
            (path / "memory.stat").write_text(f"anon 17\n{key} {cache}\n")

    return write


@pytest.mark.parametrize(("own", "files", "free"), [
    ("0::/\n", {}, 20),  # no limit to be found: the machine's
    ("0::/job\n", {"job": ("max", 5 * GiB, 0)}, 20), ("0::/job\n", {"job": (8 * GiB, 3 * GiB, 0)}, 5),
    ("0::/job\n", {"job": (8 * GiB, 3 * GiB, 2 * GiB)}, 7),  # cached files make room at once
    ("0::/job/step\n", {"job": (8 * GiB, 3 * GiB, 0), "job__step": ("max", GiB, 0)}, 5),  # the group above limits
    ("0::/job\n", {"job": (2 * GiB, 3 * GiB, 0)}, 0),
    ("3:cpu:/\n2:memory:/job\n0::/\n", {"memory__job": (8 * GiB, GiB, 0), "memory": (UNLIMITED_V1, GiB, 0)}, 7),
    ("2:memory:/docker/4f1\n", {"memory": (4 * GiB, GiB, 0)}, 3),  # a container's group is its root
])  # fmt: skip
def test_free_memory_is_the_least_of_what_machine_and_control_groups_leave(cgroups, own, files, free):
    cgroups(own, **files)
    assert free_memory("cpu") == free * GiB


def test_free_memory_without_control_groups_is_that_of_the_machine_or_of_the_gpu(cgroups, monkeypatch):
    assert free_memory(torch.device("cpu")) == 20 * GiB
    monkeypatch.setattr(torch.cuda, "mem_get_info", {torch.device("cuda:1"): (7 * GiB, 80 * GiB)}.__getitem__)
    assert free_memory("cuda:1") == 7 * GiB

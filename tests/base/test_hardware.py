"""Speed in bfloat16, the precision of models, and free memory."""

from types import SimpleNamespace

import psutil
import pytest
import torch
from conftest import write_files

from docemb_lib.base import hardware
from docemb_lib.base.errors import InputError
from docemb_lib.base.hardware import fast_bf16, free_memory, uses_bf16

GiB = 2**30


@pytest.mark.parametrize(
    ("name", "flags", "fast"),
    [
        ("Intel Xeon", {"avx512_bf16", "amx_bf16"}, True),
        ("Intel Xeon", {"avx512_bf16"}, False),
        ("AMD Zen 4", {"avx512_bf16"}, True),
        ("AMD Zen 2", {"avx2"}, False),
        ("ARM", {"bf16"}, True),
    ],
)
def test_fast_bfloat16_follows_the_processors_flags(monkeypatch, name, flags, fast):
    monkeypatch.setattr(
        torch.cpu, "get_capabilities", lambda: {"cpu_name": name, **dict.fromkeys(flags, True)}
    )
    assert fast_bf16("cpu") is fast_bf16(torch.device("cpu")) is fast


@pytest.mark.parametrize("fast", [True, False])
@pytest.mark.parametrize(
    ("asked", "expected"), [("bf16", True), ("fp32", False), ("auto", None), ("", None)]
)
def test_the_environment_chooses_the_precision_or_else_the_hardware(
    monkeypatch, fast, asked, expected
):
    monkeypatch.setattr(hardware, "fast_bf16", lambda device: fast)
    monkeypatch.setenv("DOCEMB_PRECISION", asked)
    assert uses_bf16("cpu") is (fast if expected is None else expected)
    monkeypatch.delenv("DOCEMB_PRECISION")
    assert uses_bf16("cpu") is fast


def test_another_precision_is_refused(monkeypatch):
    monkeypatch.setenv("DOCEMB_PRECISION", "bf61")
    with pytest.raises(InputError, match=r"DOCEMB_PRECISION=bf61: set it to auto, bf16 or fp32"):
        uses_bf16("cpu")


@pytest.fixture
def machine(monkeypatch):
    """A machine with 20 GiB of free memory."""
    memory = SimpleNamespace(available=20 * GiB)
    monkeypatch.setattr(psutil, "virtual_memory", lambda: memory)


@pytest.mark.parametrize(
    ("groups", "files", "free"),
    [
        ("0::/\n", {}, 20),  # no limit to be found: the machine's
        ("0::/job\n", {"job": (8 * GiB, 3 * GiB, 2 * GiB)}, 7),  # cached files make room at once
        # the group above limits
        ("0::/job/step\n", {"job": (8 * GiB, 3 * GiB, 0), "job/step": ("max", GiB, 0)}, 5),
        ("0::/job\n", {"job": (2 * GiB, 3 * GiB, 0)}, 0),
        ("0::/docker/4f1\n", {".": (4 * GiB, GiB, 0)}, 3),
    ],
)
def test_free_memory_is_the_least_of_what_machine_and_control_groups_leave(
    tmp_path, machine, monkeypatch, groups, files, free
):
    monkeypatch.setattr(hardware, "CGROUPS", tmp_path)
    monkeypatch.setattr(hardware, "OWN_CGROUPS", tmp_path / "groups")
    (tmp_path / "groups").write_text(f"2:cpu:/\n{groups}")
    for folder, (limit, usage, cache) in files.items():
        content = {
            "memory.max": limit,
            "memory.current": usage,
            "memory.stat": f"anon 17\ninactive_file {cache}",
        }
        write_files(tmp_path / folder, {name: f"{value}\n" for name, value in content.items()})
    assert free_memory("cpu") == free * GiB


def test_free_memory_without_control_groups_is_that_of_the_machine(tmp_path, machine, monkeypatch):
    monkeypatch.setattr(hardware, "OWN_CGROUPS", tmp_path / "no-proc")
    assert free_memory(torch.device("cpu")) == 20 * GiB


def test_free_memory_of_a_gpu_is_that_of_the_device(monkeypatch):
    memory = {torch.device("cuda:1"): (7 * GiB, 80 * GiB)}
    monkeypatch.setattr(torch.cuda, "mem_get_info", memory.__getitem__)
    assert free_memory("cuda:1") == 7 * GiB

"""What `docemb doctor` reports: versions, machine, accelerators, model hub, what is slow or fails, damaged files."""

from __future__ import annotations

import logging
import platform
import shutil
import sys
import tomllib
from collections.abc import Iterable, Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from docemb_lib import hardware, pretrained
from docemb_lib.errors import InputError
from docemb_lib.integrity import AGAIN, MANIFEST, MARKER, damaged, fault
from docemb_lib.progress import progress
from docemb_lib.settings.profile import find_root

logger = logging.getLogger(__name__)

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"
INSTALL = 'run `pip install -e ".[offline]"`' if PROJECT.is_file() else 'run `pip install "docemb[offline]"`'
GiB = 2**30
MEMORY, DISK = 4 * GiB, 2 * GiB  # what `docemb run` takes with the profile tiny
Status = Literal["ok", "slow", "wrong"]  # slow: docemb works, but slowly or with less; wrong: it fails


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    value: str
    status: Status = "ok"
    mend: str = ""  # what to do, or what to expect; empty where the status is ok


def diagnose() -> Iterator[Finding]:
    """All findings about this environment and machine. Takes a few seconds on a CPU and builds nothing."""
    yield from _software()
    yield from _machine()
    yield from _gpus()
    yield _hub()
    yield _cpu_speed()


def verify_outputs() -> list[Finding]:
    """The damaged and missing files of all that was published under `outputs/`, every file of which is read."""
    outputs = find_root() / "outputs"
    published = {(file.parent, file.name) for name in (MANIFEST, MARKER) for file in outputs.rglob(name)}
    # What was published, under a lock, and has no manifest has lost it.
    targets = (lock.with_name(lock.name[1:].removesuffix(".lock")) for lock in outputs.rglob(".*.lock"))
    published |= {(folder, MANIFEST) for folder in targets if folder.is_dir()}
    bar = progress(sorted(published), desc="verifying", unit="folders")
    wrong = [fault(file) for folder, manifest in bar for file in damaged(folder, manifest)]
    found = [Finding("outputs", text, "wrong", f"remove its folder and {AGAIN}") for text in wrong]
    return found or [Finding("outputs", f"{len(published)} folders, all as they were published")]


def warn_of_other_versions() -> None:
    """Log one warning that names the required packages which are missing or of another version."""
    if found := unmet():
        logger.warning(
            "the environment of this kernel (%s) does not meet docemb's requirements: %s; choose another kernel, or %s "
            "in this one", sys.prefix, "; ".join(found), INSTALL,
        )  # fmt: skip


def unmet_requirements(lines: Iterable[str]) -> list[str]:
    """The requirements that do not hold, each with the version that is installed."""
    found = []
    for requirement in map(Requirement, lines):
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue  # for another platform, or an extra
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            found.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            found.append(f"{requirement.name} {installed}, not {requirement.specifier}")
    return found


def unmet() -> list[str]:
    """Unmet requirements of the checkout, which may be newer than its installation, or else of the installation."""
    if not PROJECT.is_file():
        return unmet_requirements(requires("docemb") or [])
    return unmet_requirements(tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["dependencies"])


def _finding(name: str, value: str, good: bool, status: Status, mend: str) -> Finding:
    return Finding(name, value) if good else Finding(name, value, status, mend)


def _software() -> Iterator[Finding]:
    problems = "; ".join(unmet())
    yield Finding("python", f"{platform.python_version()} ({sys.prefix})")
    yield _finding("packages", problems or "as required", not problems, "wrong", INSTALL)
    try:
        pretrained.resolve("all-MiniLM-L6-v2")
        yield Finding("embedded model", "all-MiniLM-L6-v2, checksum verified")
    except InputError as error:
        yield Finding("embedded model", str(error), "wrong", INSTALL)


def _machine() -> Iterator[Finding]:
    import torch
    from dask.system import CPU_COUNT  # within the limits of the control group

    threads, free = torch.get_num_threads(), hardware.free_memory("cpu")
    yield _finding("cores", f"{CPU_COUNT}, torch uses {threads}", threads >= CPU_COUNT, "slow", "unset OMP_NUM_THREADS")
    mend = "end other programs: `docemb run` takes 4 GiB, and a sweep as much for each worker"
    yield _finding("memory", f"{free / GiB:.1f} GiB free", free >= MEMORY, "slow", mend)
    try:
        root = find_root()
    except InputError:
        yield Finding("workspace", "no working folder here", "wrong", "give `docemb init` in a new folder")
        return
    yield Finding("workspace", str(root))
    free = shutil.disk_usage(root).free
    yield _finding("disk", f"{free / GiB:.1f} GiB free", free >= DISK, "wrong", f"make room on the disk of {root}")


def _gpus() -> Iterator[Finding]:
    import torch

    from docemb_lib.student.longformer import fits_varlen

    if not (devices := [torch.device("cuda", number) for number in range(torch.cuda.device_count())]):
        mend = "the profile tiny takes minutes on a CPU; run the profile thesis on a machine with a GPU"
        yield Finding("gpu", f"none (torch {torch.__version__})", "slow", mend)
    for device in devices:
        bf16, flash = hardware.fast_bf16(device), fits_varlen(device, torch.bfloat16, 64)
        has = [name if there else f"no {name}" for name, there in (("bf16", bf16), ("flash attention", flash))]
        value = f"{torch.cuda.get_device_name(device)}, {hardware.free_memory(device) / GiB:.0f} GiB free, "
        mend = "a GPU of the Ampere generation or later trains on long documents several times as fast"
        yield _finding(str(device), value + ", ".join(has), bf16 and flash, "slow", mend)


def _hub() -> Finding:
    from huggingface_hub import constants

    if constants.HF_HUB_OFFLINE:
        return Finding("hub", "switched off by HF_HUB_OFFLINE", "slow", "unset it to use models that are not cached")
    answers = pretrained.ask_hub() is not None
    value = "answers" if answers else f"does not answer within {pretrained.hub_seconds():.0f} s"
    mend = "the profile tiny needs no hub; for others copy models and data sets here, or connect"
    return _finding("hub", f"{constants.ENDPOINT} {value}", answers, "slow", mend)


def _cpu_speed() -> Finding:
    import torch

    single = f"fp32 {hardware.matmul_peak('cpu', torch.float32) / 1e9:.0f} GFLOP/s"
    if not hardware.fast_bf16("cpu"):  # emulated products would take long to measure
        mend = "this CPU computes in fp32; one with fast bf16 (Intel AMX, AMD Zen 4) trains two to three times as fast"
        return Finding("cpu speed", f"{single}, no fast bf16", "slow", mend)
    half = hardware.matmul_peak("cpu", torch.bfloat16)
    return Finding("cpu speed", f"bf16 {half / 1e9:.0f} GFLOP/s, {single}")

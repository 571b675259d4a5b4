"""What `docemb doctor` reports: versions, machine, accelerators, model hub, what is slow or fails,
damaged files.
"""

import logging
import os
import platform
import shutil
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Literal, NamedTuple

from packaging.requirements import Requirement

from docemb_lib.base import hardware, pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import AGAIN, MANIFEST, MARKER, damaged, fault
from docemb_lib.base.progress import progress
from docemb_lib.settings.profile import find_root

logger = logging.getLogger(__name__)

INSTALL = 'run `pip install -e ".[offline]"` in the checkout, or `pip install "docemb[offline]"` without one'
GiB = 2**30
MEMORY, DISK = 4 * GiB, 2 * GiB  # what `docemb run` takes with the profile tiny


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    value: str
    status: Literal["ok", "slow", "wrong"] = (
        "ok"  # slow: docemb works, but slowly or with less; wrong: it fails
    )
    mend: str = ""  # what to do, or what to expect, where the status is not ok


def diagnose() -> Iterator[Finding]:
    """All findings about this environment and machine.

    Takes a few seconds on a CPU and builds nothing.
    """
    import torch
    from dask.system import CPU_COUNT  # within the limits of the control group
    from huggingface_hub import constants

    from docemb_lib.student.longformer import fits_varlen

    yield Finding("python", f"{platform.python_version()} ({sys.prefix})")
    problems = "; ".join(unmet())
    yield Finding("packages", problems or "as required", "wrong" if problems else "ok", INSTALL)
    try:
        pretrained.resolve("all-MiniLM-L6-v2")
        yield Finding("embedded model", "all-MiniLM-L6-v2, checksum verified")
    except InputError as error:
        yield Finding("embedded model", str(error), "wrong", INSTALL)
    answers = not pretrained.hub_silence()
    value = f"{constants.ENDPOINT} {'answers' if answers else 'does not answer, or HF_HUB_OFFLINE is set'}"
    mend = "the profile tiny needs no hub; for others copy models and data sets here, or connect"
    yield Finding("hub", value, "ok" if answers else "slow", mend)

    threads, free = torch.get_num_threads(), hardware.free_memory("cpu")
    value = f"{CPU_COUNT}, torch uses {threads}"
    told = (
        threads < CPU_COUNT and "OMP_NUM_THREADS" in os.environ
    )  # unset, torch takes the cores, without hyperthreads
    yield Finding("cores", value, "slow" if told else "ok", "unset OMP_NUM_THREADS")
    mend = "end other programs: `docemb run` takes 4 GiB, and a sweep as much for each worker"
    yield Finding("memory", f"{free / GiB:.1f} GiB free", "ok" if free >= MEMORY else "slow", mend)
    try:
        free = shutil.disk_usage(root := find_root()).free
        value = f"{root}, {free / GiB:.1f} GiB free"
        yield Finding(
            "workspace", value, "ok" if free >= DISK else "wrong", "make room on its disk"
        )
    except InputError:
        yield Finding(
            "workspace", "no working folder here", "wrong", "give `docemb init` in a new folder"
        )

    if not torch.cuda.is_available():
        mend = "the profile tiny takes minutes on a CPU; run the profile thesis on a machine with a GPU"
        yield Finding("gpu", f"none (torch {torch.__version__})", "slow", mend)
    for device in (torch.device("cuda", number) for number in range(torch.cuda.device_count())):
        bf16, flash = hardware.fast_bf16(device), fits_varlen(device, torch.bfloat16, 64)
        has = ", ".join(
            name if there else f"no {name}"
            for name, there in (("bf16", bf16), ("flash attention", flash))
        )
        value = f"{torch.cuda.get_device_name(device)}, {hardware.free_memory(device) / GiB:.0f} GiB free, {has}"
        mend = (
            "a GPU of the Ampere generation or later trains on long documents several times as fast"
        )
        yield Finding(str(device), value, "ok" if bf16 and flash else "slow", mend)
    bf16 = hardware.fast_bf16("cpu")  # where it is emulated, products would take long to measure
    peak = hardware.matmul_peak("cpu", torch.bfloat16 if bf16 else torch.float32) / 1e9
    models_on = hardware.devices_at_hand()[0]
    in_bf16 = hardware.uses_bf16(models_on)
    value = f"{'bf16' if in_bf16 else 'fp32'}, {hardware.PRECISION}={hardware.asked_precision()}"
    emulated = in_bf16 and not hardware.fast_bf16(models_on)
    mend = f"this machine is slow at bf16: unset {hardware.PRECISION}"
    yield Finding("precision", value, "slow" if emulated else "ok", mend)
    mend = "a CPU with Intel AMX or AMD Zen 4 trains two to three times as fast"
    yield Finding(
        "cpu speed",
        f"{'bf16' if bf16 else 'fp32'} {peak:.0f} GFLOP/s",
        "ok" if bf16 else "slow",
        mend,
    )


def verify_outputs() -> list[Finding]:
    """The damaged and missing files of all that was published under `outputs/`, every file of which
    is read.
    """
    outputs = find_root() / "outputs"
    published = {
        (file.parent, file.name) for name in (MANIFEST, MARKER) for file in outputs.rglob(name)
    }
    # A folder that has a lock but no manifest was published and has lost its manifest.
    targets = (
        lock.with_name(lock.name[1:].removesuffix(".lock")) for lock in outputs.rglob(".*.lock")
    )
    published |= {(folder, MANIFEST) for folder in targets if folder.is_dir()}
    bar = progress(sorted(published), desc="verifying", unit="folders")
    wrong = [fault(file) for folder, manifest in bar for file in damaged(folder, manifest)]
    found = [Finding("outputs", text, "wrong", f"remove its folder and {AGAIN}") for text in wrong]
    return found or [Finding("outputs", f"{len(published)} folders, all as they were published")]


def warn_of_other_versions() -> None:
    """Log one warning that names the required packages which are missing or of another version."""
    if found := unmet():
        problem = (
            f"the environment of this kernel ({sys.prefix}) does not meet docemb's requirements"
        )
        logger.warning("%s: %s; choose another kernel, or %s", problem, "; ".join(found), INSTALL)


def unmet() -> list[str]:
    """The requirements of docemb that do not hold, each with the version that is installed."""
    try:
        lines = requires("docemb") or []
    except PackageNotFoundError:
        return ["docemb is missing"]
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

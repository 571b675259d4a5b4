"""What `docemb doctor` reports: versions, hub, room, precision, and what fails or is damaged."""

import logging
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
from docemb_lib.settings.files import find_root

logger = logging.getLogger(__name__)

INSTALL = (
    'run `pip install -e ".[offline]"` in the checkout, '
    'or `pip install "docemb[offline]"` without one'
)
GiB = 2**30
# What `docemb run` takes with the profile tiny.
MEMORY = 4 * GiB
DISK = 2 * GiB


# slow: docemb works, but slowly; absent: it works without; wrong: it fails
Status = Literal["ok", "slow", "absent", "wrong"]


class Finding(NamedTuple):
    """One line of the report."""

    name: str
    value: str
    status: Status = "ok"
    mend: str = ""  # what to do, or what to expect, where the status is not ok


def diagnose() -> Iterator[Finding]:
    """All findings about this environment and machine.

    Builds nothing.
    """
    yield Finding("python", f"{platform.python_version()} ({sys.prefix})")
    problems = "; ".join(unmet())
    yield Finding("packages", problems or "as required", "wrong" if problems else "ok", INSTALL)
    yield _embedded_model()
    yield _hub()
    free = hardware.free_memory("cpu")
    mend = "end other programs: `docemb run` takes 4 GiB, and a sweep as much for each worker"
    status: Status = "ok" if free >= MEMORY else "slow"
    yield Finding("memory", f"{free / GiB:.1f} GiB free", status, mend)
    yield _workspace()
    yield _gpu()
    yield _precision()


def _embedded_model() -> Finding:
    try:
        pretrained.resolve("all-MiniLM-L6-v2")
    except InputError as error:
        return Finding("embedded model", str(error), "wrong", INSTALL)
    return Finding("embedded model", "all-MiniLM-L6-v2, checksum verified")


def _hub() -> Finding:
    from huggingface_hub import constants

    answers = not pretrained.hub_silence()
    state = "answers" if answers else "does not answer, or HF_HUB_OFFLINE is set"
    mend = "the profile tiny needs no hub; for others copy models and data sets here, or connect"
    status: Status = "ok" if answers else "absent"
    return Finding("hub", f"{constants.ENDPOINT} {state}", status, mend)


def _gpu() -> Finding:
    device = hardware.devices_at_hand()[0]
    if device == "cpu":
        return Finding("gpu", "none", "absent", "the profiles tiny and own need none")
    return Finding("gpu", device)


def _workspace() -> Finding:
    try:
        root = find_root()
    except InputError:
        mend = "give `docemb init` in a new folder"
        return Finding("workspace", "no working folder here", "wrong", mend)
    free = shutil.disk_usage(root).free
    status: Status = "ok" if free >= DISK else "wrong"
    return Finding(
        "workspace", f"{root}, {free / GiB:.1f} GiB free", status, "make room on its disk"
    )


def _precision() -> Finding:
    """The precision of models where they compute; bf16 is slow where the device emulates it."""
    device = hardware.devices_at_hand()[0]
    in_bf16 = hardware.uses_bf16(device)
    is_fast = hardware.fast_bf16(device)
    asked = f"{hardware.PRECISION}={hardware.asked_precision()}"
    value = f"{'bf16' if in_bf16 else 'fp32'} on {device}, {asked}"
    mend = "a CPU with Intel AMX or AMD Zen 4 trains two to three times as fast"
    if in_bf16:
        mend = f"this machine is slow at bf16: unset {hardware.PRECISION}"
    return Finding("precision", value, "ok" if is_fast else "slow", mend)


def verify_outputs() -> list[Finding]:
    """The damaged and missing files of all that was published under `outputs/`.

    Every published file is read.
    """
    outputs = find_root() / "outputs"
    published = set()
    for manifest in (MANIFEST, MARKER):
        published |= {(file.parent, manifest) for file in outputs.rglob(manifest)}
    # A folder that has a lock but no manifest was published and has lost its manifest.
    for lock in outputs.rglob(".*.lock"):
        folder = lock.with_name(lock.name[1:].removesuffix(".lock"))
        if folder.is_dir():
            published.add((folder, MANIFEST))
    bar = progress(sorted(published), desc="verifying", unit="folders")
    mend = f"remove its folder and {AGAIN}"
    findings = [
        Finding("outputs", fault(file), "wrong", mend)
        for folder, manifest in bar
        for file in damaged(folder, manifest)
    ]
    return findings or [Finding("outputs", f"{len(published)} folders, all as they were published")]


def warn_of_other_versions() -> None:
    """Log one warning that names the required packages which are missing or of another version."""
    problems = "; ".join(unmet())
    if problems:
        environment = f"the environment of this kernel ({sys.prefix})"
        logger.warning(
            "%s does not meet docemb's requirements: %s; choose another kernel, or %s",
            environment,
            problems,
            INSTALL,
        )


def unmet() -> list[str]:
    """The requirements of docemb that do not hold, each with the version that is installed."""
    try:
        requirements = map(Requirement, requires("docemb") or [])
    except PackageNotFoundError:
        return ["docemb is missing"]
    problems = []
    for requirement in requirements:
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": ""}):
            continue  # it is for another platform, or of an extra
        try:
            installed = version(requirement.name)
        except PackageNotFoundError:
            problems.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(installed, prereleases=True):
            problems.append(f"{requirement.name} {installed}, not {requirement.specifier}")
    return problems

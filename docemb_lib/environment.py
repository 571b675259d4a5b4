"""Whether the environment that a notebook runs in is the one that docemb asks for."""

from __future__ import annotations

import logging
import platform
import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

logger = logging.getLogger(__name__)

PROJECT = Path(__file__).resolve().parent.parent / "pyproject.toml"


def warn_of_other_versions() -> None:
    """Say in one line which required packages are missing or of another version here."""
    python, lines = _required()
    unmet = unmet_requirements(lines)
    if not SpecifierSet(python).contains(platform.python_version(), prereleases=True):
        unmet.insert(0, f"python {platform.python_version()}, not {python}")
    if unmet:
        logger.warning(
            "this kernel's environment (%s) is not the one that docemb asks for: %s; choose another kernel, or run "
            '`pip install -e ".[offline]"` in this one',
            sys.prefix, "; ".join(unmet),
        )  # fmt: skip


def unmet_requirements(lines: Iterable[str]) -> list[str]:
    """What is installed and what is asked for, for each requirement that does not hold."""
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


def _required() -> tuple[str, list[str]]:
    """Python's versions and the requirements: of the checkout, which may be newer than its installation."""
    if PROJECT.is_file():
        project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
        return project["requires-python"], project["dependencies"]
    return "", requires("docemb") or []

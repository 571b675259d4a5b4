"""Packages that only an extra of docemb installs."""

import sys
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from docemb_lib.base.errors import InputError


def require_packages(extra: str, *packages: str) -> None:
    """Raise InputError that names `extra` where one of its packages is not installed."""
    for package in packages:
        if find_spec(package) is None:
            mend = f'run `pip install "docemb[{extra}]"`'
            raise InputError(f"the package {package} is not installed; {mend}")


def import_openvino() -> ModuleType:
    """Import OpenVINO, which then reports nothing to its maker.

    On import and on conversion OpenVINO sends an event to a web service, unless the package
    openvino_telemetry cannot be imported. Raises InputError where OpenVINO is not installed.
    """
    require_packages("openvino", "openvino")
    sys.modules.setdefault("openvino_telemetry", None)  # type: ignore[arg-type]
    return import_module("openvino")

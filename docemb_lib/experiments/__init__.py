"""The two public names of what a grid is and of running one, which are loaded at first use."""

from pkgutil import resolve_name
from typing import Any

_PUBLIC = {"grid": "docemb_lib.sweeps.plan:grid", "sweep": "docemb_lib.sweeps.sweep:sweep"}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(_PUBLIC[name])

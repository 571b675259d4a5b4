"""Explorers for notebooks: controls over computed results; each call is the last value of a cell.

Executed without a person (papermill, nbconvert), a call shows its figure and numbers for the first setting. The module
of a name is loaded at its first use, because some import torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

_NAMES = {
    "monitor": "run_monitor",
    "neighbours": "neighbour_browser neighbourhoods_of",
    "spaces": "distance_explorer distances_to_teacher projection_explorer spaces_of_run",
    "weighting": "weighting_explorer weighting_points",
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names.split()}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'docemb_lib.widgets' has no attribute {name!r}")
    return getattr(import_module(f"docemb_lib.widgets.{_MODULE_OF[name]}"), name)

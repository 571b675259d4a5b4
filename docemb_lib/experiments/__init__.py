"""Where a profile and parameters become corpus, teachers, students and scores, and where runs are recorded.

`stages` composes the rooms above, `run` is a notebook's handle on one run, `plan` says which runs there are,
`execution` executes one through papermill, `sweeps` many side by side. Importing this loads neither torch nor Dask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docemb_lib.experiments.plan import grid as grid
    from docemb_lib.experiments.sweeps import sweep

__all__ = ["grid", "sweep"]
_MODULES = {"grid": "plan", "sweep": "sweeps"}


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module(f"docemb_lib.experiments.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'docemb_lib.experiments' has no attribute {name!r}")

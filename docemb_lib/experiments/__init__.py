"""Where a profile and parameters become corpus, teachers, students and scores, and where runs are recorded.

`runkey` says what a run is. `stages` (corpus, teachers), `students` and `scores` build what it needs, `models` are what
is compared, `run` is what a notebook calls. `plan` says which runs there are, `execution` executes one through
papermill, `sweeps` many side by side in `processes`. Importing this loads neither torch nor Dask.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from docemb_lib.experiments.plan import grid as grid
    from docemb_lib.experiments.run import Stages as Stages
    from docemb_lib.experiments.runkey import RunKey as RunKey
    from docemb_lib.experiments.sweeps import sweep

__all__ = ["RunKey", "Stages", "grid", "sweep"]
_MODULES = {"RunKey": "runkey", "Stages": "run", "grid": "plan", "sweep": "sweeps"}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"docemb_lib.experiments.{_MODULES[name]}"), name)
    raise AttributeError(f"module 'docemb_lib.experiments' has no attribute {name!r}")

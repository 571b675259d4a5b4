"""Where a profile and parameters become corpus, teachers, students and scores, and where runs are recorded.

`runkey` says what a run is. `stages` (corpus, teachers), `students` and `scores` build what it needs, `models` are what
is compared, `run` is what a notebook calls. `plan` says which runs there are, `execution` recognises a finished run and
executes any other through papermill in one of the `kernels`, `sweeps` executes many side by side on a `cluster`.
"""

from pkgutil import resolve_name
from typing import Any

_PUBLIC = {"grid": "plan:grid", "sweep": "sweeps:sweep"}  # imported at first use


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return resolve_name(f"{__name__}.{_PUBLIC[name]}")

"""The public names of a grid and of a sweep, `grid` and `sweep`, which are loaded at first use."""

from typing import Any

import docemb_lib


def __getattr__(name: str) -> Any:
    if name not in ("grid", "sweep"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(docemb_lib, name)

"""docemb: long-document embeddings distilled from two teachers. Importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docemb_lib.experiments.records as records
    import docemb_lib.figures as figures
    import docemb_lib.thesis as thesis
    import docemb_lib.views as views
    import docemb_lib.widgets as widgets
    from docemb_lib.experiments.grids import grid as grid
    from docemb_lib.experiments.run import begin as begin
    from docemb_lib.experiments.sweeps import sweep as sweep
    from docemb_lib.settings.profile import Profile as Profile
    from docemb_lib.student import Student as Student
    from docemb_lib.workspace import Workspace as Workspace

__version__ = "0.1.0"
__all__ = [
    "Profile",
    "Student",
    "Workspace",
    "begin",
    "figures",
    "grid",
    "records",
    "sweep",
    "thesis",
    "views",
    "widgets",
]

# Public name → its module, and its name there ("" for the module itself); loaded when first asked for.
_PUBLIC = {
    "Profile": ("settings.profile", "Profile"),
    "Student": ("student", "Student"),
    "Workspace": ("workspace", "Workspace"),
    "begin": ("experiments.run", "begin"),
    "figures": ("figures", ""),
    "grid": ("experiments.grids", "grid"),
    "records": ("experiments.records", ""),
    "sweep": ("experiments.sweeps", "sweep"),
    "thesis": ("thesis", ""),
    "views": ("views", ""),
    "widgets": ("widgets", ""),
}


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'docemb_lib' has no attribute {name!r}")
    module, attribute = _PUBLIC[name]
    loaded = import_module(f"docemb_lib.{module}")
    return getattr(loaded, attribute) if attribute else loaded

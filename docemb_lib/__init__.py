"""docemb: long-document embeddings distilled from two teachers.

Importing docemb_lib does not import torch.
"""

from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from docemb_lib.base import __version__ as __version__

if TYPE_CHECKING:
    from docemb_lib.runs import records as records
    from docemb_lib.runs.grids import grid as grid
    from docemb_lib.runs.run import Run as Run
    from docemb_lib.runs.run import begin as begin
    from docemb_lib.runs.sweep import sweep as sweep
    from docemb_lib.settings.profile import Profile as Profile
    from docemb_lib.student import Student as Student

# The place of each public name in docemb_lib: module:name, or module: where it is a module.
# Modules are imported at first use.
_PUBLIC = {
    "Profile": "settings.profile:Profile",
    "Student": "student:Student",
    "Run": "runs.run:Run",
    "begin": "runs.run:begin",
    "figures": "figures:",
    "grid": "runs.grids:grid",
    "records": "runs.records:",
    "sweep": "runs.sweep:sweep",
    "thesis": "thesis:",
    "views": "views:",
    "widgets": "widgets:",
}
__all__ = list(_PUBLIC)


def __getattr__(name: str) -> Any:
    if name not in _PUBLIC:
        raise AttributeError(f"module 'docemb_lib' has no attribute {name!r}")
    return resolve_name(f"docemb_lib.{_PUBLIC[name]}")

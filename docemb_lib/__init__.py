"""docemb: long-document embeddings distilled from two teachers. Importing this loads no torch."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import docemb_lib.experiments.records as records
    from docemb_lib.profile import Profile as Profile
    from docemb_lib.workspace import Workspace as Workspace

__version__ = "0.1.0"
__all__ = ["Profile", "Workspace", "records"]


def __getattr__(name: str) -> Any:
    if name == "records":
        return import_module("docemb_lib.experiments.records")
    if name in {"Profile", "Workspace"}:
        return getattr(import_module(f"docemb_lib.{name.lower()}"), name)
    raise AttributeError(f"module 'docemb_lib' has no attribute {name!r}")

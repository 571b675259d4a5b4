"""The first output of a run: its resolved settings, and which artefacts were there already or had to be built."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pandas as pd

from docemb_lib.workspace import Workspace


class Overview:
    """A table that is shown once and renewed in place, in JupyterLab as in the notebook that papermill saves.

    settings: columns value and whatever else there is to say of it, a row per parameter.
    """

    def __init__(self, settings: pd.DataFrame, workspace: Workspace) -> None:
        self.settings, self.workspace = settings, workspace
        self._handle: Any = None  # of what is on show

    def artefacts(self) -> dict[str, str]:
        """The kinds of artefacts that were `reused` and `built` so far, as far as there are any."""
        said = {}
        for name, built in (("reused", False), ("built", True)):
            kinds = Counter(found.kind.split("/")[0] for found, by_us in self.workspace.used.items() if by_us is built)
            if kinds:
                said[name] = ", ".join(kind if number == 1 else f"{number} × {kind}" for kind, number in kinds.items())
        return said

    def renew(self) -> None:
        """Bring what is on show up to date."""
        if self._handle is not None:
            self._handle.update(self._rendered(), raw=True)

    def _rendered(self) -> dict[str, str]:
        said = self.artefacts()
        with pd.option_context("display.max_colwidth", None):
            html, text = self.settings.to_html(), self.settings.to_string()
        return {
            "text/html": html + "".join(f"<p><b>{name}</b>: {kinds}</p>" for name, kinds in said.items()),
            "text/plain": "\n".join([text, *(f"{name}: {kinds}" for name, kinds in said.items())]),
        }

    def _ipython_display_(self) -> None:
        from IPython.display import display

        self._handle = display(self._rendered(), raw=True, display_id=True)

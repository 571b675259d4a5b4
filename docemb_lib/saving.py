"""Jupyter server extension that saves the outputs of docemb's notebooks in `outputs/`, apart from
the committed file.

`etc/jupyter/jupyter_server_config.d/docemb.json`, which pip installs, enables the extension.
jupytext writes the `.py` beside each notebook.
"""

import copy
import json
from typing import Any

from traitlets.config import Config

from docemb_lib.base.private import notebook_file


def keep_outputs_apart(
    *, model: dict[str, Any], path: str, contents_manager: Any, **_: Any
) -> None:
    """Pre-save hook: remove the outputs of a notebook that is saved to the folder `notebooks/` of a
    checkout.

    Writes the notebook with its outputs to `outputs/notebooks/<name>/as-last-saved.ipynb`; leaves
    others as they are.
    """
    file = notebook_file(contents_manager, path)
    if model["type"] != "notebook" or file is None or file.parent.name != "notebooks":
        return
    root, opened = file.parent.parent, model["content"]  # the open notebook keeps its outputs
    if not any((root / "params").glob("*.yaml")):
        return
    model["content"] = content = copy.deepcopy(opened)
    for cell in (cell for cell in content["cells"] if cell["cell_type"] == "code"):
        cell["outputs"], cell["execution_count"] = [], None
    if any(cell.get("outputs") for cell in opened["cells"]):
        from docemb_lib.workspace import (
            write_text,
        )  # slow to import, and Jupyter imports this module at its start

        text = json.dumps(opened, indent=1, ensure_ascii=False) + "\n"
        write_text(root / "outputs" / "notebooks" / file.stem / "as-last-saved.ipynb", text)
    for name in ("language_info", "widgets"):  # they depend on the kernel that ran last
        content["metadata"].pop(name, None)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(server: Any) -> None:
    """Set the hook before Jupyter creates the contents manager, which other extensions may replace."""
    if "pre_save_hook" not in server.config.ContentsManager:  # a hook of the user has priority
        server.update_config(Config(ContentsManager={"pre_save_hook": keep_outputs_apart}))


def _load_jupyter_server_extension(server: Any) -> None:
    """Required by Jupyter; linking has done everything."""

"""Jupyter server extension that saves the outputs of docemb's notebooks apart from the notebooks.

The committed notebooks hold no outputs; `outputs/` holds them. The file
`etc/jupyter/jupyter_server_config.d/docemb.json`, which pip installs, enables the extension.
jupytext writes the `.py` beside each notebook.
"""

import copy
import json
from typing import Any

from traitlets.config import Config

from docemb_lib.base.private import notebook_file


def keep_outputs_apart(
    *, model: dict[str, Any], path: str, contents_manager: object, **_: object
) -> None:
    """Pre-save hook: remove the outputs of a notebook in the folder `notebooks/` of a checkout.

    The notebook with its outputs is written to `outputs/notebooks/<name>/as-last-saved.ipynb`.
    Notebooks elsewhere are saved as they are.
    """
    file = notebook_file(contents_manager, path)
    if model["type"] != "notebook" or file is None or file.parent.name != "notebooks":
        return
    root = file.parent.parent
    if not any((root / "params").glob("*.yaml")):
        return
    opened = model["content"]
    content = copy.deepcopy(opened)  # the open notebook keeps its outputs
    model["content"] = content
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = []
            cell["execution_count"] = None
    for name in ("language_info", "widgets"):  # they depend on the kernel that ran last
        content["metadata"].pop(name, None)
    if any(cell.get("outputs") for cell in opened["cells"]):
        # This module is slow to import, and Jupyter imports ours at its start.
        from docemb_lib.base.files import write_text

        text = json.dumps(opened, indent=1, ensure_ascii=False) + "\n"
        write_text(root / "outputs" / "notebooks" / file.stem / "as-last-saved.ipynb", text)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(server: Any) -> None:
    """Set the hook before Jupyter creates the contents manager.

    Other extensions may replace the contents manager later.
    """
    if "pre_save_hook" not in server.config.ContentsManager:  # a hook of the user has priority
        server.update_config(Config(ContentsManager={"pre_save_hook": keep_outputs_apart}))


def _load_jupyter_server_extension(server: Any) -> None:
    """Do nothing: Jupyter requires this function, and linking has done everything."""

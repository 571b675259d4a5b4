"""What Jupyter does when a notebook of docemb is saved: its outputs go to `outputs/`, not into the file that git keeps.

A server extension, switched on by `etc/jupyter/jupyter_server_config.d/docemb.json`, which pip installs. Together with
jupytext, which writes the `.py` beside it, a saved notebook is a pair without outputs, whatever was run in it.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

SAVED = "as-last-saved.ipynb"


def keep_outputs_apart(*, model: dict[str, Any], path: str, contents_manager: Any, **_: Any) -> None:
    """Take the outputs out of a notebook that is about to be written to a checkout's `notebooks/`.

    The whole of it is written to `outputs/notebooks/<name>/as-last-saved.ipynb`. Other notebooks are left alone.
    """
    if model["type"] != "notebook" or not hasattr(contents_manager, "_get_os_path"):
        return
    file = Path(contents_manager._get_os_path(path))
    root = file.parent.parent
    cells = [cell for cell in model["content"]["cells"] if cell["cell_type"] == "code"]
    if file.parent.name != "notebooks" or not any((root / "params").glob("*.yaml")):
        return
    if any(cell["outputs"] for cell in cells):
        _write_apart(model["content"], root / "outputs" / "notebooks" / file.stem / SAVED)
    model["content"] = content = copy.deepcopy(model["content"])  # who asked for the saving keeps theirs
    for cell in content["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"], cell["execution_count"] = [], None
    for name in ("language_info", "widgets"):  # of the kernel that happened to run
        content["metadata"].pop(name, None)


def _write_apart(content: dict[str, Any], file: Path) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    temporary = file.with_name(f".{file.name}")
    temporary.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    temporary.replace(file)


def _jupyter_server_extension_points() -> list[dict[str, str]]:
    return [{"module": __name__}]


def _link_jupyter_server_extension(server: Any) -> None:
    """Called before the contents manager is made, which other extensions exchange for their own."""
    from traitlets.config import Config

    if "pre_save_hook" not in server.config.ContentsManager:  # somebody's own goes first
        server.update_config(Config(ContentsManager={"pre_save_hook": keep_outputs_apart}))


def _load_jupyter_server_extension(server: Any) -> None:
    """Everything is done when it is linked; Jupyter wants to call this too."""

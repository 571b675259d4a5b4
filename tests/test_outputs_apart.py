"""Jupyter saves the notebooks of a checkout without outputs, and other notebooks as they are."""

import copy
import json
from types import SimpleNamespace

import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook, new_output

from docemb_lib.outputs_apart import keep_outputs_apart


@pytest.fixture
def executed():
    cell = new_code_cell("6 * 7", execution_count=3, outputs=[new_output("stream", text="42")])
    notebook = new_notebook(cells=[new_markdown_cell("# Title"), cell])
    notebook.metadata.update(language_info={"name": "python"}, kernelspec={"name": "python3"})
    return notebook


def save(root, path, content):
    manager = SimpleNamespace(_get_os_path=lambda path: str(root / path))
    model = {"type": "notebook", "content": content}
    keep_outputs_apart(model=model, path=path, contents_manager=manager)
    return model["content"]


def test_outputs_go_to_the_outputs_folder_and_the_open_notebook_keeps_them(
    workspace_root, executed
):
    original = copy.deepcopy(executed)
    written = save(workspace_root, "notebooks/05_weighting.ipynb", executed)
    title, cell = written["cells"]
    assert (cell["source"], cell["outputs"], cell["execution_count"]) == ("6 * 7", [], None)
    assert (title, written["metadata"]) == (original.cells[0], {"kernelspec": {"name": "python3"}})
    assert executed == original
    apart = workspace_root / "outputs" / "notebooks" / "05_weighting" / "as-last-saved.ipynb"
    assert json.loads(apart.read_text(encoding="utf-8")) == original
    assert [path.name for path in apart.parent.iterdir()] == [apart.name]


def test_outputs_of_the_last_run_stay_where_a_notebook_without_outputs_is_saved(
    workspace_root, executed
):
    path = "notebooks/05_weighting.ipynb"
    original = copy.deepcopy(executed)
    save(workspace_root, path, executed)
    save(workspace_root, path, new_notebook(cells=[new_code_cell("6 * 7")]))
    apart = workspace_root / "outputs" / "notebooks" / "05_weighting" / "as-last-saved.ipynb"
    assert json.loads(apart.read_text(encoding="utf-8")) == original


def test_other_notebooks_are_left_alone(workspace_root, tmp_path, executed):
    for path in ("outputs/notebooks/05_weighting/run.ipynb", "mine.ipynb"):
        assert save(workspace_root, path, executed) is executed
    assert save(tmp_path, "notebooks/mine.ipynb", executed) is executed  # outside a checkout

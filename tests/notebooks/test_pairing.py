"""Every notebook is a pair that agrees, carries no outputs, and names its parameters as the
vocabulary does.
"""

import re
import shutil
from pathlib import Path

import click
import jupytext.cli
import nbformat
import pytest
from papermill.cli import papermill
from papermill.inspection import display_notebook_help, inspect_notebook

from docemb_lib.settings.notebooks import FREE, REGISTRY

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"
# The parameters of each notebook that makes runs
PARAMETERS = {name: ("profile", *each.values) for name, each in REGISTRY.items()}
NAMES = (*FREE, *REGISTRY)


def test_there_is_a_pair_for_every_notebook():
    for suffix in ("py", "ipynb"):
        assert {path.stem for path in FOLDER.glob(f"*.{suffix}")} == {*NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_the_two_halves_of_a_pair_agree_and_carry_no_outputs(name):
    script = jupytext.read(FOLDER / f"{name}.py")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [(c.cell_type, c.source) for c in script.cells] == [
        (c.cell_type, c.source) for c in notebook.cells
    ]
    assert [c.metadata.get("tags") for c in script.cells] == [
        c.metadata.get("tags") for c in notebook.cells
    ]
    assert notebook.metadata.kernelspec.name == script.metadata.kernelspec["name"] == "python3"
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    explained = (
        r"# No docemb_lib here\? Then this kernel is of another environment.*\nfrom docemb_lib"
    )
    assert any(
        re.search(explained, cell.source) for cell in code
    )  # tracebacks show the line before, too
    assert not [cell for cell in code if cell.outputs != [] or cell.execution_count is not None]


@pytest.mark.parametrize("name", NAMES)
def test_the_parameters_cell_holds_the_vocabulary_each_with_a_comment_which_papermill_lists(
    name, capsys
):
    (cell,) = [
        c
        for c in jupytext.read(FOLDER / f"{name}.py").cells
        if "parameters" in c.metadata.get("tags", [])
    ]
    lines = [re.fullmatch(r"(\w+) = (.+?)  # (.{15,})", line) for line in cell.source.splitlines()]
    assert all(lines), "each line is a name, a value and a comment"
    named = tuple(line[1] for line in lines if line)
    assert named == PARAMETERS.get(name, named)
    assert set(inspect_notebook(str(FOLDER / f"{name}.ipynb"))) == {*named}
    assert display_notebook_help(click.Context(papermill), str(FOLDER / f"{name}.ipynb"), {}) == 0
    assert "Can't infer" not in capsys.readouterr().out


@pytest.fixture
def pair(tmp_path):
    """The script and the notebook of a pair in a folder of its own."""
    files = ("05_weighting.py", "05_weighting.ipynb", "jupytext.toml")
    script, notebook, _ = (Path(shutil.copy(FOLDER / file, tmp_path)) for file in files)
    return script, notebook


def test_saving_in_jupyterlab_changes_the_script_too(pair):
    script, notebook = pair
    before = script.read_bytes()
    manager = jupytext.TextFileContentsManager(root_dir=str(script.parent))
    model = manager.get(notebook.name)
    manager.save(model, notebook.name)
    assert script.read_bytes() == before
    model["content"]["cells"].append(nbformat.v4.new_code_cell("documents_seen = 42"))
    manager.save(model, notebook.name)
    assert "\ndocuments_seen = 42" in script.read_text(encoding="utf-8")

"""Every notebook is a pair that agrees, carries no outputs, and names its parameters as the vocabulary does."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import jupytext
import nbformat
import pytest

from docemb_lib.profile import NOTEBOOKS

FOLDER = Path(__file__).resolve().parents[2] / "notebooks"


def test_there_is_a_pair_for_every_notebook():
    for suffix in ("py", "ipynb"):
        assert {path.stem for path in FOLDER.glob(f"*.{suffix}")} == set(NOTEBOOKS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_two_halves_of_a_pair_agree_and_carry_no_outputs(name):
    script = jupytext.read(FOLDER / f"{name}.py")
    notebook = nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert [(c.cell_type, c.source) for c in script.cells] == [(c.cell_type, c.source) for c in notebook.cells]
    assert [c.metadata.get("tags") for c in script.cells] == [c.metadata.get("tags") for c in notebook.cells]
    assert notebook.metadata.kernelspec.name == script.metadata.kernelspec["name"] == "python3"
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_parameters_cell_holds_the_vocabulary_each_with_a_comment(name):
    cells = [c for c in jupytext.read(FOLDER / f"{name}.py").cells if "parameters" in c.metadata.get("tags", [])]
    assert len(cells) == 1
    lines = [re.fullmatch(r"(\w+) = (.+?)  # (.{15,})", line) for line in cells[0].source.splitlines()]
    assert all(lines), "each line is a name, a value and a comment"
    assert tuple(line[1] for line in lines if line) == ("profile", "seed", *NOTEBOOKS[name])


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_papermill_lists_every_parameter_with_its_help(name):
    command = [sys.executable, "-m", "papermill", "--help-notebook", str(FOLDER / f"{name}.ipynb")]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    for parameter in ("profile", "seed", *NOTEBOOKS[name]):
        assert re.search(rf"^\s+{parameter}: ", shown, flags=re.MULTILINE), shown
    assert "Can't infer" not in shown

"""Notebooks that git or an editor has damaged are named before any run, also by a dry run."""

import json
import re

import pytest
from conftest import docemb

CONFLICT = "<<<<<<< HEAD\n"


def edit(file, change):
    notebook = json.loads(file.read_text())
    change(notebook)
    file.write_text(json.dumps(notebook))


def lose_tags(notebook):
    for cell in notebook["cells"]:
        cell["metadata"].pop("tags", None)


DAMAGE = {
    "git has left conflict markers": lambda file: file.write_text(f"{CONFLICT}{file.read_text()}"),
    "conflict markers .* in it": lambda file: edit(
        file, lambda notebook: notebook["cells"][3].update(cell_type="code", source=[CONFLICT])
    ),
    "this is no notebook .*JSON": lambda file: file.write_text(""),
    "0 cells have the tag `parameters`": lambda file: edit(file, lose_tags),
}


@pytest.mark.parametrize("said", DAMAGE)
@pytest.mark.parametrize("command", ["run 03 --dry-run", "sweep 03 --grid structural"])
def test_a_damaged_notebook_is_one_line_before_any_run(workspace_root, said, command):
    file = workspace_root / "notebooks/03_structural.ipynb"
    DAMAGE[said](file)
    done = docemb(*command.split(), "--profile", "small")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert re.search(rf"03_structural.ipynb: .*{said}", done.stderr), done.stderr
    assert "restore it, or give `jupytext --to ipynb 03_structural.py` there" in done.stderr
    assert not (workspace_root / "outputs").exists()

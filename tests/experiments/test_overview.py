"""The first output of a run: settings, and what was reused and built, renewed in place."""

from __future__ import annotations

import nbformat
import pytest
from nbclient import NotebookClient

from docemb_lib.experiments.run import Run
from docemb_lib.workspace import Workspace


def test_the_settings_tell_where_the_run_differs_from_its_profile(workspace_root):
    table = Run.begin("05_weighting", profile="small", lam=0.25, documents="profile").settings().settings
    assert table.loc["profile", "value"] == "small"
    assert tuple(table.loc["lam"]) == ("0.25", "0.5")
    assert tuple(table.loc["documents"]) == ("24", "")


def test_artefacts_are_counted_once_as_what_they_were_when_first_asked_for(workspace_root):
    Workspace(workspace_root).artefact("corpus", {"n": 1}, lambda folder: None)
    run = Run.begin("01_corpus", profile="small")
    assert run.settings().artefacts() == {}
    for kind, n in (("corpus", 1), ("scores/a", 2), ("scores/b", 3), ("scores/a", 2), ("student", 4)):
        run.workspace.artefact(kind, {"n": n}, lambda folder: None)
    assert run.settings().artefacts() == {"reused": "corpus", "built": "2 × scores, student"}


CELLS = (
    """
import sys
from docemb_lib.experiments.run import Run
print("one line", file=sys.stderr, flush=True)
print("and another", file=sys.stderr, flush=True)
run = Run.begin("01_corpus", profile="small")
run.settings()
""",
    'artefact = run.workspace.artefact("corpus", {"n": 1}, lambda folder: None)',
    "run.finish({})",
)


@pytest.mark.slow
def test_the_saved_notebook_has_what_was_built_in_its_first_output(workspace_root):
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in CELLS])
    NotebookClient(notebook, kernel_name="python3", resources={"metadata": {"path": str(workspace_root)}}).execute()
    (shown,) = [o for o in notebook.cells[0].outputs if o.output_type == "display_data"]
    assert shown.data["text/plain"].splitlines()[-1] == "built: corpus"
    assert shown.data["text/html"].endswith("<p><b>built</b>: corpus</p>")

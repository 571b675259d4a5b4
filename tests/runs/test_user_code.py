"""A loss or teacher of one's own is part of what a run is."""

import sys

import pytest

from docemb_lib.runs.embeddings import teacher_embedder
from docemb_lib.runs.run import Run
from docemb_lib.settings.files import load_class

LOSS = """
from docemb_lib.losses import StructuralLoss

class Scaled(StructuralLoss):
    def document_losses(self, student, teacher, keep):
        return (student - teacher).square().mean(dim=1)
"""
PARAMETERS = {"structural_loss": "my_losses:Scaled", "documents": 6}


@pytest.fixture
def run_with(workspace_root, small, monkeypatch):
    """A run with a loss of this text, as a new process computes it; None: no file."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = workspace_root / "notebooks" / "my_losses.py"

    def run(text):
        sys.modules.pop("my_losses", None)
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        return Run.of("03_structural", small, **PARAMETERS)

    yield run
    sys.modules.pop("my_losses", None)


def test_an_edited_loss_makes_another_run_of_the_same_setting(run_with):
    before = run_with(LOSS)
    assert [*before.sources] == ["my_losses.py"]
    assert before.key == run_with(LOSS).key
    after = run_with(LOSS.replace(".mean(", ".sum("))
    assert before.key != after.key
    assert before.setting == after.setting


def test_a_missing_loss_is_refused_before_any_work(run_with, refused):
    run = run_with(None)
    assert len(run.key) == 16  # a record of it can still be looked for
    refused("my_losses:Scaled cannot be imported .*: No module", run.check)


def test_the_file_of_a_teachers_class_counts_beside_its_fingerprint(workspace_root, monkeypatch):
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = workspace_root / "notebooks" / "my_teacher.py"
    text = "class Mine:\n    fingerprint = 'as it was'\n    embed = None\n"
    fingerprints = []
    for content in (text, text + "# edited", text):
        sys.modules.pop("my_teacher", None)
        file.write_text(content)
        teacher = load_class("my_teacher:Mine")()
        fingerprints.append(teacher_embedder(teacher).fingerprint)
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]

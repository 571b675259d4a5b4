"""A loss or teacher of one's own is part of what a run is."""

import sys

import numpy as np
import pytest

from docemb_lib.runs.run import Run
from docemb_lib.runs.stages import identity_of

LOSS = """
from docemb_lib.losses import StructuralLoss

class Scaled(StructuralLoss):
    def document_losses(self, student, teacher, keep):
        return (student - teacher).square().mean(dim=1)
"""
PARAMETERS = {"structural_loss": "my_losses:Scaled", "documents": 6}


@pytest.fixture
def key_with(workspace_root, small, monkeypatch):
    """The key of a run with a loss of this text, as a new process computes it; None: no file."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    file = workspace_root / "notebooks" / "my_losses.py"

    def key(text):
        sys.modules.pop("my_losses", None)
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_text(text)
        return Run.of("03_structural", small, **PARAMETERS)

    yield key
    sys.modules.pop("my_losses", None)


def test_an_edited_loss_makes_another_run_of_the_same_setting(key_with):
    before = key_with(LOSS)
    assert [*before.sources] == ["my_losses.py"]
    assert before.fingerprint == key_with(LOSS).fingerprint
    after = key_with(LOSS.replace(".mean(", ".sum("))
    assert before.fingerprint != after.fingerprint
    assert before.setting == after.setting


def test_a_loss_that_is_missing_is_refused_before_any_work(key_with, workspace, refused):
    key = key_with(None)
    assert len(key.fingerprint) == 16  # a record of it can still be looked for
    refused("my_losses:Scaled cannot be imported .*: No module", Stages(key, workspace).check)


def test_a_class_that_is_no_loss_is_refused_before_any_work(key_with, workspace, refused):
    key = key_with("class Scaled:\n    pass\n")
    refused("my_losses:Scaled is not a subclass", Stages(key, workspace).check)


class Hashed:
    """A teacher whose class lies in this file."""

    fingerprint = "as it was"

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def embed(self, texts):
        return np.array([[len(text) + n for n in range(self.dim)] for text in texts], np.float32)


def test_the_file_of_a_teachers_class_counts_beside_its_fingerprint():
    identity, sources = identity_of(Hashed(8))
    assert identity == "as it was"
    assert [*sources] == ["test_user_code.py"]

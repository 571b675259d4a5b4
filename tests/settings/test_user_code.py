"""Code of one's own: which file counts in a key, and what is loaded."""

import hashlib
import sys

import pytest

from docemb_lib.losses import MSE
from docemb_lib.settings.files import load_class, sources_of

TEXT = "from my_helper import BY\nclass Loss:\n    by = BY\n"


@pytest.fixture
def loss(workspace_root, monkeypatch):
    """The class as a new process loads it."""
    notebooks = workspace_root / "notebooks"
    (notebooks / "my_losses.py").write_text(TEXT)
    (notebooks / "my_helper.py").write_text("BY = 41\n")
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield load_class("my_losses:Loss")
    for module in ("my_losses", "my_helper"):
        del sys.modules[module]


def test_the_file_that_defines_a_class_counts_as_it_was_imported(loss, workspace_root):
    expected = {"my_losses.py": hashlib.sha256(TEXT.encode()).hexdigest()}
    assert (loss.by, sources_of(loss)) == (41, expected)
    (workspace_root / "notebooks" / "my_losses.py").write_text("class Loss:\n    by = 42\n")
    again = load_class("my_losses:Loss")
    assert (again.by, sources_of(again)) == (41, expected)  # until the process is another


def test_classes_of_docemb_and_of_the_language_are_not_hashed():
    assert [sources_of(kind) for kind in (MSE, list)] == [{}, {}]

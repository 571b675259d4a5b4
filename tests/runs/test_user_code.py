"""A loss or teacher of one's own is part of what a run is."""

import numpy as np
import pytest

from docemb_lib.runs.key import RunKey
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.stages import identity_of

LOSS = """
from docemb_lib.losses import StructuralLoss
from my_scale import SCALE

class Scaled(StructuralLoss):
    def document_losses(self, student, teacher, keep):
        return SCALE * (student - teacher).square().mean(dim=1)
"""
PARAMETERS = {"structural_loss": "my_losses:Scaled", "documents": 6}


@pytest.fixture
def notebooks(workspace_root):
    folder = workspace_root / "notebooks"
    (folder / "my_losses.py").write_text(LOSS)
    (folder / "my_scale.py").write_text("SCALE = 1.0\n")
    (folder / "unrelated.py").write_text("")
    return folder


def key_of(small) -> RunKey:
    return RunKey.of("03_structural", small, **PARAMETERS)


@pytest.mark.parametrize(
    ("file", "text"),
    [("my_losses.py", LOSS.replace("mean", "sum")), ("my_scale.py", "SCALE = 42.0\n")],
)
def test_an_edited_loss_or_helper_makes_another_run_of_the_same_setting(
    small, notebooks, file, text
):
    before = key_of(small)
    assert before.fingerprint == key_of(small).fingerprint
    (notebooks / file).write_text(text)
    after = key_of(small)
    assert before.fingerprint != after.fingerprint
    assert before.setting == after.setting


def test_a_comment_in_an_unrelated_file_leaves_the_run_as_it_is(small, notebooks):
    before = key_of(small).fingerprint
    (notebooks / "unrelated.py").write_text("# a comment\n")
    assert key_of(small).fingerprint == before


def test_a_loss_that_is_missing_is_refused_before_any_work(small, notebooks, refused):
    (notebooks / "my_losses.py").unlink()
    key = key_of(small)
    assert len(key.fingerprint) == 16  # an old record of it can still be looked for
    refused("my_losses:Scaled: there is no module my_losses; put its file into", key.check)


def test_a_class_that_is_no_loss_is_refused_before_any_work(small, notebooks, workspace, refused):
    (notebooks / "my_losses.py").write_text("class Scaled:\n    pass\n")
    refused("my_losses:Scaled is not a subclass", Stages(key_of(small), workspace).check)


def test_a_loss_that_changes_while_its_run_lasts_is_refused(small, notebooks, refused):
    key = key_of(small)
    assert sorted(key.sources) == ["my_losses.py", "my_scale.py"]
    (notebooks / "my_scale.py").write_text("SCALE = 2.0\n")
    refused("my_losses.py, my_scale.py: the code has changed since", key.check_sources)


class Hashed:
    """A teacher whose class lies in this file."""

    fingerprint = "as it was"

    def __init__(self, dim: int) -> None:
        self.dim = dim

    def embed(self, texts):
        return np.array([[len(text) + n for n in range(self.dim)] for text in texts], np.float32)


def test_an_edited_class_of_a_teacher_has_embeddings_of_its_own():
    teacher = Hashed(8)
    identity, sources = identity_of(teacher)
    assert identity == "as it was"
    assert [name for name in sources if name.endswith("test_user_code.py")]


def test_teachers_of_docembs_keep_the_fingerprint_that_they_had(small, notebooks, workspace):
    sbert = Stages(key_of(small), workspace).teachers.structural
    assert identity_of(sbert) == sbert.fingerprint

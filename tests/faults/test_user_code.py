"""A loss of one's own trains anew once its code is another, and never else."""

import json

import pytest

from docemb_lib.runs.key import RunKey
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace

LOSS = """
from docemb_lib.losses import StructuralLoss
from my_scale import SCALE

class Scaled(StructuralLoss):
    def document_losses(self, student, teacher, keep):
        return SCALE * (student - teacher).square().mean(dim=1)
"""


def test_an_edited_helper_of_a_loss_trains_another_student(root, monkeypatch):
    monkeypatch.chdir(root)
    notebooks = root / "notebooks"
    (notebooks / "my_losses.py").write_text(LOSS)
    profile = Profile.load("faults")
    outcomes = []
    for scale in ("SCALE = 1.0\n", "SCALE = 1.0\n", "SCALE = 42.0\n"):
        (notebooks / "my_scale.py").write_text(scale)
        (notebooks / "unrelated.py").write_text(f"# at {len(outcomes)}")
        key = RunKey.of("03_structural", profile, structural_loss="my_losses:Scaled")
        run = Run(key, Workspace(root))
        losses = run.history()[1]["loss"]
        numbers = run.finish({"loss": losses.iloc[-1]}, student=run.link_student())
        outcomes.append((run.stages.students.trained.path, losses.iloc[0], numbers))
    (first, loss, _), (again, same, _), (edited, other, numbers) = outcomes
    assert (again, same) == (first, loss)
    assert edited != first
    assert other == pytest.approx(42 * loss, rel=1e-4)

    # Record, notebook and model card name the files and their hashes.
    record = json.loads(
        (root / "outputs/records/03_structural" / run.fingerprint / "record.json").read_text()
    )
    assert sorted(record["sources"]) == ["my_losses.py", "my_scale.py"]
    digest = record["sources"]["my_scale.py"]
    assert numbers[run.label]["my_scale.py"] == f"SHA-256 {digest[:12]}…"
    assert digest in (edited / "README.md").read_text()

"""Every kind of file under `outputs/`, found by walking it: damaged ones are built again or named
in one line.
"""

import itertools
import os
from pathlib import Path

import pytest

from docemb_lib import views
from docemb_lib.base import integrity
from docemb_lib.base.integrity import CARD, MANIFEST
from docemb_lib.runs.run import Run
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace


def ask(root: Path) -> dict[str, object]:
    """What two runs give that need every kind of artefact, as a new process would get it."""
    integrity._digests.clear()
    integrity.warn_once.cache_clear()
    workspace = Workspace(root)
    profile = Profile.load(root / "params" / "faults.yaml")
    values = {}
    for notebook in ("06_evaluation", "07_simde"):
        run = Run.of(notebook, profile)
        run.check()
        scores = run.evaluate().scores if notebook == "06_evaluation" else run.scores()
        run.finish(run.metrics(scores), scores=scores, student=run.link_student(scores))
        # None takes the place of NaN, which differs from itself: f1_macro has no interval.
        scores = scores.astype(object).where(scores.notna(), None)
        losses = [frame["loss"].tolist() for frame in run.history()]
        values[notebook] = (scores.to_dict("records"), losses)
    values["lengths"] = run.scorer.lengths("topic").examples.tolist()
    values["statistics"] = views.described_tasks(run)[0].to_dict("records")
    return values


def published_in(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.is_file() and file.name != CARD)


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


DAMAGE = [flip, lambda file: os.truncate(file, file.stat().st_size // 2), Path.unlink]
ARRAYS = {".npy", ".npz", ".safetensors", ".arrow", ".txt", ".parquet"}  # other files hold times


@pytest.mark.slow
def test_a_damaged_file_of_any_kind_is_named_and_what_lost_it_is_built_again(
    root, infer_in_process, caplog, monkeypatch
):
    monkeypatch.chdir(root)
    values = ask(root)
    manifests = sorted((root / "outputs").glob(f"[ar]*/**/{MANIFEST}"))
    folders = {manifest.parent: published_in(manifest.parent) for manifest in manifests}
    paths = [file for files in folders.values() for file in files if file.suffix in ARRAYS]
    arrays = {file: file.read_bytes() for file in paths}
    for folder, files in folders.items():
        for file, harm in itertools.product(files, DAMAGE):
            content = file.read_bytes()
            harm(file)
            assert integrity.damaged(folder) == [file]
            file.write_bytes(content)
            integrity._digests.clear()  # where file times are coarse, all three states have one
    # One file of every folder.
    hurt = [files[place % len(files)] for place, files in enumerate(folders.values())]
    for file, harm in zip(hurt, itertools.cycle(DAMAGE), strict=False):
        harm(file)
    caplog.clear()
    assert ask(root) == values
    assert [file for file in hurt if str(file) not in caplog.text] == []
    assert [file for file, content in arrays.items() if file.read_bytes() != content] == []

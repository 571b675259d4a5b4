"""Every kind of file under `outputs/`, found by walking it: damaged ones are built again or named
in one line.
"""

import hashlib
import itertools
import json
import os
from pathlib import Path

import pytest
from conftest import write_files

from docemb_lib import views
from docemb_lib.base import integrity
from docemb_lib.base.integrity import CARD, MANIFEST, MARKER
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.models import student_at
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.student import Student
from docemb_lib.training.trainer import find_checkpoint
from docemb_lib.workspace import Workspace, publish


def ask(root: Path) -> dict[str, object]:
    """What two runs give that need every kind of artefact, as a new process would get it."""
    integrity._digests.clear()
    integrity.warn_once.cache_clear()
    workspace = Workspace(root)
    profile = Profile.load(root / "params" / "faults.yaml")
    values = {}
    for notebook in ("06_evaluation", "07_simde"):
        run = Run(RunKey.of(notebook, profile), workspace)
        run.stages.check()
        scores = run.evaluate().scores if notebook == "06_evaluation" else run.scores()
        run.finish(run.metrics(scores), scores=scores, student=run.link_student(scores))
        # None takes the place of NaN, which differs from itself: f1_macro has no interval.
        scores = scores.astype(object).where(scores.notna(), None)
        values[notebook] = (
            scores.to_dict("records"),
            [frame["loss"].tolist() for frame in run.history()],
        )
    values["lengths"] = run.stages.scores.lengths("topic").examples.tolist()
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
    arrays = {
        file: file.read_bytes()
        for files in folders.values()
        for file in files
        if file.suffix in ARRAYS
    }
    assert not any(map(integrity.damaged, folders))
    for folder, files in folders.items():
        for file, harm in itertools.product(files, DAMAGE):
            content = file.read_bytes()
            harm(file)
            assert integrity.damaged(folder) == [file]
            file.write_bytes(content)
            integrity._digests.clear()  # where file times are coarse, all three states have one
    hurt = [
        files[place % len(files)] for place, files in enumerate(folders.values())
    ]  # one of every folder
    for file, harm in zip(hurt, itertools.cycle(DAMAGE), strict=False):
        harm(file)
    caplog.clear()
    assert ask(root) == values
    assert [file for file in hurt if str(file) not in caplog.text] == []
    assert [file for file, content in arrays.items() if file.read_bytes() != content] == []
    assert not any(map(integrity.damaged, folders))


def test_a_damaged_student_given_by_its_folder_is_refused_in_one_line(root, refused):
    folder = root / "artefacts" / "student" / "it"
    publish(
        folder,
        Student.from_encoder(str(root / "encoder"), max_tokens=16, attention_window=8).save,
        inputs={},
    )
    assert {"model.safetensors", "modules.json"} <= {file.name for file in published_in(folder)}
    for file, harm in itertools.product(published_in(folder), DAMAGE):
        if file.name == MANIFEST and harm is Path.unlink:
            continue  # a student of someone else has none
        content = file.read_bytes()
        harm(file)
        mend = f"remove {folder} and give the command that made it again"
        said = rf"^{file} is (missing|damaged.*); {mend}$"
        for load in (Student.load, student_at):
            refused(said, load, folder)
        file.write_bytes(content)
        integrity._digests.clear()  # where file times are coarse, all states have one
    assert student_at(folder) is not None


def test_a_damaged_checkpoint_is_skipped_for_the_one_before_it(tmp_path, caplog):
    for number in (2, 4, 6):
        folder = write_files(tmp_path / f"checkpoint-{number}", {"model.safetensors": bytes(100)})
        (folder / MARKER).write_text(
            integrity.sealed(folder, {"configuration": "c", "batch_tokens": 64}, MARKER)
        )
    flip(tmp_path / "checkpoint-6" / "model.safetensors")
    flip(tmp_path / "checkpoint-4" / MARKER)
    assert find_checkpoint(tmp_path, "c") == (tmp_path / "checkpoint-2", 64)
    assert "checkpoint-6 is incomplete or damaged" in caplog.text
    # Other checkpoints would be kept in place of whole ones.
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]


def test_a_manifest_of_an_earlier_version_is_compared_as_far_as_it_goes(tmp_path):
    (tmp_path / "value").write_text("42")
    (tmp_path / MANIFEST).write_text(
        json.dumps({"files": {"value": hashlib.sha256(b"42").hexdigest()}})
    )
    assert integrity.damaged(tmp_path) == []
    (tmp_path / "value").write_text("4")
    assert integrity.damaged(tmp_path) == [tmp_path / "value"]

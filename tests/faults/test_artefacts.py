"""Every artefact under `outputs/`, found by walking it: a damaged one is named and built again."""

import itertools
import os
from pathlib import Path

import pytest

from docemb_lib import views
from docemb_lib.base import files
from docemb_lib.base.files import CARD, MANIFEST
from docemb_lib.runs import store
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile


def forget() -> None:
    """Compare the files of all folders again, as a new process does."""
    files._digests.clear()  # where file times are coarse, all states of a file have one
    files.warn_once.cache_clear()
    store._opened.clear()


def ask() -> dict[str, object]:
    """What two runs give that need every kind of artefact."""
    forget()
    values = {}
    for notebook in ("06_evaluation", "07_simde"):
        run = Run(notebook, Profile.load("faults"))
        run.check()
        scores = run.evaluate().scores
        run.finish(run.metrics(scores), scores=scores, student=run.link_student(scores))
        # None takes the place of NaN, which differs from itself: f1_macro has no interval.
        scores = scores.astype(object).where(scores.notna(), None)
        losses = [frame["loss"].tolist() for frame in run.history()]
        values[notebook] = (scores.to_dict("records"), losses)
    values["statistics"] = views.described_tasks(run)[0].to_dict("records")
    return values


def flip(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def cut(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


DAMAGE = [flip, cut, Path.unlink]
ARRAYS = {".npy", ".npz", ".safetensors", ".arrow", ".txt", ".parquet"}  # other files hold times


@pytest.mark.slow
def test_a_damaged_file_of_any_kind_is_named_and_what_lost_it_is_built_again(
    root, infer_in_process, caplog, monkeypatch
):
    monkeypatch.chdir(root)
    values = ask()
    artefacts = {}
    for manifest in sorted((root / "outputs" / "artefacts").rglob(MANIFEST)):
        paths = sorted(manifest.parent.rglob("*"))
        artefacts[manifest.parent] = [p for p in paths if p.is_file() and p.name != CARD]
    arrays = {}
    for folder, published in artefacts.items():
        arrays |= {file: file.read_bytes() for file in published if file.suffix in ARRAYS}
        for file, harm in itertools.product(published, DAMAGE):
            if file.name == MANIFEST and harm is flip:
                continue  # it may be in the note of a version
            content = file.read_bytes()
            harm(file)
            assert files.damaged(folder, MANIFEST) == [file]
            file.write_bytes(content)
            forget()
    # One file of every folder.
    hurt = [published[n % len(published)] for n, published in enumerate(artefacts.values())]
    for file, harm in zip(hurt, itertools.cycle(DAMAGE), strict=False):
        (cut if file.name == MANIFEST else harm)(file)
    caplog.clear()
    assert ask() == values
    assert [file for file in hurt if str(file) not in caplog.text] == []
    assert [file for file, content in arrays.items() if file.read_bytes() != content] == []

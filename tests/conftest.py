"""What all tests share: a small workspace of its own, and tiny models with real tokenizers."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # one of a process per core
    os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")  # no test reaches for a hub
os.environ.setdefault("MPLBACKEND", "agg")

REPOSITORY = Path(__file__).resolve().parent.parent
TEXTS = Path(__file__).parent / "data"


@pytest.fixture
def workspace_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is a docemb workspace: `params/` with the test profile, the notebooks, no outputs."""
    return make_workspace(tmp_path / "workspace", monkeypatch)


def make_workspace(root: Path, monkeypatch: pytest.MonkeyPatch | None = None) -> Path:
    (root / "params").mkdir(parents=True)
    for profile in (TEXTS / "small.yaml", REPOSITORY / "params" / "own.yaml"):
        shutil.copy(profile, root / "params")
    shutil.copytree(REPOSITORY / "notebooks", root / "notebooks", ignore=shutil.ignore_patterns(".ipynb_checkpoints"))
    if monkeypatch is not None:
        monkeypatch.chdir(root)
    return root

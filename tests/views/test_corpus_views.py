"""What 01_corpus shows is what is in the corpus and in the tasks, counted once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pandas as pd
import pytest
from datasets import Dataset

from docemb_lib.evaluation import Classification, Labelled
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.views import runs as corpus_views
from docemb_lib.views.runs import corpus_tables, described_tasks, split_lengths
from docemb_lib.workspace import Workspace

TEXTS = ["one two", "one two three", "a", "b c"]


@pytest.fixture
def run(workspace_root: Any) -> Any:
    """A run with as much of the stages as the views need; the structural teacher counts letters."""
    small = Profile.load("small")
    one = small.evaluation.model_copy(update={"tasks": ["package"], "sweep_tasks": ["package"]})
    profile = small.model_copy(update={"evaluation": one})
    task = Classification("package", {"train": Labelled(TEXTS, list("aabb")), "test": Labelled(TEXTS[:2], ["a", "b"])})
    splits = {
        "train": Dataset.from_dict({"source": ["x", "y"], "n_student_tokens": [3, 5], "text": ["", ""]}),
        "validation": Dataset.from_dict({"source": ["x"], "n_student_tokens": [7], "text": [""]}),
    }
    counter = SimpleNamespace(count_tokens=lambda texts: [200 * len(text) for text in texts])
    stages = SimpleNamespace(
        key=RunKey("01_corpus", profile),
        workspace=Workspace(workspace_root),
        corpus=SimpleNamespace(fingerprint="corpus", split=splits.__getitem__),
        teachers=SimpleNamespace(sbert=lambda long: counter),
        scores=SimpleNamespace(tasks={"package": task}),
    )
    return SimpleNamespace(profile=profile, stages=stages)


def test_lengths_of_the_splits_are_the_students_tokens(run: Any) -> None:
    rows = split_lengths(run).to_dict("list")
    assert rows == {"source": ["x", "y", "x"], "tokens": [3, 5, 7], "split": ["train", "train", "validation"]}


def test_the_corpus_at_hand_stands_before_those_of_the_thesis() -> None:
    ours = pd.DataFrame(
        [(split, 10, 100, 10.0, 2.0, 30.0, 20.0) for split in ("train", "validation", "tasks")],
        columns=["split", "documents", "tokens", "mean", "std", "over_384", "over_512"],
    )
    table = corpus_tables(ours, "tiny")
    assert list(table.index) == [
        ("here", "tiny", "train"), ("here", "tiny", "validation"), ("thesis", "VAL-500K", "train"),
        ("thesis", "VAL-500K", "validation"), ("thesis", "TRAIN-1M", "train"), ("thesis", "TRAIN-1M", "validation"),
    ]  # fmt: skip
    assert table.loc[("here", "tiny", "train")].tolist() == [10, 100, 10, 2, 30, 20]
    assert table.loc[("thesis", "TRAIN-1M", "train"), "documents"] == 1_000_000


def test_tasks_are_described_once_and_read_afterwards(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("docemb_lib.student.count_tokens", lambda model, texts: [len(text.split()) for text in texts])
    found = described_tasks(run)
    assert found.lengths.query("split == 'train'")["n_student_tokens"].tolist() == [2, 3, 1, 2]
    assert set(found.lengths["task"]) == {"package"}
    value = found.statistics.query("protocol == 'final'").set_index(["split", "statistic"])["value"]
    assert value["train", "examples"] == 4
    assert value["train", "over_512"] == 75  # 200 tokens a letter: all but "a"
    run.stages.scores.tasks = {}  # asked for again, it would fail
    monkeypatch.setattr(corpus_views, "task_lengths", None)
    again = described_tasks(run)
    pd.testing.assert_frame_equal(again.statistics, found.statistics)

"""Bad data of tasks, as the one who typed the command meets it: one line, before any work, and nothing half-written."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet
from typer.testing import CliRunner

from docemb_lib import Profile, Workspace
from docemb_lib.cli import app
from docemb_lib.errors import InputError
from docemb_lib.evaluation import catalogue as profile_tasks
from docemb_lib.evaluation.catalogue import check_task

MARK = Path("ran")


def examples(n: int, labels: str = "xy", start: int = 0) -> list[dict[str, Any]]:
    return [
        {"text": f"about {labels[i % len(labels)]}, {start + i}", "label": labels[i % len(labels)]} for i in range(n)
    ]


def jsonl(file: Path, rows: list[dict[str, Any]]) -> str:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return file.name


class Folder:
    """The profile `mine` in a workspace, and the data beside it."""

    def __init__(self, root: Path) -> None:
        self.root, self.data = root, root / "params"

    def profile(self, own: dict[str, Any] | None = None, *, task: str = "mine", **evaluation: Any) -> str:
        profile = yaml.safe_load((self.root / "params" / "small.yaml").read_text(encoding="utf-8"))
        own_tasks = [{"name": "mine", "kind": "classification", **own}] if own else []
        settings = {"tasks": [task], "sweep_tasks": ["package"], "own_tasks": own_tasks, **evaluation}
        profile["evaluation"].update(settings)
        file = self.root / "params" / "mine.yaml"
        file.write_text(yaml.safe_dump({**profile, "name": "mine"}), encoding="utf-8")
        return str(file)


@pytest.fixture
def folder(workspace_root: Path) -> Folder:
    return Folder(workspace_root)


def wrong_column(folder: Folder) -> dict[str, Any]:
    (folder.data / "a.csv").write_text("body,label\nhello,1\n")
    return {"own": {"path": "a.csv"}}


def unknown_label(folder: Folder) -> dict[str, Any]:
    files = {
        "train": jsonl(folder.data / "a.jsonl", examples(8)),
        "test": jsonl(folder.data / "b.jsonl", examples(6, "xyz")),
    }
    return {"own": {"path": files}}


def blank_text(folder: Folder) -> dict[str, Any]:
    return {"own": {"path": jsonl(folder.data / "a.jsonl", [*examples(20), {"text": " \n", "label": "x"}])}}


def unknown_id(folder: Folder) -> dict[str, Any]:
    documents = jsonl(folder.data / "a.jsonl", [{"id": f"d{n}", "text": f"text {n}"} for n in range(4)])
    (folder.data / "r.tsv").write_text("d0\td1\nd2\td9\n")
    return {"own": {"kind": "retrieval", "path": documents, "relevance": "r.tsv"}}


def truncated_gzip(folder: Folder) -> dict[str, Any]:
    whole = gzip.compress("".join(json.dumps(row) + "\n" for row in examples(400)).encode())
    (folder.data / "a.jsonl.gz").write_bytes(whole[: len(whole) // 2])
    return {"own": {"path": "a.jsonl.gz"}}


def truncated_parquet(folder: Folder) -> dict[str, Any]:
    file = folder.data / "a.parquet"
    parquet.write_table(pa.Table.from_pylist(examples(400)), file)
    file.write_bytes(file.read_bytes()[:-100])
    return {"own": {"path": file.name}}


def truncated_lines(folder: Folder) -> dict[str, Any]:
    jsonl(folder.data / "a.jsonl", examples(20))
    os.truncate(folder.data / "a.jsonl", (folder.data / "a.jsonl").stat().st_size - 9)
    return {"own": {"path": "a.jsonl"}}


def broken_quoting(folder: Folder) -> dict[str, Any]:
    (folder.data / "a.csv").write_text('text,label\n"said ""so""",x\n"said "so" too",y\n')
    return {"own": {"path": "a.csv"}}


class Program:
    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (MARK,))


def hostile_pickle(folder: Folder) -> dict[str, Any]:
    (folder.data / "wines.txt").write_text("Title,Sections\nA,\"[('x', 'y')]\"\n")
    (folder.data / "gt").write_bytes(pickle.dumps({"A": Program()}))
    return {"task": "wines", "benchmarks": {"wines": "."}}


def no_network(folder: Folder) -> dict[str, Any]:
    return {"task": "imdb"}


def no_test_split(folder: Folder) -> dict[str, Any]:
    files = {
        "train": jsonl(folder.data / "a.jsonl", examples(8)),
        "validation": jsonl(folder.data / "b.jsonl", examples(6)),
    }
    return {"own": {"path": files}}


def a_folder(folder: Folder) -> dict[str, Any]:
    return {"own": {"path": "."}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (wrong_column, r"params/a\.csv, row 1: no field 'text', found \['body', 'label'\]; name the one that holds the text"),
        (unknown_label, r"task 'mine', split 'test': 2 of 6 labels are none of the 2 classes of 'train', the first is 'z'; leave"),
        (blank_text, r"a\.jsonl, line 21: a text is blank; write it or delete the row"),
        (unknown_id, r"r\.tsv, row 2: 'd9' is the id of no document; mend it, or delete the row"),
        (truncated_gzip, r"a\.jsonl\.gz: is not a whole gzip file \(.*\); compress it again"),
        (truncated_parquet, r"a\.parquet: is not a whole parquet file \(.*\); write it again"),
        (truncated_lines, r"a\.jsonl, line 20: not JSON \(.*\); write one object a line"),
        (broken_quoting, r"a\.csv, row 2: broken quoting up to line 3 \(.*\); mend it"),
        (hostile_pickle, r"gt: refused, is no whole pickle of plain containers \(it asks for .*\); write the mapping as JSON"),
        (no_network, r"dataset 'stanfordnlp/imdb': .*Hub.*; or name a folder in evaluation\.benchmarks"),
        (no_test_split, r"task mine: has no split test, only train, validation; add it, or leave the task out"),
        (a_folder, r"params: holds no folder; name a data file, or put each class into a folder of its name"),
    ],
)  # fmt: skip
def test_bad_data_is_one_line_and_leaves_nothing(folder, make, message):
    profile = folder.profile(**make(folder))
    done = CliRunner().invoke(app, ["evaluate", "all-MiniLM-L6-v2", "--profile", profile])
    assert done.exit_code == 2
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1
    assert re.search(message, lines[0]), lines[0]
    built = [path for path in (folder.root / "outputs").rglob("*") if path.is_file() and path.suffix != ".lock"]
    assert {path.relative_to(folder.root / "outputs" / "artefacts").parts[0] for path in built} <= {"task"}
    assert not list((folder.root / "outputs").rglob("*.partial"))
    assert not MARK.exists()


def ranking(folder: Folder) -> dict[str, Any]:
    documents = jsonl(folder.data / "a.jsonl", [{"id": f"d{n}", "text": f"text {n}"} for n in range(4)])
    (folder.data / "r.tsv").write_text("d0\td1\n")
    return {"kind": "retrieval", "path": documents, "relevance": {"test": "r.tsv"}}


def few(folder: Folder) -> dict[str, Any]:
    train, test = jsonl(folder.data / "a.jsonl", examples(8)), jsonl(folder.data / "b.jsonl", examples(6, start=50))
    return {"path": {"train": train, "test": test}}


@pytest.mark.parametrize(
    ("own", "folds", "message"),
    [
        (ranking, 2, "task mine: has no split validation, only test; add it, or leave the task out"),
        (few, 5, "task mine: has no split validation, and 4 examples of its smallest class in train, cut to evaluation.limit 10000, too few for evaluation.folds 5; add examples, or lower folds"),
    ],
)  # fmt: skip
def test_a_plan_is_refused_whose_runs_could_not_be_scored(folder, own, folds, message):
    profile = folder.profile(own(folder), sweep_tasks=["mine"], folds=folds)
    done = CliRunner().invoke(app, ["run", "--profile", profile])
    assert (done.exit_code, done.stderr.strip()) == (2, f"Error: {message}")


def test_a_class_that_runs_cut_below_the_folds_is_refused_before_they_start(folder):
    rows = [*examples(90, labels="x"), *examples(10, labels="y")]
    files = {"train": jsonl(folder.data / "a.jsonl", rows), "test": jsonl(folder.data / "b.jsonl", examples(6))}
    whole, cut = (
        Profile.load(folder.profile({"path": files}, sweep_tasks=["mine"], folds=5, limit=limit)) for limit in (100, 40)
    )
    check_task(whole, Workspace(), "mine", "validation")
    with pytest.raises(
        InputError, match=r"4 examples of its smallest class in train, cut to evaluation\.limit 40, too"
    ):
        check_task(cut, Workspace(), "mine", "validation")


def test_cross_validation_stands_in_where_there_are_enough_examples(folder):
    loaded = Profile.load(folder.profile(few(folder), sweep_tasks=["mine"], folds=4))
    check_task(loaded, Workspace(), "mine", "validation")
    with pytest.raises(InputError, match="has no split nonsense"):
        check_task(Profile.load(folder.profile(ranking(folder))), Workspace(), "mine", "nonsense")


def test_files_are_read_once_until_they_change(folder, monkeypatch):
    file = folder.data / "a.jsonl"
    loaded = Profile.load(folder.profile({"path": jsonl(file, examples(30))}))
    read = []
    outline_of = profile_tasks.outline_of
    monkeypatch.setattr(profile_tasks, "outline_of", lambda *given: read.append(given[0]) or outline_of(*given))
    for _ in range(2):
        check_task(loaded, Workspace(), "mine", "test")
    assert read == ["mine"]
    jsonl(file, [*examples(30), {"text": "", "label": "x"}])
    for _ in range(2):  # what is wrong stays wrong
        with pytest.raises(InputError, match="line 31: a text is blank"):
            check_task(loaded, Workspace(), "mine", "test")
    assert len(read) == 3


def test_what_only_a_hub_knows_is_not_fetched_for_a_check(folder):
    check_task(Profile.load(folder.profile(task="imdb")), Workspace(), "imdb", "test")


def test_rows_of_train_among_the_tests_are_told_as_leakage(folder, caplog):
    rows = examples(20)
    files = {
        "train": jsonl(folder.data / "a.jsonl", rows),
        "test": jsonl(folder.data / "b.jsonl", [*examples(6, start=50), *rows[:3]]),
    }
    loaded = Profile.load(folder.profile({"path": files}))
    assert profile_tasks.ProfileTasks(loaded, list)["mine"].name == "mine"
    assert caplog.messages == ["task mine, split test: 3 of 9 also in train (leakage), the first is 6"]

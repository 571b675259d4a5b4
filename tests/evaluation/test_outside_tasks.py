"""Own and benchmark tasks by the names that a profile gives them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from docemb_lib import Profile
from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, Pairs
from docemb_lib.evaluation.catalogue import load_task, task_fingerprint

TASK = {"name": "mine", "kind": "classification", "path": "data/mine.jsonl"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A profile's folder with an own task and one of the benchmarks beside it."""
    (tmp_path / "data").mkdir()
    records = [{"text": f"text {n}", "label": n % 2} for n in range(20)]
    (tmp_path / "data" / "mine.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    for part in ("train", "dev", "test"):
        (tmp_path / "data" / f"{part}_cite.csv").write_text('"1","a","b"\n"0","c","d"\n')
    return tmp_path


def profile(folder: Path, **evaluation: Any) -> Profile:
    settings = {"tasks": ["mine", "aan", "halves"], "own_tasks": [TASK], "benchmarks": {"aan": "data"}, **evaluation}
    file = folder / "my.yaml"
    file.write_text(yaml.safe_dump({"corpus": {"tasks": 90}, "evaluation": settings}))
    return Profile.load(file)


def test_tasks_are_found_by_name_with_paths_relative_to_the_profile(folder: Path, monkeypatch: Any) -> None:
    settings = profile(folder).evaluation
    monkeypatch.chdir("/")
    mine, aan = load_task("mine", settings), load_task("aan", settings)
    assert isinstance(mine, Classification)
    assert isinstance(aan, Pairs)
    assert (mine.name, aan.name) == ("mine", "aan")
    assert load_task("halves", settings) is None


def test_a_files_change_and_a_settings_change_show_in_the_fingerprint(folder: Path) -> None:
    settings = profile(folder).evaluation
    prints = {name: task_fingerprint(name, settings) for name in ("mine", "aan", "halves")}
    assert prints["halves"] is None
    assert prints == {name: task_fingerprint(name, profile(folder).evaluation) for name in prints}
    assert task_fingerprint("mine", profile(folder, own_tasks=[{**TASK, "seed": 1}]).evaluation) != prints["mine"]
    for file in ("mine.jsonl", "dev_cite.csv"):
        os.utime(folder / "data" / file, ns=(1, 1))
    assert task_fingerprint("mine", settings) != prints["mine"]
    assert task_fingerprint("aan", settings) != prints["aan"]
    (folder / "data" / "mine.jsonl").unlink()
    with pytest.raises(
        InputError, match=r"own_tasks: mine: .*mine\.jsonl is no file; name the one that holds the data"
    ):
        task_fingerprint("mine", settings)


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        ({"tasks": ["mine", "yours"]}, "there is no task 'yours'; known are package, .*, games, .*, mine and mteb:NAME; define it in own_tasks"),
        ({"sweep_tasks": ["yours"]}, "there is no task 'yours'"),
        ({"own_tasks": [TASK, TASK]}, "there is a task 'mine' already; choose another name"),
        ({"own_tasks": [TASK, {**TASK, "name": "imdb"}]}, "there is a task 'imdb' already"),
        ({"own_tasks": [TASK, {**TASK, "name": "mteb:mine"}]}, "there is a task 'mteb:mine' already; choose another name"),
        ({"tasks": ["pan"]}, "benchmarks: pan stands on no hub; name the folder that holds its files"),
        ({"benchmarks": {"ann": "data"}}, "evaluation.benchmarks.ann"),
        ({"own_tasks": [{**TASK, "kind": "ranking"}]}, "evaluation.own_tasks.0.kind"),
        ({"own_tasks": [{**TASK, "kind": "retrieval"}]}, "relevance, a file of pairs of ids, belongs to every retrieval"),
        ({"own_tasks": [{**TASK, "relevance": "x.tsv"}]}, "relevance, a file of pairs of ids"),
        ({"own_tasks": [{**TASK, "kind": "retrieval", "relevance": "x.tsv", "path": {"test": "x"}}]}, "one file of documents"),
        ({"own_tasks": [{**TASK, "path": {"training": "x"}}]}, "evaluation.own_tasks.0.path"),
        ({"own_tasks": [{**TASK, "share": 0.5}]}, "evaluation.own_tasks.0.share: input should be less than 0.5"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_profile_is_said_in_one_line(folder: Path, evaluation: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        profile(folder, **evaluation)
    assert "\n" not in str(caught.value)


def test_a_hubs_name_stays_a_name(folder: Path) -> None:
    settings = profile(folder, benchmarks={"aan": "data", "imdb": "someone/imdb"}).evaluation
    assert settings.benchmarks == {"aan": str(folder / "data"), "imdb": "someone/imdb"}
    assert "someone/imdb" in (task_fingerprint("imdb", settings) or "")
    assert "ccdv/arxiv-classification" in (task_fingerprint("arxiv", settings) or "")

"""Tasks by the names that a profile gives them; bad data is one line before any work, and nothing
half-written.
"""

import re

import pytest
import yaml
from conftest import write_files
from typer.testing import CliRunner

from docemb_lib import Profile
from docemb_lib.cli.__main__ import app
from docemb_lib.evaluation import Classification, Pairs, catalogue
from docemb_lib.evaluation.catalogue import load_task, task_fingerprint, task_inputs
from docemb_lib.runs.scores import Scorer
from docemb_lib.settings.sections import Evaluation, HeadSettings

TASK = {"name": "mine", "kind": "classification", "path": "data/mine.jsonl"}
DOCUMENTS = [{"id": f"d{n}", "text": f"text {n}"} for n in range(4)]
FEW = {"path": {"train": "a.jsonl", "test": "b.jsonl"}}


@pytest.fixture
def data_folder(tmp_path):
    """A profile's folder with an own task and one of the benchmarks beside it."""
    records = [{"text": f"text {n}", "label": n % 2} for n in range(20)]
    names = [f"data/{part}_cite.csv" for part in ("train", "dev", "test")]
    pairs = dict.fromkeys(names, '"1","a","b"\n"0","c","d"\n')
    return write_files(tmp_path, {"data/mine.jsonl": records, **pairs})


def profile(data_folder, **evaluation):
    settings = {
        "tasks": ["mine", "aan", "halves"],
        "own_tasks": [TASK],
        "benchmarks": {"aan": "data"},
        **evaluation,
    }
    file = data_folder / "my.yaml"
    file.write_text(yaml.safe_dump({"corpus": {"tasks": 90}, "evaluation": settings}))
    return Profile.load(file)


def test_tasks_are_found_by_name_with_paths_relative_to_the_profile(data_folder, monkeypatch):
    settings = profile(data_folder).evaluation
    monkeypatch.chdir("/")
    found = [load_task(name, settings) for name in ("mine", "aan")]
    assert [(type(task), task.name) for task in found] == [(Classification, "mine"), (Pairs, "aan")]


def test_a_files_change_and_a_settings_change_show_in_the_fingerprint(data_folder, refused):
    def fingerprint(name, **fields):
        return task_fingerprint(name, profile(data_folder, own_tasks=[TASK | fields]).evaluation)

    assert fingerprint("halves") is None
    before = {name: fingerprint(name) for name in ("mine", "aan")}
    assert fingerprint("mine", seed=1) != before["mine"]
    write_files(data_folder, {"data/a/a.csv": "text", "data/b": "text"})
    paths = [{"train": f"data/{a}", "test": f"data/{b}"} for a, b in ("ab", "ba")]
    assert fingerprint("mine", path=paths[0]) != fingerprint("mine", path=paths[1])
    write_files(data_folder, {"data/mine.jsonl": "\n", "data/dev_cite.csv": "\n"})
    assert all(fingerprint(name) != before[name] for name in before)
    (data_folder / "data" / "mine.jsonl").unlink()
    refused(r"own_tasks: mine: .*mine\.jsonl is no file; name the one that", fingerprint, "mine")


def test_the_number_of_texts_determines_an_embedded_task(data_folder):
    texts = [profile(data_folder, texts=n) for n in (40, 60)]
    first, second = (task_inputs(of_texts, "halves", lambda: "corpus") for of_texts in texts)
    assert first != second


@pytest.mark.parametrize(
    ("evaluation", "message"),
    [
        (
            {"tasks": ["mine", "yours"]},
            "there is no task 'yours'; known are package, .*, mine; name one of these, or define",
        ),
        ({"own_tasks": [TASK, {**TASK}]}, "there is a task 'mine' already; choose another name"),
        (
            {"sweep_tasks": ["fakenews"]},
            "benchmarks: fakenews is on no hub; name the folder that holds its files",
        ),
        (
            {"own_tasks": [{**TASK, "kind": "retrieval"}]},
            "relevance .a file of pairs of ids. is missing; add it, or let path .* be a folder",
        ),
        (
            {"own_tasks": [{**TASK, "relevance": "x.tsv"}]},
            "relevance belongs to retrieval tasks; leave it out",
        ),
    ],
)
def test_what_is_wrong_in_a_profile_is_said_in_one_line(data_folder, evaluation, message, refused):
    refused(message, profile, data_folder, **evaluation)


def test_a_hubs_name_stays_a_name_and_a_benchmark_without_its_file_is_named(data_folder, refused):
    settings = profile(data_folder, benchmarks={"aan": "data", "imdb": "someone/imdb"}).evaluation
    assert settings.benchmarks == {"aan": str(data_folder / "data"), "imdb": "someone/imdb"}
    hubs = {"imdb": "someone/imdb", "arxiv": "ccdv/arxiv-classification"}
    assert all(hub in (task_fingerprint(name, settings) or "") for name, hub in hubs.items())
    settings = profile(data_folder, tasks=["nyt"], benchmarks={"nyt": "./gone.json"}).evaluation
    assert settings.benchmarks["nyt"] == str(data_folder / "gone.json")  # no hub's name
    refused(r"gone\.json", load_task, "nyt", settings)


def test_a_head_may_be_named():
    simde = Evaluation.model_validate({"head": "simde"}).head
    assert simde == HeadSettings(learning_rate=3e-4, batch_size=8)
    with pytest.raises(ValueError, match="there is no head 'mlp'; write thesis or simde or few-sh"):
        Evaluation(head="mlp")  # type: ignore[arg-type]


def examples(n, labels="xy", start=0):
    own = [labels[i % len(labels)] for i in range(n)]
    return [{"text": f"about {label}, {start + i}", "label": label} for i, label in enumerate(own)]


@pytest.fixture
def folder(workspace_root):
    """Where the profile `mine` and its data lie in a workspace."""
    return workspace_root / "params"


def mine(folder, own=None, *, task="mine", **evaluation):
    profile = yaml.safe_load((folder / "small.yaml").read_text(encoding="utf-8"))
    own_tasks = [{"name": "mine", "kind": "classification", **own}] if own else []
    evaluation = {"sweep_tasks": ["package"], "own_tasks": own_tasks, **evaluation}
    profile["evaluation"] |= {"tasks": [task], **evaluation}
    (folder / "mine.yaml").write_text(yaml.safe_dump({**profile, "name": "mine"}), encoding="utf-8")
    return str(folder / "mine.yaml")


BAD = [
    (
        {"a.jsonl": DOCUMENTS, "r.tsv": "d2\td9\n"},
        {"own": {"kind": "retrieval", "path": "a.jsonl", "relevance": "r.tsv"}},
        (
            r"split test: no query has a relevant document; 1 ids of links are in no text "
            r"\('d9'; the documents' ids look like 'd0', 'd1', 'd2'\); let the ids"
        ),
    ),
    (
        {"a.jsonl": examples(8), "b.jsonl": examples(6)},
        {"own": {"path": {"train": "a.jsonl", "validation": "b.jsonl"}}},
        r"task mine: it has no split test; add this split, or leave the task out",
    ),
]


@pytest.mark.parametrize(("files", "settings", "message"), BAD)
def test_bad_data_is_one_line_and_leaves_nothing(folder, files, settings, message):
    write_files(folder, files)
    given = ["evaluate", "all-MiniLM-L6-v2", "--profile", mine(folder, **settings)]
    done = CliRunner().invoke(app, given)
    assert done.exit_code == 2
    (line,) = done.stderr.strip().splitlines()
    assert re.search(message, line), line
    outputs = folder.parent / "outputs"
    files = (path for path in outputs.rglob("*") if path.is_file() and path.suffix != ".lock")
    assert {file.relative_to(outputs).parts[:2] for file in files} <= {("artefacts", "task")}


def check(profile, split):
    Scorer(profile, None, final=split == "test").check()


def test_a_class_cut_below_the_folds_is_refused_before_runs_start(folder, refused):
    rows = [*examples(90, labels="x"), *examples(10, labels="y")]
    write_files(folder, {"a.jsonl": rows, "b.jsonl": examples(6)})

    def check_limit(limit):
        own = mine(folder, FEW, sweep_tasks=["mine"], folds=5, limit=limit)
        check(Profile.load(own), "validation")

    check_limit(100)
    said = r"no split validation, and cannot be cross-validated \(evaluation\.folds 5\)"
    refused(said, check_limit, 40)


def test_files_are_read_once_until_they_change(folder, monkeypatch, refused):
    write_files(folder, {"a.jsonl": examples(30)})
    loaded = Profile.load(mine(folder, {"path": "a.jsonl"}))
    read = []
    monkeypatch.setattr(
        catalogue, "load_task", lambda *given: read.append(given[0]) or load_task(*given)
    )
    for _ in range(2):
        check(loaded, "test")
    assert read == ["mine"]
    write_files(folder, {"a.jsonl": [*examples(30), {"label": "x"}]})
    for _ in range(2):  # a failure is not remembered
        refused("row 31: the field 'text' must hold", check, loaded, "test")
    assert len(read) == 3
    check(Profile.load(mine(folder, task="imdb")), "test")  # on a hub: not fetched

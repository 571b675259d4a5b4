"""A plan before it starts: what it needs from outside, what is missing, and the time that such runs
took.
"""

import dataclasses
import io
import shutil

import pytest
from conftest import REPOSITORY, write_files
from huggingface_hub import constants
from rich.console import Console

from docemb_lib import Profile, Workspace
from docemb_lib.cli.dry_run import Need, done_runs, look_ahead, print_outlook
from docemb_lib.runs import records
from docemb_lib.sweeps.plan import resolve_plan, resolve_run, runs_of

PARAMS = REPOSITORY / "params"


@pytest.fixture
def published(workspace_root, tmp_path, monkeypatch):
    """The profiles of this repository, where no model was downloaded."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    shutil.rmtree(workspace_root / "params")
    shutil.copytree(PARAMS, workspace_root / "params")
    return Workspace(workspace_root)


def outlook_of(workspace, name):
    steps = resolve_plan(Profile.load(name), name, workspace)
    return look_ahead(steps, workspace, done_runs(steps, workspace))


def test_the_thesis_is_listed_without_data_or_hub(published):
    outlook = outlook_of(published, "thesis")
    assert outlook.lines["runs"].tolist() == [1, 45, 11, 16, 12, 14, 9, 9, 1, 3]
    assert set(outlook.lines["there"]) == {0}
    assert outlook.seconds is None
    every = [*range(1, 11)]
    data = published.root / "data"
    expected = {
        Need("model", "allenai/longformer-base-4096"): every,
        Need("model", "sentence-transformers/all-mpnet-base-v2"): every,
        Need("data set", "wikimedia/wikipedia 20231101.en"): every,
        Need("data set", "ccdv/arxiv-classification"): every,
        Need("files", f"{data / 'cda'} (train_cite.csv, dev_cite.csv, test_cite.csv)"): every,
        Need("files", f"{data / 'wines'} (wines.txt, gt)"): [10],
    }
    assert expected.items() <= outlook.needs.items()
    assert len(outlook.needs) == 12
    files, hub, models = outlook.missing
    datasets = "wikimedia/wikipedia 20231101.en, allenai/c4 realnewslike"
    unanswered = "cannot be streamed, because the hub does not answer"
    assert hub.startswith(f"corpus.datasets: {datasets} {unanswered}")
    names = "allenai/longformer-base-4096, sentence-transformers/all-mpnet-base-v2"
    assert models.startswith(f"{names}: there is no such folder, it was not d")
    assert files.startswith("evaluation.benchmarks: aan needs train_cite.csv")
    assert not published.outputs.exists()


def test_the_plan_of_simde_has_its_longformers_and_says_what_a_hub_must_provide(published):
    outlook = outlook_of(published, "simde")
    runs = runs_of(resolve_plan(Profile.load("simde"), "simde", published))
    named = [(run.profile.name, run.label.split(";")[0]) for run in runs]
    assert named == [
        ("simde", "corpus"),
        ("simde", "SimCSE"),
        ("simde", "SimDE"),
        ("simde-long", "SimDE"),
    ]
    long = runs[-1].profile
    settings = (long.student.pooling, long.student.max_tokens, long.simde.training.batch_size)
    assert settings == ("cls", 4096, 12)
    rate = long.simde.training.learning_rate
    assert dataclasses.replace(runs[2].key, profile=long).training.learning_rate == rate
    references = set(long.evaluation.beside)
    assert {name.partition("/")[2] for name in references} == {
        "unsup-simcse-bert-base-uncased",
        "BERT-Base-CT",
        "longformer-base-4096",
        "bigbird-roberta-base",
        "instructor-base",
    }
    assert all(outlook.needs["model", name] == [2, 3, 4] for name in references)
    assert long.simde.sentence_encoder in references
    assert any("train_cite.csv" in need.name for need in outlook.needs if need.kind == "files")
    assert all(any(name in line for line in outlook.missing) for name in references)


def test_a_missing_file_is_told(workspace_root):
    corpus = "corpus: {source: local, path: nowhere}"
    evaluation = "evaluation: {tasks: [halves], sweep_tasks: [halves]}"
    profile = f"base: small.yaml\n{corpus}\n{evaluation}\n"
    (workspace_root / "params" / "gone.yaml").write_text(profile)
    (path,) = outlook_of(Workspace(workspace_root), "gone").missing
    assert path.startswith(f"corpus.path: {workspace_root / 'params' / 'nowhere'} does not exist")


def printed(steps, workspace, done=frozenset()):
    console = Console(file=io.StringIO(), width=200)
    print_outlook(look_ahead(steps, workspace, set(done)), console)
    return console.file.getvalue()


def test_the_time_is_that_of_recorded_runs_of_the_same_notebook_and_profile(workspace_root):
    workspace = Workspace(workspace_root)
    plan = "[{notebook: 01_corpus}, {notebook: 05_weighting}, {notebook: 05_weighting, lam: 0.2}]"
    write_files(workspace_root / "params", {"mine.yaml": f"base: small.yaml\nplan: {plan}\n"})
    steps = resolve_plan(Profile.load("mine"), "mine", workspace)
    corpus, first, _ = runs_of(steps)
    listed = printed(steps, workspace)
    assert "time" not in listed
    assert listed.splitlines()[-1] == "3 runs, 0 of them already there"
    others = {
        first: [("done", 60.0), ("done", 100.0), ("done", 500.0), ("failed", 1.0)],
        corpus: [("failed", 3.0)],
    }
    for run, recorded in others.items():
        for number, (status, seconds) in enumerate(recorded):
            key = resolve_run("05", {"seed": number + 1}, Profile.load("mine"), "mine", workspace)
            record = records.Record.of(runs_of(key)[0].key, status=status, seconds=seconds)
            record = dataclasses.replace(record, notebook=run.notebook)
            records.save(workspace, record)
    assert look_ahead(steps, workspace, set()).lines["time"].tolist() == [
        "",
        "1 min 40 s",
        "1 min 40 s",
    ]
    assert printed(steps, workspace).splitlines()[-1] == "3 runs, 0 of them already there"
    last = printed(steps, workspace, {corpus}).splitlines()[-1]
    takes = "what is missing takes about 3 min 20 s, as such runs took here before"
    assert last == f"3 runs, 1 of them already there; {takes}"


def test_nothing_is_needed_where_all_is_there(workspace_root):
    workspace = Workspace(workspace_root)
    steps = resolve_plan(Profile.load("small"), "small", workspace, only="05")
    listed = printed(steps, workspace, runs_of(steps))
    assert "needs" not in listed
    assert "time" not in listed

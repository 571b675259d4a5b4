"""A plan before it starts: what it needs from outside, and what is missing."""

import io
import shutil

import pytest
from conftest import REPOSITORY
from huggingface_hub import constants
from rich.console import Console

from docemb_lib import Profile, Run
from docemb_lib.cli.dry_run import Need, look_ahead, print_outlook
from docemb_lib.runs.plan import resolve_plan, runs_of

PARAMS = REPOSITORY / "params"


@pytest.fixture
def published(workspace_root, tmp_path, monkeypatch):
    """The profiles of this repository, where no model was downloaded."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    shutil.rmtree(workspace_root / "params")
    shutil.copytree(PARAMS, workspace_root / "params")
    return workspace_root


def outlook_of(name):
    return look_ahead(resolve_plan(Profile.load(name)))


def test_the_thesis_is_listed_without_data_or_hub(published):
    outlook = outlook_of("thesis")
    assert outlook.lines["runs"].tolist() == [1, 45, 11, 16, 12, 14, 9, 9, 1, 3]
    assert set(outlook.lines["there"]) == {0}
    every = [*range(1, 11)]
    data = published / "data"
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
    files, models = outlook.missing
    names = "allenai/longformer-base-4096, sentence-transformers/all-mpnet-base-v2"
    assert models.startswith(f"{names}: there is no such folder, it was not d")
    assert files.startswith("evaluation.benchmarks: aan needs train_cite.csv")
    assert not (published / "outputs").exists()


def test_the_plan_of_simde_has_its_longformers_and_says_what_a_hub_must_provide(published):
    outlook = outlook_of("simde")
    runs = runs_of(resolve_plan(Profile.load("simde")))
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
    (path,) = outlook_of("gone").missing
    assert path.startswith(f"corpus.path: {workspace_root / 'params' / 'nowhere'} does not exist")


def test_nothing_is_needed_where_all_is_there(workspace_root, monkeypatch):
    monkeypatch.setattr(Run, "is_done", True)
    steps = resolve_plan(Profile.load("small"), only="05")
    console = Console(file=io.StringIO(), width=200)
    print_outlook(steps, console)
    listed = console.file.getvalue()
    assert "needs" not in listed
    assert listed.endswith("\n1 run, already there\n")

"""The forecast of a plan: what is counted, once; what it needs from outside; what is missing."""

import dataclasses
import gzip
import json
import shutil

import pytest
import transformers as hf
from conftest import REPOSITORY, write_files
from huggingface_hub import constants

from docemb_lib import Profile, Workspace
from docemb_lib.cli import forecast as forecasts
from docemb_lib.cli.forecast import forecast
from docemb_lib.experiments.plan import resolve_plan
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.sections import ParagraphVectorSettings

PARAMS = REPOSITORY / "params"
FLOPS = 1e11


@pytest.fixture(autouse=True)
def rates(monkeypatch):
    """A machine of known speed, so that costs are arithmetic."""
    monkeypatch.setattr(forecasts, "encoder_flops", lambda: FLOPS)
    monkeypatch.setattr(forecasts, "CPU_COUNT", 4)


@pytest.fixture
def published(workspace_root, tmp_path, monkeypatch):
    """The profiles of this repository, where no model was downloaded."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    shutil.rmtree(workspace_root / "params")
    shutil.copytree(PARAMS, workspace_root / "params")
    return Workspace(workspace_root)


def found_in(workspace, name):
    return forecast(resolve_plan(Profile.load(name), name, workspace), workspace)


def test_the_thesis_is_forecast_without_data_or_hub(published):
    found = found_in(published, "thesis")
    assert found.lines["runs"].tolist() == [1, 45, 11, 16, 12, 14, 9, 9, 1, 3]
    assert set(found.lines["there"]) == {0}
    assert found.total.memory > 100e9  # the last Paragraph Vectors
    every = [*range(1, 11)]
    cda = published.root / "data" / "cda"
    expected = {
        ("model", "allenai/longformer-base-4096"): every, ("model", "sentence-transformers/all-mpnet-base-v2"): every,
        ("data set", "wikimedia/wikipedia 20231101.en"): every, ("data set", "ccdv/arxiv-classification"): every,
        ("files", f"{cda} (train_cite.csv, dev_cite.csv, test_cite.csv)"): every,
        ("files", f"{published.root / 'data' / 'wines'} (wines.txt, gt)"): [10]}  # fmt: skip
    assert expected.items() <= found.needs.items()
    assert len(found.needs) == 12
    files, hub, models = found.missing
    datasets = "wikimedia/wikipedia 20231101.en, allenai/c4 realnewslike"
    assert hub.startswith(f"corpus.datasets: {datasets} cannot be streamed, because the hub does not answer")
    absent = (
        "allenai/longformer-base-4096, sentence-transformers/all-mpnet-base-v2: there is no such folder, it was not d"
    )
    assert models.startswith(absent)
    assert files.startswith("evaluation.benchmarks: aan needs train_cite.csv")
    assert not published.outputs.exists()


def test_the_plan_of_simde_has_its_longformers_and_says_what_a_hub_must_provide(published):
    found = found_in(published, "simde")
    runs = [run for step in resolve_plan(Profile.load("simde"), "simde", published) for run in step.runs]
    assert [(run.profile.name, run.label.split(";")[0]) for run in runs] == [
        ("simde", "corpus"), ("simde", "SimCSE"), ("simde", "SimDE"), ("simde-long", "SimDE")]  # fmt: skip
    long = runs[-1].profile
    assert (long.student.pooling, long.student.max_tokens, long.simde.training.batch_size) == ("cls", 4096, 12)
    assert dataclasses.replace(runs[2].key, profile=long).training.learning_rate == runs[2].key.training.learning_rate
    beside = set(long.evaluation.beside)
    assert {name.partition("/")[2] for name in beside} == {
        "unsup-simcse-bert-base-uncased", "BERT-Base-CT", "longformer-base-4096", "bigbird-roberta-base", "instructor-base"}  # fmt: skip
    assert all(found.needs["model", name] == [2, 3, 4] for name in beside)
    assert long.simde.sentence_encoder in beside
    assert any("train_cite.csv" in name for kind, name in found.needs if kind == "files")
    assert all(any(name in line for line in found.missing) for name in beside)


def test_what_is_at_hand_lacks_nothing_and_what_one_line_builds_the_next_does_not_count(workspace_root):
    workspace, lines = Workspace(workspace_root), ["{notebook: 04_projections}"]
    lines.append("{notebook: 05_weighting, lam: null, max_structural_len: null}")  # the same student, on the same tasks
    own = "corpus: {source: local, path: ../texts, tasks: 20}\nevaluation: {tasks: [halves], sweep_tasks: [halves]}"
    texts = {f"texts/{n}.txt": f"Text {n}. {' '.join(f'word{n * k % 23}' for k in range(80))}" for n in range(80)}
    write_files(workspace_root, texts)
    for name, plan in (("once", lines[:1]), ("twice", lines)):
        (workspace_root / "params" / f"{name}.yaml").write_text(f"base: small.yaml\n{own}\nplan: [{', '.join(plan)}]")
    once, twice = (found_in(workspace, name) for name in ("once", "twice"))
    assert once.missing == twice.missing == []
    assert twice.total == once.total._replace(seconds=pytest.approx(once.total.seconds + forecasts.RUN))
    steps = resolve_plan(Profile.load("once"), "once", workspace)
    seconds = sum(forecasts.run_seconds(steps, workspace, set()).values())
    assert pytest.approx(seconds) == once.total.seconds > forecasts.RUN + 0.5
    assert forecasts.run_seconds(steps, workspace, {*steps[0].runs}) == {}
    assert str(once.total).startswith(f"about {round(once.total.seconds)} s on this machine, ")
    assert once.total.disk > 50e6
    assert twice.lines.iloc[:, -3:].to_numpy().tolist() == [[*once.total.texts], ["8 s", "1.2 GB", "0 bytes"]]
    stages = Stages(RunKey.of("04_projections", Profile.load("once")), workspace)
    stages.teachers.paragraph_vector(stages.key.paragraph_vectors[0], seed=0)
    assert len(forecasts._built(stages)) == 2  # with the corpus
    assert found_in(workspace, "once").total.disk < once.total.disk


def pieces_of(name):
    key = RunKey.of("03_structural", Profile.load(name))
    return forecasts._pieces(key, {str(source): forecasts._size(source) for source in key.profile.text_sources})


def test_a_training_takes_about_the_arithmetic_of_the_student(published):
    """Of tiny's student: two layers, written out, with the attention that the forecast leaves out."""
    tokens, D, wide, window = 700, 384, 1536, 256
    pairs = sum(min(i + window // 2, tokens - 1) - max(i - window // 2, 0) + 1 for i in range(tokens))
    forward = 2 * (2 * tokens * (4 * D * D + 2 * D * wide) + 4 * D * pairs)
    student, references = [cost for cost in pieces_of("tiny").values() if cost.memory or not cost.disk]
    teacher = 6 / 2 * forward  # it has six layers, and embeds what the student learns from
    read = (3 * (100 + 40) + 2 * 160) * forward + (100 + 40) * teacher
    assert student.seconds == pytest.approx(read / FLOPS, rel=0.15)
    assert references.seconds == pytest.approx(2 * 160 * (forward + teacher) / FLOPS, rel=0.15)
    final = Profile.load("tiny-final")
    found = []
    for lexical in (256, 0):  # six layers read 512 documents more for a lexical half
        profile = final.model_copy(update={"student": final.student.model_copy(update={"lexical": lexical})})
        pieces = forecasts._pieces(RunKey.of("06_evaluation", profile), {str(profile.corpus): (8000, tokens)})
        found.append(sum(cost.seconds for cost in pieces.values()))
    assert found[0] - found[1] == pytest.approx(512 * 3 * forward / FLOPS, rel=0.15)
    sizes = {"hidden_size": D, "num_hidden_layers": 2, "num_attention_heads": 12, "intermediate_size": wide}
    model = hf.BertModel(hf.BertConfig(**sizes))
    assert student.disk == pytest.approx(4 * sum(parameter.numel() for parameter in model.parameters()), rel=0.15)


def test_shorter_documents_and_few_task_documents_cost_less(workspace_root):
    own = "corpus: {source: local, path: ../texts, tasks: 20}\nevaluation: {tasks: [halves], sweep_tasks: [halves]}"
    (workspace_root / "params" / "own-texts.yaml").write_text(f"base: small.yaml\n{own}")
    seconds = []
    for letters in (240, 120):
        write_files(workspace_root, {f"texts/{n}.txt": f"{n:03} {'a' * (letters - 4)}" for n in range(9)})
        assert forecasts._size(Profile.load("own-texts").corpus) == (9, letters / forecasts.BYTES)
        seconds.append(sum(cost.seconds for cost in pieces_of("own-texts").values()))
    assert seconds[1] == pytest.approx(seconds[0] / 2, rel=0.1)
    texts = [forecasts._task_tokens(Profile.load("small"), task, mean=100) for task in ("package", "halves")]
    assert texts == [24 * 100, 12 * 100]


def test_a_task_from_files_is_counted_by_their_size(workspace_root):
    lines = enumerate((PARAMS.parent / "README.md").read_text(encoding="utf-8").splitlines())
    posts = "".join(json.dumps({"id": str(n), "text": line, "label": str(n % 2)}) + "\n" for n, line in lines)
    params, found = workspace_root / "params", {}
    write_files(params, {"posts.jsonl": posts, "posts.jsonl.gz": gzip.compress(posts.encode())})
    for file in ("posts.jsonl", "posts.jsonl.gz"):
        own = f"own_tasks: [{{name: posts, kind: classification, path: {file}}}]"
        (params / "posts.yaml").write_text(f"base: small.yaml\nevaluation: {{tasks: [posts], {own}}}")
        found[file] = forecasts._task_tokens(Profile.load("posts"), "posts", mean=100)
    assert found["posts.jsonl"] == len(posts.encode()) / forecasts.BYTES
    assert found["posts.jsonl.gz"] == pytest.approx(found["posts.jsonl"], rel=0.4)
    assert forecasts._task_tokens(Profile.load("own"), "imdb", mean=100) == 2 * 10_000 * 100


@pytest.mark.parametrize(("given", "factor"), [
    ({}, 1), ({"workers": 4}, 1 / 4), ({"workers": 64}, 1 / 4), ({"vector_size": 1100}, 3), ({"epochs": 20}, 2),
    ({"dm": False}, forecasts.SKIP_GRAM), ({"dm": False, "dbow_words": False}, 1)])  # fmt: skip
def test_a_paragraph_vector_takes_words_times_epochs(given, factor):
    settings = ParagraphVectorSettings(**{"dm": True, **given})
    cost = forecasts._fitting(settings, documents=2000, words=2000 * 550)
    assert cost.seconds == pytest.approx(10 * 2000 * 550 / (forecasts.GENSIM / 5) * factor)
    assert cost.memory > cost.disk > 4 * settings.vector_size * 2000


def test_a_missing_package_and_a_missing_file_are_told_together(workspace_root, monkeypatch):
    own = "corpus: {source: local, path: nowhere}\nevaluation: {tasks: [halves], sweep_tasks: [halves]}\n"
    (workspace_root / "params" / "gone.yaml").write_text(f"base: small.yaml\n{own}")
    monkeypatch.setattr(forecasts, "unmet", lambda: ["numpy is missing"])
    package, path = found_in(Workspace(workspace_root), "gone").missing
    assert package.startswith("packages: numpy is missing; run `pip")
    assert path.startswith(f"corpus.path: {workspace_root / 'params' / 'nowhere'} does not exist")

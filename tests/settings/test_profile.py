"""Profiles: every shipped one is valid; errors are one line with file, field, value and mend."""

import re
from pathlib import Path

import pytest
from conftest import REPOSITORY, write_files

from docemb_lib.settings.parameters import Parameters, members_of
from docemb_lib.settings.profile import Profile, find_root, read_profile_file
from docemb_lib.settings.sections import label_of_paragraph_vector

SHIPPED = sorted((REPOSITORY / "params").glob("*.yaml"))


@pytest.fixture
def load(tmp_path):
    def load(text, **overrides):
        (tmp_path / "p.yaml").write_text(text, encoding="utf-8")
        return Profile.load(tmp_path / "p.yaml", **overrides)

    return load


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.stem)
def test_every_shipped_profile_is_valid_and_has_its_name_and_a_plan(path):
    profile = Profile.load(path)
    assert profile.name == path.stem
    assert profile.plan


@pytest.mark.parametrize(
    ("name", "section", "published"),
    [
        (
            "thesis",
            "training",
            {
                "batch_size": 6,
                "accumulation": 1,
                "learning_rate": 1e-4,
                "warmup": 0.1,
                "weight_decay": 0.1,
                "max_grad_norm": 1.0,
            },
        ),
        (
            "thesis",
            "parameters",
            {"delta": 0.03, "beta": 0.95, "documents": 15_000, "max_structural_len": 384},
        ),
        (
            "thesis",
            "evaluation",
            {
                "rounds": [1000, 10_000, None],
                "limit": 10_000,
                "folds": 5,
                "head": {
                    "hidden": 50,
                    "dropout": 0.5,
                    "epochs": 10,
                    "batch_size": 32,
                    "learning_rate": 1e-4,
                    "weight_decay": 0.1,
                    "label_smoothing": 0.1,
                    "max_grad_norm": 1.0,
                    "pair_features": "concat",
                },
            },
        ),
        (
            "thesis-final",
            "training",
            {
                "epochs": 1,
                "batch_size": 6,
                "accumulation": 10,
                "learning_rate": 3e-5,
                "warmup": 500,
                "weight_decay": 0.1,
            },
        ),
        ("thesis-final", "parameters", {"documents": 1_000_000}),
    ],
)
def test_the_profiles_of_the_thesis_have_its_published_settings(name, section, published):
    assert getattr(Profile.load(name), section).model_dump(include=set(published)) == published


@pytest.fixture(scope="module")
def chapter_4():
    return Profile.load("thesis")


@pytest.fixture(scope="module")
def chapter_5():
    return Profile.load("thesis-final")


@pytest.mark.parametrize(
    ("name", "train", "validation"),
    [("thesis", 500_000, 10_000), ("thesis-final", 1_000_000, 30_000)],
)
def test_the_corpora_have_the_sizes_of_the_thesis(name, train, validation):
    corpus = Profile.load(name).corpus
    assert corpus.documents - corpus.validation - corpus.tasks == train
    assert corpus.validation == validation
    wikipedia, news = corpus.datasets
    assert (wikipedia.min_student_tokens, news.min_student_tokens) == (None, 1200)


def test_the_final_teachers_learn_from_all_news_and_as_many_articles(chapter_4, chapter_5):
    assert chapter_4.contextual_teachers.corpus is None
    corpus = chapter_5.contextual_teachers.corpus
    assert corpus.documents is None
    assert [dataset.min_student_tokens for dataset in corpus.datasets] == [1200, None]
    assert corpus.datasets == chapter_5.corpus.datasets[::-1]


def test_the_final_teachers_are_those_of_chapter_4_with_a_cap_on_words(chapter_4, chapter_5):
    teachers = chapter_5.contextual_teachers
    members = (teachers.DM, *teachers.PV)
    caps = [(member.vector_size, member.max_vocab_size, member.workers) for member in members]
    assert caps == [(100, 60_000_000, 16), (1024, 12_000_000, 16), (1024, 12_000_000, 16)]
    assert teachers.PV[1] == teachers.DBOW
    defaults = {"max_vocab_size": None, "workers": 1}
    uncapped = [member.model_copy(update=defaults) for member in teachers.PV]
    assert uncapped == chapter_4.contextual_teachers.PV


def test_all_of_a_hub_is_taken_only_where_that_is_written(load, refused):
    text = "corpus: {source: hub, datasets: [{dataset: a/b}], tasks: 90}"
    refused("corpus: documents is missing: say how many .* null: all", load, text)
    profile = load(text.replace("tasks", "documents: null, tasks"))
    assert profile.corpus.documents is None
    assert profile.with_tasks(["halves"], source="--task").corpus == profile.corpus


def test_parameters_of_a_notebook_replace_those_of_all_and_given_ones_replace_both(load):
    notebooks = "{06_evaluation: {documents: 70, contextual_teacher: null}}"
    text = f"parameters: {{documents: 20, lam: 0.3}}\nnotebooks: {notebooks}"
    final = load(text).for_notebook("06_evaluation", documents="profile").parameters
    assert (final.documents, final.contextual_teacher, final.lam) == (70, None, 0.3)
    assert load(text).for_notebook("05_weighting").parameters.documents == 20
    assert load(text).for_notebook("06_evaluation", documents=9).parameters.documents == 9
    assert load(text, documents=9).for_notebook("06_evaluation").parameters.documents == 9


@pytest.mark.parametrize("name", [5, None, "tyni"])
def test_what_is_no_name_of_a_profile_is_refused(workspace_root, refused, name):
    refused(f"profile '{name}' is unknown", Profile.load, name)


def test_an_unknown_parameter_of_a_notebook_is_refused(load, refused):
    message = "p.yaml: .*02_paragraph_vector: unknown parameter 'lam'"
    refused(message, load, "notebooks: {02_paragraph_vector: {lam: 0.3}}")


def test_a_wrong_parameter_of_a_notebook_is_refused(load, refused):
    for_notebook = load("notebooks: {05_weighting: {lam: 3}}").for_notebook
    message = "05_weighting: lam: input should be less than or equal to 1, got 3"
    refused(message, for_notebook, "05_weighting")


def test_other_tasks_of_the_final_evaluation_replace_the_profiles_own():
    profile = Profile.load("tiny")
    assert profile.with_tasks(["halves"], source="--task").evaluation.tasks == ["halves"]
    same = profile.with_tasks(profile.evaluation.tasks, source="--task")
    assert same.model_dump() == profile.model_dump()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("corpus: {sorce: local}", "corpus: unknown key 'sorce'; did you mean source?"),
        ("plan: [{notebook: 03_structural, grid: x, lam: 1}]", "unknown parameter 'lam'"),
        (
            "corpus: {tasks: 90, source: local, path: x}\nevaluation: {tasks: [package]}",
            "package needs the links between pages of corpus.source installed-docs",
        ),
        ("parameters: {lam: true}", "parameters.lam: must be a number, got True"),
        (
            "evaluation: {own_tasks: [{name: a, kind: pairs, path: {tets: b}}]}",
            "own_tasks.0.path.tets.[key]: input should be 'train', 'validation' or 'test', got",
        ),
        ("", "the file holds no settings; write `name: value` lines"),
        ("base: nowhere.yaml", "base: there is no file 'nowhere.yaml'; name a .yaml file"),
        ("base: p.yaml", "base: p.yaml → p.yaml leads in a circle"),
    ],
)
def test_an_error_is_one_line_with_the_file_and_the_mend(tmp_path, load, refused, text, expected):
    file = re.escape(str(tmp_path / "p.yaml"))
    refused(f"^{file}.*{re.escape(expected)}", load, text)


def test_an_error_names_the_bases_too(tmp_path, load, refused):
    base = write_files(tmp_path, {"a.yaml": "corpus: {tasks: 2}"}) / "a.yaml"
    expected = "corpus.tasks: input should be greater than"
    refused(f"p.yaml .base: {re.escape(str(base))}.: {expected}", load, "base: a.yaml")


def test_a_student_without_a_teacher_is_refused(load, refused):
    neither = {"structural_loss": None, "contextual_teacher": None}
    refused(
        "parameters: .* are both None; give one of them", load, "corpus: {tasks: 90}", **neither
    )


def test_models_of_different_width_are_refused(load, refused):
    message = "768 wide.*384 wide; choose models of one width"
    refused(message, load, "structural_teacher: {model: all-MiniLM-L6-v2}")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"hidden_size": 96}', "96 wide"),
        ("{", r"p\.yaml: .*model/config\.json: the file is not valid JSON .*; restore it"),
    ],
)
def test_the_config_of_a_local_model_is_read(load, tmp_path, refused, content, message):
    write_files(tmp_path, {"model/config.json": content})
    refused(message, load, "student: {model: model}")


def test_a_model_of_unknown_width_is_found_from_the_folder_of_the_profile(load, tmp_path):
    write_files(tmp_path, {"model/config.json": "[]"})
    profile = load("student: {model: model}")
    assert profile.student.model == str(tmp_path / "model")
    assert profile.structural_teacher.model == "sentence-transformers/all-mpnet-base-v2"


def test_the_root_is_found_from_below(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY / "notebooks")
    assert find_root() == REPOSITORY
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {"params/mine.yaml": ""})
    assert find_root() == tmp_path


def test_outside_a_working_folder_none_is_taken_and_two_ways_are_named(
    tmp_path, monkeypatch, refused
):
    monkeypatch.chdir(tmp_path)
    refused("docemb init.*DOCEMB_WORKSPACE=FOLDER", find_root)


def test_the_environment_names_a_working_folder_which_is_said_once(
    tmp_path, monkeypatch, caplog, refused
):
    root = write_files(tmp_path / "named", {"params/mine.yaml": ""})
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DOCEMB_WORKSPACE", str(root))
    assert [find_root(), find_root()] == [root, root]
    assert caplog.messages == [f"the working folder is {root}"]
    monkeypatch.setenv("DOCEMB_WORKSPACE", "nowhere")
    refused("nowhere: this is no working folder .* DOCEMB_WORKSPACE=FOLDER", find_root)


def test_mappings_are_merged_key_by_key_and_everything_else_is_replaced(tmp_path):
    corpus = "corpus: {tasks: 90, datasets: [{dataset: x}]}"
    files = {"a.yaml": f"{corpus}\ntraining: {{epochs: 2}}\nseed: 1\nname: a"}
    files["b.yaml"] = "base: a.yaml\ntraining: {epochs: 3, warmup: 5}\nlam: null"
    above = "corpus: {tasks: 80, datasets: []}\ntraining: {warmup: 6}\nseed: null"
    files["c.yaml"] = f"base: b.yaml\n{above}"
    path = write_files(tmp_path, files) / "c.yaml"
    assert read_profile_file(path)[0] == {
        "corpus": {"tasks": 80, "datasets": []},
        "training": {"epochs": 3, "warmup": 6},
        "seed": None,
        "lam": None,
    }


def test_paths_start_at_the_folder_of_their_file_and_names_stay(tmp_path):
    base = """
        corpus: {datasets: [{dataset: ../data/news.jsonl}, {dataset: far/off}], path: [a, /b, ~/c]}
        evaluation: {benchmarks: {aan: ../cda, oc: absent, 20news: an/x}}"""
    profile = """
        base: corpora/mine.yaml
        evaluation:
          own_tasks: [{path: {train: t.csv}, relevance: r.tsv, text_field: ../x}]
        plan: [{grid: g.yaml, profile: ./p.yaml}, {grid: final, profile: thesis}]"""
    files = {"corpora/mine.yaml": base, "p.yaml": profile, "data/news.jsonl": "{}"}
    # `far/off` is a file, but not where the corpus says it.
    write_files(tmp_path, {**files, "g.yaml": "", "far/off": ""})
    content = read_profile_file(tmp_path / "p.yaml")[0]
    corpora = tmp_path / "corpora"
    assert content["corpus"] == {
        "datasets": [{"dataset": str(tmp_path / "data/news.jsonl")}, {"dataset": "far/off"}],
        "path": [str(corpora / "a"), "/b", str(Path.home() / "c")],
    }
    benchmarks = {"aan": str(tmp_path / "cda"), "oc": str(corpora / "absent"), "20news": "an/x"}
    task = {"path": {"train": str(tmp_path / "t.csv")}, "relevance": str(tmp_path / "r.tsv")}
    task["text_field"] = "../x"
    assert content["evaluation"] == {"benchmarks": benchmarks, "own_tasks": [task]}
    grid = {"grid": str(tmp_path / "g.yaml"), "profile": str(tmp_path / "p.yaml")}
    assert content["plan"] == [grid, {"grid": "final", "profile": "thesis"}]


def test_a_profile_is_not_named_by_its_base(load, tmp_path):
    write_files(tmp_path, {"a.yaml": "name: something"})
    assert load("base: a.yaml").name == "p"
    assert load("base: a.yaml\nname: other").name == "other"


def test_a_compound_is_its_members_dm_first():
    members = members_of("DBOW;1024;None;10% + DM;100;stem;2")
    labels = [label_of_paragraph_vector(**member) for member in members]
    assert labels == ["DM;100;stem;2", "DBOW;1024;None;10%"]


@pytest.mark.parametrize(
    "ramp", ["linear:3:3", "linear:3", "linear:-1:3", "log:1:2", "linear:1:2 "]
)
def test_another_ramp_is_refused(ramp):
    with pytest.raises(ValueError, match="FIRST < LAST"):
        Parameters(lam_by_length=ramp)

"""Profiles: every shipped one is valid; errors are one line with file, field, value and mend."""

import re
from pathlib import Path
from typing import get_args

import pytest
from conftest import REPOSITORY, write_files

from docemb_lib.settings.parameters import Parameters, members_of
from docemb_lib.settings.profile import Profile, find_root, read_profile_file
from docemb_lib.settings.sections import BenchmarkName, HeadSettings, label_of_paragraph_vector

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


def test_profiles_that_repeat_a_paper_drop_attention_weights_on_every_device():
    thesis, simde = (
        map(Profile.load, ("thesis", "thesis-final")),
        map(Profile.load, ("simde", "simde-long")),
    )
    trainings = [
        *(profile.training for profile in thesis),
        *(profile.simde.training for profile in simde),
    ]
    assert [training.attention for training in trainings] == ["blocks"] * 4  # `varlen` drops none


def test_the_corpora_have_the_sizes_of_the_thesis_and_final_students_the_teachers_and_tasks_of_chapter_4():
    chapter_4, chapter_5 = Profile.load("thesis"), Profile.load("thesis-final")
    assert HeadSettings() == chapter_4.evaluation.head  # where nothing is said of the head
    for corpus, train, validation in (
        (chapter_4.corpus, 500_000, 10_000),
        (chapter_5.corpus, 1_000_000, 30_000),
    ):
        assert (corpus.documents - corpus.validation - corpus.tasks, corpus.validation) == (
            train,
            validation,
        )
        wikipedia, news = corpus.datasets
        assert (wikipedia.min_student_tokens, news.min_student_tokens) == (None, 1200)
    assert chapter_4.contextual_teachers.corpus is None
    teachers = chapter_5.contextual_teachers.corpus
    assert (teachers.documents, [one.min_student_tokens for one in teachers.datasets]) == (
        None,
        [1200, None],
    )
    assert teachers.datasets == chapter_5.corpus.datasets[::-1]  # all news, and as many articles
    teachers = (chapter_5.contextual_teachers.DM, *chapter_5.contextual_teachers.PV)
    caps = [(one.vector_size, one.max_vocab_size, one.workers) for one in teachers]
    assert caps == [(100, 60_000_000, 16), (1024, 12_000_000, 16), (1024, 12_000_000, 16)]
    assert chapter_5.contextual_teachers.PV[1] == chapter_5.contextual_teachers.DBOW
    own = {"max_vocab_size": None, "workers": 1}
    uncapped = [one.model_copy(update=own) for one in chapter_5.contextual_teachers.PV]
    assert (uncapped, chapter_5.evaluation) == (
        chapter_4.contextual_teachers.PV,
        chapter_4.evaluation,
    )
    assert [member.vector_size for member in uncapped] == [1024, 1024]
    assert set(chapter_5.evaluation.tasks) == set(get_args(BenchmarkName))
    assert set(chapter_5.evaluation.tasks) - set(chapter_5.evaluation.sweep_tasks) == {
        "wines",
        "games",
    }
    assert Profile.load("thesis-decay").training == chapter_4.training.model_copy(
        update={"weight_decay": 0.01}
    )


def test_all_of_a_hub_is_taken_only_where_that_is_written(load, refused):
    text = "corpus: {source: hub, datasets: [{dataset: a/b}], tasks: 90}"
    refused("corpus: documents is missing: say how many .* null: all", load, text)
    profile = load(text.replace("tasks", "documents: null, tasks"))
    assert profile.corpus.documents is None
    assert profile.with_tasks(["halves"], source="--task").corpus == profile.corpus


def test_overrides_replace_notebook_parameters_and_the_word_profile_leaves_them():
    profile = Profile.load("tiny", lam=0.8, documents="profile", max_structural_len=None)
    assert (profile.parameters.lam, profile.parameters.documents) == (
        0.8,
        Profile.load("tiny").parameters.documents,
    )
    assert profile.parameters.max_structural_len is None
    parameters = (
        Profile.load("tiny").for_notebook("03_structural").parameters
    )  # fixed for this notebook
    assert (parameters.contextual_teacher, parameters.max_structural_len) == (None, None)
    parameters = Profile.load(
        "tiny", lam=1, gamma=2, dm=False, min_count=3, contextual_projection=384
    ).parameters
    assert (parameters.lam, parameters.gamma, parameters.dm, parameters.min_count) == (
        1.0,
        2.0,
        False,
        3,
    )
    assert parameters.contextual_projection == "384"


def test_a_notebooks_own_parameters_replace_those_of_all_and_are_replaced_by_given_ones(
    load, refused
):
    own = "{06_evaluation: {documents: 70, contextual_teacher: null}}"
    text = f"parameters: {{documents: 20, lam: 0.3}}\nnotebooks: {own}"
    final = load(text).for_notebook("06_evaluation", documents="profile").parameters
    assert (final.documents, final.contextual_teacher, final.lam) == (70, None, 0.3)
    assert load(text).for_notebook("05_weighting").parameters.documents == 20
    assert load(text).for_notebook("06_evaluation", documents=9).parameters.documents == 9
    assert load(text, documents=9).for_notebook("06_evaluation").parameters.documents == 9
    said = "p.yaml: .*02_paragraph_vector: unknown parameter 'lam'"
    refused(said, load, "notebooks: {02_paragraph_vector: {lam: 0.3}}")
    beyond = load("notebooks: {05_weighting: {lam: 3}}").for_notebook
    refused(
        "05_weighting: lam: input should be less than or equal to 1, got 3", beyond, "05_weighting"
    )


def test_other_tasks_of_the_final_evaluation_replace_the_profiles_own():
    profile = Profile.load("tiny")
    assert profile.with_tasks(["halves"], source="--task").evaluation.tasks == ["halves"]
    assert profile.with_tasks(profile.evaluation.tasks, source="--task") == profile


MODEL = "`model` and no `teacher`"


def further(fields: str) -> str:
    return f"further_teachers: [{{name: a, {fields}}}]"


@pytest.mark.parametrize(
    ("text", "overrides", "expected"),
    [
        ("corpus: {sorce: local}", {}, "unknown key 'corpus.sorce'; did you mean source?"),
        (
            "evaluation: {head: {epochz: 3}}",
            {},
            "unknown key 'evaluation.head.epochz'; did you mean epochs?",
        ),
        (
            "corpus: {tasks: 90}",
            {"structural_loss": None, "contextual_teacher": None},
            "are both None; give one of them, because a student needs a teacher",
        ),
        (
            "corpus: {tasks: 90}\nplan: [{notebook: 03_structural, grid: x, lam: 1}]",
            {},
            "unknown parameter 'lam'",
        ),
        (
            "contextual_teachers: {corpus: {tasks: 9}}",
            {},
            "unknown key 'contextual_teachers.corpus.tasks'",
        ),
        (
            "contextual_teachers: {corpus: {source: hub}}",
            {},
            "contextual_teachers.corpus: datasets is missing",
        ),
        (
            "corpus: {tasks: 90, source: local, path: x}\nevaluation: {tasks: [package]}",
            {},
            "package needs the links between pages of corpus.source installed-docs",
        ),
        ("student: {width: 384}", {}, "unknown key 'student.width'"),
        (
            "evaluation: {rounds: [1]}",
            {},
            "evaluation.rounds.0: input should be greater than or equal to 2",
        ),
        *(
            (
                further(f"role: {role}, loss: mse{more}"),
                {},
                f"a {role} teacher has {needed}; write it so",
            )
            for role, more, needed in (
                ("structural", "", MODEL),
                ("contextual", "", "`teacher` and no `model`"),
                ("structural", ", model: x, teacher: PV", MODEL),
            )
        ),
        (
            further("role: structural, loss: cca, model: x"),
            {},
            "loss: a structural teacher takes mse, cosine, max-margin or contrastive, got 'cca'",
        ),
        (
            further("role: contextual, loss: cosine, teacher: PV"),
            {},
            "loss: a contextual teacher takes soft-cca, mse, cca or cca:10, got 'cosine'",
        ),
        (further("role: contextual, loss: 'cca:0', teacher: PV"), {}, "got 'cca:0'"),
        (
            further("role: contextual, loss: mse, teacher: PV, student_projection: 5x"),
            {},
            "projection '5x': '' is not a block",
        ),
        ("", {}, "the file holds no settings; write `name: value` lines"),
        ("a: [", {}, "not readable as YAML"),
        (
            "corpus: {source: local, path: {a: b}}",
            {},
            "p.yaml: corpus.path: Input is not a valid path",
        ),
        (
            "evaluation: {own_tasks: [{name: a/b, kind: pairs, path: x}]}",
            {},
            "evaluation.own_tasks.0.name: string should match",
        ),
        (
            "evaluation: {own_tasks: [{name: a, kind: pairs, path: {train: [x]}}]}",
            {},
            "evaluation.own_tasks.0.path: Input",
        ),
    ],
)
def test_an_error_is_one_line_with_the_file_and_the_mend(
    tmp_path, load, refused, text, overrides, expected
):
    file = re.escape(str(tmp_path / "p.yaml"))
    refused(f"^(?=.*{file}|parameters:).*{re.escape(expected)}", load, text, **overrides)


def test_models_of_different_width_are_refused_with_those_that_fit(load, tmp_path, refused):
    refused(
        "768 wide.*384 wide.*all-mpnet-base-v2",
        load,
        "structural_teacher: {model: all-MiniLM-L6-v2}",
    )
    torn = r"p\.yaml: .*model/config\.json: the file is not valid JSON .*; restore it"
    for content, said in (('{"hidden_size": 96}', "96 wide"), ("{", torn)):
        write_files(tmp_path, {"model/config.json": content})
        refused(said, load, "student: {model: model}")
    write_files(tmp_path, {"model/config.json": "[]"})
    profile = load("student: {model: model}")  # the width is not known before the model is loaded
    assert profile.student.model == str(tmp_path / "model")  # found from the folder of the profile
    assert profile.structural_teacher.model == "sentence-transformers/all-mpnet-base-v2"


def test_the_root_is_found_from_below_and_else_from_the_source(tmp_path, monkeypatch):
    monkeypatch.chdir(REPOSITORY / "notebooks")
    assert find_root() == REPOSITORY
    monkeypatch.chdir(tmp_path)
    assert find_root() == REPOSITORY
    write_files(tmp_path, {"params/mine.yaml": ""})
    assert find_root() == tmp_path


def test_further_teachers_of_both_roles_are_read_and_a_projection_may_bridge_widths(load, tmp_path):
    (tmp_path / "model").mkdir()
    mini, folder, topics = load("""
        further_teachers:
          - {name: mini, role: structural, model: all-MiniLM-L6-v2, loss: max-margin, student_projection: 384}
          - {name: folder, role: structural, model: model, loss: mse, max_tokens: 512, long: chunks}
          - {name: topics, role: contextual, teacher: LSA, loss: cca, weight: 0.5}
        """).further_teachers
    assert (mini.student_projection, mini.teacher_projection, mini.gamma) == ("384", "-", 1.0)
    assert (folder.model, folder.max_tokens, folder.long) == (
        str(tmp_path / "model"),
        512,
        "chunks",
    )
    assert (topics.teacher, topics.weight, topics.model) == ("LSA", 0.5, None)


@pytest.fixture
def write(tmp_path):
    return lambda *pairs: write_files(tmp_path, dict(pairs)) / pairs[-1][0]


def test_mappings_are_merged_key_by_key_and_everything_else_is_replaced(write):
    path = write(
        (
            "a.yaml",
            "corpus: {tasks: 90, datasets: [{dataset: x}]}\ntraining: {epochs: 2}\nseed: 1\nname: a",
        ),
        ("b.yaml", "base: a.yaml\ntraining: {epochs: 3, warmup: 5}\nlam: null"),
        (
            "c.yaml",
            "base: b.yaml\ncorpus: {tasks: 80, datasets: []}\ntraining: {warmup: 6}\nseed: null",
        ),
    )
    assert read_profile_file(path)[0] == {
        "corpus": {"tasks": 80, "datasets": []},
        "training": {"epochs": 3, "warmup": 6},
        "seed": None,
        "lam": None,
    }
    path = write(("a.yaml", "x: 1\ny: {z: 1}"), ("b.yaml", "base: a.yaml\nx: {z: 2}\ny: [3]"))
    assert read_profile_file(path)[0] == {
        "x": {"z": 2},
        "y": [3],
    }  # a value becomes a section and a section a value


def test_a_section_with_a_base_of_its_own_ignores_the_outer_base(write):
    path = write(
        ("corpora/large.yaml", "source: hub\ndocuments: 9"),
        ("corpora/larger.yaml", "base: large.yaml\ndocuments: 99"),
        ("outer.yaml", "corpus: {source: installed-docs, packages: [numpy], tasks: 70}\nplan: []"),
        ("p.yaml", "base: outer.yaml\ncorpus: {base: corpora/larger.yaml, tasks: 60}"),
    )
    assert read_profile_file(path)[0] == {
        "corpus": {"source": "hub", "documents": 99, "tasks": 60},
        "plan": [],
    }
    assert read_profile_file(write(("q.yaml", "base: p.yaml\ncorpus: null")))[0]["corpus"] is None


def test_a_path_starts_at_the_folder_of_the_file_that_holds_it(write, tmp_path):
    datasets = "datasets: [{dataset: ../data/news.jsonl}, {dataset: far/off}]"
    write(
        ("corpora/mine.yaml", f"source: hub\ndocuments: 9\n{datasets}"), ("data/news.jsonl", "{}")
    )
    write(("elsewhere/far/off", ""))  # a file, but not where the first one says it
    write(
        ("elsewhere/t.csv", ""),
        ("elsewhere/a", ""),
        ("elsewhere/g.yaml", ""),
        ("elsewhere/r.tsv", ""),
    )
    path = write(
        (
            "elsewhere/p.yaml",
            "corpus: {base: ../corpora/mine.yaml}\ncontextual_teachers: {corpus: {path: [a, /b, ~/c]}}\n"
            "evaluation: {own_tasks: [{path: {train: t.csv}, relevance: r.tsv, text_field: ../x}], benchmarks: {aan: ../cda, "
            "oc: absent, 20news: an/x}}\nplan: [{grid: g.yaml, profile: ../p.yaml}, {grid: final, profile: thesis}]",
        )
    )
    content, here = read_profile_file(path)[0], tmp_path / "elsewhere"
    assert [one["dataset"] for one in content["corpus"]["datasets"]] == [
        str(tmp_path / "data/news.jsonl"),
        "far/off",
    ]
    assert content["contextual_teachers"]["corpus"]["path"] == [
        str(here / "a"),
        "/b",
        str(Path.home() / "c"),
    ]
    task = {
        "path": {"train": str(here / "t.csv")},
        "relevance": str(here / "r.tsv"),
        "text_field": "../x",
    }
    benchmarks = {"aan": str(tmp_path / "cda"), "oc": str(here / "absent"), "20news": "an/x"}
    assert content["evaluation"] == {"own_tasks": [task], "benchmarks": benchmarks}
    assert content["plan"] == [
        {"grid": str(here / "g.yaml"), "profile": str(tmp_path / "p.yaml")},
        {"grid": "final", "profile": "thesis"},
    ]


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        (
            "base: a.yaml\ncorpus: {tsks: 9}",
            "p.yaml",
            "unknown key 'corpus.tsks'; did you mean tasks?",
        ),
        ("base: bad.yaml\ncorpus: {tasks: 90}", "bad.yaml", "unknown key 'corpus.sorce'"),
        (
            "corpus: {base: bad-corpus.yaml}",
            "bad-corpus.yaml",
            "corpus.tasks: input should be greater than",
        ),
        (
            "corpus: {base: bad-corpus.yaml, tasks: 1}",
            "p.yaml",
            "corpus.tasks: input should be greater than",
        ),
        ("base: p.yaml", "p.yaml", "base: p.yaml → p.yaml leads in a circle"),
        (
            "base: circle.yaml",
            "circle.yaml",
            "base: p.yaml → circle.yaml → p.yaml leads in a circle",
        ),
        ("base: nowhere.yaml", "p.yaml", "base: "),
        (
            "corpus: {base: [a.yaml]}",
            "p.yaml",
            "corpus.base: there is no file ['a.yaml']; name a .yaml file",
        ),
        (
            "corpus: {base: list.yaml}",
            "list.yaml",
            "the file holds no settings; write `name: value` lines",
        ),
        ("corpus: {base: torn.yaml}", "torn.yaml", "not readable as YAML"),
    ],
)
def test_an_error_names_the_files_that_may_hold_the_value(
    write, tmp_path, refused, text, named, message
):
    path = write(
        ("a.yaml", "corpus: {tasks: 90}"),
        ("bad.yaml", "corpus: {sorce: hub}"),
        ("bad-corpus.yaml", "tasks: 2"),
        ("circle.yaml", "base: p.yaml"),
        ("list.yaml", "[1]"),
        ("torn.yaml", "a: ["),
        ("p.yaml", text),
    )
    folder, file = (re.escape(str(one)) for one in (tmp_path, tmp_path / named))
    refused(f"^(?={folder})(?=.*{file}).*{re.escape(message)}", Profile.load, path)


def test_a_profile_is_not_named_by_its_base(write):
    path = write(
        ("a.yaml", "name: something"),
        ("b.yaml", "base: a.yaml"),
        ("c.yaml", "base: a.yaml\nname: other"),
    )
    assert (Profile.load(path).name, Profile.load(path.with_name("b.yaml")).name) == ("other", "b")
    assert Profile.load(path.with_name("a.yaml")).name == "something"


def test_a_compound_is_its_members_dm_first_and_a_ramp_has_two_ascending_lengths():
    members = members_of("DBOW;1024;None;10% + DM;100;stem;2")
    assert [label_of_paragraph_vector(**member) for member in members] == [
        "DM;100;stem;2",
        "DBOW;1024;None;10%",
    ]
    assert Parameters(lam_by_length="linear:384:4096").lam_by_length == "linear:384:4096"
    for wrong in ("linear:3:3", "linear:3", "linear:-1:3", "log:1:2", "linear:1:2 "):
        with pytest.raises(ValueError, match="FIRST < LAST"):
            Parameters(lam_by_length=wrong)

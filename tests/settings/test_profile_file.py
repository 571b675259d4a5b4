"""Profiles that build on other files: merging, relative paths, and the file that an error names."""

from __future__ import annotations

from pathlib import Path

import pytest

from docemb_lib.errors import InputError
from docemb_lib.settings.profile import Profile
from docemb_lib.settings.profile_file import read_profile_file, read_yaml


@pytest.fixture
def write(tmp_path):
    """Writes files below a folder, given as name and text, and returns the path of the last."""

    def files(*pairs: tuple[str, str]) -> Path:
        for name, text in pairs:
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return path

    return files


def test_mappings_are_merged_key_by_key_and_everything_else_is_replaced(write):
    path = write(
        ("a.yaml", "corpus: {tasks: 90, datasets: [{dataset: x}]}\ntraining: {epochs: 2}\nseed: 1\nname: a"),
        ("b.yaml", "base: a.yaml\ntraining: {epochs: 3, warmup: 5}\nlam: null"),
        ("c.yaml", "base: b.yaml\ncorpus: {tasks: 80, datasets: []}\ntraining: {warmup: 6}\nseed: null"),
    )
    assert read_profile_file(path).content == {
        "corpus": {"tasks": 80, "datasets": []}, "training": {"epochs": 3, "warmup": 6}, "seed": None, "name": "a",
        "lam": None,
    }  # fmt: skip


def test_a_section_with_a_base_of_its_own_ignores_the_outer_base(write):
    path = write(
        ("corpora/large.yaml", "source: hub\ndocuments: 9"),
        ("corpora/larger.yaml", "base: large.yaml\ndocuments: 99"),
        ("outer.yaml", "corpus: {source: installed-docs, packages: [numpy], tasks: 70}\nplan: []"),
        ("p.yaml", "base: outer.yaml\ncorpus: {base: corpora/larger.yaml, tasks: 60}"),
    )
    assert read_profile_file(path).content == {"corpus": {"source": "hub", "documents": 99, "tasks": 60}, "plan": []}
    replaced = write(("q.yaml", "base: p.yaml\ncorpus: null"))
    assert read_profile_file(replaced).content["corpus"] is None


def test_a_value_may_become_a_section_and_a_section_a_value(write):
    path = write(("a.yaml", "x: 1\ny: {z: 1}"), ("b.yaml", "base: a.yaml\nx: {z: 2}\ny: [3]"))
    assert read_profile_file(path).content == {"x": {"z": 2}, "y": [3]}


def test_a_path_starts_at_the_folder_of_the_file_that_holds_it(write, tmp_path):
    write(
        (
            "corpora/mine.yaml",
            "source: hub\ndocuments: 9\ndatasets: [{dataset: ../data/news.jsonl}, {dataset: far/off}]",
        ),
        ("data/news.jsonl", "{}"),
        ("elsewhere/far/off", ""),  # a file, but not where the first one says it
    )
    path = write(
        ("elsewhere/p.yaml", "corpus: {base: ../corpora/mine.yaml}\ncontextual_teachers: {corpus: {path: [a, /b]}}\n"
         "evaluation: {own_tasks: [{path: {train: t.csv}, relevance: r.tsv, text_field: ../x}], benchmarks: {aan: ../cda, "
         "oc: an/id}}\nplan: [{grid: g.yaml, profile: ../p.yaml}, {grid: final, profile: thesis}]"),
    )  # fmt: skip
    content, here = read_profile_file(path).content, tmp_path / "elsewhere"
    assert [one["dataset"] for one in content["corpus"]["datasets"]] == [str(tmp_path / "data/news.jsonl"), "far/off"]
    assert content["contextual_teachers"]["corpus"]["path"] == [str(here / "a"), "/b"]
    task = {"path": {"train": str(here / "t.csv")}, "relevance": str(here / "r.tsv"), "text_field": "../x"}
    assert content["evaluation"] == {"own_tasks": [task], "benchmarks": {"aan": str(tmp_path / "cda"), "oc": "an/id"}}
    assert content["plan"] == [
        {"grid": str(here / "g.yaml"), "profile": str(tmp_path / "p.yaml")},
        {"grid": "final", "profile": "thesis"},
    ]


def test_a_relative_corpus_path_starts_at_the_folder_of_the_profile(write, tmp_path):
    path = write(("own.yaml", "corpus: {source: local, path: texts, tasks: 20}"))
    assert Profile.load(path).corpus.path == tmp_path / "texts"


def test_a_yaml_mapping_may_be_merged_into_another_and_change_it(write):
    assert read_yaml(write(("p.yaml", "a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}")))["b"] == {"x": 3, "y": 2}


@pytest.mark.parametrize(
    ("text", "named", "message"),
    [
        ("base: a.yaml\ncorpus: {tsks: 9}", "p.yaml", "unknown key 'corpus.tsks'; did you mean tasks?"),
        ("base: bad.yaml\ncorpus: {tasks: 90}", "bad.yaml", "unknown key 'corpus.sorce'"),
        ("corpus: {base: bad-corpus.yaml}", "bad-corpus.yaml", "corpus.tasks: input should be greater than"),
        ("corpus: {base: bad-corpus.yaml, tasks: 1}", "p.yaml", "corpus.tasks: input should be greater than"),
        ("base: bad-plan.yaml", "bad-plan.yaml", "plan, line 1 (05_weighting): lam: must lie in [0, 1]"),
        ("base: p.yaml", "p.yaml", "base: p.yaml → p.yaml leads in a circle"),
        ("base: circle.yaml", "circle.yaml", "base: p.yaml → circle.yaml → p.yaml leads in a circle"),
        ("base: nowhere.yaml", "p.yaml", "base: "),
        ("corpus: {base: [a.yaml]}", "p.yaml", "corpus.base: write the path of one .yaml file, got ['a.yaml']"),
        ("corpus: {base: list.yaml}", "list.yaml", "empty; a profile is a mapping"),
        ("corpus: {base: torn.yaml}", "torn.yaml", "not readable as YAML"),
    ],
)
def test_an_error_names_the_file_that_holds_the_value(write, tmp_path, text, named, message):
    path = write(
        ("a.yaml", "corpus: {tasks: 90}"), ("bad.yaml", "corpus: {sorce: hub}"), ("bad-corpus.yaml", "tasks: 2"),
        ("bad-plan.yaml", "plan: [{notebook: 05_weighting, lam: 2}]"), ("circle.yaml", "base: p.yaml"),
        ("list.yaml", "[1]"), ("torn.yaml", "a: ["), ("p.yaml", text),
    )  # fmt: skip
    with pytest.raises(InputError) as caught:
        Profile.load(path)
    assert str(caught.value).startswith(f"{tmp_path / named}: ")
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_profile_is_not_named_by_its_base(write):
    path = write(("a.yaml", "name: something"), ("b.yaml", "base: a.yaml"), ("c.yaml", "base: a.yaml\nname: other"))
    assert Profile.load(path).name == "other"
    assert Profile.load(path.with_name("b.yaml")).name == "b"
    assert Profile.load(path.with_name("a.yaml")).name == "something"

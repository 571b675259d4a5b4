"""The notebook on one's own documents: its definitions, and what it finds in a small collection."""

import random
import re
from collections import Counter
from math import log

import numpy as np
import pandas as pd
import pytest
from conftest import write_files
from sklearn.feature_extraction.text import CountVectorizer

from docemb_lib.student import Student

NOTEBOOK = "09_own_documents.py"
WORDS = {
    "fruit": ["apple", "pear", "plum", "cherry", "orchard", "juice", "harvest", "tree", "ripe"],
    "train": ["station", "rail", "ticket", "wheel", "engine", "driver", "signal", "track", "bus"],
}
PER_TOPIC = 20


@pytest.fixture
def given(defined):
    """A function of the notebook by its name, which finds `names` as its globals."""

    def function(name, **names):
        found = getattr(defined, name)
        found.__globals__.update(names)
        return found

    return function


def test_words_of_groups_are_those_of_a_plain_loop_over_class_tfidf(given):
    texts = ["red red blue", "red green", "green green blue", "green yellow yellow yellow"]
    group_of = np.array([0, 0, 1, 1])
    counts: dict[int, Counter[str]] = {0: Counter(), 1: Counter()}
    for text, group in zip(texts, group_of, strict=True):
        counts[int(group)].update(text.split())
    overall = counts[0] + counts[1]
    expected = []
    for of_group in counts.values():
        size = sum(of_group.values())
        weights = {
            word: of_group[word] / size * log(1 + sum(overall.values()) / 2 / overall[word])
            for word in overall
        }
        expected.append(sorted(weights, key=lambda word: (-weights[word], word))[:2])
    class_tfidf = given("class_tfidf", counter=CountVectorizer(), texts=texts)
    assert class_tfidf(group_of, words=2) == [", ".join(words) for words in expected]


@pytest.fixture
def rows() -> pd.DataFrame:
    see_also = {"a": ("b", "gone"), "b": (), "c": ("d",), "d": (), "e": ()}
    return pd.DataFrame({"id": list(see_also), "see_also": list(see_also.values())})


@pytest.mark.parametrize("count", [1, 3, 5])
def test_as_many_documents_are_drawn_as_asked_for_and_none_twice(given, rows, count):
    drawn = given("draw", seed=0, pd=pd)(rows, count)
    assert len(set(drawn["id"])) == len(drawn) == count


@pytest.mark.parametrize("seed", range(6))
def test_documents_are_drawn_with_those_that_they_refer_to_and_come_first(given, rows, seed):
    drawn = given("draw", seed=seed, pd=pd)(rows, 5)["id"].tolist()
    assert {*drawn[:2]} == {"a", "c"}
    first = rows["id"].sample(frac=1, random_state=seed).iloc[0]
    with_first = {"a": {"a", "b"}, "c": {"c", "d"}}.get(first, {first})
    assert with_first <= {*given("draw")(rows, 2)["id"]}


def test_close_pairs_are_those_of_a_plain_loop(given):
    Y = np.random.default_rng(0).normal(size=(8, 3))
    Y /= np.linalg.norm(Y, axis=1, keepdims=True)
    ids = pd.DataFrame({"id": list("abcdefgh")})
    found = given("close_pairs", Y=Y, pd=pd, collection=ids)(count=5)
    pairs = [(Y[i] @ Y[j], "abcdefgh"[i], "abcdefgh"[j]) for i in range(8) for j in range(i + 1, 8)]
    expected = [pair[1:] for pair in sorted(pairs, reverse=True)[:5]]
    assert list(zip(found["first"], found["second"], strict=True)) == expected


def test_nearest_documents_have_the_largest_cosines(given):
    Y = np.eye(4)
    texts = ["one", "two", "three", "four"]
    collection = pd.DataFrame({"id": texts})
    nearest = given("nearest", Y=Y, pd=pd, texts=texts, collection=collection)
    assert nearest(np.array([0.1, 0.9, 0.4, 0.0]), k=3)["id"].tolist() == ["two", "three", "one"]


@pytest.fixture(scope="module")
def executed(execute_alone, tmp_path_factory):
    """The notebook, executed on a data file of two topics with links."""
    rng = random.Random(0)
    rows = []
    for topic, words in WORDS.items():
        for number in range(PER_TOPIC):
            text = " ".join(rng.choices(words, k=60))
            rows.append({"key": f"{topic}-{number}", "body": text, "topic": topic})
    rows.append({**rows[0], "key": "again"})
    pairs = [f"{topic}-{n}\t{topic}-{n + 1}\n" for topic in WORDS for n in range(PER_TOPIC - 1)]
    files = {"texts.jsonl": rows, "links.tsv": "".join(pairs)}
    return execute_alone(
        "09_own_documents",
        write_files(tmp_path_factory.mktemp("own"), files),
        path="texts.jsonl",
        text_field="body",
        id_field="key",
        links="links.tsv",
        label="topic",
        groups=2,
        query="apple and plum from the orchard",
        save_to="student",
    )


@pytest.fixture
def shown(executed) -> str:
    """The tables of the notebook as HTML."""
    data = [output["data"] for output in executed.outputs if "data" in output]
    return "\n".join(each.get("text/html", "") for each in data)


@pytest.mark.slow
def test_documents_with_the_text_of_an_earlier_one_are_left_out_and_counted(executed):
    said = "41 documents read, 1 with an earlier one's text left out, 40 taken"
    assert said in executed.stdout


@pytest.mark.slow
def test_the_groups_are_the_two_topics_with_their_words(shown):
    described = set(re.findall(r"<th>[01]: ([\w, ]+)</th>", shown))
    assert len(described) == 2
    of_group = [set(text.split(", ")) for text in described]
    found = {
        topic for topic, words in WORDS.items() if any(group <= {*words} for group in of_group)
    }
    assert found == {*WORDS}


@pytest.mark.slow
@pytest.mark.parametrize("task", ["related pages", "topic"])
def test_links_and_labels_are_scored_beside_other_models_with_a_verdict(shown, task):
    assert f">{task}</" in shown
    for model in ("student", "SBERT-chunks", "SBERT-256", "LSA", "meaning alone"):
        assert f">{model}<" in shown


@pytest.mark.slow
def test_the_conclusion_compares_the_student_with_what_needs_no_student(executed):
    said = " ".join(executed.stdout.split())
    assert "0 of 2,400 words (0%) never reach the encoder; the student reads 40 of" in said
    assert "none of the 10 nearest stands out." in said  # half of all pairs are of one topic
    assert "0.0 in the mean" in said  # nothing is cut
    takes = (
        r"(; with \d+ examples only differences of at least \.\d{3} can be shown"
        r"(; one of this size would need about [\d,]+)?)?"
    )
    mean = rf"in the mean \([+-]\.\d{{3}}, p [\d.]+{takes}\)"
    for model in ("SBERT-chunks", "LSA"):
        assert re.search(rf"Beside {model} the student is [^A-Z]*{mean}", said)


@pytest.mark.slow
def test_the_adapted_student_is_saved(executed):
    assert Student.load(executed.folder / "student").words is not None


@pytest.mark.slow
def test_the_notebook_warns_of_nothing(executed):
    assert executed.stderr == ""

"""`docemb embed --passages`, `docemb search` and `docemb explain`, with a student of tiny files."""

import json

import numpy as np
import pandas as pd
import pytest
from conftest import docemb, write_files

from docemb_lib import Student

TOPICS = {
    "lines": "Fit a straight line to noisy points by least squares; residuals are minimised.",
    "graphs": "The shortest path between nodes of a graph follows edges of least weight.",
    "waves": "A Fourier transform takes a signal apart into waves of many frequencies.",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Texts, a student adapted to them, and their embeddings with passages."""
    folder = tmp_path_factory.mktemp("similarity")
    texts = {f"{name}.txt": f"{text} " * 12 for name, text in TOPICS.items()}
    texts |= {f"more-{name}.txt": f"More. {text} " * 9 for name, text in TOPICS.items()}
    write_files(folder / "texts", texts)
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=512)
    student.adapt([*texts.values()] * 3, dim=4)
    student.save(folder / "student")
    done = docemb(
        "embed", folder / "student", folder / "texts", "-o", folder / "e.parquet", "--passages", 32
    )
    assert done.returncode == 0, done.stderr
    return folder


def test_embed_writes_texts_and_passages_beside_the_embeddings(folder):
    frame = pd.read_parquet(folder / "e.parquet")
    student = Student.load(folder / "student")
    np.testing.assert_allclose(
        np.stack(frame["embedding"]), student.embed(frame["text"]), atol=1e-2
    )
    for row in frame.itertuples():
        mean = np.average(np.stack(row.passage), axis=0, weights=row.passage_weight)
        np.testing.assert_allclose(mean, row.embedding[: student.dim], atol=1e-5)
        assert row.text[row.passage_start[0] :].startswith(row.text.split()[0])


def search(folder, *arguments):
    done = docemb("search", folder / "student", folder / "e.parquet", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", TOPICS)
def test_search_finds_the_pages_of_a_question_and_a_passage_of_each(folder, name):
    hits = json.loads(search(folder, TOPICS[name], "-k", 2, "--json"))
    assert {hit["id"] for hit in hits} == {f"{name}.txt", f"more-{name}.txt"}
    assert [hit["rank"] for hit in hits] == [1, 2]
    texts = pd.read_parquet(folder / "e.parquet").set_index("id")["text"]
    for hit in hits:
        assert hit["passage"] == texts[hit["id"]][hit["start"] : hit["end"]]


def test_search_takes_the_text_of_a_file(folder):
    from_file = search(folder, folder / "texts" / "waves.txt", "--json")
    text = (folder / "texts" / "waves.txt").read_text()
    assert from_file == search(folder, text, "--json")


def test_search_by_passages_finds_the_pages_of_a_question(folder):
    hits = json.loads(search(folder, TOPICS["waves"], "-k", 2, "--by-passages", "--json"))
    assert {hit["id"] for hit in hits} == {"waves.txt", "more-waves.txt"}


def test_search_for_more_like_a_document_leaves_it_out(folder):
    hits = json.loads(search(folder, "--like", "graphs.txt", "--json"))
    assert hits[0]["id"] == "more-graphs.txt"
    assert len(hits) == 5


def test_search_prints_a_table(folder):
    table = search(folder, TOPICS["lines"], "-k", 1)
    assert all(words in table for words in ("rank", "cosine", "lines.txt", "least squares"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "give either a QUERY or --like ID"),
        (["a text", "--like", "graphs.txt"], "give either a QUERY or --like ID"),
        (["--like", "nowhere"], "no document has the id 'nowhere'"),
        (["nowhere.txt"], "nowhere.txt: there is no such file"),
        ([" "], "the text is blank"),
    ],
)
def test_search_refuses_a_query_that_is_none(folder, arguments, message):
    done = docemb("search", folder / "student", folder / "e.parquet", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_search_refuses_embeddings_of_another_student(folder, tmp_path):
    student = Student.load(folder / "student")
    student.adapt([*TOPICS.values()] * 6, dim=4)
    student.save(tmp_path / "other")
    done = docemb("search", tmp_path / "other", folder / "e.parquet", "a question")
    assert (done.returncode, "has the fingerprint" in done.stderr) == (2, True), done.stderr


def test_explain_by_id_sums_to_the_cosine_of_the_file(folder):
    done = docemb(
        "explain",
        folder / "student",
        "lines.txt",
        "waves.txt",
        "--embeddings",
        folder / "e.parquet",
        "--json",
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    rows = pd.read_parquet(folder / "e.parquet").set_index("id")["embedding"]
    expected = rows["lines.txt"] @ rows["waves.txt"]
    total = np.sum(answer["pairs"]) + sum(answer["words"].values())
    assert total == pytest.approx(answer["cosine"], abs=1e-9)
    assert total == pytest.approx(expected, abs=2e-2)  # the batches may differ in bf16


def test_explain_prints_one_line_pairs_and_words(folder):
    done = docemb(
        "explain", folder / "student", TOPICS["lines"], folder / "texts" / "more-lines.txt"
    )
    assert done.returncode == 0, done.stderr
    for words in (
        "cosine 0.",
        "The strongest of ",
        "1: Fit a straight",
        "residuals",
        "evenly",
    ):
        assert words in done.stdout


@pytest.fixture(scope="module")
def leading(tmp_path_factory):
    """A student that counts the beginning of a document more."""
    student = Student.from_encoder("all-MiniLM-L6-v2", layers=[0], max_tokens=512, pooling="lead")
    path = tmp_path_factory.mktemp("lead") / "student"
    student.save(path)
    return path


def explain(student, *options):
    text = f"{TOPICS['lines']} {TOPICS['waves']} " * 20
    done = docemb("explain", student, text, TOPICS["lines"], *options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_explain_says_which_share_of_the_cosine_the_pairs_hold(leading):
    answer = json.loads(explain(leading, "--json"))
    strongest = sum(sorted(np.ravel(answer["pairs"]))[-2:])
    pairs = np.size(answer["pairs"])
    share = f"{strongest:.3f} of {answer['cosine']:.3f}"
    said = f"The strongest of {pairs} pairs of passages: {share}"
    assert said in " ".join(explain(leading, "-k", 2).split())


BEGINNING = "The first 256 tokens of a document count four times or more"


def test_explain_says_that_the_beginning_counts_more(leading):
    assert BEGINNING in json.loads(explain(leading, "--json"))["note"]


def test_explain_says_nothing_of_the_beginning_where_all_tokens_count_alike(folder):
    assert BEGINNING not in json.loads(explain(folder / "student", "--json"))["note"]


def test_explain_needs_texts_in_the_file(folder, tmp_path):
    file = tmp_path / "plain.parquet"
    assert docemb("embed", folder / "student", folder / "texts", "-o", file).returncode == 0
    done = docemb("explain", folder / "student", "lines.txt", "waves.txt", "--embeddings", file)
    assert (done.returncode, "the file holds no texts" in done.stderr) == (2, True)


def test_passages_are_not_written_to_an_array(folder, tmp_path):
    done = docemb(
        "embed", folder / "student", folder / "texts", "-o", tmp_path / "e.npy", "--passages", 32
    )
    assert (done.returncode, "passages need a .parquet file" in done.stderr) == (2, True)

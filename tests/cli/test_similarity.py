"""`docemb embed --passages`, `docemb search` and `docemb explain`, with a student of tiny files."""

import io
import json
import re

import numpy as np
import pandas as pd
import pytest
from conftest import docemb, succeed, write_files
from scipy.spatial.distance import pdist

from docemb_lib.base.prompts import Prompts, Query
from docemb_lib.cli import similarity
from docemb_lib.cli.terminal import PlainConsole
from docemb_lib.evaluation.retrieval import unit
from docemb_lib.student import Student

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
    out = folder / "e.parquet"
    succeed("embed", folder / "student", folder / "texts", "-o", out, "--passages", 32)
    return folder


def search(folder, *arguments):
    return succeed("search", folder / "student", folder / "e.parquet", *arguments).stdout


@pytest.mark.parametrize("ranking", [[], ["--by-passages"]])
def test_search_finds_the_pages_of_a_question_and_a_passage_of_each(folder, ranking):
    hits = json.loads(search(folder, TOPICS["waves"], "-k", 2, "--json", *ranking))
    assert {hit["id"] for hit in hits} == {"waves.txt", "more-waves.txt"}
    assert [hit["rank"] for hit in hits] == [1, 2]
    texts = pd.read_parquet(folder / "e.parquet").set_index("id")["text"]
    for hit in hits:
        assert hit["passage"] == texts[hit["id"]][hit["start"] : hit["end"]]


def test_search_reads_a_question_after_the_prompt_of_queries(folder, tmp_path):
    student = Student.load(folder / "student")
    student.prompts = Prompts("", TOPICS["lines"])
    student.save(tmp_path / "student")
    succeed("embed", tmp_path / "student", folder / "texts", "-o", tmp_path / "e.parquet")
    (nearest,) = json.loads(search(tmp_path, "waves", "-k", 1, "--json"))
    documents = pd.read_parquet(tmp_path / "e.parquet").set_index("id")["embedding"]
    X = unit(np.stack([documents[nearest["id"]], *student.embed([Query("waves"), "waves"])]))
    assert nearest["cosine"] == pytest.approx(X[0] @ X[1], abs=1e-3)
    assert nearest["cosine"] != pytest.approx(X[0] @ X[2], abs=1e-2)


def test_a_planted_copy_is_nearer_than_the_pairs_of_unrelated_texts(folder):
    found = json.loads(search(folder, "--like", "graphs.txt", "--json"))
    X = np.stack(pd.read_parquet(folder / "e.parquet")["embedding"])
    pairs = 1 - pdist(X, "cosine")
    for hit in found:
        # Its own pair is as near as a hit is, up to rounding.
        assert hit["nearer_than"] == pytest.approx((pairs < hit["cosine"]).mean(), abs=1.1 / 15)
    copy, *unrelated = [hit["nearer_than"] for hit in found]
    assert copy >= 12 / 15 > max(unrelated)  # of 15 pairs 3 are copies


def test_a_passage_is_not_compared_with_pairs_of_documents(folder):
    found = search(folder, TOPICS["waves"], "--by-passages")
    assert "of pairs" not in found


def test_search_for_the_text_of_a_file_prints_each_hit_and_its_passage(folder):
    hit, passage = search(folder, folder / "texts" / "lines.txt", "-k", 1).splitlines()
    share = r"nearer than \d+\.\d\d% of pairs"
    assert re.fullmatch(rf"  1  [01]\.\d{{3}}  {share}  (more-)?lines.txt", hit)
    assert "least squares" in passage


def test_ten_hits_fit_a_screen(monkeypatch):
    screen = PlainConsole(file=io.StringIO(), width=80)
    monkeypatch.setattr(similarity, "console", screen)
    hit = {"rank": 10, "cosine": 0.123, "nearer_than": 0.9974, "id": "a" * 35}
    hit["passage"] = "residuals are small " * 50
    similarity.print_hits([hit] * 10)
    lines = screen.file.getvalue().splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) in range(76, 81)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a text", "--like", "graphs.txt"], "give either a QUERY or --like ID"),
        (["--like", "graphs"], "no document has the id 'graphs'; did you mean graphs.txt?"),
        (["nowhere.txt"], "nowhere.txt: there is no such file"),
        (["texts/nowhere.rst"], "nowhere.rst: there is no such file"),
        (["my nowhere.md"], "my nowhere.md: there is no such file"),
        ([" "], "the text is blank"),
        (["texts"], "texts: this is a folder or a data file; give a text file, or several"),
        (["e.parquet"], "e.parquet: this is a folder or a data file"),
    ],
)
def test_search_refuses_a_query_that_is_none(folder, arguments, message, monkeypatch):
    monkeypatch.chdir(folder)
    done = docemb("search", folder / "student", folder / "e.parquet", *arguments)
    assert (done.returncode, message in done.stderr) == (2, True), done.stderr


def test_explain_gives_contributions_that_sum_to_the_cosine_of_the_file(folder):
    files = (folder / "texts" / name for name in ("lines.txt", "waves.txt"))
    done = succeed("explain", folder / "student", *files, "--json")
    rows = pd.read_parquet(folder / "e.parquet").set_index("id")["embedding"]
    expected = rows["lines.txt"] @ rows["waves.txt"]
    total = sum(part["contribution"] for part in json.loads(done.stdout))
    assert total == pytest.approx(expected, abs=2e-2)  # the batches may differ in bf16


def test_explain_prints_the_greatest_contributions(folder):
    done = succeed("explain", folder / "student", TOPICS["lines"], TOPICS["lines"], "-k", 2)
    assert "cosine 1.000, the greatest of" in done.stdout
    assert len(re.findall(r"│ +0\.\d+ │", done.stdout)) == 2
    assert "passages │ Fit a straight line" in done.stdout


def test_passages_are_not_written_to_an_array(folder, tmp_path):
    done = docemb(
        "embed", folder / "student", folder / "texts", "-o", tmp_path / "e.npy", "--passages", 32
    )
    assert (done.returncode, "passages need a .parquet file" in done.stderr) == (2, True)

"""`adapt`, `embed` and `evaluate` of the same texts embed them once, apart from passages."""

import json
import shutil
import time
from pathlib import Path

import jupytext
import numpy as np
import pandas as pd
import pytest
from conftest import REPOSITORY, docemb, labelled_rows, succeed, write_own_task, write_rows

from docemb_lib.student import Student

N = 40


@pytest.fixture(scope="module")
def student_folder(tmp_path_factory):
    """MiniLM's first layer as a student."""
    folder = tmp_path_factory.mktemp("students") / "plain"
    Student.from_encoder("all-MiniLM-L6-v2", layers=[0], attention_window=64).save(folder)
    return folder


@pytest.fixture
def outside(tmp_path, monkeypatch):
    """A folder in no working folder, with documents."""
    monkeypatch.chdir(tmp_path)
    write_rows(tmp_path / "texts.jsonl", labelled_rows(N))
    return tmp_path


@pytest.fixture
def forwarded(monkeypatch):
    """The number of documents in each batch that passes through a student."""
    sizes = []
    hidden = Student.hidden

    def counted(student, batch):
        sizes.append(len(batch.sizes))
        return hidden(student, batch)

    monkeypatch.setattr(Student, "hidden", counted)
    return sizes


def test_links_between_documents_are_scored_in_any_folder(outside, student_folder, forwarded):
    (outside / "links.tsv").write_text("".join(f"{n}\t{n % N + 1}\n" for n in range(1, N + 1)))
    shutil.copytree(student_folder, outside / "mine")
    links = ("evaluate", "mine", "--texts", "texts.jsonl", "--links", "links.tsv")
    found = json.loads(succeed(*links, "--json").stdout)
    assert {row["task"] for row in found["intervals"]} == {"links"}
    assert {"mine", "TF-IDF", "BM25"} <= {row["model"] for row in found["models"]}
    assert {row["examples"] for row in found["comparison"]} == {N}  # every link is a query
    assert sum(forwarded) == N
    assert "Paired tests of mine" in succeed(*links).stdout
    assert sum(forwarded) == N
    assert {path.name for path in outside.iterdir()} == {
        *("mine", "mine.embeddings", "texts.jsonl", "links.tsv")
    }
    assert "relevance (a file of pairs of ids) is missing" in docemb(*links[:4]).stderr
    assert "--texts: the argument is empty" in docemb(*links[:2], *links[4:]).stderr


def test_scored_pairs_are_correlated_with_every_model(outside, student_folder):
    (outside / "scores.tsv").write_text("".join(f"{n}\t1\t{n % 7 / 2}\n" for n in range(2, N)))
    shutil.copytree(student_folder, outside / "mine")
    scores = ("--texts", "texts.jsonl", "--links", "scores.tsv", "--scored")
    found = json.loads(succeed("evaluate", "mine", *scores, "--json").stdout)
    assert {row["metric"] for row in found["comparison"]} == {"spearman"}
    assert {"mine", "TF-IDF", "BM25"} <= {row["model"] for row in found["intervals"]}


def test_embed_takes_documents_of_what_adapt_has_embedded_and_reads_them_again_for_passages(
    outside, student_folder, forwarded
):
    succeed("adapt", student_folder, "texts.jsonl", "-o", "mine")
    assert sum(forwarded) == N
    assert (outside / "mine.embeddings").is_dir()
    succeed("embed", "mine", "texts.jsonl", "-o", "kept.npy")
    assert sum(forwarded) == N
    succeed("embed", "mine", "texts.jsonl", "-o", "kept.parquet", "--passages", "256")
    assert sum(forwarded) == 2 * N
    texts = [row["text"] for row in labelled_rows(N)]
    anew = Student.load("mine").embed_documents(texts, passages=256)
    kept = pd.read_parquet("kept.parquet")
    np.testing.assert_allclose(np.load("kept.npy"), anew.embeddings, atol=2e-3)
    np.testing.assert_allclose(np.stack(kept["embedding"]), anew.embeddings, atol=2e-3)
    for row, passages in zip(kept["passage"], anew.passages, strict=True):
        np.testing.assert_allclose(np.stack(row), passages.embeddings, atol=2e-3)


def test_evaluate_takes_what_adapt_has_embedded_in_a_workspace(
    workspace_root, student_folder, forwarded
):
    write_own_task(workspace_root / "params", labelled_rows(N))
    succeed("adapt", student_folder, "params/rows.jsonl", "-o", "mine")
    assert not (workspace_root / "mine.embeddings").exists()
    assert sum(forwarded) == N
    succeed("evaluate", "mine", "--profile", "mine", "--alone")
    succeed("embed", "mine", "params/rows.jsonl", "-o", "rows.npy")
    assert sum(forwarded) == N
    # The student before the adaptation has the same half of meaning.
    succeed("evaluate", student_folder, "--profile", "mine", "--alone")
    assert sum(forwarded) == N


def test_the_notebook_on_own_documents_takes_what_adapt_has_embedded(
    outside, student_folder, forwarded
):
    succeed("adapt", student_folder, "texts.jsonl", "-o", "mine")
    succeed("embed", "mine", "texts.jsonl", "-o", "kept.npy")
    assert sum(forwarded) == N
    cells = jupytext.read(REPOSITORY / "notebooks" / "09_own_documents.py").cells
    (cell,) = [cell.source for cell in cells if "student.adapt(" in cell.source]
    texts = [row["text"] for row in labelled_rows(N)]
    names = {"Path": Path, "Student": Student, "time": time}
    names |= {"adapted": "mine", "save_to": None, "texts": texts}
    exec(compile(cell, "09_own_documents.py", "exec"), names)
    assert sum(forwarded) == N
    np.testing.assert_array_equal(names["Y"], np.load("kept.npy"))

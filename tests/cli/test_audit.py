"""`docemb audit`, of an encoder whose context is ten words, on documents of known lengths."""

import io
import shutil

import numpy as np
import pandas as pd
import pytest
from conftest import docemb, succeed, write_files, write_rows
from scipy.spatial.distance import cdist

from docemb_lib.base.pretrained import resolve
from docemb_lib.cli import terminal
from docemb_lib.teachers import SBERT

N = 24
SENTENCE = (  # a token each
    "the old king came by boat through storm and snow to a small house on the river where his "
    "horse stood under an apple tree in the light of fire while music came from paper birds"
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """MiniLM with a context of 12 tokens, two of them special, and rows of random words."""
    folder = tmp_path_factory.mktemp("audit")
    shutil.copytree(resolve("all-MiniLM-L6-v2"), folder / "short")
    write_files(folder / "short", {"sentence_bert_config.json": '{"max_seq_length": 12}'})
    rng = np.random.default_rng(0)
    rows = []
    for number in range(N):
        count = 10 if number < N // 2 else 10 + number
        rows.append({"key": f"d{number}", "body": " ".join(rng.choice(SENTENCE.split(), count))})
    write_rows(folder / "texts.jsonl", rows)
    return folder


def audit(folder, *options):
    fields = ("--text-field", "body", "--id-field", "key")
    return succeed("audit", folder / "short", folder / "texts.jsonl", *fields, *options).stdout


@pytest.fixture(scope="module")
def rows(folder):
    return pd.read_csv(io.StringIO(audit(folder, "--csv")), index_col="id")


def test_the_words_beyond_a_known_limit_are_counted_for_each_document(rows):
    assert rows.index.tolist() == [f"d{number}" for number in range(N)]
    unread = [0 if number < N // 2 else number for number in range(N)]
    assert rows["unread"].tolist() == unread
    assert rows["words"].tolist() == [10 + words for words in unread]


def test_the_neighbours_that_change_are_those_of_a_plain_loop(folder, rows):
    texts = pd.read_json(folder / "texts.jsonl", lines=True)["body"].tolist()
    near = []
    for long in ("truncate", "chunks"):
        X = SBERT(str(folder / "short"), long=long).embed(texts)
        distances = cdist(X, X, "cosine")
        near.append(
            [{*sorted({*range(N)} - {row}, key=distances[row].item)[:10]} for row in range(N)]
        )
    assert rows["changed"].tolist() == [len(a - b) for a, b in zip(*near, strict=True)]
    assert 0 < rows["changed"].max() < 10


def test_ten_lines_say_what_is_not_read_and_where_neighbours_change_most(folder, rows, monkeypatch):
    monkeypatch.setattr(terminal, "UNFOLDED", 80)
    lines = audit(folder).splitlines()
    assert len(lines) <= 10
    assert max(map(len, lines)) <= 80
    said = " ".join(" ".join(lines).split())
    unread = sum(range(N // 2, N))
    words = 10 * N + unread
    assert f"12 of 24 documents are longer than {folder}/short reads: " in said
    assert f"{unread} of {words} words ({unread / words:.0%}) never reach it." in said
    assert f"{rows['changed'].mean():.1f} of the 10 documents" in said
    most = said.partition("change most for ")[2].rstrip(".").split(", ")
    assert len(most) == 20
    assert rows.loc[most, "changed"].is_monotonic_decreasing
    assert rows["changed"].drop(most).max() <= rows.loc[most[-1], "changed"]


def test_a_student_is_no_model_that_truncates(folder, tmp_path):
    done = docemb("audit", write_files(tmp_path, {"docemb.json": "{}"}), folder / "texts.jsonl")
    assert (done.returncode, done.stdout) == (2, "")
    assert "this is a student; give another model" in done.stderr

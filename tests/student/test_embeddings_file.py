"""Files of embeddings, as pandas reads them and as they are searched, against plain loops."""

import numpy as np
import pandas as pd
import pytest
from conftest import write_files, write_rows
from scipy.spatial.distance import cosine

from docemb_lib.student import embeddings_file
from docemb_lib.student.embeddings_file import EmbeddingsFile, passage_cosines, write_embeddings
from docemb_lib.student.passages import Passages

N = 23


@pytest.fixture
def documents(monkeypatch, tmp_path):
    """A file of several row groups, with passages; and what was written."""
    monkeypatch.setattr(embeddings_file, "ROWS", 5)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((N, 4)).astype(np.float32)
    passages = []
    for row in range(N):
        count = 1 + row % 3
        spans = np.arange(2 * count).reshape(count, 2)
        vectors = rng.standard_normal((count, 3)).astype(np.float32)
        passages.append(Passages(spans, np.arange(count) + 8, vectors))
    ids = [f"d{row}" for row in range(N)]
    texts = [f"text of {id}" for id in ids]
    file = tmp_path / "e.parquet"
    write_embeddings(file, ids, X, student="abc", texts=texts, passages=passages)
    return file, X, texts, passages


def test_pandas_reads_one_vector_for_each_document(documents):
    file, X, texts, _ = documents
    frame = pd.read_parquet(file)
    np.testing.assert_array_equal(np.stack(frame["embedding"]), X)
    assert frame["id"].tolist() == [f"d{row}" for row in range(N)]
    assert frame["text"].tolist() == texts


def test_exploding_the_passage_columns_gives_a_row_for_each_passage(documents):
    file, _, _, passages = documents
    rows = pd.read_parquet(file).explode(embeddings_file.PASSAGE_COLUMNS)
    assert rows["id"].value_counts().to_dict() == {
        f"d{row}": len(each.weights) for row, each in enumerate(passages)
    }
    vectors = np.concatenate([each.embeddings for each in passages])
    np.testing.assert_array_equal(np.stack(rows["passage"]), vectors)
    spans = rows[["passage_start", "passage_end"]].to_numpy().astype(int)
    np.testing.assert_array_equal(spans, np.concatenate([each.spans for each in passages]))


@pytest.mark.parametrize("row", [0, 4, 5, 22])
def test_a_document_is_read_from_its_row_group(documents, row):
    file, X, texts, passages = documents
    found = EmbeddingsFile(file).document(row)
    np.testing.assert_array_equal(found["embedding"], X[row])
    assert (found["id"], found["text"]) == (f"d{row}", texts[row])
    spans = np.transpose([found["passage_start"], found["passage_end"]])
    np.testing.assert_array_equal(spans, passages[row].spans)
    np.testing.assert_array_equal(found["passage_weight"], passages[row].weights)
    np.testing.assert_array_equal(found["passage"], passages[row].embeddings)


@pytest.mark.parametrize("without", [None, 7])
def test_the_nearest_documents_are_those_of_a_loop(documents, without):
    file, X, *_ = documents
    cosines = {row: 1 - cosine(X[7], x) for row, x in enumerate(X) if row != without}
    expected = sorted(cosines, key=lambda row: -cosines[row])
    for count in (6, 99):  # and more than there are
        found = EmbeddingsFile(file).nearest(3 * X[7], count, without=without)
        assert list(found) == expected[:count]
        assert found == pytest.approx({row: cosines[row] for row in found}, abs=1e-6)


def test_the_nearest_passage_stands_for_the_dense_half_of_its_document(documents):
    file, X, _, passages = documents
    query = np.array([0.5, -1.0, 2.0, 0.7], dtype=np.float32)
    scores = []
    for x, own in zip(X, passages, strict=True):
        best = max(1 - cosine(vector, query[:3]) for vector in own.embeddings)
        dense = best * np.linalg.norm(x[:3]) * np.linalg.norm(query[:3])
        scores.append((dense + x[3] * query[3]) / np.linalg.norm(x) / np.linalg.norm(query))
        cosines = [1 - cosine(vector, query[:3]) for vector in own.embeddings]
        np.testing.assert_allclose(passage_cosines(own.embeddings, query), cosines, atol=1e-6)
    found = EmbeddingsFile(file).nearest(query, N, by_passages=True)
    assert list(found) == np.argsort(-np.array(scores)).tolist()
    assert found == pytest.approx(dict(enumerate(scores)), abs=1e-6)


def test_a_file_without_passages_is_not_searched_by_them(tmp_path, refused):
    rows = [{"id": "a", "embedding": [1.0, 0.0]}]
    file = EmbeddingsFile(write_rows(tmp_path / "e.parquet", rows))
    refused("holds no passages", file.nearest, np.ones(2), 1, by_passages=True)


def test_embeddings_of_another_student_are_refused(documents, refused):
    file = EmbeddingsFile(documents[0])
    file.check_student("abc", "mine", 4)
    refused("the fingerprint abc, .* of mine have 4 and def", file.check_student, "def", "mine", 4)
    refused("have 4 dimensions .* of mine have 5", file.check_student, "abc", "mine", 5)


def test_a_file_that_names_no_student_is_taken_at_its_width(tmp_path, refused):
    rows = [{"id": "a", "embedding": [1.0, 0.0]}]
    file = EmbeddingsFile(write_rows(tmp_path / "e.parquet", rows))
    file.check_student("abc", "mine", 2)
    refused("have 2 dimensions", file.check_student, "abc", "mine", 3)


FILES = {
    "e.parquet": [{"id": "a", "text": "b"}],
    "f.parquet": [{"text": "b", "embedding": [1.0]}],
    "g.parquet": b"id,embedding",
}


@pytest.mark.parametrize("name", [*FILES, "nowhere.parquet"])
def test_a_file_without_embeddings_is_refused(tmp_path, refused, name):
    write_files(tmp_path, FILES)
    refused(f"{name}: .*; write it with `docemb embed", EmbeddingsFile, tmp_path / name)

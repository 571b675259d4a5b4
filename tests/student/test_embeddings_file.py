"""Files of embeddings, as pandas reads them and as they are searched, against plain loops."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from conftest import write_files, write_rows
from pyarrow import parquet
from scipy.spatial.distance import cosine, pdist

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


def test_the_nearest_passage_stands_for_the_meaning_of_its_document(documents):
    file, X, _, passages = documents
    query = np.array([0.5, -1.0, 2.0, 0.7], dtype=np.float32)
    scores = []
    for x, own in zip(X, passages, strict=True):
        best = max(1 - cosine(vector, query[:3]) for vector in own.embeddings)
        meaning = best * np.linalg.norm(x[:3]) * np.linalg.norm(query[:3])
        scores.append((meaning + x[3] * query[3]) / np.linalg.norm(x) / np.linalg.norm(query))
        cosines = [1 - cosine(vector, query[:3]) for vector in own.embeddings]
        np.testing.assert_allclose(passage_cosines(own.embeddings, query), cosines, atol=1e-6)
    found = EmbeddingsFile(file).nearest(query, N, by_passages=True)
    assert list(found) == np.argsort(-np.array(scores)).tolist()
    assert found == pytest.approx(dict(enumerate(scores)), abs=1e-6)


@pytest.mark.parametrize("sample", [1000, 300])  # all of 900 documents, or some
def test_the_cosines_of_pairs_are_those_of_scipy(tmp_path, monkeypatch, sample):
    monkeypatch.setattr(embeddings_file, "SAMPLE", sample)
    X = np.random.default_rng(0).standard_normal((900, 4)).astype(np.float32)
    X[:90] = X[90]  # copies, side by side in the file
    write_embeddings(tmp_path / "e.parquet", list(map(str, range(900))), X, student="abc")
    found = EmbeddingsFile(tmp_path / "e.parquet").pair_cosines()
    expected = 1 - pdist(X, "cosine")
    if sample == 1000:
        np.testing.assert_allclose(found, np.sort(expected), atol=1e-6)
    for level in (0.5, 0.9, 0.999):
        share = np.searchsorted(found, level) / len(found)
        assert share == pytest.approx((expected < level).mean(), abs=0.02)


def test_a_file_without_passages_is_not_searched_by_them(tmp_path, refused):
    rows = [{"id": "a", "embedding": [1.0, 0.0]}]
    file = EmbeddingsFile(write_rows(tmp_path / "e.parquet", rows))
    refused("holds no passages", file.nearest, np.ones(2), 1, by_passages=True)


def test_embeddings_of_another_student_are_refused(documents, refused):
    file = EmbeddingsFile(documents[0])
    file.check_student("abc", "mine")
    said = (
        "the fingerprint of its student is abc, and that of mine is def; embed the documents again"
    )
    refused(said, file.check_student, "def", "mine")


def change(file, edit):
    """Write the file again as another program would that changes its rows."""
    rows = parquet.read_table(file)
    edited = pa.Table.from_pylist(edit(rows.to_pylist()), schema=rows.schema)
    parquet.write_table(edited, file)


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[content.index(np.float32(EMBEDDED).tobytes())] ^= 1
    file.write_bytes(content)


def with_second(field, value):
    return lambda rows: [rows[0], rows[1] | {field: value}, *rows[2:]]


EMBEDDED = 0.8125
VECTOR = [EMBEDDED, 1.0]
NUMBERS = "no whole file of embeddings"
DAMAGE = {
    "a bit": (flip_a_bit, "no whole file of embeddings .*CRC"),
    "no student": (lambda file: pd.read_parquet(file).to_parquet(file), "student is missing"),
    "longer": (with_second("embedding", [*VECTOR, 2.0]), NUMBERS),
    "nan": (with_second("embedding", [np.nan, 1.0]), NUMBERS),
    "null": (with_second("embedding", None), NUMBERS),
    "null number": (with_second("embedding", [None, 1.0]), NUMBERS),
    "id twice": (with_second("id", "0"), "an id is missing, or there twice"),
    "no id": (with_second("id", None), "an id is missing, or there twice"),
    "no passage": (with_second("passage", []), "a document has no passage"),
    "null passages": (with_second("passage", None), NUMBERS),
    "passage": (with_second("passage", [[1.0, 2.0]]), NUMBERS),
    "no text": (with_second("text", None), "a document lacks a value"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_file_is_refused(tmp_path, refused, damage):
    edit, said = DAMAGE[damage]
    file = tmp_path / "e.parquet"
    passages = Passages(np.array([[0, 1]]), np.array([8]), np.ones((1, 1), dtype=np.float32))
    options = {"student": "abc", "texts": ["a"] * 3, "passages": [passages] * 3}
    write_embeddings(file, ["0", "1", "2"], np.float32([VECTOR] * 3), **options)

    def search():
        embeddings = EmbeddingsFile(file)
        embeddings.check_student("abc", "mine")
        nearest = embeddings.nearest(np.ones(2), 3, by_passages=True)
        embeddings.document(1)
        return nearest

    assert len(search()) == 3
    if damage in ("a bit", "no student"):
        edit(file)
    else:
        change(file, edit)
    refused(said, search)


def test_an_id_without_its_ending_is_recognised(documents, tmp_path, refused):
    file = EmbeddingsFile(
        write_rows(tmp_path / "r.parquet", [{"id": "report.txt", "embedding": [1.0]}])
    )
    refused("no document has the id 'report'; did you mean report.txt", file.row_of, "report")
    refused("id 'x'; its ids are 'd0', 'd1', 'd2'…", EmbeddingsFile(documents[0]).row_of, "x")


FILES = {
    "e.parquet": [{"id": "a", "text": "b"}],
    "f.parquet": [{"text": "b", "embedding": [1.0]}],
    "g.parquet": b"id,embedding",
}


@pytest.mark.parametrize("name", [*FILES, "nowhere.parquet"])
def test_a_file_without_embeddings_is_refused(tmp_path, refused, name):
    write_files(tmp_path, FILES)
    refused(f"{name}: .*; write it with `docemb embed", EmbeddingsFile, tmp_path / name)

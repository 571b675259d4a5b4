"""Files of embeddings, as pandas reads them and as they are searched, against plain loops."""

import numpy as np
import pandas as pd
import pytest
from conftest import write_rows
from scipy.spatial.distance import cosine

from docemb_lib.corpus.reader import local_documents
from docemb_lib.student import embeddings_file
from docemb_lib.student.embeddings_file import (
    EmbeddingsFile,
    best_passage,
    fields_of,
    write_embeddings,
)
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
    np.testing.assert_array_equal(found.embedding, X[row])
    assert (found.id, found.text) == (f"d{row}", texts[row])
    for written, read in zip(passages[row], found.passages, strict=True):
        np.testing.assert_array_equal(read, written)


@pytest.mark.parametrize("without", [None, 7])
def test_the_nearest_documents_are_those_of_a_loop(documents, without):
    file, X, *_ = documents
    cosines = {row: 1 - cosine(X[7], x) for row, x in enumerate(X) if row != without}
    expected = sorted(cosines, key=lambda row: -cosines[row])[:6]
    hits = EmbeddingsFile(file).nearest(3 * X[7], 6, without=without)
    assert [hit.row for hit in hits] == expected
    found = [hit.cosine for hit in hits]
    np.testing.assert_allclose(found, [cosines[row] for row in expected], atol=1e-6)


def test_the_nearest_passage_stands_for_the_dense_half_of_its_document(documents):
    file, X, _, passages = documents
    query = np.array([0.5, -1.0, 2.0, 0.7], dtype=np.float32)
    scores = []
    for x, own in zip(X, passages, strict=True):
        best = max(1 - cosine(vector, query[:3]) for vector in own.embeddings)
        dense = best * np.linalg.norm(x[:3]) * np.linalg.norm(query[:3])
        scores.append((dense + x[3] * query[3]) / np.linalg.norm(x) / np.linalg.norm(query))
    hits = EmbeddingsFile(file).nearest(query, N, by_passages=True)
    assert [hit.row for hit in hits] == np.argsort(-np.array(scores)).tolist()
    np.testing.assert_allclose([hit.cosine for hit in hits], sorted(scores)[::-1], atol=1e-6)


def test_a_file_without_passages_is_not_searched_by_them(tmp_path, refused):
    rows = [{"id": "a", "embedding": [1.0, 0.0]}]
    file = EmbeddingsFile(write_rows(tmp_path / "e.parquet", rows))
    refused("holds no passages", file.nearest, np.ones(2), 1, by_passages=True)


def test_more_documents_than_there_are_gives_all(documents):
    assert len(EmbeddingsFile(documents[0]).nearest(documents[1][0], 99)) == N


def test_the_best_passage_compares_the_dense_columns(documents):
    passages = documents[3][2]
    query = np.array([*passages.embeddings[1], 99.0])
    assert best_passage(passages, query) == 1


def test_embeddings_of_another_student_are_refused(documents, refused):
    file = EmbeddingsFile(documents[0])
    file.check_student("abc", "mine", 4)
    refused("the fingerprint abc, and mine has def", file.check_student, "def", "mine", 4)
    refused("have 4 dimensions, and those of mine have 5", file.check_student, "abc", "mine", 5)


def test_a_file_that_names_no_student_is_taken_at_its_width(tmp_path, refused):
    rows = [{"id": "a", "embedding": [1.0, 0.0]}]
    file = EmbeddingsFile(write_rows(tmp_path / "e.parquet", rows))
    file.check_student("abc", "mine", 2)
    refused("have 2 dimensions", file.check_student, "abc", "mine", 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "a", "text": "b"}], "there is no column 'embedding'"),
        ([{"text": "b", "embedding": [1.0]}], "there is no column 'id'"),
    ],
)
def test_a_file_without_embeddings_is_refused(tmp_path, refused, rows, message):
    refused(message, EmbeddingsFile, write_rows(tmp_path / "e.parquet", rows))


def test_a_file_that_is_not_there_is_refused(tmp_path, refused):
    refused("there is no such file; write it", EmbeddingsFile, tmp_path / "e.parquet")


def test_a_file_that_is_no_parquet_file_is_refused(tmp_path, refused):
    (tmp_path / "e.parquet").write_text("id,embedding")
    refused("this is no Parquet file", EmbeddingsFile, tmp_path / "e.parquet")


def test_an_unknown_id_is_refused_with_examples(documents, refused):
    refused("no document has the id 'x'.*'d0', 'd1'", EmbeddingsFile(documents[0]).row_of, "x")


def test_embeddings_of_several_widths_are_refused(tmp_path, refused):
    rows = [{"id": "a", "embedding": [1.0, 0.0]}, {"id": "b", "embedding": [1.0]}]
    file = EmbeddingsFile(write_rows(tmp_path / "e.parquet", rows))
    refused("several widths", file.nearest, np.ones(2), 1)


def kept(file, **options):
    """The further fields of a data file, as a frame."""
    documents = list(local_documents(file, keep_fields=True, **options))
    return fields_of(documents, [file]).to_pandas()


FIELDS = [
    {"id": "a", "text": "one", "year": 1999, "score": 0.5, "tags": ["x", "y"], "open": True},
    {"id": "b", "text": "two", "year": 2024, "score": 2.0, "tags": [], "open": False},
    {"id": "c", "text": "three", "year": -3, "score": 1e9, "tags": ["z"], "open": True},
]


@pytest.mark.parametrize("name", ["t.jsonl", "t.parquet"])
def test_fields_other_than_id_and_text_are_kept_with_their_types(tmp_path, name):
    frame = kept(write_rows(tmp_path / name, FIELDS))
    expected = pd.DataFrame(FIELDS).drop(columns=["id", "text"])
    frame["tags"] = frame["tags"].map(list)
    pd.testing.assert_frame_equal(frame, expected)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int8", [3, 1, 3]),
        ("float32", [3, 1, 3]),
        ("datetime64[ns, UTC]", [3, 1, 3]),
        ("category", ["a", "b", "a"]),
        ("str", ["b", "a", None]),
    ],
)
def test_columns_of_a_parquet_file_keep_their_types(tmp_path, kind, values):
    table = pd.DataFrame({"text": ["one", "two", "three"]})
    table["field"] = pd.Series(values).astype(kind)
    table.to_parquet(tmp_path / "t.parquet")
    pd.testing.assert_series_equal(kept(tmp_path / "t.parquet")["field"], table["field"])


def test_fields_of_csv_are_texts(tmp_path):
    (tmp_path / "t.csv").write_text("text,zip\none,00123\ntwo,77\n")
    assert kept(tmp_path / "t.csv")["zip"].tolist() == ["00123", "77"]


def test_a_field_that_a_row_lacks_is_null(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "a", "x": "b"}\n{"text": "c", "y": 1}\n')
    frame = kept(tmp_path / "t.jsonl")
    assert frame.isna().to_numpy().tolist() == [[False, True], [True, False]]


def test_joined_texts_are_kept_but_for_that_of_the_name_text(tmp_path):
    rows = [{"key": "a", "title": "One", "text": "one"}, {"key": "b", "title": "2", "text": "two"}]
    file = write_rows(tmp_path / "t.jsonl", rows)
    frame = kept(file, text_field=["title", "text"], id_field="key")
    assert frame.to_dict("list") == {"title": ["One", "2"]}


@pytest.mark.parametrize("name", ["embedding", "ID", "passage_start"])
def test_a_field_with_the_name_of_an_own_column_is_refused(tmp_path, refused, name):
    file = write_rows(tmp_path / "t.jsonl", [{"key": "a", "text": "one", name: 1}])
    message = f"the field '{name}': the written file has a column '{name.lower()}' of its own"
    refused(message, kept, file, id_field="key")


@pytest.mark.parametrize("values", [(1, "a"), (2**80, 1), ({}, {}), (True, 2), ([1], 1)])
def test_values_that_no_column_can_hold_are_refused(tmp_path, refused, values):
    file = write_rows(tmp_path / "t.jsonl", [{"text": f"t{v}", "x": v} for v in values])
    refused("the field 'x': its values have no type in common", kept, file)


def test_fields_stand_in_the_rows_of_their_documents_over_row_groups(tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings_file, "ROWS", 5)
    rows = [{"id": f"d{row}", "text": f"text {row}", "number": row} for row in range(N)]
    file = write_rows(tmp_path / "t.jsonl", rows)
    documents = list(local_documents(file, keep_fields=True))
    write_embeddings(
        tmp_path / "e.parquet",
        [document.id for document in documents],
        np.arange(2 * N, dtype=np.float32).reshape(N, 2),
        student="abc",
        texts=[document.text for document in documents],
        fields=fields_of(documents, [file]),
    )
    frame = pd.read_parquet(tmp_path / "e.parquet")
    assert frame[["id", "text", "number"]].to_dict("records") == rows


def test_bertopic_takes_the_columns_as_they_are(documents):
    """Its heavy parts are replaced by those of scikit-learn, so that nothing is downloaded."""
    bertopic = pytest.importorskip("bertopic")
    from sklearn.cluster import KMeans
    from sklearn.decomposition import PCA

    frame = pd.read_parquet(documents[0])
    model = bertopic.BERTopic(umap_model=PCA(2), hdbscan_model=KMeans(2, random_state=0))
    topics, _ = model.fit_transform(frame["text"].tolist(), np.stack(frame["embedding"]))
    assert len(topics) == N


def test_embedding_atlas_takes_the_column_as_vectors(documents):
    projection = pytest.importorskip("embedding_atlas.projection")
    frame = pd.read_parquet(documents[0])
    mapped = projection.compute_projection(frame, inputs="embedding", modality="vector")
    assert len(mapped) == N

import gzip
import json
import logging
import re

import pyarrow as pa
import pytest
from pyarrow import parquet

from docemb_lib.corpus import Document, local_documents
from docemb_lib.corpus.sources import hub_documents as stream
from docemb_lib.errors import InputError


def hub_documents(*arguments, **options):
    return list(stream(*arguments, **options))


def write_lines(file, lines):
    text = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    file.write_text(text + "\n", encoding="utf-8")
    return file


def test_a_folder_gives_its_text_files_in_the_order_of_their_paths(tmp_path):
    folder = tmp_path / "letters"
    (folder / "old").mkdir(parents=True)
    (folder / "b.md").write_text("Zweiter Brief, größer.", encoding="utf-8")
    (folder / "a.txt").write_text("\ufeffHello", encoding="utf-8")
    (folder / "old" / "c.txt").write_text("third", encoding="utf-8")
    (folder / "notes.pdf").write_bytes(b"\xff")
    assert local_documents(folder) == [
        Document("a.txt", "Hello", "letters"),
        Document("b.md", "Zweiter Brief, größer.", "letters"),
        Document("old/c.txt", "third", "old"),
    ]


def test_a_jsonl_file_gives_a_document_a_line_and_numbers_those_without_id(tmp_path):
    lines = [{"id": "x", "text": "one\u2028line"}, "", {"text": "two"}, {"id": 7, "text": "three"}]
    file = write_lines(tmp_path / "my.jsonl", lines)
    expected = [Document("x", "one\u2028line", "my"), Document("3", "two", "my"), Document("7", "three", "my")]
    assert local_documents(file) == expected
    packed = tmp_path / "my.jsonl.gz"
    packed.write_bytes(gzip.compress(file.read_bytes()))
    assert local_documents(packed) == expected


def test_other_field_names_can_be_given(tmp_path):
    file = write_lines(tmp_path / "a.jsonl", [{"key": "k", "body": "words"}])
    assert local_documents(file, text_field="body", id_field="key") == [Document("k", "words", "a")]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (['{"text": "a"}', "{oops"], r"a\.jsonl, line 2: not JSON .*column 2\); write one object a line"),
        (["[1, 2]"], r"line 1: found list '\[1, 2\]'; write one JSON object a line"),
        ([{"id": 1, "body": "a"}], r"line 1: no field 'text', found \['body', 'id'\]; name the one"),
        ([{"text": 5}], r"line 1: field 'text' must be a string, found int 5"),
        ([{"text": "a"}, {"text": " \n"}], r"line 2: field 'text' is blank; write text into it or delete the row"),
        (
            [{"id": "k", "text": "a"}, "", {"id": "k", "text": "b"}],
            r"a\.jsonl, lines 1 and 3: both have id 'k'; rename one",
        ),
        ([{"id": 2, "text": "a"}, {"text": "b"}], r"a\.jsonl, lines 1 and 2: both have id '2'; rename one"),
        ([{"id": [1], "text": "a"}], r"line 1: field 'id' must be a string or an integer, found \[1\]"),
        ([""], r"a\.jsonl: holds no document"),
    ],
)
def test_a_bad_line_is_refused_with_its_number_what_it_holds_and_the_mend(tmp_path, lines, message):
    file = write_lines(tmp_path / "a.jsonl", lines)
    with pytest.raises(InputError, match=message) as caught:
        local_documents(file)
    assert "\n" not in str(caught.value)
    assert str(file) in str(caught.value)


def test_bytes_that_are_not_utf8_are_named_with_their_place_in_the_file(tmp_path):
    file = tmp_path / "a.jsonl"
    file.write_bytes(b'{"text": "a"}\n{"text": "caf\xe9"}\n')
    place = file.read_bytes().index(b"\xe9")
    with pytest.raises(
        InputError, match=rf"a\.jsonl: byte {place} is 0xe9, which is not UTF-8; save the file as UTF-8"
    ):
        local_documents(file)
    (tmp_path / "b.txt").write_bytes(b"na\xefve")
    with pytest.raises(InputError, match=r"b\.txt: byte 2 is 0xef"):
        local_documents(tmp_path)


def test_a_path_that_is_no_corpus_is_refused(tmp_path):
    with pytest.raises(InputError, match="missing does not exist: no such file or folder; name a folder"):
        local_documents(tmp_path / "missing")
    with pytest.raises(InputError, match=r"holds no \.txt or \.md file"):
        local_documents(tmp_path)
    table = tmp_path / "a.xlsx"
    table.write_text("text")
    with pytest.raises(InputError, match=r"not 'a\.xlsx'"):
        local_documents(table)
    with pytest.raises(InputError, match=r"\*\.csv does not exist"):
        local_documents(tmp_path / "*.csv")


def test_csv_and_parquet_files_are_corpora_too(tmp_path):
    table = tmp_path / "my.csv"
    table.write_text('key,text\nx,"one, two"\ny,three\n')
    assert local_documents(table, id_field="key") == [Document("x", "one, two", "my"), Document("y", "three", "my")]
    parquet.write_table(pa.table({"text": ["a", "b"]}), tmp_path / "t.parquet")
    assert local_documents(tmp_path / "t.parquet") == [Document("1", "a", "t"), Document("2", "b", "t")]


def test_several_files_and_patterns_make_one_corpus_with_unique_ids(tmp_path):
    write_lines(tmp_path / "b.jsonl", [{"text": "two"}, {"id": "own", "text": "three"}])
    write_lines(tmp_path / "a.jsonl", [{"text": "one"}])
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "x.txt").write_text("four")
    expected = [Document("a:1", "one", "a"), Document("b:1", "two", "b"), Document("own", "three", "b")]
    assert local_documents(tmp_path / "*.jsonl") == expected
    assert local_documents([tmp_path / "*.jsonl", tmp_path / "folder"]) == [
        *expected,
        Document("x.txt", "four", "folder"),
    ]
    write_lines(tmp_path / "folder" / "c.jsonl", [{"id": "own", "text": "five"}])
    with pytest.raises(InputError, match=r"b\.jsonl and .*c\.jsonl: both have id 'own'; rename one"):
        local_documents(tmp_path / "**" / "*.jsonl")
    with pytest.raises(InputError, match=r"a\.jsonl, lines 1 and 1: both have id 'a:1'"):
        local_documents([tmp_path / "a.jsonl", tmp_path / "*.jsonl"])


def test_a_blank_file_is_refused_by_name(tmp_path):
    (tmp_path / "a.txt").write_text("words")
    (tmp_path / "b.txt").write_text(" \n")
    with pytest.raises(InputError, match=r"b\.txt: the document is blank"):
        local_documents(tmp_path)


def test_a_broken_gzip_file_is_refused_by_name(tmp_path):
    for name, content in (("a", b"not gzip"), ("b", gzip.compress(b'{"text": "a"}\n' * 99)[:-12])):
        file = tmp_path / f"{name}.jsonl.gz"
        file.write_bytes(content)
        with pytest.raises(InputError, match=rf"{name}\.jsonl\.gz: is not a whole gzip file"):
            local_documents(file)


@pytest.fixture
def dataset(tmp_path):
    folder = tmp_path / "stories"
    folder.mkdir()
    rows = [{"text": f"story {number} " + "word " * number} for number in range(40)]
    write_lines(folder / "train.jsonl", [*rows, rows[0], {"text": " "}])
    return folder


def test_a_dataset_is_drawn_by_streaming_with_a_seed(dataset):
    drawn = hub_documents(str(dataset), limit=10, seed=1)
    assert drawn == hub_documents(str(dataset), limit=10, seed=1)
    assert {document.id for document in drawn} != {
        document.id for document in hub_documents(str(dataset), limit=10, seed=2)
    }
    assert len({document.id for document in drawn}) == 10
    assert all(re.fullmatch(r"stories/[0-9a-f]{16}", document.id) for document in drawn)
    assert {document.source for document in drawn} == {"stories"}


def test_short_blank_and_repeated_texts_of_a_dataset_are_passed_over(dataset, caplog):
    with caplog.at_level(logging.WARNING, logger="docemb_lib.corpus.sources"):
        assert len(hub_documents(str(dataset), limit=100)) == 40
    assert "gave 40 documents of the 100 asked for" in caplog.text
    long = hub_documents(str(dataset), limit=100, min_words=30)
    assert sorted(len(document.text.split()) for document in long) == list(range(30, 42))


def test_texts_of_too_few_tokens_are_passed_over_and_the_limit_is_still_reached(dataset):
    def letters(texts):
        return [len(text) for text in texts]

    drawn = hub_documents(str(dataset), limit=100, min_tokens=108, count_tokens=letters)
    assert sorted(len(document.text) for document in drawn) == [
        9 + 5 * n for n in range(20, 40)
    ]  # "story NN word word …"
    assert len(hub_documents(str(dataset), limit=20, min_tokens=108, count_tokens=letters)) == 20
    with pytest.raises(InputError, match="no text is as long as min_student_tokens=1000"):
        hub_documents(str(dataset), limit=1, min_tokens=1000, count_tokens=letters)
    with pytest.raises(ValueError, match="min_tokens needs count_tokens"):
        hub_documents(str(dataset), limit=1, min_tokens=1)


@pytest.mark.parametrize("ending", ["jsonl", "jsonl.gz", "csv", "tsv", "parquet"])
def test_a_dataset_may_be_data_files(tmp_path, ending):
    texts = [f"text {number}" for number in range(6)]
    file = tmp_path / f"news.{ending}"
    if ending == "parquet":
        parquet.write_table(pa.table({"text": texts}), file)
    else:
        lines = [json.dumps({"text": text}) for text in texts] if "jsonl" in ending else ["text", *texts]
        content = ("\n".join(lines) + "\n").encode()
        file.write_bytes(gzip.compress(content) if ending.endswith("gz") else content)
    drawn = hub_documents(str(file), limit=6)
    assert sorted(document.text for document in drawn) == texts
    assert {document.source for document in drawn} == {"news"}


def test_a_dataset_that_cannot_serve_is_refused(dataset):
    with pytest.raises(InputError, match=r"split 'missing'"):
        hub_documents(str(dataset), split="missing", limit=1)
    with pytest.raises(InputError, match=r"no field 'body', found \['text'\]"):
        hub_documents(str(dataset), text_field="body", limit=1)
    with pytest.raises(InputError, match="no text is as long as min_words=9 and min_student_tokens=999; lower it"):
        hub_documents(str(dataset), limit=1, min_words=9, min_tokens=999, count_tokens=lambda texts: [1] * len(texts))
    with pytest.raises(InputError, match="no text is as long as min_words=99; lower it"):
        hub_documents(str(dataset), limit=1, min_words=99)

"""Files are read as people have them; what is bad or passed over is said in one line."""

import gzip
import json

import pyarrow as pa
import pytest
from conftest import write_files, write_rows
from pyarrow import parquet

from docemb_lib.corpus import reader
from docemb_lib.corpus.document import Document
from docemb_lib.corpus.reader import Reading, Row, local_documents, read_rows, text_of

RECORDS = [
    {"id": "a", "text": 'She said: "no,\nnever".'},
    {"id": "b", "text": "größer, Ελλάδα\u2028\x01 𝕏"},
    {"id": "c", "text": "long " * 60_000},
]
ROWS = [{"id": "a", "text": "one, “two”;\nthree"}, {"id": "b", "text": "größer"}]
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS)
TABBED = 'id\ttext\na\t"one, “two”;\nthree"\nb\tgrößer\n'


def read(path, **fields):
    return list(local_documents(path, **fields))


def ids(path, **fields):
    return [document.id for document in local_documents(path, **fields)]


# ---- Files and rows
@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    file = write_rows(tmp_path / name, RECORDS)
    rows = list(read_rows(file, Reading()))
    expected = [Row(f"{file}, row {n}", n, record) for n, record in enumerate(RECORDS, 1)]
    assert rows == expected


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.json", JSON_LINES),
        ("a.json", json.dumps({row["id"]: {"text": row["text"]} for row in ROWS})),
        ("a.ndjson", JSON_LINES.replace("\n", "\n\n")),
        ("a.jsonl", JSON_LINES.encode("utf-16")),
        ("a.jsonl", "\ufeff" + JSON_LINES),
        ("a.jsonl.gz", gzip.compress(JSON_LINES.encode(), mtime=0)),
        ("a.tsv", TABBED),
        ("a.csv", TABBED),
        ("a.csv", TABBED.encode("utf-16")),
        ("a.csv", 'id;text\na;"one, “two”;\nthree"\nb;größer\n'),
        ("a.csv", 'ID , Text\na,"one, “two”;\nthree"\nb,größer\n'),
        ("a.csv", 'id, text\ra, "one, “two”;\nthree"\rb, größer\r'),
        ("a.csv", 'sep=;\nid;text\na;"one, “two”;\nthree"\nb;größer\n'),
        ("a.csv", 'sep=\nid;text\na;"one, “two”;\nthree"\nb;größer\n'),
        ("a.csv", 'text,_id\n"one, “two”;\nthree",a\ngrößer,b\n'),
    ],
)
def test_every_layout_gives_the_same_documents(tmp_path, name, content):
    write_files(tmp_path, {name: content})
    assert read(tmp_path / name) == [Document(row["id"], row["text"], "a") for row in ROWS]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'id,text\n1,"a" b\n', r"row 1: there is broken quoting up to line 2"),
        ("a.csv", b"id,text\n1,a\n2\n", r"row 2: the row must have 2 values \(id, text\)"),
        ("a.csv", "id,text\n1,\u00e4\n".encode("latin-1"), "not in UTF-8; save it"),
        ("a.jsonl", b'{"text": "a", "text": "b"}', r"JSON \(the field 'text' is there twice"),
        ("a.jsonl", b'{"text": "a"}\n{"text"}\n', r"row 2: this is not JSON \(.*\); write an"),
        ("a.json", b'[\n{"text": "a"},\n]', r"row 1: this is not JSON"),
        ("a.json", b'[{"text": "a"}, 1]', r"row 2: this is a value without fields"),
        ("a.parquet", b"PAR1 but not really", "the file cannot be read"),
        ("a.csv.gz", b"id,text\n", r"the file cannot be read \(Not a gzipped file"),
        ("a.xlsx", b"", r"this is not a data file; give \.jsonl, .*\.csv, \.tsv.*, or a folder"),
        (
            "a.jsonl",
            b'{"text": "a"}\n{"text": " \\n"}',
            "row 2: the text is blank; write one, or leave",
        ),
        ("a.jsonl", b'{"id": 7, "text": "a"}\n' * 2, "row 2: an earlier document has the id '7'"),
        ("folder/b.txt", b"na\0ve", r"b\.txt: the text holds NUL bytes; in UTF-16 it needs"),
        ("a.csv", "id,text\n1,a\n".encode("utf-16-le"), "holds NUL bytes; in UTF-16 it needs"),
        ("folder/b.txt", b" \n", r"b\.txt: the text is blank"),
        ("folder/b.txt", "\u200b\ufeff \u2060".encode(), r"b\.txt: the text is blank"),
        (
            "folder/parts/0.parquet",
            b"",
            r"holds no document .*; name its files, as in '.*/folder/\*\*/\*\.parquet'",
        ),
        (
            "folder/b.pdf",
            b"",
            r"holds no document \(rows, \.txt or \.md files\); add some",
        ),
    ],
)
def test_what_is_bad_is_named_with_its_place(tmp_path, name, content, message, refused):
    write_files(tmp_path, {name: content})
    given = tmp_path / name.split("/")[0]
    refused(rf"{given}[:,/].*{message}", read, given)


@pytest.mark.parametrize("encoding", ["cp1252", "shift_jis", "utf-16-le", "utf-8", "utf-8-sig"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_files_are_read_in_the_encoding_that_is_named(tmp_path, encoding, mark, refused):
    mark = mark if encoding.startswith("utf") else ""
    text = "日本" if encoding == "shift_jis" else "“größer” – ja"
    rows = f"{mark}id,text\n1,{text}\n".encode(encoding)
    write_files(tmp_path, {"a.csv": rows, "folder/a.txt": (mark + text).encode(encoding)})
    places = [tmp_path / "a.csv", tmp_path / "folder"]
    assert [document.text for document in read(places, encoding=encoding)] == [text] * 2
    refused("a.txt: the file is not in ascii; save", read, places[1], encoding="ascii")
    for name in ("utf-9", "undefined"):
        refused(f"encoding: .*{name}.*; give one of", read, places, encoding=name)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.parquet"])
def test_a_truncated_file_is_refused_by_name(tmp_path, name, refused):
    file = write_rows(tmp_path / name, RECORDS)
    file.write_bytes(file.read_bytes()[:-20])
    refused(rf"{name}: the file cannot be read .*; save it again", read, file)


@pytest.mark.parametrize("bad", ['2,"a "b" c"', '2,"open', "2"])
def test_reading_goes_on_after_a_broken_row(tmp_path, bad, caplog):
    write_files(tmp_path, {"a.csv": f'id,text\n1,"a"\n{bad}\n3,"c"\n4,"d"\n'})
    expected = ["1", "4"] if "open" in bad else ["1", "3", "4"]
    assert ids(tmp_path / "a.csv", skip_bad=True) == expected
    assert "left out: 1 × bad row or file; " in caplog.text


@pytest.mark.parametrize("second", ["in\n two lines", "ends here\n2\tb"])
def test_rows_inside_of_quotation_marks_are_said(tmp_path, second, caplog):
    write_files(tmp_path, {"a.tsv": f'id\ttext\n1\t"begins {second}"\n3\tc\n'})
    assert ids(tmp_path / "a.tsv") == ["1", "3"]
    assert ("of lines with tabs up to line" in caplog.text) == ("\t" in second)


def test_a_document_has_a_bounded_length(tmp_path, refused, monkeypatch):
    monkeypatch.setattr(reader, "LONGEST", 5)
    write_files(tmp_path, {"a.txt": "12345"})
    assert ids(tmp_path) == ["a.txt"]
    write_files(tmp_path, {"b.txt": "123456"})
    refused(r"b\.txt: the text has more than 5 characters; cut it", read, tmp_path)


def test_a_table_with_two_columns_of_one_name_is_not_read(tmp_path, refused):
    write_files(tmp_path, {"a.csv": "id,text,text\n1,a,b\n"})
    reading = Reading(skip_bad=True)
    assert list(read_rows(tmp_path / "a.csv", reading)) == []
    table = pa.table([["1"], ["a"], ["b"]], ["id", "text", "text"])
    parquet.write_table(table, tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        refused("two columns have the same name .id, text, text.; rename", read, tmp_path / name)


# ---- Texts and ids
def test_several_fields_are_joined_in_their_order_and_null_ones_left_out(tmp_path):
    rows = [{"title": "One", "body": "two"}, {"title": None, "body": "three"}]
    file = write_rows(tmp_path / "a.jsonl", rows)
    texts = [document.text for document in read(file, text_field=["title", "body", "title"])]
    assert texts == ["One\n\ntwo", "three"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"Text": "other", "text": "this"}, "this"),
        ({"Text": "this", "title": "other"}, "this"),
        ({"text": "e\u0301cole"}, "\u00e9cole"),
        ({"text": "Vege-\n tables, vegetables"}, "Vegetables, vegetables"),
        ({"text": "long-\r\nterm, term, long"}, "long-\r\nterm, term, long"),
        ({"text": ["one", "two"]}, "one\n\ntwo"),
        ({"text": "a\ud83db"}, "a\ufffdb"),
        ({"text": "\ud83d\ude00"}, "😀"),
    ],
)
def test_the_text_is_found_by_name_and_composed_without_broken_characters(fields, text):
    assert text_of(Row("here", 1, fields), ["text"]) == text


def test_blanks_around_an_id_are_no_part_of_it(tmp_path):
    assert ids(write_rows(tmp_path / "a.jsonl", [{"id": " a ", "text": "one"}])) == ["a"]


@pytest.mark.parametrize("kind", [float, int, str])
def test_whole_numbers_give_the_ids_of_integers(tmp_path, kind):
    rows = [{"id": kind(number), "text": f"text {number}"} for number in (1, 2)]
    assert ids(write_rows(tmp_path / "a.parquet", rows)) == ["1", "2"]


@pytest.mark.parametrize("value", [True, 1.5, ["a"], " ", None])
def test_what_is_no_id_is_refused_with_its_row(tmp_path, value, refused):
    rows = [{"id": "a", "text": "one"}, {"id": value, "text": "two"}]
    file = write_rows(tmp_path / "a.jsonl", rows)
    refused(
        r"a\.jsonl, row 2: the field 'id' must hold an id, a string or an integer, but", read, file
    )


@pytest.mark.parametrize("option", ["text_field", "id_field"])
def test_a_named_field_that_no_row_has_is_refused(tmp_path, option, refused):
    file = write_rows(tmp_path / "a.jsonl", [{"docid": 1, "text": "one"}] * 2)
    said = r"the field 'doc' must hold .*, but it is missing; .* fields 'docid', 'text'"
    refused(rf"a\.jsonl, row 1: {said}, or leave", read, file, **{option: "doc"})


def test_numbers_of_rows_as_ids_are_said_once(tmp_path, caplog):
    file = write_rows(tmp_path / "a.csv", [{"text": "one"}, {"text": "two"}])
    assert (ids(file), ids(file)) == (["1", "2"], ["1", "2"])
    assert caplog.text.count("the numbers of the rows are the ids") == 1


def test_paths_precede_the_ids_of_several_files_and_folders(tmp_path):
    write_files(tmp_path, {"a.jsonl": [{"text": "one"}]})
    for year in ("2021", "2022"):
        write_files(tmp_path / year, {"b.jsonl": [{"text": "two"}], "1.txt": "one"})
    assert read(tmp_path / "*.jsonl") == [Document("1", "one", "a")]
    places = [tmp_path / place for place in ("*/b.jsonl", "2021", "2022", "a.jsonl")]
    expected = ["2021/b.jsonl:1", "2022/b.jsonl:1", "2021/1.txt", "2022/1.txt", "a.jsonl:1"]
    assert ids(places) == expected


# ---- Folders
def test_a_folder_gives_its_text_files_and_counts_the_others_by_kind_in_one_line(tmp_path, caplog):
    files = {"b.md": "größer", "a.TXT": "\ufeffHello", "old/c.txt": "third", "._a.md": b"\xff"}
    files |= {f"old/{n}.html": "" for n in range(3)} | {"d.PDF": "", "e": "", "f": ""}
    files["README.md"] = "about these letters"
    folder = write_files(tmp_path / "letters", {**files, ".ipynb_checkpoints/a.md": "stale"})
    assert read(folder) == [
        Document("a.TXT", "Hello", "letters"),
        Document("b.md", "größer", "letters"),
        Document("old/c.txt", "third", "old"),
    ]
    expected = "3 × .html, 1 × .pdf, 1 × README.md, 2 × without an ending"
    assert caplog.messages == [f"{folder}: left out: {expected}"]


def test_bad_rows_and_files_are_left_out_on_request_and_said_in_one_line(tmp_path, refused, caplog):
    texts = ["good", " ", "good", None]
    rows = [{"id": n, "text": texts[n % 4]} for n in range(30)]
    files = {"a.txt": "good", "b.txt": b"\0", "c.md": " "}
    places = [write_rows(tmp_path / "a.jsonl", rows), write_files(tmp_path / "folder", files)]
    refused(r"a\.jsonl, row 2: the text is blank; .*, or leave out .* --skip-bad", read, places)
    good = [str(n) for n in range(0, 30, 2)]
    assert ids(places, skip_bad=True) == [*good, "folder/a.txt"]
    (line,) = caplog.messages
    assert line.startswith("2 files and folders: left out: 17 × bad row or file; ")
    assert "row 2: the text is blank" in line

"""Documents are read as people have them; what is bad or passed over is said in one line."""

import json

import pytest
from conftest import write_files, write_rows

from docemb_lib.corpus.reader import local_documents

ROWS = [{"id": "a", "text": "one, “two”;\nthree"}, {"id": "b", "text": "größer"}]
IDS = ["a", "b"]
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS)


def read(path, **fields):
    return list(local_documents(path, **fields))


def ids(path, **fields):
    return [document.id for document in local_documents(path, **fields)]


# ---- Files
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", json.dumps(ROWS)),
        ("a.json", json.dumps(ROWS, indent=2)),
        ("a.json", JSON_LINES),
        ("a.ndjson", JSON_LINES),
        ("a.json", json.dumps({row["id"]: {"text": row["text"]} for row in ROWS})),
        ("a.csv", 'id;text\na;"one, “two”;\nthree"\nb;größer\n'),
        ("a.csv", 'id\ttext\na\t"one, “two”;\nthree"\nb\tgrößer\n'),
        ("a.tsv", 'id\ttext\na\t"one, “two”;\nthree"\nb\tgrößer\n'),
        ("a.csv", 'id\ttext\na\t"one, “two”;\nthree"\nb\tgrößer\n'.encode("utf-16")),
        ("a.jsonl", JSON_LINES.encode("utf-16")),
        ("a.jsonl", "\ufeff" + JSON_LINES),
        ("a.csv", 'ID , Text\na,"one, “two”;\nthree"\nb,größer\n'),
        ("a.csv", 'id, text\ra, "one, “two”;\nthree"\rb, größer\r'),
        ("a.csv", 'text,_id\n"one, “two”;\nthree",a\ngrößer,b\n'),
    ],
)
def test_every_layout_gives_the_same_documents(tmp_path, name, content):
    write_files(tmp_path, {name: content})
    documents = read(tmp_path / name)
    assert [(document.id, document.text) for document in documents] == [
        (row["id"], row["text"]) for row in ROWS
    ]


def test_several_fields_are_joined_in_their_order_and_null_ones_left_out(tmp_path):
    rows = [{"title": "One", "body": "two"}, {"title": None, "body": "three"}]
    file = write_rows(tmp_path / "a.jsonl", rows)
    texts = [document.text for document in read(file, text_field=["title", "body"])]
    assert texts == ["One\n\ntwo", "three"]


def test_the_exact_name_of_a_field_comes_before_one_in_other_letters(tmp_path):
    file = write_rows(tmp_path / "a.csv", [{"Text": "other", "text": "this"}])
    assert read(file)[0].text == "this"


def test_accents_are_composed_in_texts_and_ids(tmp_path):
    file = write_rows(tmp_path / "a.jsonl", [{"id": "e\u0301", "text": "e\u0301cole"}])
    assert read(file) == [("é", "école", "a", ())]


# ---- Ids
@pytest.mark.parametrize("kind", [float, int, str])
def test_whole_numbers_give_the_ids_of_integers(tmp_path, kind):
    rows = [{"id": kind(number), "text": f"text {number}"} for number in (1, 2)]
    assert ids(write_rows(tmp_path / "a.parquet", rows)) == ["1", "2"]


@pytest.mark.parametrize(
    ("value", "kind"),
    [(True, "bool True"), (1.5, "float 1.5"), (["a"], "list"), (" ", "str ' '")],
)
def test_what_is_no_id_is_refused_with_its_row(tmp_path, value, kind, refused):
    rows = [{"id": "a", "text": "one"}, {"id": value, "text": "two"}]
    file = write_rows(tmp_path / "a.jsonl", rows)
    refused(rf"a\.jsonl, line 2: the field 'id' holds the {kind}.* and no id; write a", read, file)


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("text_field", r"no field 'doc' \(--text-field, .*\), only 'docid', 'text'"),
        ("id_field", ""),
    ],
)
def test_a_named_field_that_no_row_has_is_refused(tmp_path, option, said, refused):
    file = write_rows(tmp_path / "a.jsonl", [{"docid": 1, "text": "one"}] * 2)
    said = said or "the field 'doc' holds null and no id"
    refused(rf"a\.jsonl: 2 rows .*{said} \(line 1, line 2\)", read, file, **{option: "doc"})


def test_numbers_of_rows_as_ids_are_said_once(tmp_path, caplog):
    file = write_rows(tmp_path / "a.csv", [{"text": "one"}, {"text": "two"}])
    assert (ids(file), ids(file)) == (["1", "2"], ["1", "2"])
    assert caplog.text.count("the numbers of the rows are the ids") == 1


# ---- What is passed over, and what is bad
def test_titles_that_are_not_read_are_said_with_the_option_that_reads_them(tmp_path, caplog):
    file = write_rows(tmp_path / "a.csv", [{"id": 1, "title": "On cats", "text": "body"}])
    assert read(file)[0].text == "body"
    (line,) = caplog.messages
    assert line.startswith(f"{file}: only the field 'text' is read; ")
    assert "--text-field title --text-field text" in line
    caplog.clear()
    assert read(file, text_field=["title", "text"])[0].text == "On cats\n\nbody"
    assert caplog.messages == []


def test_files_that_are_passed_over_are_counted_by_kind_in_one_line(tmp_path, caplog):
    folder = write_files(tmp_path / "mixed", {"a.txt": "one", "sub/b.md": "two", ".c.html": ""})
    write_files(folder, {f"sub/{n}.html": "" for n in range(3)} | {"d.PDF": "", "e": "", "f": ""})
    assert ids(folder) == ["a.txt", "sub/b.md"]
    expected = "3 × .html, 1 × .pdf, 2 × without an ending"
    assert caplog.messages == [f"{folder}: left out: {expected}"]


@pytest.fixture
def with_bad_rows(tmp_path):
    """Thirty rows of JSON, of which every second is bad, in two ways."""
    texts = ["good", " ", "good", None]
    rows = [{"id": number, "text": texts[number % 4]} for number in range(30)]
    return write_rows(tmp_path / "a.jsonl", rows)


def test_bad_rows_are_reported_together_ten_of_them_by_name(with_bad_rows, refused):
    message = (
        r"a\.jsonl: 15 rows or files are bad: the text is blank \(line 2, line 6, .* line 18\); "
        r"the field 'text' must be a string, but it is null \(line 4, .* line 20\); and 5 more; "
        r"mend them, or leave out what is bad with --skip-bad \(skip_bad: true in a profile\)"
    )
    refused(message, read, with_bad_rows)


def test_bad_rows_are_left_out_on_request_and_said(with_bad_rows, caplog):
    assert ids(with_bad_rows, skip_bad=True) == [str(number) for number in range(0, 30, 2)]
    (line,) = caplog.messages
    assert "left out as bad: 15 rows or files: the text is blank (line 2, line 6" in line


def test_bad_files_of_a_folder_are_reported_together(tmp_path, refused, caplog):
    files = {"a.txt": "good", "b.txt": b"\0", "c.md": " "}
    write_files(tmp_path, files)
    message = (
        r"2 rows or files are bad: the text holds NUL bytes.* \(b\.txt\); "
        r"the text is blank \(c\.md\); mend them"
    )
    refused(message, read, tmp_path)
    assert ids(tmp_path, skip_bad=True) == ["a.txt"]

"""Rows of data files: every format gives the same rows, and whatever is broken is named with its place."""

from __future__ import annotations

import csv
import gzip
import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from docemb_lib.corpus.rows import file_format, read_csv, read_rows, text_of, without_surrogates
from docemb_lib.errors import InputError

RECORDS = [
    {"id": "a", "text": 'She said: "no,\nnever".'},
    {"id": "b", "text": "größer, Ελλάδα\u2028\x01 𝕏"},
    {"id": "c", "text": "long " * 60_000},
]


def write(file: Path, records: list[dict[str, str]]) -> Path:
    """In the format that the name says, by the standard library and pyarrow."""
    if file.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(records), file, row_group_size=2)
        return file
    opened = gzip.open if file.suffix == ".gz" else open
    with opened(file, "wt", encoding="utf-8", newline="") as stream:
        if ".jsonl" in file.name:
            stream.writelines(json.dumps(record) + "\n" for record in records)
        else:
            writer = csv.DictWriter(stream, ["id", "text"])
            writer.writeheader()
            writer.writerows(records)
    return file


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, name: str) -> None:
    rows = list(read_rows(write(tmp_path / name, RECORDS)))
    assert [row.fields for row in rows] == RECORDS
    assert [row.number for row in rows] == [1, 2, 3]
    assert all(str(tmp_path / name) in row.where for row in rows)


def test_tabs_know_no_quotes_and_columns_may_be_named_by_the_caller(tmp_path: Path) -> None:
    file = tmp_path / "a.tsv"
    file.write_text('id\ttext\n1\t"Heroes" (album)\n2\tsaid "so\n', encoding="utf-8")
    assert [[*row.fields.values()] for row in read_rows(file)] == [["1", '"Heroes" (album)'], ["2", 'said "so']]
    file = tmp_path / "pairs.txt"
    file.write_bytes(b'\xef\xbb\xbf1,"a, b","c"\r\n\r\n0,d,"e ""f"""\r\n')
    rows = list(read_csv(file, columns=("label", "one", "two")))
    assert [tuple(row.fields.values()) for row in rows] == [("1", "a, b", "c"), ("0", "d", 'e "f"')]
    assert rows[1].where == f"{file}, row 2"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'id,text\n1,"a" b\n', r"a\.csv, row 1: broken quoting up to line 2"),
        ("a.csv", b'id,text\n1,a\n2,"b\nc\n', r"a\.csv, row 2: broken quoting up to line 4 \(unexpected end of data\)"),
        ("a.csv", b"id,text\n1,a\n2\n", r"a\.csv, row 2 \(up to line 3\): 1 values, expected 2 \(id, text\)"),
        ("a.csv", b"id,text\n1,a,b\n", r"row 1 \(up to line 2\): 3 values, expected 2"),
        ("a.csv", b"id,id\n1,a\n", r"a\.csv, line of column names: id, id names a column twice; rename one"),
        ("a.tsv", b"id\ttext\n1 a\n", r"a\.tsv, row 1 \(up to line 2\): 1 values"),
        ("a.csv", b"id,text\n1,caf\xe9\n", r"a\.csv: byte 13 is 0xe9, which is not UTF-8"),
        ("a.jsonl", b'{"a": 1}\n\n{"a"', r"a\.jsonl, line 3: not JSON"),
        ("a.parquet", b"PAR1 but not really", r"a\.parquet: is not a whole parquet file"),
        ("a.csv.gz", b"id,text\n", r"a\.csv\.gz: is not a whole gzip file"),
        ("a.xlsx", b"", r"a\.xlsx: not a data file; give \.jsonl, \.json, \.csv, \.tsv"),
    ],
)
def test_what_is_broken_is_named_with_its_place(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(InputError, match=message) as caught:
        list(read_rows(tmp_path / name))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.parquet"])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, name: str) -> None:
    file = write(tmp_path / name, RECORDS)
    file.write_bytes(file.read_bytes()[:-20])
    with pytest.raises(InputError, match=f"{name}: is not a whole"):
        list(read_rows(file))


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a.jsonl", ".jsonl"), ("b.c.csv.gz", ".csv"), ("t.parquet", ".parquet"), ("t.parquet.gz", None), ("a.gz", None), ("a.txt", None)],
)  # fmt: skip
def test_the_name_tells_the_format(name: str, expected: str | None) -> None:
    assert file_format(Path(name)) == expected


def test_unpaired_surrogates_are_replaced_and_pairs_joined() -> None:
    assert without_surrogates("a\ud83db") == "a\ufffdb"
    assert without_surrogates("\ud83d\ude00") == "😀"
    assert without_surrogates("plain 😀") == "plain 😀"
    assert text_of({"text": "\udc00"}, "text", where="here") == "\ufffd"

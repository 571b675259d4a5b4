"""Links are read in every layout, and ids that meet no document are named."""

import json

import pytest
from conftest import write_files, write_rows

from docemb_lib.corpus.links import relevant_documents

KNOWN = ["1", "2", "3", "4"]
LINKS = {"1": ["2", "3"], "4": ["1"]}
PAIRS = [("1", "2"), ("1", "3"), ("4", "1")]


def lines(pattern):
    return "".join(pattern.format(*pair) for pair in PAIRS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", lines("{}\t{}\n")),
        ("a.tsv", lines("{}\t{}\n\n")),
        ("a.txt", lines("{} {}\n")),
        ("a.csv", lines("{}, {}\n")),
        ("a.csv", lines("{};{}\n")),
        ("a.csv", "source,target\n" + lines("{},{}\n")),
        ("a.csv", "Target,Source\n" + lines("{1},{0}\n")),
        ("a.tsv", "query\tdoc\n" + lines("{}\t{}\n")),
        ("a.tsv", "one\tother\n" + lines("{}\t{}\n")),
        ("a.txt", lines("{} 0 {} 1\n") + "2 0 1 0\n"),
        ("a.qrels", lines("{}\tQ0\t{}\t2\n")),
        ("a.tsv", "query-id\tcorpus-id\tscore\n" + lines("{}\t{}\t2\n") + "1\t4\t0\n"),
        ("a.tsv", lines("{}\t{}\t1\n") + "1\t4\t-1\n"),
        ("a.tsv", lines("{}\t{}\n").encode("utf-16")),
        ("a.jsonl", lines('{{"source": {}, "target": "{}"}}\n')),
        ("a.json", json.dumps([{"query-id": s, "corpus-id": float(t)} for s, t in PAIRS])),
    ],
)
def test_every_layout_gives_the_same_links(tmp_path, name, content):
    write_files(tmp_path, {name: content})
    assert relevant_documents(tmp_path / name, KNOWN) == LINKS


def test_links_may_be_parquet(tmp_path):
    rows = [{"source": float(source), "target": int(target)} for source, target in PAIRS]
    assert relevant_documents(write_rows(tmp_path / "a.parquet", rows), KNOWN) == LINKS


def test_a_first_line_whose_values_are_no_ids_is_said_to_be_names(tmp_path, caplog):
    write_files(tmp_path, {"a.tsv": "one\tother\n1\t2\n"})
    relevant_documents(tmp_path / "a.tsv", KNOWN)
    assert "a.tsv: the first line (one, other) is read as names" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("0001\t0002\n0001\t0003\n", "2 of 2 links name 3 ids .*'0001', '0002', '0003'"),
        ("1\t2\n1\t99\n", r"1 of 2 links name 1 ids that no document has \('99'"),
    ],
)
def test_unknown_ids_are_counted_and_shown_beside_those_of_documents(
    tmp_path, content, said, refused
):
    write_files(tmp_path, {"a.tsv": content})
    message = rf"a\.tsv: {said}; the documents' ids look like '1', '2', '3'\); let them agree"
    refused(message, relevant_documents, tmp_path / "a.tsv", KNOWN)


def test_links_to_unknown_ids_are_left_out_on_request_and_said(tmp_path, caplog):
    write_files(tmp_path, {"a.tsv": "1\t2\n1\t99\n"})
    assert relevant_documents(tmp_path / "a.tsv", KNOWN, skip_bad=True) == {"1": ["2"]}
    assert "1 of 2 links name 1 ids that no document has ('99'" in caplog.text


@pytest.mark.parametrize(("ids", "separator"), [("1,{},x", "\t"), ("a;{}", ","), ("a|{}", " ")])
def test_ids_may_hold_what_separates_others(tmp_path, ids, separator):
    first, second = ids.format(1), ids.format(2)
    if separator == ",":
        first, second = f'"{first}"', f'"{second}"'
    write_files(tmp_path, {"a.txt": f"{first}{separator}{second}\n"})
    known = [ids.format(1), ids.format(2)]
    assert relevant_documents(tmp_path / "a.txt", known) == {known[0]: known[1:]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1\t2\n3\t3\n", r"row 2: the row names the document '3' twice"),
        ("1\t2\n3\n", r"row 2: it has 1 values; write two ids"),
        ("1\t2\t0.5\n", r"row 1: the grade is '0.5'; write an integer"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, content, said, refused):
    write_files(tmp_path, {"a.tsv": content})
    refused(said, relevant_documents, tmp_path / "a.tsv", KNOWN)

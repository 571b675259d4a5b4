"""Links are read in every layout, and ids that meet no document are named."""

import pytest
from conftest import write_files

from docemb_lib.corpus.links import read_links, relevant_documents

KNOWN = ["1", "2", "3", "4"]
LINKS = {"1": ["2", "3"], "4": ["1"]}
PAIRS = [("1", "2"), ("1", "3"), ("4", "1")]


def lines(pattern):
    return "".join(pattern.format(*pair) for pair in PAIRS)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.tsv", lines("{}\t{}\n\n")),
        ("a.txt", lines("{} {}\n")),
        ("a.csv", lines("{}, {}\n")),
        ("a.csv", lines("{};{}\n")),
        ("a.csv", "source,target\n" + lines("{},{}\n")),
        ("a.tsv", "one\tother\n" + lines("{}\t{}\n")),
        ("a.qrels", lines("{} 0 {} 1\n") + "2 0 1 0\n"),
        ("a.tsv", "query-id\tcorpus-id\tscore\n" + lines("{}\t{}\t2\n") + "1\t4\t0\n"),
        ("a.tsv", lines("{}\t{}\n").encode("utf-16")),
    ],
)
def test_every_layout_gives_the_same_links(tmp_path, name, content):
    write_files(tmp_path, {name: content})
    assert relevant_documents(tmp_path / name, KNOWN) == LINKS


def test_grades_are_kept_and_a_query_may_have_the_id_of_a_document(tmp_path):
    write_files(tmp_path, {"a.txt": "7 0 7 2\n7 0 8 0\n"})
    assert read_links(tmp_path / "a.txt", [], []) == {"7": {"7": 2, "8": 0}}


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
def test_unknown_ids_are_counted_and_shown_with_those_of_documents(
    tmp_path, content, said, refused
):
    write_files(tmp_path, {"a.tsv": content})
    message = rf"a\.tsv: {said}; the documents' ids look like '1', '2', '3'\); let them agree"
    refused(message, relevant_documents, tmp_path / "a.tsv", KNOWN)


def test_links_to_unknown_ids_are_left_out_on_request_and_said(tmp_path, caplog):
    write_files(tmp_path, {"a.tsv": "1\t2\n1\t99\n"})
    assert relevant_documents(tmp_path / "a.tsv", KNOWN, skip_bad=True) == {"1": ["2"]}
    assert "1 of 2 links name 1 ids that no document has ('99'" in caplog.text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1\t2\n3\t3\n", r"row 2: the row names the document '3' twice"),
        ("1\t2\n3\n", r"row 2: it has 1 values; write two ids"),
        ("1\t2\t0.5\n", r"row 1: the grade is '0.5'; write a whole number"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, content, said, refused):
    write_files(tmp_path, {"a.tsv": content})
    refused(said, relevant_documents, tmp_path / "a.tsv", KNOWN)

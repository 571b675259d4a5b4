"""Links are read in every layout."""

import pytest
from conftest import write_files

from docemb_lib.evaluation.judged import read_links

KNOWN = {"1", "2", "3", "4"}
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
        ("a.qrels", lines("{} 0 {} 1\n")),
        ("a.tsv", "query-id\tcorpus-id\tscore\n" + lines("{}\t{}\t1\n")),
        ("a.tsv", lines("{}\t{}\n").encode("utf-16")),
    ],
)
def test_every_layout_gives_the_same_links(tmp_path, name, content):
    write_files(tmp_path, {name: content})
    assert read_links(tmp_path / name, KNOWN) == {"1": {"2": 1, "3": 1}, "4": {"1": 1}}


def test_grades_are_kept(tmp_path):
    write_files(tmp_path, {"a.txt": "1 0 9 2\n1 0 2 0\n"})
    assert read_links(tmp_path / "a.txt", KNOWN) == {"1": {"9": 2, "2": 0}}


def test_the_first_row_of_three_columns_without_names_is_said(tmp_path, caplog):
    write_files(tmp_path, {"a.tsv": "1\t2\t3\n4\t1\t1\n"})  # or an index, and two ids
    assert read_links(tmp_path / "a.tsv", KNOWN) == {"1": {"2": 3}, "4": {"1": 1}}
    assert "row 1 is read as '1' and '2' with the grade 3" in caplog.text


def test_the_name_of_a_document_may_be_a_number(tmp_path):
    write_files(tmp_path, {"a.txt": "2 0 1 1\n"})
    known = {"0.txt", "1.txt", "2.txt"}
    assert read_links(tmp_path / "a.txt", known) == {"2.txt": {"1.txt": 1}}


def test_ids_of_a_folder_may_lack_their_endings(tmp_path):
    write_files(tmp_path, {"a.txt": "a\told/b\nold/b\tc\n"})
    known = {"a.txt", "old/b.md", "c"}
    expected = {"a.txt": {"old/b.md": 1}, "old/b.md": {"c": 1}}
    assert read_links(tmp_path / "a.txt", known) == expected


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1\t2\n3\n", r"row 2: it has 1 values; write two ids"),
        ("1\t2\t0.5\n", r"row 1: the grade is '0.5'; write a whole number.*--scored"),
        ("1\t2\t3\t1\n", r"row 1: it has 4 values; .* columns, of which the second is 0"),
        ("1\t2\t1\n1\t2\t0\n", r"row 2: '1' and '2' have another grade in an earlier row"),
        ("", "it holds no links; write two ids"),
    ],
)
def test_a_bad_row_is_refused_with_its_place(tmp_path, content, said, refused):
    write_files(tmp_path, {"a.tsv": content})
    refused(said, read_links, tmp_path / "a.tsv", KNOWN)

"""Every published row names its source, and docs/sources.md explains how it was obtained."""

import re

import pytest
from conftest import REPOSITORY

from docemb_lib.thesis.values import published, read_file

PAGE = (REPOSITORY / "docs" / "sources.md").read_text(encoding="utf-8")
PUBLISHED = "docemb_lib/thesis/published"
FILES = sorted(path.stem for path in (REPOSITORY / PUBLISHED).glob("*.yaml"))
PRINTED = {"text", "table"}
READ_FROM = PRINTED | {
    "draft",
    "later revision",
    "vector graphics",
    "author's code",
    "author's logs",
}
SOURCE = re.compile(r"(table|figure) \d+(\.\d+)?[ab]?( of a later revision)?")
COLUMNS = ["value or rule", "where the project has it", "source", "what the text says"]


def cells(line):
    return [cell.strip() for cell in line.strip().strip("|").split("|")]


TABLES = [cells(line) for line in PAGE.splitlines() if line.startswith("|") and "---" not in line]
ROWS = [row for row in TABLES if row != COLUMNS]


@pytest.mark.parametrize("name", FILES)
def test_every_published_row_has_a_source_and_says_how_it_was_obtained(name):
    rows = published(name)
    read_from = read_file(name)["read_from"]
    assert len(rows) > 0
    assert not [source for source in rows["source"] if not SOURCE.fullmatch(str(source))]
    assert set(rows["read_from"]) <= READ_FROM
    assert set(rows["source"]) == set(read_from)  # none is missing, and none is left over
    figures = rows["source"].str.startswith("figure")
    assert (
        rows["read_from"] == "vector graphics"
    ).tolist() == figures.tolist()  # figures print no numbers


def test_the_page_explains_all_words_of_its_column_source():
    explained = re.findall(r"^- \*\*(.+?)\*\*: ", PAGE, flags=re.MULTILINE)
    used = {word for row in ROWS for word in row[2].split(", ")}
    assert used | READ_FROM == set(explained)


def test_every_row_of_the_page_is_whole_and_names_files_that_exist():
    assert len(ROWS) > 50
    for row in ROWS:
        assert len(row) == len(COLUMNS)
        assert all(row)
        files = [name for name in re.findall(r"`([^`]+)`", row[1]) if "/" in name]
        assert files, row
        assert all((REPOSITORY / name).is_file() for name in files), row


@pytest.mark.parametrize("name", FILES)
def test_the_page_lists_the_published_files_whose_values_are_not_printed(name):
    unprinted = set(published(name)["read_from"]) - PRINTED
    stated = [row[2] for row in ROWS if f"`{PUBLISHED}/{name}.yaml`" in row[1]]
    assert unprinted <= {word for words in stated for word in words.split(", ")}

"""WINES and GAMES in their published format: articles as a CSV with sections as Python literals, lists as a pickle."""

from __future__ import annotations

import collections
import csv
import json
import logging
import pickle
from pathlib import Path
from typing import Any

import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation.benchmarks import read_articles, read_ranking, read_relevance

ARTICLES = [
    ("Merlot", [("", "A dark blue grape."), ("Taste", ""), ("Regions", 'Grown in "France",\nand elsewhere.')]),
    ("Malbec", [("", "Purple.")]),
    ("Moët & Chandon", []),
    ("Game \ud83d", [("Plot", "It \udc00 ends.")]),
]


def write_articles(file: Path, articles: list[tuple[str, Any]] = ARTICLES) -> Path:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Title", "Sections"])
        writer.writerows((title.encode("utf-8", "replace").decode(), repr(sections)) for title, sections in articles)
    return file


def write_relevance(folder: Path, lists: Any, *, as_json: bool = False) -> Path:
    file = folder / ("gt.json" if as_json else "gt")
    file.write_bytes(json.dumps(lists).encode() if as_json else pickle.dumps(lists))
    return file


def test_the_text_of_an_article_is_its_title_and_every_section_that_is_not_empty(tmp_path: Path) -> None:
    assert read_articles(write_articles(tmp_path / "wines.txt")) == {
        "Merlot": 'Merlot  A dark blue grape. Regions Grown in "France",\nand elsewhere.',
        "Malbec": "Malbec  Purple.",
        "Moët & Chandon": "Moët & Chandon",
        "Game ?": "Game ? Plot It \ufffd ends.",  # the surrogate inside the literal is an escape there
    }


@pytest.mark.parametrize("as_json", [False, True])
def test_titles_without_an_article_are_left_out_and_counted(tmp_path: Path, as_json: bool, caplog: Any) -> None:
    lists: dict[str, Any] = {
        "Malbec": {"Merlot": 1, "Malbec": 1, "Nowhere": 1},
        "Unwritten": {"Merlot": 1},
        "Merlot": {"Unknown": 1},
        "Moët & Chandon": {"Malbec": 3, "Merlot": 1},
    }
    if not as_json:
        lists = collections.defaultdict(collections.Counter, {k: collections.Counter(v) for k, v in lists.items()})
    with caplog.at_level(logging.WARNING):
        ranking = read_ranking(write_articles(tmp_path / "a.csv"), write_relevance(tmp_path, lists, as_json=as_json))
    assert [text.split()[0] for text in ranking.texts] == ["Merlot", "Malbec", "Moët", "Game"]
    assert ranking.queries == [1, 2]
    assert ranking.relevant == [[0], [1, 0]]
    assert "2 of 4 lists are left out" in caplog.text
    assert "3 titles to be found are left out" in caplog.text


def test_lists_may_be_any_plain_container_and_name_a_title_twice(tmp_path: Path) -> None:
    lists = {"a": ["x", "y", "x"], "b": ("x",), "c": {"y", "x"}, "d": frozenset({"x"})}
    assert read_relevance(write_relevance(tmp_path, lists)) == {
        "a": ["x", "y"],
        "b": ["x"],
        "c": ["x", "y"],
        "d": ["x"],
    }


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["Merlot", "[('Taste', 'x')"], r"a\.csv, row 2: the sections must be a Python list of \(title, text\)"),
        (["Merlot", "__import__('os').getcwd()"], "row 2: the sections must be"),
        (["Merlot", "[('one', 'two', 'three')]"], "row 2: the sections must be"),
        (["Merlot", "[('one', 2)]"], "row 2: the sections must be"),
        (["Merlot", "7"], "row 2: the sections must be"),
        (["Malbec", "[]"], r"row 2: the title 'Malbec' stands in an earlier row too"),
        (["Malbec"], r"row 2 \(up to line 3\): 1 values, expected 2"),
    ],
)
def test_a_bad_article_is_named_with_its_row(tmp_path: Path, row: list[str], message: str) -> None:
    file = write_articles(tmp_path / "a.csv", [ARTICLES[1]])
    with file.open("a", newline="") as stream:
        csv.writer(stream).writerow(row)
    with pytest.raises(InputError, match=message):
        read_articles(file)


def test_files_that_are_something_else_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b,c\n1,2,3\n")
    with pytest.raises(InputError, match="has 3 columns, expected two"):
        read_articles(tmp_path / "a.csv")
    with pytest.raises(InputError, match="holds no article"):
        read_articles(write_articles(tmp_path / "b.csv", []))
    for lists, message in [
        ([], "holds list"),
        ({"a": 3}, "'a' has int, expected titles"),
        ({"a": [3]}, "no string"),
        ({"a": {3, "x"}}, "no string"),
        ({3: ["a"]}, "a title is int"),
    ]:
        with pytest.raises(InputError, match=message):
            read_relevance(write_relevance(tmp_path, lists))
    (tmp_path / "gt.json").write_text('{"a":\n oops}')
    with pytest.raises(InputError, match=r"gt\.json: not JSON \(.*in line 2\)"):
        read_relevance(tmp_path / "gt.json")
    with pytest.raises(InputError, match="no list belongs to the articles"):
        read_ranking(write_articles(tmp_path / "c.csv"), write_relevance(tmp_path, {"Other": ["Merlot"]}))

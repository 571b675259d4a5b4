"""Corpora as they are published: fields, compression and file names, whole and broken."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from docemb_lib.corpus import sources
from docemb_lib.corpus.origin import read_documents
from docemb_lib.corpus.sources import hub_documents
from docemb_lib.errors import InputError
from docemb_lib.settings import Corpus


def long_text(kind: str, n: int) -> str:
    return f"{kind} {n}. " + "These are the words of an article. " * (n % 5 + 1)


def realnews(number: int) -> list[str]:
    """Lines as RealNews' authors give them out."""
    return [
        json.dumps(
            {
                "url": f"https://paper.example/{n}",
                "url_used": f"https://web.archive.example/{n}",
                "title": f"Title {n}",
                "text": long_text("news", n),
                "summary": None if n % 2 else "In short.",
                "authors": ["A. Writer"] if n % 3 else [],
                "publish_date": "02-01-2019",
                "domain": "paper.example",
                "warc_date": "20190301000000",
                "status": "success",
                "split": "val" if n % 10 == 0 else "train",
            }
        )
        for n in range(number)
    ]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "realnews.jsonl").write_text("\n".join(realnews(30)) + "\n", encoding="utf-8")
    wikipedia = tmp_path / "wikipedia" / "20231101.en"
    wikipedia.mkdir(parents=True)
    for part in range(2):
        rows = [
            {"id": f"{n}", "url": f"https://en.wikipedia.org/wiki/{n}", "title": f"{n}", "text": long_text("wiki", n)}
            for n in range(20 * part, 20 * part + 20)
        ]
        parquet.write_table(pa.Table.from_pylist(rows), wikipedia / f"train-0000{part}-of-00002.parquet")
    c4 = tmp_path / "c4" / "realnewslike"
    c4.mkdir(parents=True)
    for name, numbers in (("c4-train.00000-of-00512", range(25)), ("c4-validation.00000-of-00001", range(100, 105))):
        lines = [
            {"text": long_text("c4", n), "timestamp": "2019-04-21T10:07:13Z", "url": f"https://paper.example/{n}"}
            for n in numbers
        ]
        body = "".join(json.dumps(line) + "\n" for line in lines).encode()
        (c4 / f"{name}.json.gz").write_bytes(gzip.compress(body))
    return tmp_path


def test_half_wikipedia_half_news_as_the_thesis_draws_them(data: Path) -> None:
    datasets: list[Any] = [
        {"dataset": str(data / "wikipedia" / "20231101.en")},
        {"dataset": str(data / "realnews.jsonl"), "min_student_tokens": 15},
    ]
    drawn = list(read_documents(Corpus(source="hub", datasets=datasets, documents=20), count_tokens=words))
    assert Counter(document.source for document in drawn) == {"20231101.en": 10, "realnews": 10}
    assert all(document.text.startswith("wiki ") for document in drawn[:10])
    assert min(len(document.text.split()) for document in drawn[10:]) >= 15
    assert len({document.id for document in drawn}) == 20


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


@pytest.mark.parametrize("name", ["c4/realnewslike", "c4/realnewslike/c4-train.*.json.gz"])
def test_c4_is_read_from_a_copy_of_its_folder_or_from_its_files(data: Path, name: str) -> None:
    drawn = list(hub_documents(str(data / name), limit=25))
    assert sorted(document.text for document in drawn) == sorted(long_text("c4", n) for n in range(25))


def test_a_truncated_download_is_named_by_its_file(data: Path) -> None:
    file = data / "c4" / "realnewslike" / "c4-train.00000-of-00512.json.gz"
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match=r"c4-train\.00000-of-00512\.json\.gz: is not a whole gzip file") as caught:
        list(hub_documents(str(file.parent), limit=25))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"url": "x", "text": "torn', r"realnews\.jsonl, line 31: not JSON"),
        ('{"url": "x", "text": null}', r"realnews\.jsonl, line 31: field 'text' must be a string, found NoneType"),
        ('["text"]', r"realnews\.jsonl, line 31: found list"),
    ],
)
def test_a_bad_line_is_named_by_its_number(data: Path, line: str, message: str) -> None:
    file = data / "realnews.jsonl"
    file.write_text(file.read_text(encoding="utf-8") + line + "\n", encoding="utf-8")
    with pytest.raises(InputError, match=message):
        list(hub_documents(str(file), limit=99))


def test_a_torn_parquet_file_is_named(data: Path) -> None:
    file = data / "wikipedia" / "20231101.en" / "train-00001-of-00002.parquet"
    file.write_bytes(file.read_bytes()[:-50])
    with pytest.raises(InputError, match=r"train-00001-of-00002\.parquet: is not a whole parquet file"):
        list(hub_documents(str(file.parent), limit=99))


def test_a_hub_that_fails_on_the_way_is_no_wrong_input_and_says_how_far_it_came(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def rows() -> Iterator[dict[str, str]]:
        for n in range(7):
            yield {"text": long_text("wiki", n)}
        raise TimeoutError("the read operation\ntimed out")

    stream = SimpleNamespace(shuffle=lambda **options: rows())
    monkeypatch.setattr(sources, "_stream", lambda *arguments, **options: stream)
    drawn = hub_documents("wikimedia/wikipedia", limit=99)
    assert len([next(drawn) for _ in range(7)]) == 7
    expected = (
        "dataset 'wikimedia/wikipedia', split 'train', after row 7: TimeoutError: the read operation timed out; the same "
        "command goes on from here"
    )
    with pytest.raises(ConnectionError) as caught:
        next(drawn)
    assert str(caught.value) == expected

"""From a profile's corpus section to documents: equal shares, filters, and fingerprints that see every change."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from docemb_lib.corpus.origin import read_documents, source_fingerprint
from docemb_lib.errors import InputError
from docemb_lib.settings import Corpus


def write(file: Path, texts: list[str]) -> Path:
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
    return file


@pytest.fixture
def hub(tmp_path: Path) -> dict[str, Any]:
    write(tmp_path / "wikipedia.jsonl", [f"wiki {n} " + "word " * n for n in range(40)])
    write(tmp_path / "news.jsonl", [f"news {n} " + "word " * n for n in range(60)])
    datasets = [
        {"dataset": str(tmp_path / "wikipedia.jsonl")},
        {"dataset": str(tmp_path / "news.jsonl"), "min_student_tokens": 32},
    ]
    return {"source": "hub", "datasets": datasets, "documents": 41}


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_every_data_set_gives_an_equal_share_and_its_own_filter_holds(hub: dict[str, Any]) -> None:
    documents = list(read_documents(Corpus(**hub), count_tokens=words))
    assert documents == list(read_documents(Corpus(**hub), count_tokens=words))
    assert Counter(document.source for document in documents) == {"wikipedia": 21, "news": 20}
    assert len({document.text for document in documents}) == 41
    assert min(len(d.text.split()) for d in documents if d.source == "news") >= 32
    assert min(len(d.text.split()) for d in documents if d.source == "wikipedia") < 32


def test_all_of_the_first_data_set_and_as_many_of_the_other_are_taken_where_there_is_no_number(
    hub: dict[str, Any],
) -> None:
    hub["documents"], hub["datasets"] = None, hub["datasets"][::-1]
    documents = list(read_documents(Corpus(**hub), count_tokens=words))
    news = [json.loads(line)["text"] for line in Path(hub["datasets"][0]["dataset"]).read_text().splitlines()]
    long = {text for text in news if len(text.split()) >= 32}
    assert {document.text for document in documents if document.source == "news"} == long
    assert Counter(document.source for document in documents) == {"news": len(long), "wikipedia": len(long)}


def test_a_longer_corpus_keeps_most_of_what_was_drawn(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    drawn = []
    for size in (100, 110):
        write(file, [f"text {n}" for n in range(size)])
        drawn.append({document.id for document in read_documents(Corpus(source="local", path=file, documents=50))})
    assert [len(ids) for ids in drawn] == [50, 50]
    assert len(drawn[0] & drawn[1]) >= 40
    other = read_documents(Corpus(source="local", path=file, documents=50, seed=1))
    assert {document.id for document in other} != drawn[1]


def test_near_duplicates_are_left_out_before_documents_are_drawn(tmp_path: Path) -> None:
    texts = [f"{n} " + " ".join(f"w{n}.{i}" for i in range(200)) for n in range(10)]
    file = write(tmp_path / "a.jsonl", [*texts, *(text + " end" for text in texts)])
    settings = {"source": "local", "path": file, "documents": 12}
    assert len(list(read_documents(Corpus(**settings)))) == 12
    assert len(list(read_documents(Corpus(**settings, near_duplicates=0.8)))) == 10


def test_the_fingerprint_changes_with_every_file_and_setting_but_not_with_the_place(tmp_path: Path) -> None:
    one, other = write(tmp_path / "a.jsonl", ["one"]), write(tmp_path / "b.jsonl", ["other"])
    settings = {"source": "local", "path": [one, other]}
    before = source_fingerprint(Corpus(**settings))
    assert source_fingerprint(Corpus(**settings)) == before
    assert source_fingerprint(Corpus(source="local", path=tmp_path / "*.jsonl")) == before
    assert source_fingerprint(Corpus(**settings, near_duplicates=0.5)) != before
    os.utime(other, ns=(1, 1))
    assert source_fingerprint(Corpus(**settings)) != before


def test_the_files_of_a_data_set_are_part_of_the_fingerprint(hub: dict[str, Any]) -> None:
    before = source_fingerprint(Corpus(**hub))
    write(Path(hub["datasets"][1]["dataset"]), ["less"])
    assert source_fingerprint(Corpus(**hub)) != before
    hub["datasets"][0]["dataset"] = "nowhere/wikipedia.parquet"
    with pytest.raises(InputError, match=r"corpus\.datasets: nowhere/wikipedia\.parquet does not exist"):
        source_fingerprint(Corpus(**hub))
    hub["datasets"][0]["dataset"] = "wikimedia/wikipedia"  # on a hub: nothing to look at
    source_fingerprint(Corpus(**hub))

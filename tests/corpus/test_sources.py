"""Documents are read from local files, data sets and published corpora; fingerprints."""

import hashlib
import os
import re
import shutil
from collections import Counter
from unittest.mock import Mock

import pytest
from conftest import write_files, write_rows

from docemb_lib.corpus import installed_docs, sources
from docemb_lib.corpus.sources import read_documents, source_fingerprint
from docemb_lib.settings.sections import Corpus, HubDataset


def words(texts):
    return [len(text.split()) for text in texts]


# Data sets
def hub_documents(dataset, *, limit, seed=0, count_tokens=words, **fields):
    source = HubDataset(dataset=str(dataset), **fields)
    return list(sources.hub_documents(source, limit=limit, seed=seed, count_tokens=count_tokens))


@pytest.fixture
def dataset(tmp_path):
    rows = [{"text": f"story {number} " + "word " * number} for number in range(40)]
    files = {"train.jsonl": [*rows, rows[0], {"text": " "}], "strained.jsonl": [{"text": "no"}]}
    return write_files(tmp_path / "stories", files)


def test_a_dataset_is_read_without_blank_and_repeated_texts(dataset, caplog):
    drawn = hub_documents(dataset, limit=100)
    assert len({document.text for document in drawn}) == len(drawn) == 40
    assert all(re.fullmatch(r"stories/[0-9a-f]{16}", document.id) for document in drawn)
    assert {document.source for document in drawn} == {"stories"}
    assert "gave 40 documents of the 100 asked for" in caplog.text


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("least", [None, 4])
def test_a_sample_has_the_lowest_hashes_of_seed_and_id_in_any_order_of_rows(tmp_path, seed, least):
    texts = [f"text {n} " + "word " * (n % 5) for n in range(1500)]
    for shard in range(3):
        rows = [{"text": text} for text in reversed(texts[shard::3])]
        write_files(tmp_path, {f"train-{shard}.jsonl": rows})
    options = {"seed": seed, "min_student_tokens": least}

    def draw(document):
        return hashlib.sha256(f"{seed}\0{document.id}".encode()).digest()

    whole = hub_documents(tmp_path, limit=None, **options)
    assert len(whole) == (1500 if least is None else 900)
    assert hub_documents(tmp_path, limit=100, **options) == sorted(whole, key=draw)[:100]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"split": "test"},
            r"stories': it cannot be read \(it has no split test, only train\); .* or name",
        ),
        ({"text_field": "body"}, r"the field 'body' must hold .* missing; .* fields 'text'"),
    ],
)
def test_a_dataset_that_cannot_serve_is_refused(dataset, fields, message, refused):
    refused(message, hub_documents, dataset, limit=1, count_tokens=words, **fields)


# Corpora in the fields, compression and file names in which they are published
def long_text(kind, n):
    return f"{kind} {n}. " + "These are the words of an article. " * (n % 5 + 1)


@pytest.mark.parametrize(
    ("name", "kind", "number"),
    [
        ("wikipedia/20231101.en", "wiki", 40),
        ("realnews", "news", 30),
        ("c4/realnewslike", "c4", 25),
    ],
)
def test_a_published_corpus_is_read_from_a_copy_of_its_folder(tmp_path, name, kind, number):
    news = [{"summary": None if n % 10 else "-", "text": long_text("news", n)} for n in range(30)]
    wiki = [{"id": f"{n}", "title": f"{n}", "text": long_text("wiki", n)} for n in range(40)]
    c4 = [{"text": long_text("c4", n), "timestamp": "2019-04-21T10:07:13Z"} for n in range(30)]
    files = {
        "realnews/realnews.jsonl": news,
        "wikipedia/20231101.en/train-00000-of-00002.parquet": wiki[:20],
        "wikipedia/20231101.en/train-00001-of-00002.parquet": wiki[20:],
        "c4/realnewslike/c4-train.00000-of-00512.json.gz": c4[:25],
        "c4/realnewslike/c4-validation.00000-of-00001.json.gz": c4[25:],
    }
    drawn = hub_documents(write_files(tmp_path, files) / name, limit=number)
    assert {document.text for document in drawn} == {long_text(kind, n) for n in range(number)}


@pytest.fixture
def failing_hub(monkeypatch):
    """A hub whose data sets have a script, and whose streams break off after seven rows."""

    def rows():
        for n in range(7):
            yield {"text": long_text("wiki", n)}
        raise TimeoutError("the read operation\ntimed out")

    load = Mock(side_effect=[RuntimeError("script"), {"train": rows()}])
    monkeypatch.setattr("datasets.load_dataset", load)


def test_a_hub_that_fails_on_the_way_is_no_wrong_input_and_the_error_gives_the_row(failing_hub):
    source = HubDataset(dataset="wikimedia/wikipedia")
    drawn = sources.hub_documents(source, limit=None, seed=0, count_tokens=words)
    message = (
        r"^dataset 'wikimedia/wikipedia', split 'train', after row 7: the stream broke off "
        r"\(TimeoutError: the read operation timed out\); the same"
    )
    with pytest.raises(ConnectionError, match=message):
        next(drawn)


# The corpus section of a profile
def read(**corpus):
    return list(read_documents(Corpus(**corpus), count_tokens=words))


def fingerprint(**corpus):
    return source_fingerprint(Corpus(**corpus))


@pytest.fixture
def hub(tmp_path):
    for name, size in (("wikipedia", 40), ("news", 60)):
        rows = [{"text": f"{name} {n} " + "word " * n} for n in range(size)]
        write_files(tmp_path / name, {"train.jsonl": rows})
    datasets = [{"dataset": str(tmp_path / name)} for name in ("wikipedia", "news")]
    datasets[1]["min_student_tokens"] = 32
    return {"source": "hub", "datasets": datasets, "documents": 41}


def test_every_data_set_gives_an_equal_share_of_different_documents(hub):
    documents = read(**hub)
    assert documents == read(**hub)
    assert [document.source for document in documents] == ["wikipedia"] * 21 + ["news"] * 20
    assert len({document.text for document in documents}) == 41
    assert len({document.id for document in documents}) == 41


def test_without_a_number_every_data_set_gives_as_much_as_the_first(hub):
    hub |= {"documents": None, "datasets": hub["datasets"][::-1]}
    documents = read(**hub)
    lengths = [len(each.text.split()) for each in documents if each.source == "news"]
    assert sorted(lengths) == list(range(32, 62))
    assert Counter(document.source for document in documents) == {"news": 30, "wikipedia": 30}


def test_a_longer_corpus_keeps_most_of_what_was_drawn(tmp_path):
    def drawn(size, seed=42):
        file = write_rows(tmp_path / "a.jsonl", [{"text": f"text {n}"} for n in range(size)])
        return {each.id for each in read(source="local", path=file, documents=50, seed=seed)}

    assert len(drawn(100)) == len(drawn(110)) == 50
    assert len(drawn(100) & drawn(110)) >= 40
    assert drawn(110, seed=1) != drawn(110)


@pytest.fixture
def files(tmp_path):
    """Two data files."""
    return [write_rows(tmp_path / f"{name}.jsonl", [{"text": name}]) for name in "ab"]


def test_the_fingerprint_depends_on_the_contents_of_files_and_not_on_their_place(
    files, tmp_path, tmp_path_factory
):
    before = fingerprint(source="local", path=files)
    assert fingerprint(source="local", path=tmp_path / "?.jsonl") == before
    os.utime(files[1], ns=(1, 1))
    moved = shutil.copytree(tmp_path, tmp_path_factory.mktemp("moved") / tmp_path.name)
    assert fingerprint(source="local", path=files) == before
    assert fingerprint(source="local", path=moved / "?.jsonl") == before
    write_rows(files[1], [{"text": "c"}])  # as long as before
    assert fingerprint(source="local", path=files) != before


def test_files_too_large_to_be_read_each_time_are_known_by_their_times(files, monkeypatch):
    monkeypatch.setattr(sources, "BY_CONTENT", 20)
    before = fingerprint(source="local", path=files)
    os.utime(files[1], ns=(1, 1))
    assert fingerprint(source="local", path=files) != before


def test_the_fingerprint_of_a_missing_file_is_refused(files, refused):
    files[1].unlink()
    said = r"corpus\.path: .*b\.jsonl does not exist"
    refused(said, fingerprint, source="local", path=files)


def test_the_fingerprint_changes_with_packages_and_lengths(monkeypatch):
    prints = [fingerprint(packages=[name]) for name in ("numpy", "pandas")]
    monkeypatch.setattr(installed_docs, "WORDS", (80, 7000))
    prints.append(fingerprint(packages=["numpy"]))
    assert len(set(prints)) == 3


def test_the_fingerprint_changes_with_the_files_of_a_data_set(hub, tmp_path):
    before = fingerprint(**hub)
    write_files(tmp_path / "news", {"train.jsonl": [{"text": "less"}]})
    assert fingerprint(**hub) != before

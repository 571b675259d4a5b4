"""Published tasks from small files in exactly their published formats, and the safe reader of
pickles.
"""

import collections
import csv
import decimal
import gzip
import io
import os
import pickle
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import get_args
from unittest.mock import Mock, call

import datasets
import pytest
from conftest import Hostile, write_files, write_rows

from docemb_lib.evaluation import Classification, Pairs, benchmark_task, benchmarks
from docemb_lib.evaluation.benchmarks import read_articles, read_relevance
from docemb_lib.evaluation.tasks import SPLITS, Labelled, LabelledPairs
from docemb_lib.settings.sections import ON_HUB, BenchmarkName, SimDEName

# ---- The tasks of the thesis
PAIR_FILES = {"aan": "{}_cite.csv", "oc": "{}_ai2_ab.csv", "pan": "pla_{}.csv"}
PAIR_FILES["s2orc"] = "{}_ai2_gorc.csv"
PAIRS = [("1", 'A "first"\x01sentence,\nand more.', "Other\x01text."), ("0", "Plain", "")]
LAYOUTS = {
    "arxiv": "no_ref/{split}-0000{part}-of-00002.parquet",
    "imdb": "plain_text/{split}/000{part}.parquet",
}


def quoted(rows):
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    return stream.getvalue().encode()


@pytest.mark.parametrize("name", PAIR_FILES)
def test_pairs_come_from_their_three_files_cleaned_packed_or_not(tmp_path, name):
    data = LabelledPairs(
        ['A "first" sentence,\nand more.', "Plain"], ["Other text.", ""], ["1", "0"]
    )
    names = [PAIR_FILES[name].format(split) for split in ("train", "dev", "test")]
    plain = write_files(tmp_path / "plain", dict.fromkeys(names, quoted(PAIRS)))
    packed = {f"{file}.gz": gzip.compress(quoted(PAIRS)) for file in names}
    for folder in (plain, write_files(tmp_path / "packed", packed)):
        assert benchmark_task(name, str(folder)) == Pairs(name, dict.fromkeys(SPLITS, data))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (quoted([("1", "a", "b"), ("2", "a", "b")]), r"'validation': the labels \['2'\] are none"),
        (quoted([("1", "a", "b"), ("0", "a")]), r"dev_cite\.csv, row 2: the field '2' must hold a"),
        (b'"1","a","b"\n"0","un"quoted","b"\n', r"dev_cite\.csv, row 2: there is broken quoting"),
    ],
)
def test_a_broken_pair_file_is_named(tmp_path, content, message, refused):
    files = dict.fromkeys(["train_cite.csv", "test_cite.csv"], quoted(PAIRS))
    folder = write_files(tmp_path, {**files, "dev_cite.csv": content})
    refused(message, benchmark_task, "aan", str(folder))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_of_a_hubs_data_set_is_read_in_either_layout(tmp_path, name):
    other = [{"text": "another config", "label": 7}]
    files = {"default/train-00000-of-00001.parquet": other}
    data = {}
    for split in ("train", "test", "unsupervised"):
        texts = [f"{split} {n}" for n in range(4)]
        data[split] = Labelled(texts, ["0", "1"] * 2)
        rows = [{"text": text, "label": n % 2} for n, text in enumerate(texts)]
        for part in range(2):
            of_part = rows[2 * part : 2 * part + 2]
            files[LAYOUTS[name].format(split=split, part=part)] = of_part
    del data["unsupervised"]
    folder = write_files(tmp_path, files)
    assert benchmark_task(name, str(folder)) == Classification(name, data)


def test_hubs_are_asked_for_the_published_configuration_then_for_converted_files(
    monkeypatch, refused
):
    rows = {split: [{"text": split, "label": n} for n in range(11)] for split in (*SPLITS, "other")}
    answers = [RuntimeError("scripts are no longer supported"), rows, ConnectionError("no\nhub")]
    load = Mock(side_effect=answers)
    monkeypatch.setattr(datasets, "load_dataset", load)
    sizes = {split: len(data.labels) for split, data in benchmark_task("arxiv").splits.items()}
    assert sizes == dict.fromkeys(SPLITS, 11)
    asked = {"streaming": False}, {"streaming": False, "revision": "refs/convert/parquet"}
    hub = ("ccdv/arxiv-classification", "no_ref")
    assert load.call_args_list == [call(*hub, **named) for named in asked]
    said = r"imdb': it cannot be read \(no hub\); .* or name a folder of its files"
    refused(said, benchmark_task, "imdb")


# ---- The tasks of the SimDE paper
TOPICS = ("sport", "tech")
ARTICLES = [(f"{topic} article {n}", topic) for n in range(10) for topic in TOPICS]
LINES = "".join(f"{topic},{text}\n" for text, topic in ARTICLES)
SOURCES = {
    "bbc": {f"bbc/{topic}/{text[-1]}.txt": text for text, topic in ARTICLES},
    "bbc-text.csv": {"bbc-text.csv": f"category,text\n{LINES}"},
    "bbc.jsonl": {"bbc.jsonl": [{"text": text, "label": topic} for text, topic in ARTICLES]},
}


def examples_of(task):
    parts = task.splits.items()
    return {split: list(zip(data.texts, data.labels, strict=True)) for split, data in parts}


@pytest.mark.parametrize("source", SOURCES)
def test_all_layouts_hold_the_same_documents_and_splits_are_drawn(tmp_path, source, caplog):
    found = examples_of(
        benchmark_task("bbcnews", str(write_files(tmp_path, SOURCES[source]) / source))
    )
    assert sorted(chain.from_iterable(found.values())) == sorted(ARTICLES)
    counts = {split: Counter(topic for _, topic in pairs) for split, pairs in found.items()}
    sizes = {"train": 6, "validation": 2, "test": 2}
    assert counts == {split: dict.fromkeys(TOPICS, n) for split, n in sizes.items()}
    said = "task bbcnews has 20 documents, and the paper has 2225; scores are not comparable"
    assert said in caplog.text


def test_arxivs_class_is_the_first_archive_and_blank_fake_news_are_left_out(tmp_path, caplog):
    kinds = ["math.CO cs.DM", "hep-ph", "cs.CL", "astro-ph.GA physics.space-ph"]
    rows = [{"abstract": f"  About {n}.\n", "categories": kinds[n % 4]} for n in range(24)]
    write_rows(tmp_path / "arxiv-metadata-oai-snapshot.json", rows)
    train = examples_of(benchmark_task("arxiv-abstracts", str(tmp_path)))["train"]
    assert {label for _, label in train} == {"math", "hep-ph", "cs", "astro-ph"}
    assert all(text.startswith("  About") for text, _ in train)
    rows = [{"": n, "type": TOPICS[n % 2], "content": f"Text, {n}\nof two."} for n in range(12)]
    bad = [{"": 12, "type": "", "content": "no class"}, {"": 13, "type": "sport", "content": " "}]
    news = write_rows(tmp_path / "news.csv", rows + bad)
    found = examples_of(benchmark_task("fakenews", str(news)))
    assert sum(map(len, found.values())) == 12
    assert "task fakenews: left out: 2 × bad row or file; " in caplog.text


@pytest.mark.parametrize(
    ("name", "source", "message"),
    [
        ("aan", None, "task aan: it is on no hub; name the folder or file that holds its data"),
        ("immdb", None, "'immdb' is not one of arxiv, imdb"),
        ("nyt", "gone", "dataset '.*gone': .*; .* or name a folder of its files"),
        ("imdb", "a.jsonl", "task imdb: 1 rows name no split; name train, validation, test in all"),
    ],
)
def test_data_that_is_missing_or_does_not_fit_is_named(tmp_path, name, source, message, refused):
    write_files(tmp_path, {"a.jsonl": [{"text": "x", "label": "y"}]})
    refused(message, benchmark_task, name, source and str(tmp_path / source))


def test_every_name_of_a_profile_is_a_task():
    assert set(benchmarks.BENCHMARKS) == {*get_args(BenchmarkName), *get_args(SimDEName)}
    assert {name for name, task in benchmarks.BENCHMARKS.items() if task.hub} == set(ON_HUB)


# ---- Similar articles
REGIONS = 'Grown in "France",\nand elsewhere.'
WIKI = {
    "Merlot": [("", "A dark blue grape."), ("Taste", ""), ("Regions", REGIONS)],
    "Malbec": [("", "Purple.")],
    "Moët & Chandon": [],
    "Game ?": [("Plot", "It \udc00 ends.")],
}


def wiki_file(folder, *further):
    rows = [("Title", "Sections"), *((title, repr(of)) for title, of in WIKI.items()), *further]
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows(rows)
    return folder / "a.csv"


def lists_file(folder, lists, protocol=None):
    return write_files(folder, {"gt": pickle.dumps(lists, protocol)}) / "gt"


def test_articles_are_title_and_sections(tmp_path):
    assert read_articles(wiki_file(tmp_path)) == {
        "Merlot": 'Merlot  A dark blue grape. Regions Grown in "France",\nand elsewhere.',
        "Malbec": "Malbec  Purple.",
        "Moët & Chandon": "Moët & Chandon",
        "Game ?": "Game ? Plot It \ufffd ends.",  # an escape in the literal
    }


def test_titles_without_an_article_are_left_out_and_counted(tmp_path, caplog):
    votes = collections.defaultdict(Counter)
    votes["Malbec"] = Counter({"Merlot": 1, "Malbec": 1, "Nowhere": 1})
    votes["Unwritten"] = Counter({"Merlot": 1})
    votes["Merlot"] = Counter({"Unknown": 1})
    votes["Moët & Chandon"] = Counter({"Malbec": 3, "Merlot": 1})
    ranking = benchmarks.read_similar_articles(wiki_file(tmp_path), lists_file(tmp_path, votes))
    assert [text.split()[0] for text in ranking.texts] == ["Merlot", "Malbec", "Moët", "Game"]
    assert (ranking.queries, ranking.relevant) == ([1, 2], [[0], [1, 0]])
    assert "without an article, 2 of 4 lists and 3 relevant titles are left out" in caplog.text


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["Cava", "__import__('os').getcwd()"], "a row must hold a title and a Python list of .ti"),
        (["Cava", "[('one', 2)]"], "a row must hold a title and a Python list of .title, text"),
        (["Malbec", "[]"], "the title 'Malbec' stands in an earlier row too"),
    ],
)
def test_a_bad_article_is_named_with_its_row(tmp_path, row, message, refused):
    refused(rf"a\.csv, row 5: {message}", read_articles, wiki_file(tmp_path, row))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_lists_come_through_in_every_protocol_and_hostile_ones_do_nothing(
    tmp_path, protocol, refused
):
    lists = collections.defaultdict(Counter, a=Counter(x=2), b=["x", "y", "x"], c={"y", "x"})
    lists |= {"d": collections.OrderedDict(x=1), "e": frozenset({"x"}), "f": ("x",)}
    expected = {"a": ["x"], "b": ["x", "y"], "c": ["x", "y"], "d": ["x"], "e": ["x"], "f": ["x"]}
    assert read_relevance(lists_file(tmp_path, lists, protocol)) == expected
    touched = tmp_path / "touched"
    file = lists_file(tmp_path, {"Merlot": [Hostile(open, str(touched), "w")]}, protocol)
    pickle.loads(file.read_bytes())  # it is one: the stock reader runs it
    assert touched.exists()
    touched.unlink()
    refused(r"gt: the lists are refused \(it asks for \w+\.open\)", read_relevance, file)
    assert not touched.exists()


@pytest.mark.parametrize(
    "content",
    [
        *map(pickle.dumps, (Hostile(eval, "1"), Hostile(os.system, "true"), decimal.Decimal(1))),
        *map(pickle.dumps, (Hostile(getattr, 1, "real"), Path("x"), len, {"a": 3})),
        b"ccollections\nCounter\n(N(S'most_common'\nI1\ndtb.",  # setattr(Counter, …)
        b"",
        pickle.dumps({"a": "b" * 99})[:-30],
    ],
)
def test_what_is_no_whole_pickle_of_lists_is_refused(tmp_path, content, refused):
    (tmp_path / "gt").write_bytes(content)
    refused("gt: the lists are refused .*; copy the", read_relevance, tmp_path / "gt")
    assert Counter("aab").most_common(1) == [("a", 2)]

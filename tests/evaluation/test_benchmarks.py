"""Published tasks from small files in exactly their published formats, and the safe reader of
pickles.
"""

import collections
import csv
import decimal
import gzip
import io
import json
import os
import pickle
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any, get_args
from unittest.mock import Mock, call

import datasets
import pytest
from conftest import Hostile, write_files, write_rows

from docemb_lib.evaluation import Classification, Pairs, benchmark_task, benchmarks
from docemb_lib.evaluation.tasks import SPLITS, Labelled, LabelledPairs
from docemb_lib.settings.sections import ON_HUB, BenchmarkName, SimDEName

# ---- The tasks of the thesis
NAMES = {
    "aan": "{}_cite.csv",
    "oc": "{}_ai2_ab.csv",
    "pan": "pla_{}.csv",
    "s2orc": "{}_ai2_gorc.csv",
}
PAIR_FILES = {
    task: [name.format(split) for split in ("train", "dev", "test")] for task, name in NAMES.items()
}
PAIRS = [("1", 'A "first"\x01sentence,\nand more.', "Other\x01text."), ("0", "Plain", "")]
LAYOUTS = {
    "arxiv": "no_ref/{split}-0000{part}-of-00002.parquet",
    "imdb": "plain_text/{split}/000{part}.parquet",
}


def pair_file(rows: list[tuple[str, ...]] = PAIRS) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    return stream.getvalue().encode()


def pair_folder(folder: Path, name: str, *, packed: bool = False) -> Path:
    for file in PAIR_FILES[name]:
        (folder / (f"{file}.gz" if packed else file)).write_bytes(
            gzip.compress(pair_file()) if packed else pair_file()
        )
    return folder


@pytest.mark.parametrize("name", PAIR_FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_pairs_come_from_their_three_files_cleaned(tmp_path: Path, name: str, packed: bool) -> None:
    data = LabelledPairs(
        ['A "first" sentence,\nand more.', "Plain"], ["Other text.", ""], ["1", "0"]
    )
    task = benchmark_task(name, str(pair_folder(tmp_path, name, packed=packed)))
    assert task == Pairs(name, dict.fromkeys(SPLITS, data))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (
            pair_file([("1", "a", "b"), ("2", "a", "b")]),
            r"split 'validation': the labels \['2'\] are none of the 2 classes of 'train'",
        ),
        (
            b'"1","a","b"\n"0","un"quoted","b"\n',
            r"dev_cite\.csv, row 2: there is broken quoting up to line 2",
        ),
    ],
)
def test_a_broken_pair_file_is_named_with_its_row(
    tmp_path: Path, content: bytes, message: str, refused
) -> None:
    pair_folder(tmp_path, "aan")
    (tmp_path / "dev_cite.csv").write_bytes(content)
    refused(message, benchmark_task, "aan", str(tmp_path))


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_of_a_hubs_data_set_is_read_in_either_layout(tmp_path: Path, name: str) -> None:
    for split in ("train", "test", "unsupervised"):
        for part in range(2):
            rows = [{"text": f"{split} {part} {n}", "label": n} for n in range(2)]
            write_files(tmp_path, {LAYOUTS[name].format(split=split, part=part): rows})
    write_files(
        tmp_path, {"default/train-00000-of-00001.parquet": [{"text": "another config", "label": 7}]}
    )
    texts = {
        split: [f"{split} {part} {n}" for part in (0, 1) for n in (0, 1)]
        for split in ("train", "test")
    }
    data = {split: Labelled(own, ["0", "1"] * 2) for split, own in texts.items()}
    assert benchmark_task(name, str(tmp_path)) == Classification(name, data)


def test_hubs_are_asked_for_the_published_configuration_then_for_converted_files(
    monkeypatch, refused
):
    rows = {split: [{"text": split, "label": n} for n in range(11)] for split in (*SPLITS, "other")}
    load = Mock(
        side_effect=[
            RuntimeError("Dataset scripts are no longer supported, but found arxiv.py"),
            rows,
        ]
    )
    monkeypatch.setattr(datasets, "load_dataset", load)
    task = benchmark_task("arxiv")
    asked = {"streaming": False}, {"streaming": False, "revision": "refs/convert/parquet"}
    assert load.call_args_list == [
        call("ccdv/arxiv-classification", "no_ref", **named) for named in asked
    ]
    assert {split: len(data.labels) for split, data in task.splits.items()} == dict.fromkeys(
        SPLITS, 11
    )
    monkeypatch.setattr(
        datasets, "load_dataset", Mock(side_effect=ConnectionError("Couldn't reach\nthe hub"))
    )
    refused(
        r"imdb': it cannot be read \(Couldn't reach the hub\); .* or name a folder of its files",
        benchmark_task,
        "imdb",
    )


# ---- The tasks of the SimDE paper
TOPICS = ("sport", "tech")
ARTICLES = [(f"{topic} article {n}", topic) for n in range(10) for topic in TOPICS]
NUMBERED = [
    {"text": text, "label": TOPICS.index(topic), "label_text": topic} for text, topic in ARTICLES
]
SOURCES = {
    "bbc": {f"bbc/{topic}/{text[-1]}.txt": text for text, topic in ARTICLES}
    | {"bbc/README.TXT": "read me"},
    "bbc-text.csv": {
        "bbc-text.csv": "category,text\n" + "".join(f"{topic},{text}\n" for text, topic in ARTICLES)
    },
    "bbc.jsonl": {"bbc.jsonl": [{"text": text, "label": topic} for text, topic in ARTICLES]},
}


@pytest.mark.parametrize("source", SOURCES)
def test_all_layouts_hold_the_same_documents_and_splits_are_drawn(
    tmp_path: Path, source: str, caplog: Any
) -> None:
    task = benchmark_task("bbcnews", str(write_files(tmp_path, SOURCES[source]) / source))
    found = [
        pair for data in task.splits.values() for pair in zip(data.texts, data.labels, strict=True)
    ]
    assert sorted(found) == sorted(ARTICLES)
    counts = {split: Counter(data.labels) for split, data in task.splits.items()}
    assert counts == {
        s: {"sport": n, "tech": n} for s, n in (("train", 6), ("validation", 2), ("test", 2))
    }
    assert (
        "task bbcnews has 20 documents, and the paper has 2225; scores are not comparable"
        in caplog.text
    )


def test_files_and_rows_name_splits_as_a_copy_of_the_hubs_folder_does(tmp_path: Path) -> None:
    parts = {"train.jsonl": NUMBERED[:15], "test.jsonl": NUMBERED[15:]}
    write_files(
        tmp_path, parts | SOURCES["bbc-text.csv"]
    )  # the table holds all of it again, as on the hub
    task, one = benchmark_task("bbcnews", str(tmp_path)), tmp_path / "one.jsonl"
    found = {
        split: list(zip(data.texts, data.labels, strict=True))
        for split, data in task.splits.items()
    }
    assert found == {"train": ARTICLES[:15], "test": ARTICLES[15:]}
    write_rows(
        one, [row | {"split": "train" if n < 15 else "test"} for n, row in enumerate(NUMBERED)]
    )
    assert benchmark_task("bbcnews", str(one)) == task


def test_arxivs_class_is_the_first_archive_and_blank_fake_news_are_left_out(tmp_path, caplog):
    kinds = ["math.CO cs.DM", "hep-ph", "cs.CL", "astro-ph.GA physics.space-ph"]
    rows = [
        {"id": str(n), "title": "t", "abstract": f"  About {n}.\n", "categories": kinds[n % 4]}
        for n in range(24)
    ]
    write_rows(tmp_path / "arxiv-metadata-oai-snapshot.json", rows)
    task = benchmark_task("arxiv-abstracts", str(tmp_path))
    assert set(task.splits["train"].labels) == {"math", "hep-ph", "cs", "astro-ph"}
    assert "  About 0.\n" in chain.from_iterable(data.texts for data in task.splits.values())
    texts = [(("fake", "bias")[n % 2], f"Text, {n}\nof two lines.") for n in range(12)]
    rows = [
        {"": n, "domain": "a.com", "type": kind, "content": text}
        for n, (kind, text) in enumerate([*texts, ("", "no class"), ("fake", " ")])
    ]
    task = benchmark_task("fakenews", str(write_rows(tmp_path / "news.csv", rows)))
    assert sum(len(data.labels) for data in task.splits.values()) == 12
    assert "task fakenews: left out: 2 × bad row or file; " in caplog.text


@pytest.mark.parametrize(
    ("name", "files", "source", "message"),
    [
        (
            "aan",
            {},
            None,
            "benchmark task aan: it is on no hub; name the folder or file that holds its data",
        ),
        ("immdb", {}, None, "'immdb' is not one of arxiv, imdb"),
        ("nyt", {}, "gone", "dataset '.*gone': .*; .* or name a folder of its files"),
        (
            "imdb",
            {"a.jsonl": [{"text": "x", "label": "y"}]},
            "a.jsonl",
            (
                r"a\.jsonl: the data of imdb name no splits \(train, .*\); copy the "
                r"whole folder of the hub there"
            ),
        ),
    ],
)
def test_data_that_is_missing_or_does_not_fit_is_named(
    tmp_path, name, files, source, message, refused
):
    write_files(tmp_path, files)
    refused(message, benchmark_task, name, None if source is None else str(tmp_path / source))


def test_every_name_of_a_profile_is_a_task() -> None:
    assert set(benchmarks.BENCHMARKS) == {*get_args(BenchmarkName), *get_args(SimDEName)}
    assert {name for name, task in benchmarks.BENCHMARKS.items() if task.hub} == set(ON_HUB)


# ---- Similar articles
WIKI = [
    (
        "Merlot",
        [
            ("", "A dark blue grape."),
            ("Taste", ""),
            ("Regions", 'Grown in "France",\nand elsewhere.'),
        ],
    ),
    ("Malbec", [("", "Purple.")]),
    ("Moët & Chandon", []),
    ("Game \ud83d", [("Plot", "It \udc00 ends.")]),
]


def wiki_file(file: Path, articles: list[tuple[str, Any]] = WIKI) -> Path:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["Title", "Sections"])
        writer.writerows(
            (title.encode("utf-8", "replace").decode(), repr(sections))
            for title, sections in articles
        )
    return file


def write_relevance(
    folder: Path, lists: Any, *, as_json: bool = False, protocol: int | None = None
) -> Path:
    file = folder / ("gt.json" if as_json else "gt")
    file.write_bytes(json.dumps(lists).encode() if as_json else pickle.dumps(lists, protocol))
    return file


def test_articles_are_title_and_sections_and_lists_are_any_plain_container(
    tmp_path,
):
    assert benchmarks.read_articles(wiki_file(tmp_path / "wines.txt")) == {
        "Merlot": 'Merlot  A dark blue grape. Regions Grown in "France",\nand elsewhere.',
        "Malbec": "Malbec  Purple.",
        "Moët & Chandon": "Moët & Chandon",
        "Game ?": "Game ? Plot It \ufffd ends.",  # an escape in the literal
    }
    lists = {"a": ["x", "y", "x"], "b": ("x",), "c": {"y", "x"}, "d": frozenset({"x"})}
    expected = {"a": ["x", "y"], "b": ["x"], "c": ["x", "y"], "d": ["x"]}
    assert benchmarks.read_relevance(write_relevance(tmp_path, lists)) == expected


@pytest.mark.parametrize("as_json", [False, True])
def test_titles_without_an_article_are_left_out_and_counted(
    tmp_path: Path, as_json: bool, caplog: Any
) -> None:
    lists: dict[str, Any] = {
        "Malbec": {"Merlot": 1, "Malbec": 1, "Nowhere": 1},
        "Unwritten": {"Merlot": 1},
        "Merlot": {"Unknown": 1},
        "Moët & Chandon": {"Malbec": 3, "Merlot": 1},
    }
    if not as_json:
        lists = collections.defaultdict(
            collections.Counter, {k: collections.Counter(v) for k, v in lists.items()}
        )
    files = wiki_file(tmp_path / "a.csv"), write_relevance(tmp_path, lists, as_json=as_json)
    ranking = benchmarks.read_similar_articles(*files)
    assert [text.split()[0] for text in ranking.texts] == ["Merlot", "Malbec", "Moët", "Game"]
    assert (ranking.queries, ranking.relevant) == ([1, 2], [[0], [1, 0]])
    assert "without an article, 2 of 4 lists and 3 relevant titles are left out" in caplog.text


TITLED = (
    r"a\.csv, row 2: a row must hold a title and a Python list of \(title, "
    r"text\), its sections; mend it"
)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (["Merlot", "__import__('os').getcwd()"], TITLED),
        (["Merlot", "[('one', 2)]"], TITLED),
        (["Malbec", "[]"], r"row 2: the title 'Malbec' stands in an earlier row too"),
    ],
)
def test_a_bad_article_is_named_with_its_row(
    tmp_path: Path, row: list[str], message: str, refused
) -> None:
    file = wiki_file(tmp_path / "a.csv", [WIKI[1]])
    with file.open("a", newline="") as stream:
        csv.writer(stream).writerow(row)
    refused(message, benchmarks.read_articles, file)


@pytest.mark.parametrize("lists", [{"a": 3}, {3: ["a"]}])
def test_lists_of_another_kind_are_refused(tmp_path: Path, lists: Any, refused) -> None:
    message = r"gt: the lists are refused \(.*\); write gt.json, a mapping from titles to lists"
    refused(message, benchmarks.read_relevance, write_relevance(tmp_path, lists))


# ---- Pickles from elsewhere
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_plain_lists_come_through_in_every_protocol(tmp_path: Path, protocol: int) -> None:
    votes: Any = collections.defaultdict(collections.Counter)
    votes["Merlot"] = collections.Counter({"Malbec": 2})
    votes["Cava"] = collections.OrderedDict(Prosecco=1)
    votes["Rioja"] = frozenset({"Merlot"})
    file = write_relevance(tmp_path, votes, protocol=protocol)
    assert benchmarks.read_relevance(file) == {title: [*of] for title, of in votes.items()}


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_hostile_pickle_is_refused_before_it_does_anything(
    tmp_path: Path, protocol: int, refused
) -> None:
    touched = tmp_path / "touched"
    file = write_relevance(
        tmp_path, {"Merlot": [Hostile(open, str(touched), "w")]}, protocol=protocol
    )
    pickle.loads(file.read_bytes())  # it is one: the stock reader runs it
    assert touched.exists()
    touched.unlink()
    refused(r"gt: the lists are refused \(it asks for \w+\.open\)", benchmarks.read_relevance, file)
    assert not touched.exists()


def test_other_classes_are_refused_and_the_plain_ones_cannot_be_changed(
    tmp_path: Path, refused
) -> None:
    hostile = Hostile(os.system, "true"), Hostile(eval, "1"), Hostile(getattr, 1, "real")
    for value in (*hostile, decimal.Decimal(1), Path("x"), len):
        refused("it asks for", benchmarks.read_relevance, write_relevance(tmp_path, value))
    # setattr(Counter, "most_common", 1)
    (tmp_path / "gt").write_bytes(b"ccollections\nCounter\n(N(S'most_common'\nI1\ndtb.")
    refused("refused", benchmarks.read_relevance, tmp_path / "gt")
    assert collections.Counter("aab").most_common(1) == [("a", 2)]


@pytest.mark.parametrize("content", [b"", pickle.dumps({"a": "b" * 99})[:-30]])
def test_what_is_no_whole_pickle_is_refused(tmp_path: Path, content: bytes, refused) -> None:
    (tmp_path / "gt").write_bytes(content)
    refused(
        "gt: the lists are refused .*; write gt.json", benchmarks.read_relevance, tmp_path / "gt"
    )

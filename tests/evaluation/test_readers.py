"""Tasks from files in every layout, with splits named or drawn; each error names file and row."""

from collections import Counter
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from conftest import write_files, write_rows

from docemb_lib.corpus.reader import Reading
from docemb_lib.evaluation import Classification, Labelled, LabelledPairs, Pairs
from docemb_lib.evaluation.readers import NO_SPLIT, labelled_task, source_rows, split_in
from docemb_lib.evaluation.tasks import SPLITS
from docemb_lib.settings.sections import OwnTask

RECORDS = [{"text": f"good thing {n}", "label": "good"} for n in range(40)]
RECORDS += [{"text": f"bad thing {n}", "label": "bad"} for n in range(20)]
# The classes are mixed.
REVIEWS = [RECORDS[i] for i in np.random.default_rng(0).permutation(len(RECORDS))]


def task(kind, path, **fields):
    return labelled_task(OwnTask(name="mine", kind=kind, path=path, **fields))


def rows_of(made):
    """The pairs of text and class of each split."""
    parts = made.splits.items()
    return {split: list(zip(data.texts, data.labels, strict=True)) for split, data in parts}


# ---- Classification and pairs
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_split_field_puts_each_row_in_its_split(tmp_path, ending):
    names = ["train", "dev", "test"]
    records = [{**record, "split": names[n % 3]} for n, record in enumerate(REVIEWS)]
    made = task("classification", write_rows(tmp_path / f"a.{ending}", records))
    expected = [(record["text"], record["label"]) for record in REVIEWS]
    assert rows_of(made) == {split: expected[n::3] for n, split in enumerate(SPLITS)}


def test_classes_of_all_formats_agree(tmp_path):
    records = [{"text": f"text {n}", "label": n % 2} for n in range(4)]
    names = {"train": "a.jsonl", "test": "b.csv"}
    files = {split: write_rows(tmp_path / name, records) for split, name in names.items()}
    data = Labelled([record["text"] for record in records], ["0", "1", "0", "1"])
    assert task("classification", files) == Classification("mine", dict.fromkeys(names, data))


def test_a_split_in_two_formats_is_refused(tmp_path, refused):
    for name in ("train.jsonl", "train.csv"):
        write_rows(tmp_path / name, REVIEWS)
    refused("a split has data files of several formats; keep", task, "classification", tmp_path)


def test_pairs_have_two_texts_in_their_order_each_perhaps_of_several_fields(tmp_path):
    rows = [{"t": "On", "a": f"a{n}", "b": f"b{n}", "same": n % 2 == 0} for n in range(4)]
    fields = {"text_field": ["t", "a"], "second_field": "b", "label_field": "same"}
    made = task("pairs", {"train": write_rows(tmp_path / "a.jsonl", rows)}, **fields)
    first = [f"On\n\na{n}" for n in range(4)]
    data = LabelledPairs(first, ["b0", "b1", "b2", "b3"], ["True", "False"] * 2)
    assert made == Pairs("mine", {"train": data})


def test_without_splits_a_share_of_each_class_is_drawn_in_the_order_of_the_file(tmp_path):
    file = write_rows(tmp_path / "a.csv", REVIEWS)
    made = task("classification", file)
    counts = {split: dict(Counter(data.labels)) for split, data in made.splits.items()}
    held = {"good": 8, "bad": 4}
    assert counts == {"train": {"good": 24, "bad": 12}, "validation": held, "test": held}
    place = {record["text"]: n for n, record in enumerate(REVIEWS)}
    places = [[place[text] for text in made.splits[split].texts] for split in SPLITS]
    assert sorted(chain.from_iterable(places)) == list(range(60))
    assert places == list(map(sorted, places))
    assert task("classification", file) == made
    assert task("classification", file, seed=1) != made
    assert len(task("classification", file, share=0.1).splits["test"].labels) == 6


def test_equal_texts_are_drawn_for_the_same_split_in_either_order(tmp_path):
    made = task("classification", write_rows(tmp_path / "a.csv", REVIEWS * 3))
    texts = [Counter(data.texts) for data in made.splits.values()]
    assert {*sum(texts, Counter()).values()} == {3}
    assert sum(map(len, texts)) == 60
    pairs = [{"text": f"a{n}", "second": f"b{n}", "label": "x"} for n in range(20)]
    swapped = [{"text": one["second"], "second": one["text"], "label": "y"} for one in pairs]
    made = task("pairs", write_rows(tmp_path / "a.jsonl", pairs + swapped))
    assert all({*data.first} == {*data.second} for data in made.splits.values())


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"body": "a", "label": "x"}], "row 1: the field 'text' must hold .* 'body', 'label'"),
        ([{"text": "a", "label": None}], "row 1: the field 'label' must hold the class, a string"),
        (
            [
                {"text": "a", "label": "x", "split": "test"},
                {"text": "b", "label": "x", "split": ""},
            ],
            "row 2: the field 'split' must hold one of train, .*, but it is ''",
        ),
        ([], "it holds no example; add some with the fields text, label"),
    ],
)
def test_an_error_in_a_file_is_named_with_its_row(tmp_path, records, message, refused):
    file = write_rows(tmp_path / "a.jsonl", records)
    refused(rf"a\.jsonl[,:] {message}", task, "classification", file)


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path, caplog):
    files = dict.fromkeys(["all.csv", "train.csv", "test.csv"], REVIEWS)
    folder = write_files(tmp_path / "t", {"README.md": "", "b.bin": b"", **files})
    assert sorted(task("classification", folder).splits) == ["test", "train"]
    assert caplog.messages[0] == f"{folder}: left out: 1 × .bin, 1 × .csv, 1 × .md"


# ---- Folders of classes
@pytest.fixture
def newsgroups(tmp_path):
    """As 20news-bydate comes: numbers for names."""
    train, test = "20news-bydate-train", "20news-bydate-test"
    files = {
        f"{train}/sci.med/58043": "Subject: pulse\n\nA café is no hospital.",
        f"{train}/sci.med/58044": "second",
        f"{train}/alt.atheism/49960": "third",
        f"{test}/sci.med/59000": "fourth",
        f"{test}/alt.atheism/.DS_Store": b"\x00",
        f"{test}/alt.atheism/53000": "fifth",
    }
    return write_files(tmp_path / "20news", files)


def test_folders_of_classes_may_lie_in_folders_of_splits(newsgroups, refused):
    train = [("third", "alt.atheism"), ("Subject: pulse\n\nA café is no hospital.", "sci.med")]
    train += [("second", "sci.med")]
    test = [("fifth", "alt.atheism"), ("fourth", "sci.med")]
    made = task("classification", newsgroups)
    assert rows_of(made) == {"train": train, "test": test}
    named = {split: newsgroups / f"20news-bydate-{split}" for split in ("train", "test")}
    assert task("classification", named) == made
    refused("the field 'second' must hold a text", task, "pairs", newsgroups)


def test_without_them_no_split_is_named_and_files_above_the_classes_are_passed_over(tmp_path):
    files = {"README.TXT": "read me", "sport/001.txt": "\ufeffball", ".git/x/1": "no"}
    # One class is named like a split.
    write_files(tmp_path, {**files, "tech/001.txt": "chip", "test cricket/1": "bat"})
    rows = source_rows(str(tmp_path), Reading())
    found = [(split, row.fields["text"], row.fields["label"]) for split, row in rows]
    expected = [("ball", "sport"), ("chip", "tech"), ("bat", "test cricket")]
    assert found == [(NO_SPLIT, *pair) for pair in expected]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("20news-bydate-test", "test"),
        ("Dev", "validation"),
        ("val.csv", "validation"),
        ("validation-00000-of-00001.parquet", "validation"),
        ("data/test/0000.parquet", "test"),
        ("latest.csv", NO_SPLIT),
        ("training.csv", NO_SPLIT),
        ("devices", NO_SPLIT),
    ],
)
def test_a_split_is_a_word_of_a_name(name, split):
    assert split_in(Path(name)) == split

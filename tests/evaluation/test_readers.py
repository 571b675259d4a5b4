"""Tasks from files in every layout, with splits named or drawn; each error names file and row."""

from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import write_files, write_rows

from docemb_lib.corpus.reader import Problems
from docemb_lib.corpus.sources import NO_SPLIT, split_in
from docemb_lib.evaluation import Classification, Pairs
from docemb_lib.evaluation.readers import labelled_task, source_rows
from docemb_lib.evaluation.tasks import SPLITS
from docemb_lib.settings.sections import OwnTask

Records = list[dict[str, Any]]


def reviews(**sizes: int) -> Records:
    """`sizes` examples of each class, the classes mixed."""
    sizes = sizes or {"good": 40, "bad": 20}
    records = [
        {"text": f"{label} thing {n}", "label": label}
        for label, size in sizes.items()
        for n in range(size)
    ]
    return [records[i] for i in np.random.default_rng(0).permutation(len(records))]


def task(kind: str, path: Any, **fields: Any) -> Any:
    return labelled_task(OwnTask(name="mine", kind=kind, path=path, **fields))


# ---- Classification and pairs
@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_split_field_puts_each_row_in_its_split(tmp_path: Path, ending: str) -> None:
    names = ["train", "dev", "test", "train"]
    records = [{**record, "split": names[n % 4]} for n, record in enumerate(reviews())]
    made = task("classification", write_rows(tmp_path / f"a.{ending}", records))
    assert isinstance(made, Classification)
    for split, name in zip(SPLITS, ("train", "dev", "test"), strict=True):
        expected = [
            (record["text"], record["label"]) for record in records if record["split"] == name
        ]
        assert (
            list(zip(made.splits[split].texts, made.splits[split].labels, strict=True)) == expected
        )


def test_labels_of_all_formats_agree_and_pairs_have_two_texts_in_their_order(tmp_path):
    records = [{"text": f"text {n}", "label": n % 2} for n in range(4)]
    files = {
        "train": write_rows(tmp_path / "a.jsonl", records),
        "test": write_rows(tmp_path / "b.csv", records),
    }
    labels = {split: data.labels for split, data in task("classification", files).splits.items()}
    assert labels == {"train": ["0", "1", "0", "1"], "test": ["0", "1", "0", "1"]}
    rows = [{"a": f"one {n}", "b": f"two {n}", "same": n % 2 == 0} for n in range(20)]
    made = task(
        "pairs",
        write_rows(tmp_path / "a.jsonl", rows),
        text_field="a",
        second_field="b",
        label_field="same",
    )
    assert isinstance(made, Pairs)
    for data in made.splits.values():
        for first, second, label in zip(data.first, data.second, data.labels, strict=True):
            number = int(first.removeprefix("one "))
            assert (second, label) == (f"two {number}", str(number % 2 == 0))
    swapped = [
        {"text": one[x], "second": one[y], "label": x} for x, y in ("ab", "ba") for one in rows
    ]
    made = task("pairs", write_rows(tmp_path / "a.jsonl", swapped))
    assert all({*data.first} == {*data.second} for data in made.splits.values())


def test_without_splits_a_share_of_each_class_is_drawn_and_equal_texts_stay_together(
    tmp_path,
):
    records = reviews()
    file = write_rows(tmp_path / "a.csv", records)
    made = task("classification", file)
    counts = {split: dict(Counter(data.labels)) for split, data in made.splits.items()}
    held = {"good": 8, "bad": 4}
    assert counts == {"train": {"good": 24, "bad": 12}, "validation": held, "test": held}
    place = {record["text"]: n for n, record in enumerate(records)}
    places = [[place[text] for text in made.splits[split].texts] for split in SPLITS]
    assert sorted(chain.from_iterable(places)) == list(range(60))
    assert all(found == sorted(found) for found in places)  # in the order of the file
    assert task("classification", file) == made
    assert task("classification", file, seed=1) != made
    assert len(task("classification", file, share=0.1).splits["test"].labels) == 6
    records = [record for record in reviews() for _ in range(3)]
    made = task("classification", write_rows(tmp_path / "a.csv", records))
    texts = [set(data.texts) for data in made.splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 60
    assert sum(len(data.labels) for data in made.splits.values()) == 180


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (
            [{"body": "a", "label": "x"}],
            r"row 1: the field 'text' must hold .* missing; .* 'body', 'label'",
        ),
        (
            [{"text": "a", "label": "x", "split": "held"}],
            "row 1: the field 'split' must hold one of train, validation, test, but it is 'held'",
        ),
        (
            [
                {"text": "a", "label": "x", "split": "test"},
                {"text": "b", "label": "x", "split": ""},
            ],
            r"row 2: the field 'split' must hold one of train, .*, but it is ''",
        ),
        ([], r"a\.jsonl: it holds no example; add some with the fields text"),
    ],
)
def test_an_error_in_a_file_is_named_with_its_row(
    tmp_path: Path, records: Records, message: str, refused
) -> None:
    refused(message, task, "classification", write_rows(tmp_path / "a.jsonl", records))


def test_the_text_of_an_example_may_be_joined_of_several_fields(tmp_path):
    records = [{"title": "On it", **row} for row in reviews()]
    file = write_rows(tmp_path / "a.jsonl", records)
    made = task("classification", file, text_field=["title", "text"])
    plain = task("classification", file)
    assert made.splits["test"].texts == [f"On it\n\n{text}" for text in plain.splits["test"].texts]


@pytest.mark.parametrize("bad", [{"text": None, "label": "x"}])
def test_bad_rows_are_reported_together_or_left_out_on_request(tmp_path, bad, refused, caplog):
    file = write_rows(tmp_path / "a.jsonl", [*reviews(), bad, bad])
    refused(
        r"a\.jsonl, row 61: the field 'text' must .*, or leave out",
        task,
        "classification",
        file,
    )
    made = task("classification", file, skip_bad=True)
    assert sum(len(data.labels) for data in made.splits.values()) == 60
    assert "a.jsonl: left out: 2 × bad row or file" in caplog.text


def test_files_of_a_folder_that_are_not_read_are_counted(tmp_path, caplog):
    folder = write_files(tmp_path / "t", {"README.md": "", "all.csv": reviews(), "b.bin": b""})
    write_files(folder, {"train.csv": reviews(), "test.csv": reviews()})
    made = task("classification", folder)
    assert sorted(made.splits) == ["test", "train"]
    said = "left out: 1 × .bin, 1 × .csv, 1 × .md"
    assert caplog.messages[0] == f"{folder}: {said}"


# ---- Folders of classes
@pytest.fixture
def newsgroups(tmp_path: Path) -> Path:
    """As 20news-bydate comes: numbers for names, Latin-1."""
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


def folder_examples(folder: Path) -> list[tuple[str, str, str]]:
    rows = source_rows(str(folder), Problems())
    return [(split, row.fields["text"], row.fields["label"]) for split, row in rows]


def test_folders_of_splits_name_them(newsgroups):
    assert folder_examples(newsgroups) == [
        ("test", "fifth", "alt.atheism"),
        ("test", "fourth", "sci.med"),
        ("train", "third", "alt.atheism"),
        ("train", "Subject: pulse\n\nA café is no hospital.", "sci.med"),
        ("train", "second", "sci.med"),
    ]


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"),
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


def test_without_them_no_split_is_named_and_files_above_the_classes_are_counted(tmp_path):
    files = {"README.TXT": "read me", "sport/001.txt": "\ufeffball", ".git/x/1": "no"}
    # One class is named like a split.
    write_files(tmp_path, {**files, "tech/001.txt": "chip", "test cricket/1": "bat"})
    expected = (("ball", "sport"), ("chip", "tech"), ("bat", "test cricket"))
    assert folder_examples(tmp_path) == [(NO_SPLIT, text, label) for text, label in expected]


def test_an_own_task_may_be_folders(newsgroups: Path, refused) -> None:
    expected = task("classification", newsgroups)
    labels = {split: list(data.labels) for split, data in expected.splits.items()}
    assert labels == {
        "train": ["alt.atheism", "sci.med", "sci.med"],
        "test": ["alt.atheism", "sci.med"],
    }
    named = {"train": newsgroups / "20news-bydate-train", "test": newsgroups / "20news-bydate-test"}
    assert task("classification", named) == expected
    refused("the field 'second' must hold a text", task, "pairs", newsgroups)

"""Folders of classes: with and without splits, in old encodings, with what lies beside them."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification
from docemb_lib.evaluation.readers import NO_SPLIT, own_task, read_class_folders, split_in, task_files, text_files
from docemb_lib.settings import OwnTask


def write(folder: Path, files: dict[str, str | bytes]) -> Path:
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return folder


@pytest.fixture
def newsgroups(tmp_path: Path) -> Path:
    """As 20news-bydate comes: numbers for names, Latin-1."""
    return write(
        tmp_path / "20news",
        {
            "20news-bydate-train/sci.med/58043": "Subject: pulse\n\nA café is no hospital.".encode("latin-1"),
            "20news-bydate-train/sci.med/58044": "second",
            "20news-bydate-train/alt.atheism/49960": "third",
            "20news-bydate-test/sci.med/59000": "fourth",
            "20news-bydate-test/alt.atheism/.DS_Store": b"\x00",
            "20news-bydate-test/alt.atheism/53000": "fifth",
        },
    )


def test_folders_of_splits_name_them(newsgroups: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        found = read_class_folders(newsgroups)
    assert {split: [(*example.texts, example.label) for example in own] for split, own in found.items()} == {
        "train": [
            ("third", "alt.atheism"),
            ("Subject: pulse\n\nA café is no hospital.", "sci.med"),
            ("second", "sci.med"),
        ],
        "test": [("fifth", "alt.atheism"), ("fourth", "sci.med")],
    }
    assert "20news-bydate-train: 1 files are no UTF-8 and were read as Latin-1" in caplog.text


def test_without_them_no_split_is_named_and_what_lies_beside_is_left(tmp_path: Path) -> None:
    files = {"README.TXT": "read me", "sport/001.txt": "\ufeffball", "sport/more/2.md": "goal", ".git/x/1": "no"}
    found = read_class_folders(write(tmp_path, {**files, "tech/001.txt": "chip"}))
    assert list(found) == [NO_SPLIT]
    assert [(*example.texts, example.label) for example in found[NO_SPLIT]] == [
        ("ball", "sport"), ("goal", "sport"), ("chip", "tech"),
    ]  # fmt: skip


def test_a_class_may_be_called_like_a_split(tmp_path: Path) -> None:
    found = read_class_folders(write(tmp_path, {"test cricket/1": "bat", "tennis/1": "net"}))
    assert {example.label for example in found[NO_SPLIT]} == {"test cricket", "tennis"}


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("train", "train"), ("20news-bydate-test", "test"), ("Dev", "validation"), ("val.csv", "validation"),
        ("validation-00000-of-00001.parquet", "validation"), ("data/test/0000.parquet", "test"),
        ("bbc-text.csv", NO_SPLIT), ("latest.csv", NO_SPLIT), ("training.csv", NO_SPLIT), ("devices", NO_SPLIT),
    ],
)  # fmt: skip
def test_names_of_splits(name: str, split: str) -> None:
    assert split_in(name) == split


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": "x"}, "holds no folder; name a data file, or put each class into a folder of its name"),
        ({"one/a.txt": "x", "two/.hidden": "x"}, "two: a class without a document; add some, or delete the folder"),
        ({"one/a.txt": " \n"}, r"a\.txt: a text is blank"),
    ],
)
def test_what_is_no_folder_of_classes_is_refused(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_class_folders(write(tmp_path, files))


def test_an_own_task_may_be_folders(tmp_path: Path, newsgroups: Path) -> None:
    made = own_task(OwnTask(name="mine", kind="classification", path=newsgroups))
    assert isinstance(made, Classification)
    assert {split: list(data.labels) for split, data in made.splits.items()} == {
        "train": ["alt.atheism", "sci.med", "sci.med"],
        "test": ["alt.atheism", "sci.med"],
    }
    named = {"train": newsgroups / "20news-bydate-train", "test": newsgroups / "20news-bydate-test"}
    settings = OwnTask(name="mine", kind="classification", path=named)
    assert own_task(settings) == made
    assert len(task_files(settings)) == 5
    plain = write(
        tmp_path / "bbc", {f"{name}/{n:03}.txt": f"{name} {n}" for name in ("sport", "tech") for n in range(20)}
    )
    drawn = own_task(OwnTask(name="mine", kind="classification", path=plain, share=0.1))
    assert isinstance(drawn, Classification)
    assert {split: len(data.labels) for split, data in drawn.splits.items()} == {
        "train": 32,
        "validation": 4,
        "test": 4,
    }


def test_pairs_are_no_folders(newsgroups: Path) -> None:
    with pytest.raises(InputError, match="a folder of classes is no task of pairs; name a data file"):
        own_task(OwnTask(name="mine", kind="pairs", path=newsgroups))


def test_hidden_files_are_no_part_of_a_task(newsgroups: Path) -> None:
    assert [file.name for file in text_files(newsgroups)] == ["53000", "59000", "49960", "58043", "58044"]

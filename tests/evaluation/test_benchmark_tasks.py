"""The thesis' tasks from small files in exactly their published formats."""

from __future__ import annotations

import csv
import gzip
import io
import logging
import pickle
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pytest
from pyarrow import parquet

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, Pairs, Retrieval
from docemb_lib.evaluation.benchmarks import benchmark_task, published_size, published_tasks
from docemb_lib.evaluation.tasks import SPLITS, Labelled

PAIR_FILES = {
    "aan": ("train_cite.csv", "dev_cite.csv", "test_cite.csv"),
    "oc": ("train_ai2_ab.csv", "dev_ai2_ab.csv", "test_ai2_ab.csv"),
    "pan": ("pla_train.csv", "pla_dev.csv", "pla_test.csv"),
    "s2orc": ("train_ai2_gorc.csv", "dev_ai2_gorc.csv", "test_ai2_gorc.csv"),
}
PAIRS = [("1", 'A "first"\x01sentence,\nand more.', "Other\x01text."), ("0", "Plain", "")]


def pair_file(rows: list[tuple[str, ...]] = PAIRS) -> bytes:
    stream = io.StringIO()
    csv.writer(stream, quoting=csv.QUOTE_ALL).writerows(rows)
    return stream.getvalue().encode()


def pair_folder(folder: Path, name: str, *, packed: bool = False) -> Path:
    for file in PAIR_FILES[name]:
        path = folder / (f"{file}.gz" if packed else file)
        path.write_bytes(gzip.compress(pair_file()) if packed else pair_file())
    return folder


@pytest.mark.parametrize("name", PAIR_FILES)
@pytest.mark.parametrize("packed", [False, True])
def test_pairs_come_from_their_three_files_cleaned(tmp_path: Path, name: str, packed: bool) -> None:
    task = benchmark_task(name, str(pair_folder(tmp_path, name, packed=packed)))
    assert isinstance(task, Pairs)
    assert list(task.splits) == list(SPLITS)
    for split in task.splits.values():
        assert split.first == ['A "first" sentence,\nand more.', "Plain"]
        assert split.second == ["Other text.", ""]
        assert split.labels == ["1", "0"]


def test_other_sizes_than_the_thesis_and_blank_texts_are_warned_of(tmp_path: Path, caplog: Any) -> None:
    with caplog.at_level(logging.WARNING):
        benchmark_task("pan", str(pair_folder(tmp_path, "pan")))
    for split, size in (("train", 17968), ("validation", 2908), ("test", 2906)):
        assert f"task pan, split {split}: 2 examples, the thesis has {size}; scores do not compare" in caplog.text
        assert f"task pan, split {split}: 1 texts are blank" in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (pair_file([("1", "a", "b"), ("2", "a", "b")]), r"dev_cite\.csv, row 2: the label is '2', expected 0 or 1"),
        (pair_file([("a", "1", "b")]), r"row 1: the label is 'a', expected 0 or 1; look for a shifted column"),
        (pair_file([("1", "a")]), r"row 1 \(up to line 1\): 2 values, expected 3 \(label, text_0, text_1\)"),
        (b'"1","a","b"\n"0","un"quoted","b"\n', r"dev_cite\.csv, row 2: broken quoting up to line 2"),
        (pair_file()[:-30], r"dev_cite\.csv, row 1: broken quoting .*unexpected end of data"),
        (b"", r"task 'aan', split 'validation': 0 first texts"),
    ],
)
def test_a_broken_pair_file_is_named_with_its_row(tmp_path: Path, content: bytes, message: str) -> None:
    pair_folder(tmp_path, "aan")
    (tmp_path / "dev_cite.csv").write_bytes(content)
    with pytest.raises(InputError, match=message):
        benchmark_task("aan", str(tmp_path))


def test_a_missing_file_and_a_missing_folder_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds neither train_cite\.csv nor train_cite\.csv\.gz; put the published"):
        benchmark_task("aan", str(tmp_path))
    with pytest.raises(InputError, match="benchmark task aan: stands on no hub; name the folder"):
        benchmark_task("aan")
    with pytest.raises(InputError, match=r"nowhere: no such folder; name the one that holds train_cite\.csv, dev_cite"):
        benchmark_task("aan", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match=r"holds no data files of the splits train and test"):
        benchmark_task("imdb", str(tmp_path))
    with pytest.raises(InputError, match="'immdb' is not one of arxiv, imdb"):
        benchmark_task("immdb")


def write_parquet(file: Path, texts: list[str], labels: list[int]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    parquet.write_table(pa.table({"text": texts, "label": labels}), file)


LAYOUTS = {
    "arxiv": ["no_ref/{split}-00000-of-00002.parquet", "no_ref/{split}-00001-of-00002.parquet"],
    "imdb": ["plain_text/{split}/0000.parquet", "plain_text/{split}/0001.parquet"],
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_copy_of_a_hubs_data_set_is_read_in_either_layout(tmp_path: Path, name: str) -> None:
    for split in ("train", "test", "unsupervised"):
        for part, layout in enumerate(LAYOUTS[name]):
            texts = [f"{split} {part} {n}" for n in range(2)]
            write_parquet(tmp_path / layout.format(split=split), texts, [0, 1])
    write_parquet(tmp_path / "default" / "train-00000-of-00001.parquet", ["another config"], [7])
    task = benchmark_task(name, str(tmp_path))
    assert isinstance(task, Classification)
    assert task.splits == {
        split: Labelled([f"{split} {part} {n}" for part in (0, 1) for n in (0, 1)], ["0", "1"] * 2)
        for split in ("train", "test")
    }


def test_a_label_that_train_does_not_have_and_a_wrong_column_are_refused(tmp_path: Path) -> None:
    write_parquet(tmp_path / "train.parquet", ["a", "b"], [0, 1])
    write_parquet(tmp_path / "test.parquet", ["a", "b"], [0, 2])
    with pytest.raises(InputError, match=r"split 'test': 1 of 2 labels are none of the 2 classes of 'train'"):
        benchmark_task("imdb", str(tmp_path))
    parquet.write_table(pa.table({"review": ["a"], "label": [0]}), tmp_path / "test.parquet")
    with pytest.raises(InputError, match=r"test\.parquet, row 1: no field 'text', found \['label', 'review'\]"):
        benchmark_task("imdb", str(tmp_path))


def test_a_hub_is_asked_for_the_published_configuration_and_then_for_the_converted_files(monkeypatch: Any) -> None:
    asked = []

    def load_dataset(name: str, config: str, revision: str | None = None) -> Any:
        asked.append((name, config, revision))
        if revision is None:
            raise RuntimeError("Dataset scripts are no longer supported, but found arxiv-classification.py")
        return {split: [{"text": split, "label": n} for n in range(11)] for split in (*SPLITS, "other")}

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    task = benchmark_task("arxiv")
    assert asked == [
        ("ccdv/arxiv-classification", "no_ref", None),
        ("ccdv/arxiv-classification", "no_ref", "refs/convert/parquet"),
    ]
    assert {split: len(data.labels) for split, data in task.splits.items()} == dict.fromkeys(SPLITS, 11)


def test_a_hub_that_cannot_be_reached_is_said_in_one_line(monkeypatch: Any) -> None:
    def load_dataset(*_: Any, **__: Any) -> Any:
        raise ConnectionError("Couldn't reach\nthe hub")

    monkeypatch.setattr(datasets, "load_dataset", load_dataset)
    with pytest.raises(InputError, match=r"imdb': Couldn't reach the hub; or name a folder in evaluation\.benchmarks"):
        benchmark_task("imdb")


def test_files_that_stand_on_a_hub_are_copied_from_there(tmp_path: Path, monkeypatch: Any) -> None:
    asked = []

    def snapshot_download(source: str, *, repo_type: str, allow_patterns: list[str]) -> str:
        asked.append((source, repo_type, allow_patterns))
        return str(pair_folder(tmp_path, "pan", packed=True))

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    assert len(benchmark_task("pan", "someone/cda").splits["train"].texts) == 4
    assert asked == [("someone/cda", "dataset", ["pla_train.csv*", "pla_dev.csv*", "pla_test.csv*"])]


@pytest.mark.parametrize(("name", "articles"), [("wines", "wines.txt"), ("games", "video_games.txt")])
def test_similar_articles_are_a_retrieval_task_over_all_of_them(tmp_path: Path, name: str, articles: str) -> None:
    (tmp_path / articles).write_text("Title,Sections\nA,\"[('s', 't')]\"\nB,[]\nC,[]\n")
    (tmp_path / "gt").write_bytes(pickle.dumps({"B": {"A": 1, "C": 1}}))
    task = benchmark_task(name, str(tmp_path))
    assert isinstance(task, Retrieval)
    assert (task.texts(), task.splits["test"].queries, task.splits["test"].relevant) == (
        ["A s t", "B", "C"],
        [1],
        [[0, 2]],
    )


def test_the_shipped_sizes_are_those_of_table_5_4_and_5_5() -> None:
    assert published_size("s2orc", "train") == 152_000
    assert published_size("arxiv", "test") == 2_500
    assert published_size("games", "test") == 21_228
    assert published_size("aan", "validation") is None
    known = {(protocol, task, split, statistic) for protocol, task, split, statistic, _ in published_tasks()["rows"]}
    assert len(known) == len(published_tasks()["rows"])

"""Tasks from one's own files, in all formats, with splits named or drawn."""

from __future__ import annotations

import csv
import json
from collections import Counter
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, Pairs, Retrieval, TfIdf, evaluate
from docemb_lib.evaluation.readers import own_task
from docemb_lib.evaluation.tasks import SPLITS
from docemb_lib.settings import OwnTask

Records = list[dict[str, Any]]


def write(file: Path, records: Records) -> Path:
    if file.suffix == ".parquet":
        parquet.write_table(pa.Table.from_pylist(records), file)
    elif file.suffix == ".jsonl":
        file.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    else:
        with file.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, list(records[0]))
            writer.writeheader()
            writer.writerows(records)
    return file


def reviews(sizes: dict[str, int] | None = None) -> Records:
    """`sizes` examples of each class, the classes mixed."""
    sizes = {"good": 40, "bad": 20} if sizes is None else sizes
    records = [{"text": f"{label} thing {n}", "label": label} for label, size in sizes.items() for n in range(size)]
    order = np.random.default_rng(0).permutation(len(records))
    return [records[i] for i in order]


def task(kind: str, path: Any, **fields: Any) -> Any:
    return own_task(OwnTask(name="mine", kind=kind, path=path, **fields))


@pytest.mark.parametrize("ending", ["jsonl", "csv", "parquet"])
def test_a_split_field_puts_each_row_in_its_split(tmp_path: Path, ending: str) -> None:
    names = ["train", "dev", "test", "train"]
    records = [{**record, "split": names[n % 4]} for n, record in enumerate(reviews())]
    made = task("classification", write(tmp_path / f"a.{ending}", records))
    assert isinstance(made, Classification)
    for split, name in zip(SPLITS, ("train", "dev", "test"), strict=True):
        expected = [record for record in records if record["split"] == name]
        assert list(made.splits[split].texts) == [record["text"] for record in expected]
        assert list(made.splits[split].labels) == [record["label"] for record in expected]


def test_labels_of_all_formats_agree(tmp_path: Path) -> None:
    records = [{"text": f"text {n}", "label": n % 2} for n in range(4)]
    files = {"train": write(tmp_path / "a.jsonl", records), "test": write(tmp_path / "b.csv", records)}
    made = task("classification", files)
    assert list(made.splits) == ["train", "test"]
    assert made.splits["train"].labels == made.splits["test"].labels == ["0", "1", "0", "1"]


def test_without_splits_a_share_of_each_class_is_drawn_by_the_seed(tmp_path: Path) -> None:
    records = reviews()
    file = write(tmp_path / "a.csv", records)
    made = task("classification", file)
    counts = {split: Counter(data.labels) for split, data in made.splits.items()}
    assert counts == {
        "train": {"good": 24, "bad": 12},
        "validation": {"good": 8, "bad": 4},
        "test": {"good": 8, "bad": 4},
    }
    place = {record["text"]: n for n, record in enumerate(records)}
    places = [[place[text] for text in made.splits[split].texts] for split in SPLITS]
    assert sorted(chain.from_iterable(places)) == list(range(60))
    assert all(found == sorted(found) for found in places)  # in the order of the file
    assert task("classification", file) == made
    assert task("classification", file, seed=1) != made
    assert len(task("classification", file, share=0.1).splits["test"].labels) == 6


def test_a_text_that_stands_in_the_file_twice_is_in_one_split_only(tmp_path: Path) -> None:
    records = [record for record in reviews() for _ in range(3)]
    made = task("classification", write(tmp_path / "a.csv", records))
    texts = [set(data.texts) for data in made.splits.values()]
    assert sum(map(len, texts)) == len(set.union(*texts)) == 60
    assert sum(len(data.labels) for data in made.splits.values()) == 180


def test_pairs_have_two_texts_in_their_order(tmp_path: Path) -> None:
    records = [{"a": f"one {n}", "b": f"two {n}", "same": n % 2 == 0} for n in range(20)]
    made = task("pairs", write(tmp_path / "a.jsonl", records), text_field="a", second_field="b", label_field="same")
    assert isinstance(made, Pairs)
    for data in made.splits.values():
        for first, second, label in zip(data.first, data.second, data.labels, strict=True):
            number = int(first.removeprefix("one "))
            assert (second, label) == (f"two {number}", str(number % 2 == 0))


@pytest.fixture
def pool(tmp_path: Path) -> Path:
    """Documents d0 to d19; d0 and d1, d2 and d3, … are about the same."""
    records = [{"id": f"d{n}", "text": f"topic{n // 2} " * 5 + f"and number {n}"} for n in range(20)]
    return write(tmp_path / "corpus.jsonl", records)


def test_retrieval_ranks_a_corpus_by_a_file_of_links(tmp_path: Path, pool: Path) -> None:
    links = [(f"d{n}", f"d{n ^ 1}") for n in range(20)]
    file = tmp_path / "relevance.tsv"
    file.write_text("".join(f"{source}\t{target}\n" for source, target in [*links, links[0]]), encoding="utf-8")
    made = task("retrieval", pool, relevance=file)
    assert isinstance(made, Retrieval)
    assert {split: len(data.queries) for split, data in made.splits.items()} == {"validation": 4, "test": 16}
    queries = [query for data in made.splits.values() for query in data.queries]
    assert sorted(queries) == list(range(20))
    for data in made.splits.values():
        assert len(data.texts) == 20
        assert list(data.relevant) == [[query ^ 1] for query in data.queries]
    assert evaluate(TfIdf().fit(made.texts()), made).mean == pytest.approx(1)
    assert task("retrieval", pool, relevance=file, seed=1) != made


def test_links_may_have_a_line_of_names_another_format_or_a_file_per_split(tmp_path: Path, pool: Path) -> None:
    links = [{"source": "d1", "target": "d2"}, {"source": "d1", "target": "d0"}, {"source": "d5", "target": "d4"}]
    made = task("retrieval", pool, relevance={"test": write(tmp_path / "a.csv", links)})
    assert (made.splits["test"].queries, made.splits["test"].relevant) == ([1, 5], [[2, 0], [4]])
    for name in ("a.jsonl", "a.parquet"):
        assert task("retrieval", pool, relevance={"test": write(tmp_path / name, links)}) == made


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([{"text": "a"}], r"a\.jsonl, line 1: no field 'label', found \['text'\]; name the one that holds the label"),
        ([{"text": "a", "label": 1.5}], "line 1: field 'label' must be a string or an integer, found 1.5"),
        ([{"text": "a", "label": None}], "line 1: field 'label' must be a string or an integer, found None"),
        ([{"text": "a", "label": " "}], "line 1: field 'label' must be"),
        ([{"text": "a", "label": "x"}, {"text": "", "label": "y"}], "line 2: a text is blank; write it or delete the row"),
        ([{"body": "a", "label": "x"}], r"line 1: no field 'text', found \['body', 'label'\]"),
        ([{"text": "a", "label": "x", "split": "held"}], "line 1: field 'split' is 'held', expected train, validation, test"),
        ([{"text": "a", "label": "x", "split": "test"}, {"text": "b", "label": "x"}], "line 2: field 'split' is None"),
        ([], r"a\.jsonl: holds no example; add one with the fields text"),
        (reviews({"good": 9, "bad": 2}), r"a\.jsonl: class 'bad': 2 examples are too few to draw train, validation and test"),
        (reviews({"good": 9}), "all labels are 'good', expected two classes or more"),
        ([{**record, "split": "test"} for record in reviews()], "no split 'train' to train heads on"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_file_is_named_with_its_row(tmp_path: Path, records: Records, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        task("classification", write(tmp_path / "a.jsonl", records))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("d1\td2\nd1\td99\n", r"r\.tsv, row 2: 'd99' is the id of no document; mend it, or delete the row"),
        ("d99\td2\n", "row 1: 'd99' is the id of no document"),
        ("d1\td1\n", "row 1: 'd1' is to be found for itself; delete the row"),
        ("d1 d2\n", r"row 1 \(up to line 1\): 1 values, expected 2 \(source, target\)"),
        ("", "holds no pair of ids"),
    ],
)
def test_links_to_documents_that_do_not_exist_are_refused(tmp_path: Path, pool: Path, lines: str, message: str) -> None:
    (tmp_path / "r.tsv").write_text(lines)
    with pytest.raises(InputError, match=message):
        task("retrieval", pool, relevance=tmp_path / "r.tsv")


def test_documents_of_one_id_or_none_are_refused(tmp_path: Path) -> None:
    (tmp_path / "r.tsv").write_text("a\tb\n")
    for records, message in [
        ([{"id": "a", "text": "x"}, {"id": "a", "text": "y"}], "line 2: an earlier row has the id 'a' too; rename one"),
        ([{"text": "x"}], "line 1: field 'id' must be a string or an integer, found None"),
        ([{"id": 1, "text": " "}], "line 1: a text is blank"),
    ]:
        with pytest.raises(InputError, match=message):
            task("retrieval", write(tmp_path / "c.jsonl", records), relevance=tmp_path / "r.tsv")

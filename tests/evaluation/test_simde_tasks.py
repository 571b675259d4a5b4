"""The SimDE paper's tasks from small files in their published formats."""

from __future__ import annotations

import csv
import json
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, get_args

import datasets
import pyarrow as pa
import pytest
import yaml
from pyarrow import parquet

from docemb_lib import Profile
from docemb_lib.errors import InputError
from docemb_lib.evaluation.catalogue import load_task, outline_of, task_fingerprint
from docemb_lib.evaluation.simde import SIMDE_TASKS, archive_of, simde_task
from docemb_lib.experiments.scores import check_benchmarks
from docemb_lib.settings import HEADS, ON_HUB, Evaluation, HeadSettings, SimDEName

TOPICS = ("sport", "tech")
ARTICLES = [(f"{topic} article {n}", topic) for n in range(10) for topic in TOPICS]


def folders(place: Path) -> Path:
    for n, (text, topic) in enumerate(ARTICLES):
        (place / "bbc" / topic).mkdir(parents=True, exist_ok=True)
        (place / "bbc" / topic / f"{n:03}.txt").write_text(text)
    (place / "bbc" / "README.TXT").write_text("read me")
    return place / "bbc"


def table(place: Path) -> Path:
    with (place / "bbc-text.csv").open("w", newline="") as stream:
        csv.writer(stream).writerows([("category", "text"), *((topic, text) for text, topic in ARTICLES)])
    return place / "bbc-text.csv"


def lines(place: Path) -> Path:
    write_lines(place / "bbc.jsonl", [{"text": text, "label": topic} for text, topic in ARTICLES])
    return place / "bbc.jsonl"


def parquet_file(place: Path) -> Path:
    parquet.write_table(
        pa.Table.from_pylist([{"text": text, "label": topic} for text, topic in ARTICLES]), place / "b.parquet"
    )
    return place


def parallel(place: Path) -> Path:
    (place / "dataset.txt").write_text("".join(f"{text}\n" for text, _ in ARTICLES), encoding="utf-8")
    (place / "labels.txt").write_text("".join(f"{TOPICS.index(topic)}\n" for _, topic in ARTICLES))
    (place / "classes.txt").write_text("\n".join(TOPICS))
    return place


def write_lines(file: Path, rows: list[dict[str, Any]]) -> None:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


@pytest.mark.parametrize("layout", [folders, table, lines, parquet_file, parallel])
def test_all_layouts_hold_the_same_documents_and_splits_are_drawn(
    tmp_path: Path, layout: Callable[[Path], Path], caplog: Any
) -> None:
    with caplog.at_level(logging.WARNING):
        task = simde_task("bbcnews", str(layout(tmp_path)))
    found = [pair for data in task.splits.values() for pair in zip(data.texts, data.labels, strict=True)]
    assert sorted(found) == sorted(ARTICLES)
    counts = {split: Counter(data.labels) for split, data in task.splits.items()}
    assert counts == {
        "train": {"sport": 6, "tech": 6},
        "validation": {"sport": 2, "tech": 2},
        "test": {"sport": 2, "tech": 2},
    }
    assert "task bbcnews: 20 documents, the paper has 2225; scores do not compare" in caplog.text


def test_files_and_rows_name_splits_as_a_copy_of_the_hubs_folder_does(tmp_path: Path) -> None:
    rows = [{"text": text, "label": TOPICS.index(topic), "label_text": topic} for text, topic in ARTICLES]
    write_lines(tmp_path / "train.jsonl", rows[:15])
    write_lines(tmp_path / "test.jsonl", rows[15:])
    table(tmp_path)  # all of it again, as on the hub
    task = simde_task("bbcnews", str(tmp_path))
    assert {split: list(zip(data.texts, data.labels, strict=True)) for split, data in task.splits.items()} == {
        "train": ARTICLES[:15],
        "test": ARTICLES[15:],
    }
    write_lines(tmp_path / "one.jsonl", [row | {"split": "train" if n < 15 else "test"} for n, row in enumerate(rows)])
    assert simde_task("bbcnews", str(tmp_path / "one.jsonl")) == task
    write_lines(tmp_path / "one.jsonl", [row | {"split": "dev"} if n % 2 else row for n, row in enumerate(rows)])
    with pytest.raises(
        InputError, match="some rows name their split and some do not; name it in all of them or in none"
    ):
        simde_task("bbcnews", str(tmp_path / "one.jsonl"))


def test_a_hubs_data_set_is_read_by_its_names_of_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    rows = [{"text": text, "label": TOPICS.index(topic), "label_text": topic} for text, topic in ARTICLES]

    def load(name: str, config: str | None) -> Mapping[str, list[dict[str, Any]]]:
        asked.append((name, config))
        return {"train": rows[:15], "test": rows[15:]}

    monkeypatch.setattr(datasets, "load_dataset", load)
    for source in (None, "someone/news"):
        task = simde_task("20news", source)
        assert [list(data.labels) for data in task.splits.values()] == [
            [topic for _, topic in ARTICLES[:15]], [topic for _, topic in ARTICLES[15:]],
        ]  # fmt: skip
    assert asked == [("SetFit/20_newsgroups", None), ("someone/news", None)]


def test_arxivs_class_is_the_archive_of_the_first_category(tmp_path: Path) -> None:
    kinds = ["math.CO cs.DM", "hep-ph", "cs.CL", "astro-ph.GA physics.space-ph"]
    rows = [{"id": str(n), "title": "t", "abstract": f"  About {n}.\n", "categories": kinds[n % 4]} for n in range(24)]
    write_lines(tmp_path / "arxiv-metadata-oai-snapshot.json", rows)
    task = simde_task("arxiv-abstracts", str(tmp_path))
    assert set(task.splits["train"].labels) == {"math", "hep-ph", "cs", "astro-ph"}
    assert "  About 0.\n" in chain.from_iterable(data.texts for data in task.splits.values())
    assert archive_of("math.CO cs.DM") == "math"


def test_fake_news_without_a_class_or_a_text_are_left_out_and_counted(tmp_path: Path, caplog: Any) -> None:
    with (tmp_path / "news.csv").open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["", "id", "domain", "type", "url", "content", "title"])
        for n in range(12):
            writer.writerow([n, n, "a.com", ("fake", "bias")[n % 2], "u", f"Text, {n}\nof two lines.", "t"])
        writer.writerows([[12, 12, "a.com", "", "u", "no class", "t"], [13, 13, "a.com", "fake", "u", " ", "t"]])
    with caplog.at_level(logging.WARNING):
        task = simde_task("fakenews", str(tmp_path / "news.csv"))
    assert sum(len(data.labels) for data in task.splits.values()) == 12
    assert "task fakenews: 2 rows without a class or a text are left out" in caplog.text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"labels.txt": "0\n"}, r"line 2: dataset\.txt has 20 lines, labels\.txt 1; make them equal"),
        ({"labels.txt": "0\n" * 19 + "2\n"}, "line 20: the label is '2', expected the number of a class from 0 to 1"),
        ({"labels.txt": "0\n" * 19 + "-1\n"}, "line 20: the label is '-1'"),
        ({"dataset.txt": "a\n" * 4 + "\n" + "a\n" * 15}, "line 5: a text is blank"),
    ],
)
def test_lines_that_do_not_belong_together_are_refused(tmp_path: Path, change: dict[str, str], message: str) -> None:
    parallel(tmp_path)
    for name, text in change.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        simde_task("nyt", str(tmp_path))


def test_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="gone: no such file or folder; name the one that holds the published data"):
        simde_task("nyt", str(tmp_path / "gone"))
    with pytest.raises(InputError, match="nyt: stands on no hub; name the file or folder that holds it"):
        simde_task("nyt")
    write_lines(tmp_path / "a.jsonl", [{"body": "x", "label": "y"}])
    with pytest.raises(InputError, match=r"a\.jsonl, line 1: no field 'abstract', found \['body', 'label'\]"):
        simde_task("arxiv-abstracts", str(tmp_path / "a.jsonl"))
    (tmp_path / "a.jsonl").write_text("")
    with pytest.raises(InputError, match="holds no example; give rows with the fields content and type"):
        simde_task("fakenews", str(tmp_path / "a.jsonl"))


def test_every_name_of_a_profile_is_a_task_and_the_sizes_are_table_1s() -> None:
    assert set(SIMDE_TASKS) == set(get_args(SimDEName))
    assert [task.size for task in SIMDE_TASKS.values()] == [8558957, 18846, 2162833, 13081, 2225]
    assert {name for name, task in SIMDE_TASKS.items() if task.hub} == set(ON_HUB) & set(SIMDE_TASKS)


def test_a_profile_names_them_by_path(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    folders(tmp_path / "data")
    table(tmp_path / "data")
    profile = tmp_path / "my.yaml"

    def evaluation(**benchmarks: str) -> Evaluation:
        content = {"tasks": ["halves", *benchmarks], "benchmarks": benchmarks, "head": "simde"}
        profile.write_text(yaml.safe_dump({"corpus": {"tasks": 90}, "evaluation": content}))
        return Profile.load(profile).evaluation

    for place in ("data/bbc", "data/bbc-text.csv"):
        settings = evaluation(bbcnews=place)
        assert settings.benchmarks == {"bbcnews": str(tmp_path / place)}
        check_benchmarks(settings, settings.tasks)
        task = load_task("bbcnews", settings)
        assert task is not None
        assert sorted(task.texts("test"))[0].startswith("sport article")
        assert outline_of("bbcnews", settings) == (["train", "validation", "test"], 6, False)
        before = task_fingerprint("bbcnews", settings)
        for file in [tmp_path / place, *(tmp_path / place).rglob("*")]:
            if file.is_file():
                file.write_bytes(file.read_bytes() + b"\n")
        assert task_fingerprint("bbcnews", settings) != before
    settings = evaluation(**{"arxiv-abstracts": "./gone.json", "nyt": "./data"})
    assert settings.benchmarks["arxiv-abstracts"] == str(tmp_path / "gone.json")  # a path, not a hub's name
    with pytest.raises(InputError, match=r"arxiv-abstracts needs its published file or folder in .*gone\.json"):
        check_benchmarks(settings, settings.tasks)
    with pytest.raises(ValueError, match="benchmarks: fakenews stands on no hub"):
        Evaluation(tasks=["fakenews"])
    assert (task_fingerprint("20news", Evaluation(tasks=["20news"])) or "").count("SetFit/20_newsgroups") == 1


def test_a_head_may_be_named() -> None:
    assert Evaluation(head="simde").head == HeadSettings(learning_rate=3e-4, batch_size=8)  # type: ignore[arg-type]
    assert Evaluation(head="thesis").head == Evaluation().head == HEADS["thesis"]  # type: ignore[arg-type]
    few = HEADS["few-shot"]
    assert few.model_copy(update={"epochs": 10}) == HEADS["simde"]
    unstated = set(HeadSettings.model_fields) - {"learning_rate", "batch_size"}
    assert HEADS["simde"].model_dump(include=unstated) == HeadSettings().model_dump(include=unstated)
    with pytest.raises(ValueError, match="there is no head 'mlp'; write thesis or simde or few-shot, or a mapping"):
        Evaluation(head="mlp")  # type: ignore[arg-type]

"""Task statistics, by hand, beside the numbers of the thesis."""

from __future__ import annotations

import math
import statistics

import pytest

from docemb_lib.evaluation import Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval
from docemb_lib.evaluation.task_statistics import published_statistics, task_statistics


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def long(n: int, word: str = "w") -> str:
    return f"{word} " * n


TASKS = [
    Classification(
        "arxiv",
        {
            "train": Labelled([long(384), long(385), long(513), long(9)], ["a", "a", "a", "b"]),
            "test": Labelled([long(1, "x"), long(2, "x"), long(3, "x")], ["a", "b", "b"]),
        },
    ),
    Pairs("mine", {"train": LabelledPairs([long(600), long(600)], [long(3), long(4)], [0, 1])}),
    Retrieval("wines", {"test": Ranking([long(n, "y") for n in (400, 500, 600, 700)], [0, 1], [[1], [0, 2, 3]])}),
]


def test_every_statistic_is_what_one_counts_by_hand() -> None:
    frame = task_statistics(TASKS, words)
    value = frame.set_index(["task", "split", "statistic"])["value"].sort_index()
    assert value["arxiv", "train"].to_dict() == {
        "examples": 4, "classes": 2, "class_mean": 50, "class_std": 25, "over_384": 50, "over_512": 25,
    }  # fmt: skip
    assert value["arxiv", "test", "class_std"] == pytest.approx(statistics.pstdev([100 / 3, 200 / 3]))
    assert value["mine", "train"].to_dict() == {
        "examples": 2, "classes": 2, "class_mean": 50, "class_std": 0, "over_384": 50, "over_512": 50,
    }  # fmt: skip
    assert value["wines", "test"].to_dict() == {
        "documents": 4, "queries": 2, "relevant_mean": 2, "relevant_std": 1, "over_384": 100, "over_512": 50,
    }  # fmt: skip
    assert list(task_statistics(TASKS[1:2], words, limits=(3,))["statistic"])[-1] == "over_3"


def test_the_numbers_of_the_thesis_stand_beside_where_there_are_some() -> None:
    thesis = task_statistics(TASKS, words).set_index(["task", "split", "statistic"])["thesis"]
    assert thesis["arxiv", "train", "examples"] == 28_388
    assert thesis["arxiv", "test", "class_std"] == 1.30
    assert thesis["wines", "test", "relevant_mean"] == 8.92
    assert thesis["wines", "test", "over_512"] == 90.43
    assert thesis["mine"].map(math.isnan).all()
    cut = task_statistics(TASKS, words, protocol="validation").set_index(["task", "split", "statistic"])["thesis"]
    assert cut["arxiv", "train", "examples"] == 10_000
    assert math.isnan(cut["arxiv", "train", "over_384"])


def test_the_published_tables_are_whole_and_their_shares_add_up() -> None:
    final, cut = published_statistics("final"), published_statistics("validation")
    assert set(final["task"]) == {"arxiv", "imdb", "aan", "oc", "pan", "s2orc", "wines", "games"}
    assert set(cut["task"]) == {"arxiv", "imdb", "aan", "oc", "pan", "s2orc"}
    table = cut.pivot(index=["task", "split"], columns="statistic", values="thesis")
    assert (table["class_mean"] * table["classes"]).tolist() == pytest.approx(
        [100] * 11, abs=0.02
    )  # printed: two digits
    assert table["examples"].max() == 10_000

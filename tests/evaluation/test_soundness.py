"""What is told of a task's data, and that it is told once it is evaluated."""

import logging

import numpy as np
import pytest

from docemb_lib.evaluation import (
    Classification,
    HeadSettings,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    evaluate,
)
from docemb_lib.evaluation.soundness import problems

COLUMNS = ["split", "problem", "count", "of", "first"]


def found(task: Classification | Pairs | Retrieval) -> list[tuple[object, ...]]:
    return list(problems(task)[COLUMNS].itertuples(index=False, name=None))


def test_leaks_contradictions_empty_texts_and_missing_classes_are_counted() -> None:
    train = Labelled(["a", "b", "c", "a", " "], ["x", "y", "z", "y", "x"])
    test = Labelled(["d", "a", "b", "", "b"], ["x", "x", "x", "y", "y"])
    task = Classification("t", {"train": train, "test": test, "validation": Labelled(["e"], ["z"])})
    assert found(task) == [
        ("train", "without text", 1, 5, 4),
        ("test", "without text", 1, 5, 3),
        ("test", "also in train (leakage)", 3, 5, 1),
        ("test", "also in train with another label", 1, 5, 2),  # a is x as well as y in train
        ("test", "classes of train without example", 1, 3, "z"),
        ("validation", "classes of train without example", 2, 3, "x"),
    ]


def test_a_pair_leaks_only_as_a_pair_in_its_order() -> None:
    train = LabelledPairs(["a", "b"], ["u", "v"], [0, 1])
    test = LabelledPairs(["a", "u", "b", "a"], ["v", "a", "v", ""], [0, 1, 1, 0])
    task = Pairs("p", {"train": train, "test": test})
    assert found(task) == [("test", "without text", 1, 4, 3), ("test", "also in train (leakage)", 1, 4, 2)]


def test_of_retrieval_empty_documents_are_told() -> None:
    assert found(Retrieval("r", {"test": Ranking(["a", "\n", "c"], [0], [[2]])})) == [("test", "without text", 1, 3, 1)]


def test_a_sound_task_has_no_problem() -> None:
    task = Classification("t", {"train": Labelled(["a", "b"], [0, 1]), "test": Labelled(["c", "d"], [1, 0])})
    assert found(task) == []


class Constant:
    def embed(self, texts: list[str]) -> np.ndarray:
        return np.ones((len(texts), 2), dtype=np.float32)


def test_evaluating_a_task_warns(caplog: pytest.LogCaptureFixture) -> None:
    task = Classification("t", {"train": Labelled(["a", "b"], [0, 1]), "test": Labelled(["c", "b"], [0, 1])})
    with caplog.at_level(logging.WARNING):
        evaluate(Constant(), task, head=HeadSettings(epochs=1), seeds=1)
    assert caplog.messages == ["task t, split test: 1 of 2 also in train (leakage), the first is 1"]

"""Problems of a task's data, and its statistics by hand."""

from unittest.mock import Mock

import numpy as np
import pandas as pd

from docemb_lib.evaluation import (
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    evaluate,
)
from docemb_lib.evaluation.benchmarks import task_lengths, task_statistics
from docemb_lib.evaluation.tasks import warn_of_problems
from docemb_lib.settings.sections import HeadSettings


def test_leaks_and_empty_texts_are_warned_of_in_every_kind_of_task(caplog):
    train = Labelled(["a", "b", "c", "a", " "], ["x", "y", "z", "y", "x"])
    test = Labelled(["d", "a", "b", "", "b"], ["x", "x", "x", "y", "y"])
    warn_of_problems(
        Classification("t", {"train": train, "test": test, "validation": Labelled(["e"], ["z"])})
    )
    train = LabelledPairs(["a", "b"], ["u", "v"], [0, 1])
    test = LabelledPairs(["a", "u", "b", "a"], ["v", "a", "v", ""], [0, 1, 1, 0])
    warn_of_problems(Pairs("p", {"train": train, "test": test}))
    warn_of_problems(Retrieval("r", {"test": Ranking(["a", "\n", "c"], [0], [[2]])}))
    assert caplog.messages == [
        "task t, split train: 1 of 5 examples have no text, the first of which is 4",
        "task t, split train: 2 of 5 examples are there with another class, too, the first of "
        "which is 0",
        "task t, split test: 1 of 5 examples have no text, the first of which is 3",
        "task t, split test: 2 of 5 examples are there with another class, too, the first of "
        "which is 2",
        "task t, split test: 3 of 5 examples are also in train (leakage), the first of which is 1",
        "task p, split test: 1 of 4 examples have no text, the first of which is 3",
        "task p, split test: 2 of 4 examples are also in train (leakage), the first of which is 1",
        "task r, split test: 1 of 3 examples have no text, the first of which is 1",
    ]
    caplog.clear()
    task = Classification(
        "t", {"train": Labelled(["a", "b"], [0, 1]), "test": Labelled(["c", "b"], [0, 1])}
    )
    evaluate(
        Mock(embed=lambda texts: np.ones((len(texts), 2))),
        task,
        head=HeadSettings(epochs=1),
        seeds=1,
    )
    assert caplog.messages == [
        "task t, split test: 1 of 2 examples are also in train (leakage), the first of which is 1"
    ]


def words(texts: list[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def long(n: int, word: str = "w") -> str:
    return f"{word} " * n


TRAIN = Labelled([long(384), long(385), long(513), long(9)], ["a", "a", "a", "b"])
TEST = Labelled([long(1, "x"), long(2, "x"), long(3, "x")], ["a", "b", "b"])
POOL = Ranking([long(n, "y") for n in (400, 500, 600, 700)], [0, 1], [[1], [0, 2, 3]])
TASKS = {
    "arxiv": Classification("arxiv", {"train": TRAIN, "test": TEST}),
    "mine": Pairs(
        "mine", {"train": LabelledPairs([long(600), long(600)], [long(3), long(4)], [0, 1])}
    ),
    "wines": Retrieval("wines", {"test": POOL}),
}


def found() -> pd.DataFrame:
    counters = {"n_structural_tokens": words}
    frames = []
    for name, task in TASKS.items():
        frame = task_statistics(task, task_lengths(task, counters))
        frames.append(frame.assign(task=name))
    return pd.concat(frames)


def test_statistics_are_counts_by_hand():
    value = found().set_index(["task", "split", "statistic"])["value"].sort_index()
    expected = {
        ("arxiv", "train"): {"classes": 2, "examples": 4, "over_384": 50},
        ("mine", "train"): {"classes": 2, "examples": 2, "over_384": 50},
        ("wines", "test"): {"documents": 4, "over_384": 100, "queries": 2, "relevant_mean": 2},
    }
    for of, statistics in expected.items():
        assert value[of].to_dict() == statistics


def test_lengths_have_a_row_for_both_documents_of_a_pair_and_count_each_text_once() -> None:
    counter = Mock(side_effect=words)
    lengths = task_lengths(
        TASKS["mine"], {"n_structural_tokens": counter, "letters": lambda texts: [1] * len(texts)}
    )
    assert lengths["n_structural_tokens"].tolist() == [600, 600, 3, 4]
    assert list(lengths.columns) == ["split", "n_structural_tokens", "letters"]
    counter.assert_called_once_with([long(600), long(3), long(4)])

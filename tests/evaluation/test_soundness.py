"""Problems of a task's data, and its statistics by hand and beside the numbers of the thesis."""

import statistics
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest

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
from docemb_lib.thesis.values import published
from docemb_lib.views import tasks_beside_thesis


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
        "task t, split test: 1 of 5 examples have no text, the first of which is 3",
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


def found(limit: int = 10_000) -> pd.DataFrame:
    counters = {"n_structural_tokens": words}
    return pd.concat(
        [
            task_statistics(task, task_lengths(task, counters), limit=limit)
            for task in TASKS.values()
        ]
    )


def test_statistics_are_counts_by_hand_and_validation_has_what_is_left_for_heads():
    value = (
        found()
        .query("protocol == 'final'")
        .set_index(["task", "split", "statistic"])["value"]
        .sort_index()
    )
    assert value["arxiv", "test", "class_std"] == pytest.approx(
        statistics.pstdev([100 / 3, 200 / 3])
    )
    classes = ["class_mean", "class_std", "classes", "examples", "over_384", "over_512"]
    rankings = ["documents", "over_384", "over_512", "queries", "relevant_mean", "relevant_std"]
    for of, names, values in (
        (("arxiv", "train"), classes, [50, 25, 2, 4, 50, 25]),
        (("mine", "train"), classes, [50, 0, 2, 2, 50, 50]),
        (("wines", "test"), rankings, [4, 100, 50, 2, 2, 1]),
    ):
        assert value[of].to_dict() == dict(zip(names, values, strict=True))
    cut = found(limit=2).query("protocol == 'validation'")
    assert (set(cut["task"]), set(cut["split"])) == ({"arxiv", "mine"}, {"train"})
    value = cut.set_index(["task", "statistic"])["value"]
    assert value["arxiv"].to_dict() == {
        "examples": 2,
        "classes": 2,
        "class_mean": 50,
        "class_std": 0,
    }


def test_lengths_have_a_row_for_both_documents_of_a_pair_and_count_each_text_once() -> None:
    counter = Mock(side_effect=words)
    lengths = task_lengths(
        TASKS["mine"], {"n_structural_tokens": counter, "letters": lambda texts: [1] * len(texts)}
    )
    assert lengths["n_structural_tokens"].tolist() == [600, 600, 3, 4]
    assert list(lengths.columns) == ["split", "n_structural_tokens", "letters"]
    counter.assert_called_once_with([long(600), long(3), long(4)])


def test_ours_stand_before_the_thesis_and_a_task_of_both_has_its_rows_together() -> None:
    table = tasks_beside_thesis(found(), "final", ["examples", "over_512"])
    assert list(table.index[:6]) == [
        ("arxiv", "train", "here"),
        ("arxiv", "train", "thesis"),
        ("arxiv", "validation", "thesis"),
        ("arxiv", "test", "here"),
        ("arxiv", "test", "thesis"),
        ("mine", "train", "here"),
    ]
    assert table.index.unique("task").tolist() == ["arxiv", "mine", "wines"]
    assert table.loc[("arxiv", "train", "here")].tolist() == [4, 25]
    assert table.loc[("arxiv", "train", "thesis")].tolist() == [28_388, 100]
    assert (table.loc[("wines", "test", "thesis"), "over_512"], table["examples"].dtype) == (
        90.43,
        "Int64",
    )
    cut = tasks_beside_thesis(found(), "validation", ["examples", "classes"])
    assert cut.loc[("arxiv", "train", "thesis")].tolist() == [10_000, 11]
    assert "wines" not in cut.index.get_level_values("task")


def test_the_published_tables_are_whole_and_their_shares_add_up() -> None:
    final, cut = (
        published("tasks").query(f"protocol == '{name}'") for name in ("final", "validation")
    )
    assert set(final["task"]) == {"arxiv", "imdb", "aan", "oc", "pan", "s2orc", "wines", "games"}
    assert set(cut["task"]) == {"arxiv", "imdb", "aan", "oc", "pan", "s2orc"}
    assert not published("tasks").duplicated(["protocol", "task", "split", "statistic"]).any()
    size = final.set_index(["task", "split", "statistic"])["value"]
    known = [
        ("s2orc", "train", "examples"),
        ("arxiv", "test", "examples"),
        ("games", "test", "documents"),
    ]
    assert size[known].tolist() == [152_000, 2_500, 21_228]
    assert ("aan", "validation", "examples") not in size
    table = cut.pivot(index=["task", "split"], columns="statistic", values="value")
    shares = (table["class_mean"] * table["classes"]).tolist()
    assert shares == pytest.approx([100] * 11, abs=0.02)  # printed: two digits
    assert table["examples"].max() == 10_000

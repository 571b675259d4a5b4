"""Table 5.7: the thesis' own from its raw numbers, ours beside it, deviations and intervals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from docemb_lib.thesis.tables import MEAN, NORMALISED, beside_thesis, deviations, table_5_7
from docemb_lib.thesis.values import published

NAMES = {"student after": "only-MSE", "SBERT truncated": "SBERT", "SBERT over chunks": None}


def rows(*rows):
    return pd.DataFrame(rows, columns=["round", "model", "task", "metric", "value", "low", "high"])


@pytest.mark.parametrize(
    ("model", "examples", "mean", "own_round", "all_rounds"),
    [  # recomputed by hand from the printed cells
        ("only-MSE", "1k", 0.6802, 0.9696, 0.7878),
        ("DM", "1k", 0.5228, 0.7469, 0.6114),
        ("PV", "10k", 0.7228, 0.8901, 0.8349),
        ("SBERT", "all", 0.8388, 0.9691, 0.9691),
    ],
)
def test_the_thesis_table_follows_from_its_raw_numbers(model, examples, mean, own_round, all_rounds):
    scores = published("table_5_7")
    by_round = table_5_7(scores, "accuracy")
    assert by_round.loc[(examples, model), MEAN] == pytest.approx(mean, abs=5e-5)
    assert by_round.loc[(examples, model), NORMALISED] == pytest.approx(own_round, abs=5e-5)
    together = table_5_7(scores, "accuracy", over_rounds=True)
    assert together.loc[(examples, model), NORMALISED] == pytest.approx(all_rounds, abs=5e-5)


def test_the_table_of_retrieval_has_no_rounds():
    table = table_5_7(published("table_5_7"), "map")
    assert list(table.columns) == ["games", "wines", MEAN, NORMALISED]
    assert list(table.index[:2]) == ["only-MSE", "SBERT"]
    assert table.loc["PV"].tolist() == pytest.approx([0.173, 0.133, 0.153, (0.173 / 0.198 + 0.133 / 0.148) / 2])


def test_models_stand_by_their_mean_within_rounds_in_the_order_of_the_frame():
    scores = rows(
        ("1k", "a", "t", "accuracy", 0.5, 0, 1), ("1k", "b", "t", "accuracy", 0.7, 0, 1),
        ("10k", "a", "t", "accuracy", 0.9, 0, 1), ("10k", "b", "t", "accuracy", 0.8, 0, 1),
        ("1k", "a", "find", "map", 0.2, 0, 1), ("10k", "a", "find", "map", 0.2, 0, 1),
    )  # fmt: skip
    table = table_5_7(scores, "accuracy")
    assert list(table.index) == [("1k", "b"), ("1k", "a"), ("10k", "a"), ("10k", "b")]
    assert table[NORMALISED].tolist() == pytest.approx([1, 5 / 7, 1, 8 / 9])
    assert table_5_7(scores, "accuracy", over_rounds=True)[NORMALISED].tolist() == pytest.approx(
        [7 / 9, 5 / 9, 1, 8 / 9]
    )
    assert table_5_7(scores, "map").loc["a", MEAN] == 0.2
    assert table_5_7(scores[scores["metric"] == "accuracy"], "map").empty


def test_each_score_finds_the_thesis_number_of_its_model_task_and_round():
    scores = rows(
        ("1k", "student after", "arxiv", "accuracy", 0.7, 0.6, 0.8),
        ("all", "student after", "arxiv", "accuracy", 0.7, 0.6, 0.75),
        ("500", "student after", "arxiv", "accuracy", 0.7, 0.6, 0.8),
        ("all", "student after", "games", "map", 0.2, 0.198, 0.3),
        ("all", "student after", "games", "mrr", 0.2, 0.1, 0.3),
        ("all", "SBERT over chunks", "arxiv", "accuracy", 0.7, 0.6, 0.8),
        ("all", "SBERT truncated", "package", "accuracy", 0.7, 0.6, 0.8),
    )
    found = beside_thesis(scores, {ours: theirs for ours, theirs in NAMES.items() if theirs})
    np.testing.assert_equal(found["thesis"].to_numpy(), [0.642, 0.773, np.nan, 0.198, 0.461, np.nan, np.nan])
    table = deviations(found)
    assert table["within our interval"].tolist() == [True, False, True, False]  # a bound belongs to the interval
    assert table["difference"].tolist() == pytest.approx([0.058, -0.073, 0.002, -0.261])
    assert table["ours"].tolist()[0] == ".700 [.60, .80]"


def test_without_tasks_of_the_thesis_nothing_deviates():
    scores = rows(("all", "student after", "package", "accuracy", 0.7, 0.6, 0.8))
    assert deviations(beside_thesis(scores, {"student after": "only-MSE"})).empty

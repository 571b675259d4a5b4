"""Tables of scores, on numbers small enough to work out by hand."""

import numpy as np
import pandas as pd
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Score, normalised, score_frame, scoreboard, standing


def scores() -> pd.DataFrame:
    """Means over tasks per seed: student .6 .7 .65, untrained .4 .4 .4, SBERT .64 .66 .65, chunks .8 .8 .8."""
    return score_frame(
        {
            "untrained": {
                "package": Score("accuracy", (0.5, 0.5, 0.5)),
                "see-also": Score("map", (0.3,), {"mrr": 0.9}),
            },
            "student": {"package": Score("accuracy", (0.7, 0.9, 0.8)), "see-also": Score("map", (0.5,), {"mrr": 0.6})},
            "SBERT": {"package": Score("accuracy", (0.88, 0.92, 0.9)), "see-also": Score("map", (0.4,), {"mrr": 0.5})},
            "chunks": {"package": Score("accuracy", (1.0, 1.0, 1.0)), "see-also": Score("map", (0.6,), {"mrr": 0.7})},
        }
    )


def test_the_frame_has_a_row_for_each_seed_and_each_further_metric() -> None:
    frame = scores()
    assert list(frame.columns) == ["model", "task", "metric", "seed", "value"]
    student = frame[frame["model"] == "student"]
    assert student.drop(columns="model").to_numpy().tolist() == [
        ["package", "accuracy", 0, 0.7],
        ["package", "accuracy", 1, 0.9],
        ["package", "accuracy", 2, 0.8],
        ["see-also", "map", 0, 0.5],
        ["see-also", "mrr", 0, 0.6],
    ]


def test_the_scoreboard_averages_over_tasks_within_each_seed_and_leaves_further_metrics_out() -> None:
    board = scoreboard(scores())
    assert list(board.index) == ["chunks", "student", "SBERT", "untrained"]
    assert list(board.columns) == ["package", "see-also", "mean", "std"]
    np.testing.assert_allclose(board.loc["student"], [0.8, 0.5, 0.65, np.std([0.6, 0.7, 0.65], ddof=1)])
    np.testing.assert_allclose(board.loc["untrained"], [0.5, 0.3, 0.4, 0.0], atol=1e-12)


def test_errors_of_two_tasks_that_cancel_within_a_seed_leave_no_spread() -> None:
    frame = score_frame({"m": {"a": Score("accuracy", (0.4, 0.6)), "b": Score("accuracy", (0.6, 0.4))}})
    assert scoreboard(frame).loc["m", "std"] == pytest.approx(0.0, abs=1e-12)


def test_normalised_scores_are_relative_to_the_best_model_shown() -> None:
    frame = normalised(scores())
    by_model = frame.groupby(["task", "metric", "model"])["normalised"].mean()
    assert by_model.groupby(["task", "metric"]).max().tolist() == pytest.approx([1.0, 1.0, 1.0])
    assert by_model["package", "accuracy", "student"] == pytest.approx(0.8)
    assert by_model["see-also", "map", "student"] == pytest.approx(0.5 / 0.6)
    without_best = normalised(scores().query("model != 'chunks'"))
    assert without_best.groupby(["task", "metric", "model"])["normalised"].mean()[
        "package", "accuracy", "student"
    ] == pytest.approx(0.8 / 0.9)


def test_standing_says_in_words_where_the_student_is() -> None:
    assert standing(scores(), student="student", before="untrained", teachers=["SBERT", "chunks"]) == (
        "In the mean over 2 tasks, student (0.650 ± 0.050) reaches 100% of SBERT (0.650 ± 0.010) and "
        "81% of chunks (0.800 ± 0.000); it is level with SBERT (within the spread over seeds), below chunks and "
        "above untrained (0.400 ± 0.000)."
    )


def test_a_difference_is_level_only_within_the_larger_spread() -> None:
    def sentence(teacher: tuple[float, float]) -> str:
        frame = score_frame(
            {
                "S": {"t": Score("accuracy", (0.70, 0.72))},
                "0": {"t": Score("accuracy", (0.5, 0.5))},
                "T": {"t": Score("accuracy", teacher)},
            }
        )
        return standing(frame, student="S", before="0", teachers=["T"])

    assert "it is level with T (within the spread over seeds)" in sentence((0.72, 0.72))  # .01 apart, spread .014
    assert "it is below T" in sentence((0.73, 0.73))  # .02 apart
    assert "it is level with T (within the spread over seeds)" in sentence((0.70, 0.76))  # .02 apart, spread .042
    assert "it is above T" in sentence((0.69, 0.69))


def test_with_one_seed_no_spread_is_claimed() -> None:
    frame = score_frame({m: {"t": Score("accuracy", (v,))} for m, v in [("S", 0.7), ("0", 0.5), ("T", 0.7)]})
    assert standing(frame, student="S", before="0", teachers=["T"]) == (
        "In the mean over 1 task, S (0.700) reaches 100% of T (0.700); it is level with T and above 0 (0.500)."
    )


def test_unfit_scores_are_refused_with_what_is_missing() -> None:
    frame = scores()
    with pytest.raises(InputError, match="no scores of 'SBERT over chunks', only of SBERT, chunks, student, untrained"):
        standing(frame, student="student", before="untrained", teachers=["SBERT over chunks"])
    with pytest.raises(InputError, match="'student' has none on 'package'"):
        scoreboard(frame.query("model != 'student' or task != 'package'"))
    with pytest.raises(InputError, match="'student' on 'package' has 2 seeds where others have 3"):
        scoreboard(frame.query("model != 'student' or seed != 2"))
    with pytest.raises(InputError, match="'untrained' has two scores on 'package' for one seed"):
        scoreboard(pd.concat([frame, frame]))

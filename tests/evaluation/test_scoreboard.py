"""Tables of scores, on numbers small enough to work out by hand."""

import numpy as np
import pandas as pd
import pytest

from docemb_lib.evaluation import Score
from docemb_lib.evaluation import scoreboard as boards
from docemb_lib.evaluation.uncertainty import OVERALL


def scores() -> pd.DataFrame:
    """Means over tasks: student .65, untrained .4, chunks .8."""
    values = {
        "untrained": ((0.5, 0.5, 0.5), 0.3, 0.9),
        "student": ((0.7, 0.9, 0.8), 0.5, 0.6),
        "chunks": ((1.0, 1.0, 1.0), 0.6, 0.7),
    }
    by_model = {}
    for model, (accuracy, mean, mrr) in values.items():
        package = Score({"accuracy": np.array(accuracy)[:, None]}, {"f1_macro": [0.5]})
        see_also = Score({"map": np.array([[mean]]), "mrr": np.array([[mrr]])})
        by_model[model] = {"package": package, "see-also": see_also}
    return boards.score_frame(by_model)


def test_means_are_over_the_deciding_metrics_of_tasks_for_models_with_all_tasks():
    rows = scores().query("model != 'chunks' or task != 'package'")
    assert boards.mean_over_tasks(rows).to_dict() == pytest.approx(
        {"student": 0.65, "untrained": 0.4}
    )


@pytest.mark.parametrize(
    ("over_rounds", "best"), [(False, [0.6, 0.6, 0.6, 0.9, 0.9]), (True, [0.9] * 5)]
)
def test_the_best_model_is_that_of_the_round_or_of_all_rounds(over_rounds, best):
    rows = [
        ("1k", "a", 0.2),  # a: two seeds
        ("1k", "a", 0.4),
        ("1k", "b", 0.6),
        ("all", "a", 0.9),
        ("all", "b", 0.5),
    ]
    frame = pd.DataFrame(rows, columns=["round", "model", "value"])
    frame = frame.assign(task="t", metric="accuracy")
    assert boards.best_means(frame, over_rounds=over_rounds).tolist() == best
    in_rounds = frame["value"] / [0.6, 0.6, 0.6, 0.9, 0.9]
    assert boards.normalised(frame)["normalised"].tolist() == in_rounds.tolist()


def intervals(*rows: tuple[object, ...]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["model", "task", "metric", "value", "low", "high"])


def comparison(verdicts: dict[str, str], task: str = OVERALL, metric: str = "mean") -> pd.DataFrame:
    rows = [("student", name, task, metric, verdict) for name, verdict in verdicts.items()]
    rows += [
        ("untrained", "SBERT", task, metric, "worse"),
        ("student", "SBERT", "package", "f1_macro", "better"),
    ]
    columns = ["model", "reference", "task", "metric", "verdict"]
    return pd.DataFrame(rows, columns=columns).assign(detectable=0.0)


FOUND = intervals(
    ("student", "package", "accuracy", 0.1, 0.0, 0.2),
    ("student", "see-also", "map", 0.1, 0.0, 0.2),
    ("student", OVERALL, "mean", 0.65, 0.6, 0.7),
    ("SBERT", OVERALL, "mean", 0.65, 0.61, 0.69),
    ("chunks", OVERALL, "mean", 0.8, 0.75, 1.0),
    ("untrained", OVERALL, "mean", 0.4, 0.355, 0.45),
)


def test_standing_names_the_best_reference_common_practice_and_the_start():
    tests = comparison({"SBERT": "no difference shown", "chunks": "worse", "untrained": "better"})
    sentence = boards.standing(
        FOUND, tests, student="student", before="untrained", practice="SBERT"
    )
    assert sentence == (
        "In the mean over 2 tasks, student (.650 [.60, .70]) is worse than the best of 3 "
        "references, chunks (.800 [.75, 1.00]); it is not shown to differ from SBERT (.650 [.61, "
        ".69]); it is better than untrained (.400 [.35, .45])."
    )


MEANS = {"words": 0.6, "chunks": 0.8, "untrained": 0.7, "student": 0.75, "both": 0.9}
BY_SIMPLICITY = ["words", "chunks", "untrained", "student"]  # both: less simple than these
WORSE = "every simpler model is shown to be worse, and no model is shown to be better"
BETTER = "it is shown to be better than student"
EQUAL = "it is the simplest model that is not shown to be worse than student"


@pytest.mark.parametrize(
    ("not_worse", "better", "model", "reason"),
    [
        ([], [], "student", WORSE),
        (["chunks", "untrained", "both"], [], "chunks", f"{EQUAL} (.800 against .750 in the mean)"),
        (["words"], ["both"], "both", f"{BETTER} (.900 against .750 in the mean)"),
        (
            ["words"],
            ["both", "chunks"],
            "chunks",
            f"{BETTER} (.800 against .750 in the mean), and it is the simplest of 2 such models",
        ),
    ],
)
@pytest.mark.parametrize("where", [(OVERALL, "mean"), ("see-also", "map")])
def test_the_choice_is_the_simplest_model_that_no_test_shows_to_be_worse(
    not_worse, better, model, reason, where
):
    rows = [(name, *where, mean, 0.0, 1.0) for name, mean in MEANS.items()]
    verdicts = dict.fromkeys(["both", "untrained", "chunks", "words"], "better")
    verdicts |= dict.fromkeys(not_worse, "no difference shown") | dict.fromkeys(better, "worse")
    compared = comparison(verdicts, *where)
    choice = boards.choose_simplest(
        intervals(*rows), compared, student="student", simplest_first=BY_SIMPLICITY
    )
    assert choice == (model, reason)


def test_the_interval_board_has_the_best_mean_first_and_the_mean_last():
    rows = [
        ("a", "see-also", "map", 0.5, 0.4, 0.6),
        ("a", "see-also", "mrr", 0.9, 0.9, 0.9),
        ("a", "package", "accuracy", 1, 1, 1),
        ("a", OVERALL, "mean", 0.75, 0.7, 0.8),
        ("b", "see-also", "map", 0.7, 0.6, 0.8),
        ("b", OVERALL, "mean", 0.8, 0.76, 0.84),
    ]
    board = boards.interval_board(intervals(*rows))
    assert board.columns.tolist() == ["see-also", "package", OVERALL]
    assert board.index.tolist() == ["b", "a"]
    assert board.map(lambda text: text.replace("\u00a0", " ")).to_numpy().tolist() == [
        [".700 [.60, .80]", "", ".800 [.76, .84]"],
        [".500 [.40, .60]", "1.000 [1.00, 1.00]", ".750 [.70, .80]"],
    ]
    few = intervals(*rows)
    few.loc[few["model"] == "b", "value"] -= 0.3
    rounds = pd.concat([few.assign(round="1k"), intervals(*rows).assign(round="all")])
    order = [("1k", "a"), ("1k", "b"), ("all", "b"), ("all", "a")]
    assert boards.interval_board(rounds).index.tolist() == order


def test_the_last_round_is_a_frame_like_one_without_rounds() -> None:
    rounds = pd.concat([scores().assign(round="1k", value=0.0), scores().assign(round="all")])
    pd.testing.assert_frame_equal(boards.last_round(rounds), scores())
    pd.testing.assert_frame_equal(boards.last_round(scores()), scores())


def test_tests_are_told_by_verdict_with_differences_and_corrected_p_values():
    tests = pd.DataFrame(
        [
            ("package", 0.0291, 0.0004, "better"),
            ("halves", 0.0104, 0.0123, "better"),
            ("see-also", -0.0057, 0.84, "no difference shown"),
            (OVERALL, 0.0112, 0.03, "better"),
        ],
        columns=["task", "difference", "p_holm", "verdict"],
    )
    assert boards.told(tests.assign(detectable=0.0)) == (
        "better on package (+.029, p < .001), on halves (+.010, p .012) and in the mean (+.011, "
        "p .030); not shown to differ on see-also (-.006, p .840)"
    )


LEAST = "; with 1,104 examples only differences of at least .031 can be shown"


@pytest.mark.parametrize(
    ("needed", "expected"),
    [
        (484.2, f"{LEAST}; one of this size would need about 480"),
        (110_500.0, LEAST),
    ],
)
def test_the_nearest_of_what_is_not_shown_says_what_it_takes(needed: float, expected: str) -> None:
    tests = pd.DataFrame(
        {
            "verdict": ["better", "no difference shown", "no difference shown"],
            "examples": [5, 1104, 7],
            "detectable": [0.5, 0.0312, 0.7],
            "needed": [1.0, needed, np.inf],
        }
    )
    assert boards.would_show(tests) == expected
    assert boards.would_show(tests.head(1)) == ""

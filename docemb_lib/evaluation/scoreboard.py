"""Scores of several models side by side: the tidy frame, tables, normalised scores, and a sentence
on the student.

The tidy frame has the columns `model, task, metric, seed, value`, and `round` for a final
evaluation in several rounds, the one with most examples last. Only raw scores are stored; what
depends on the models shown (spread, rank, normalised scores) is computed on demand.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS

MAIN_METRICS = ("accuracy", "map")  # one per task; means and tables leave out further metrics
RELATIONS = dict(
    zip(VERDICTS, ("better than", "worse than", "not shown to differ from"), strict=True)
)
NO_BREAK = "\u00a0"  # inside an interval, so that a narrow column wraps before it


def score_frame(scores: Mapping[str, Mapping[str, Score]]) -> pd.DataFrame:
    """The tidy frame of {model: {task: score}}; extra metrics get rows with seed 0."""
    rows = [
        (model, task, metric, seed, value)
        for model, by_task in scores.items()
        for task, score in by_task.items()
        for metric, values in [
            (score.metric, score.values),
            *((name, (v,)) for name, v in score.extra.items()),
        ]
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def last_round(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last round, without the column `round`; a frame without rounds is returned
    unchanged.
    """
    return (
        rows[rows["round"] == rows["round"].iloc[-1]].drop(columns="round")
        if "round" in rows
        else rows
    )


def mean_over_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """The unweighted mean over tasks for each seed: columns model, seed, value. scores: tidy.

    A task that trains nothing has a single value, which counts for every seed. A model without
    scores on some task (BM25 ranks only) has no mean.
    """
    main = scores[scores["metric"].isin(MAIN_METRICS)]
    main = main[main.groupby("model")["task"].transform("nunique") == main["task"].nunique()]
    table = main.pivot(index=["model", "task"], columns="seed", values="value")
    # bfill and ffill copy a single value to all seeds and change nothing where each seed has a
    # value
    per_seed = table.bfill(axis=1).ffill(axis=1).groupby("model").mean()
    return per_seed.reset_index().melt(id_vars="model", var_name="seed", value_name="value")


def normalised(scores: pd.DataFrame, *, over_rounds: bool = False) -> pd.DataFrame:
    """`scores` with a column `normalised`: value / best mean of any model shown on that task and
    metric.

    over_rounds: divide by the best of all rounds (Figure 5.3) instead of the same round (Table
    5.7). The result is relative to the models in the frame: never store it, and compare it only
    within one figure or table.
    """
    rounds = ["round"] if "round" in scores else []
    of_task = ["task", "metric", *([] if over_rounds else rounds)]
    means = scores.groupby(["task", "metric", *rounds, "model"], dropna=False)["value"].transform(
        "mean"
    )
    best = means.groupby([scores[name] for name in of_task], dropna=False).transform("max")
    return scores.assign(normalised=scores["value"] / best)


def interval_board(intervals: pd.DataFrame) -> pd.DataFrame:
    """Models x tasks as text, a score and its interval as in `.792 [.77, .81]`, best mean first in
    each round.

    The last column is the mean over tasks, or the single task; a model without some task comes last
    and has no mean. intervals: see `score_intervals`, perhaps with `round`.
    """
    shown = intervals[intervals["metric"].isin([*MAIN_METRICS, "mean"])]
    index = ["round", "model"] if "round" in shown else ["model"]
    rows = shown[["value", "low", "high"]].itertuples(index=False)
    shown = shown.assign(text=[with_interval(*row).replace(", ", f",{NO_BREAK}") for row in rows])
    table = shown.pivot_table(
        index=index, columns="task", values="text", aggfunc="first", sort=False
    )
    best = shown[shown["task"] == table.columns[-1]].set_index(index)["value"]
    rounds = {name: number for number, name in enumerate(dict.fromkeys(shown.get("round", ())))}
    order = sorted(
        table.index,
        key=lambda row: (rounds.get(row[0], 0) if rounds else 0, -best.get(row, -np.inf)),
    )
    return table.loc[order].fillna("").rename_axis(columns=None)


def with_interval(value: float, low: float, high: float) -> str:
    """A score and its interval, as in `.792 [.77, .81]`."""
    return re.sub(r"\b0\.", ".", f"{value:.3f} [{low:.2f}, {high:.2f}]")


def _three_digits(value: float) -> str:
    return f"{value:.3f}".removeprefix("0")


def standing(
    intervals: pd.DataFrame,
    comparison: pd.DataFrame,
    *,
    student: str,
    before: str | None,
    practice: str,
) -> str:
    """One sentence that compares the student with its best reference, with common practice and with
    its start.

    Means over tasks are compared; "better" and "worse" are the verdicts of paired tests. The best
    reference is that of the highest mean among those that `comparison` compares the student with.
    intervals: see `score_intervals`; comparison: see `verdicts`; before: the student before
    training, None where nothing was trained from it; practice: the reference that users have today.
    """
    tasks = intervals.loc[intervals["task"] != OVERALL, "task"].nunique()
    scores = over_tasks(intervals).set_index("model")
    own = beside_references(comparison, student).set_index("reference")
    references = [model for model in own.index if model in scores.index]
    best = scores.loc[references, "value"].idxmax()

    def number(model: str) -> str:
        return with_interval(*scores.loc[model, ["value", "low", "high"]])

    title = f"the best of {len(references)} references, {best}" if len(references) > 1 else best
    others = dict.fromkeys(filter(None, (best, practice, before)))
    found = [
        f"{RELATIONS[own['verdict'][o]]} {title if o == best else o} ({number(o)})" for o in others
    ]
    over = f"{tasks} {'task' if tasks == 1 else 'tasks'}"
    return f"In the mean over {over}, {student} ({number(student)}) is {'; it is '.join(found)}."


class Choice(NamedTuple):
    """The model to take, and why."""

    model: str
    reason: str  # a clause with "it" for the model

    def __str__(self) -> str:
        return f"Take {self.model}: {self.reason}."


def choose_simplest(
    intervals: pd.DataFrame,
    comparison: pd.DataFrame,
    *,
    student: str,
    simplest_first: Sequence[str],
) -> Choice:
    """The simplest model that is not shown to be worse, by the paired tests of the student beside
    each reference.

    These tests compare the means over tasks. Where references are shown to be better than the
    student, the simplest of them is taken, and otherwise the simplest among the student and the
    references not shown to be worse.

    intervals: see `score_intervals`; comparison: see `verdicts`; simplest_first: models that may be
    among the references, and the student; references that are not in it count as less simple than
    all in it.
    """
    verdict_of = beside_references(comparison, student).set_index("reference")[
        "verdict"
    ]  # the student is …
    rank = {model: place for place, model in enumerate(simplest_first)}
    references = sorted(verdict_of.index, key=lambda model: rank.get(model, len(rank)))
    better = [model for model in references if verdict_of[model] == VERDICTS[1]]
    equal = [model for model in references if verdict_of[model] == VERDICTS[2]]
    simpler = [model for model in references if rank.get(model, len(rank)) < rank[student]]
    means = over_tasks(intervals).set_index("model")["value"]

    def against_student(model: str) -> str:
        return f"{student} ({_three_digits(means[model])} against {_three_digits(means[student])} in the mean)"

    if better:
        alone = len(better) == 1
        among = "" if alone else f", and it is the simplest of {len(better)} such models"
        return Choice(
            better[0], f"it is shown to be better than {against_student(better[0])}{among}"
        )
    for model in simpler:
        if model in equal:
            reason = f"it is the simplest model that is not shown to be worse than {against_student(model)}"
            return Choice(model, reason)
    worse = "every simpler model is shown to be worse, and " if simpler else ""
    return Choice(student, f"{worse}no model is shown to be better")


def beside_references(comparison: pd.DataFrame, student: str) -> pd.DataFrame:
    """The student against each reference in the mean over tasks: rows of `comparison`, see
    `verdicts`.
    """
    return over_tasks(comparison).query("model == @student")


def over_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the mean over tasks; for a single task the rows of the main metric."""
    means = rows[rows["task"] == OVERALL]
    return rows[rows["metric"].isin(MAIN_METRICS)] if means.empty else means

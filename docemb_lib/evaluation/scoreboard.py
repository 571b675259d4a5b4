"""Scores side by side: a tidy frame of them, tables, normalised accuracy, and where the student stands in words.

The tidy frame has one row per model, task, metric and seed: the columns `model, task, metric, seed, value`. Only raw
scores are stored; what is relative to the models shown (spread, rank, normalised accuracy) is made from it on demand.
A final evaluation in several rounds has their names in a column `round`, the one with most examples last.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS

MAIN_METRICS = ("accuracy", "map")  # one per task; further ones (mrr) stay out of means and tables
NO_BREAK = "\u00a0"


def score_frame(scores: Mapping[str, Mapping[str, Score]]) -> pd.DataFrame:
    """The tidy frame of {model: {task: score}}; further metrics become rows of their own, with seed 0."""
    rows = [
        (model, task, metric, seed, value)
        for model, by_task in scores.items()
        for task, score in by_task.items()
        for metric, values in [(score.metric, score.values), *((name, (v,)) for name, v in score.extra.items())]
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def last_round(rows: pd.DataFrame) -> pd.DataFrame:
    """Of any frame with rounds the rows of the last one, without that column; a frame without rounds as it is."""
    return rows[rows["round"] == rows["round"].iloc[-1]].drop(columns="round") if "round" in rows else rows


def mean_over_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """The unweighted mean over tasks, once per seed. scores: tidy. Returns columns model, seed, value.

    A task that trains nothing has one value, which counts for every seed.
    """
    main = scores[scores["metric"].isin(MAIN_METRICS)]
    if main.duplicated(["model", "task", "seed"]).any():
        twice = main[main.duplicated(["model", "task", "seed"])].iloc[0]
        raise InputError(f"scores: {twice['model']!r} has two scores on {twice['task']!r} for one seed; keep one run")
    for model, rows in main.groupby("model"):
        if missing := set(main["task"]) - set(rows["task"]):
            raise InputError(f"scores: {model!r} has none on {min(missing)!r}; a mean over tasks needs all of them")
    table = main.pivot(index=["model", "task"], columns="seed", values="value")
    values = table.count(axis=1)
    if not values.isin([1, table.shape[1]]).all():
        model, task = values.index[~values.isin([1, table.shape[1]])][0]
        raise InputError(
            f"scores: {model!r} on {task!r} has {values[model, task]} seeds where others have {table.shape[1]}; "
            "score all tasks with equally many"
        )
    # bfill and ffill spread a single value over all seeds and change nothing where each seed has its own
    per_seed = table.bfill(axis=1).ffill(axis=1).groupby("model").mean()
    return per_seed.reset_index().melt(id_vars="model", var_name="seed", value_name="value")


def scoreboard(scores: pd.DataFrame) -> pd.DataFrame:
    """Models x tasks, best mean first. scores: tidy.

    Task columns are means over seeds; `mean` is the unweighted mean over tasks, `std` its sample deviation over seeds
    (the mean over tasks is taken for each seed first), 0 for one seed.
    """
    main = scores[scores["metric"].isin(MAIN_METRICS)]
    table = main.pivot_table(index="model", columns="task", values="value", sort=False)
    overall = mean_over_tasks(scores).groupby("model")["value"]
    table["mean"] = overall.mean()
    table["std"] = overall.std().fillna(0.0)
    return table.rename_axis(columns=None).sort_values("mean", ascending=False, kind="stable")


def normalised(scores: pd.DataFrame, *, over_rounds: bool = False) -> pd.DataFrame:
    """`scores` with a column `normalised`: value / best mean of any model shown on that task and metric.

    scores: columns model, task, metric, value, any number of rows each (seeds), and `round` where there are several:
    then the best of the same round divides (Table 5.7), or the best of all rounds if `over_rounds` (Figure 5.3).
    Relative to the models in the frame: never store it, and compare it only within one figure or table.
    """
    rounds = ["round"] if "round" in scores else []
    of_task = ["task", "metric", *([] if over_rounds else rounds)]
    mean = scores.groupby(["task", "metric", *rounds, "model"], dropna=False)["value"].mean()
    best = mean.groupby(of_task, dropna=False).max().rename("best").reset_index()
    divisor = scores[of_task].merge(best, how="left", on=of_task)["best"]
    return scores.assign(normalised=scores["value"].to_numpy() / divisor.to_numpy())


def interval_board(intervals: pd.DataFrame) -> pd.DataFrame:
    """Models x tasks as text, best mean first in each round: `.792 [.77, .81]`, a score and its interval.

    The space within an interval does not break: a narrow column of a notebook has it on a line of its own.

    intervals: see `score_intervals`, with a `round` where there are several. The mean over tasks is the last column; a
    single task is its own.
    """
    shown = intervals[intervals["metric"].isin([*MAIN_METRICS, "mean"])]
    index = ["round", "model"] if "round" in shown else ["model"]
    rows = shown[["value", "low", "high"]].itertuples(index=False)
    texts = [with_interval(*row).replace(", ", f",{NO_BREAK}") for row in rows]
    table = shown.assign(text=texts).pivot_table(
        index=index, columns="task", values="text", aggfunc="first", sort=False
    )
    best = shown[shown["task"] == table.columns[-1]].set_index(index)["value"]
    rounds = {name: number for number, name in enumerate(dict.fromkeys(shown.get("round", ())))}
    order = sorted(table.index, key=lambda row: (rounds.get(row[0], 0) if rounds else 0, -best[row]))
    return table.loc[order].rename_axis(columns=None)


def with_interval(value: float, low: float, high: float) -> str:
    """`.792 [.77, .81]`"""
    return re.sub(r"\b0\.", ".", f"{value:.3f} [{low:.2f}, {high:.2f}]")


def standing(
    intervals: pd.DataFrame, comparison: pd.DataFrame, *, student: str, before: str, teachers: Sequence[str]
) -> str:
    """One sentence: the student against itself before training and against each form of its teacher.

    intervals: see `score_intervals`; comparison: see `compare`, the student against each of the others. Means over
    tasks are compared. "Better" and "worse" are the verdicts of paired tests, corrected for all rows of the comparison.
    """
    tasks = intervals.loc[intervals["task"] != OVERALL, "task"].nunique()
    scores = overall(intervals).set_index("model")
    if absent := [model for model in (student, before, *teachers) if model not in scores.index]:
        raise InputError(f"standing: no scores of {absent[0]!r}, only of {', '.join(sorted(scores.index))}")
    mine = overall(comparison).query("model == @student").set_index("reference")["verdict"]
    better, worse, _ = VERDICTS

    def number(model: str) -> str:
        return with_interval(*scores.loc[model, ["value", "low", "high"]])

    places: dict[str, list[str]] = {}
    for other in (*teachers, before):
        verdict = {better: "better than", worse: "worse than"}.get(mine[other], "not shown to differ from")
        places.setdefault(verdict, []).append(f"{other} ({number(other)})" if other == before else other)
    shares = [
        f"{scores['value'][student] / scores['value'][other]:.0%} of {other} ({number(other)})" for other in teachers
    ]
    found = [f"{verdict} {', '.join([*o[:-2], ' and '.join(o[-2:])])}" for verdict, o in places.items()]
    return (
        f"In the mean over {tasks} {'task' if tasks == 1 else 'tasks'}, {student} ({number(student)}) reaches "
        f"{' and '.join(shares)}; it is {', '.join(found)}."
    )


def overall(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of intervals or a comparison that are over all tasks; of a single task its own metric's."""
    means = rows[rows["task"] == OVERALL]
    return rows[rows["metric"].isin(MAIN_METRICS)] if means.empty else means

"""Scores side by side: a tidy frame of them, the table, normalised accuracy, and where the student stands in words.

The tidy frame has one row per model, task, metric and seed: the columns `model, task, metric, seed, value`. Only raw
scores are stored; what is relative to the models shown (spread, rank, normalised accuracy) is made from it on demand.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import Score

MAIN_METRICS = ("accuracy", "map")  # one per task; further ones (mrr) stay out of means and tables


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


def normalised(scores: pd.DataFrame) -> pd.DataFrame:
    """`scores` with a column `normalised`: value / best mean of any model shown on that task and metric.

    scores: columns model, task, metric, value, any number of rows each (seeds). Relative to the models in the frame:
    never store it, and compare it only within one figure or table.
    """
    mean = scores.groupby(["task", "metric", "model"])["value"].mean()
    best = mean.groupby(["task", "metric"]).max().rename("best").reset_index()
    divisor = scores[["task", "metric"]].merge(best, how="left", on=["task", "metric"])["best"]
    return scores.assign(normalised=scores["value"].to_numpy() / divisor.to_numpy())


def standing(scores: pd.DataFrame, *, student: str, before: str, teachers: Sequence[str]) -> str:
    """One sentence: the student against itself before training and against each form of its teacher.

    scores: tidy. Means over tasks are compared. "level" is a difference within the larger of the two spreads over
    seeds; anything else is "above" or "below", which is a fact of these tasks and seeds and no test of significance.
    """
    shown = set(scores["model"])
    if absent := [model for model in (student, before, *teachers) if model not in shown]:
        raise InputError(f"standing: no scores of {absent[0]!r}, only of {', '.join(sorted(shown))}")
    overall = mean_over_tasks(scores).groupby("model")["value"]
    mean, std = overall.mean(), overall.std().fillna(0.0)
    tasks, seeds = scores[scores["metric"].isin(MAIN_METRICS)]["task"].nunique(), overall.count().max()

    def number(model: str) -> str:
        return f"{mean[model]:.3f} ± {std[model]:.3f}" if seeds > 1 else f"{mean[model]:.3f}"

    def place(other: str) -> str:
        difference, spread = mean[student] - mean[other], max(std[student], std[other])
        if abs(difference) <= spread + 1e-12:
            return f"level with {other}" + (" (within the spread over seeds)" if seeds > 1 else "")
        return f"{'above' if difference > 0 else 'below'} {other}"

    shares = [f"{mean[student] / mean[other]:.0%} of {other} ({number(other)})" for other in teachers]
    return (
        f"In the mean over {tasks} {'task' if tasks == 1 else 'tasks'}, {student} ({number(student)}) reaches "
        f"{' and '.join(shares)}; it is {', '.join(map(place, teachers))} and {place(before)} ({number(before)})."
    )

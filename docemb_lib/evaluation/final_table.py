"""Table 5.7 of the thesis for any models, tasks and rounds, and its own numbers beside ours, score by score.

Scores are rows of model, round, task, metric, value, as intervals (with low and high) and `published("table_5_7")` have
them. The thesis ranks within the first 1,000 hits where we rank all articles: its MAP on GAMES is not quite ours.
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from docemb_lib.evaluation.published import published
from docemb_lib.evaluation.scoreboard import normalised, with_interval

MEAN, NORMALISED = "mean", "normalised mean"  # the last columns of the table


def table_5_7(scores: pd.DataFrame, metric: str, *, over_rounds: bool = False) -> pd.DataFrame:
    """Models × tasks of one metric, best mean first: part (a) with accuracy, by round; part (b) with map, without.

    Columns: the tasks, their unweighted mean, and the mean of scores divided by the best model's of the same round, or
    of all rounds if `over_rounds`. Retrieval trains nothing and is the same in every round.
    """
    rows = scores[scores["metric"] == metric]
    if metric != "accuracy":
        rows = rows.drop_duplicates(["model", "task"]).drop(columns="round")
    rows = normalised(rows, over_rounds=over_rounds)
    index = ["round", "model"] if "round" in rows else ["model"]
    order = list(dict.fromkeys(rows.get("round", ())))
    table = rows.pivot_table(index=index, columns="task", values="value").rename_axis(columns=None)
    means = rows.groupby(index)[["value", "normalised"]].mean()
    table[[MEAN, NORMALISED]] = means.rename(columns={"value": MEAN, "normalised": NORMALISED})
    table = table.sort_values(MEAN, ascending=False, kind="stable")
    return table.loc[order] if len(index) > 1 else table


def beside_thesis(scores: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """`scores` with a column `thesis`: its value of the same model, round, task and metric, NaN where it has none.

    names: what the thesis calls our models, those it has.
    """
    known: dict[tuple[str, str | None, str, str], float] = {
        (row["model"], row["round"] if isinstance(row["round"], str) else None, row["task"], row["metric"]): row[
            "value"
        ]
        for row in published("table_5_7").to_dict("records")
    }

    def value(model: str, name: str, task: str, metric: str) -> float:
        theirs = names.get(model, "")
        return known.get((theirs, name, task, metric), known.get((theirs, None, task, metric), float("nan")))

    columns = scores[["model", "round", "task", "metric"]].itertuples(index=False)
    return scores.assign(thesis=pd.Series([value(*row) for row in columns], index=scores.index, dtype=float))


def deviations(scores: pd.DataFrame) -> pd.DataFrame:
    """A row for each of our scores that the thesis has too: ours with its interval, the thesis', how far ours is from
    it, and whether the thesis' number lies within our 95% interval. scores: see `beside_thesis`, with low and high."""
    rows = scores[scores["thesis"].notna()]
    return pd.DataFrame(
        {
            **{name: rows[name] for name in ("round", "model", "task", "metric")},
            "ours": [with_interval(*row) for row in rows[["value", "low", "high"]].itertuples(index=False)],
            "thesis": rows["thesis"],
            "difference": rows["value"] - rows["thesis"],
            "within our interval": rows["thesis"].between(rows["low"], rows["high"]),
        }
    ).reset_index(drop=True)

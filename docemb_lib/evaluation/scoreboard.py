"""Scores of several models side by side: the tidy frame, tables, and sentences on the student.

The tidy frame has the columns `model, task, metric, seed, value`, and `round` for a final
evaluation in several rounds, the round with most examples last. Only raw scores are stored; what
depends on the models in a table (spread, rank, normalised scores) is computed on demand.
"""

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS, Needed

MAIN_METRICS = ("accuracy", "map")  # one per task; means and tables leave out further metrics
METRIC_NAMES = {  # in tables and figures; others are as they are
    "map": "MAP",
    "mrr": "MRR",
    "ndcg@10": "nDCG@10",
    "recall@100": "recall@100",
    "f1_macro": "macro-F1",
    "mean": "mean score",
}
BETTER, WORSE, UNCLEAR = VERDICTS
RELATIONS = {BETTER: "better than", WORSE: "worse than", UNCLEAR: "not shown to differ from"}
REACHABLE = 100  # times the examples at hand; a number of examples beyond it is not said
NO_BREAK = "\u00a0"  # inside an interval, so that a narrow column wraps before it


def score_frame(scores: Mapping[str, Mapping[str, Score]]) -> pd.DataFrame:
    """The tidy frame of {model: {task: score}}; extra metrics get rows with seed 0."""
    rows = []
    for model, by_task in scores.items():
        for task, score in by_task.items():
            for seed, value in enumerate(score.values):
                rows.append((model, task, score.metric, seed, value))
            for metric, value in score.extra.items():
                rows.append((model, task, metric, 0, value))
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def last_round(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the last round, without the column `round`, which a frame may lack."""
    if "round" not in rows:
        return rows
    return rows[rows["round"] == rows["round"].iloc[-1]].drop(columns="round")


def mean_over_tasks(scores: pd.DataFrame) -> pd.DataFrame:
    """The unweighted mean over tasks for each seed: columns model, seed, value. scores: tidy.

    A task that trains nothing has a single value, which counts for every seed. A model without
    scores on some task (BM25 ranks only) has no mean.
    """
    main = main_rows(scores)
    main = main[main.groupby("model")["task"].transform("nunique") == main["task"].nunique()]
    table = main.pivot(index=["model", "task"], columns="seed", values="value")
    # bfill and ffill copy a single value to all seeds and change nothing where each seed has a
    # value
    per_seed = table.bfill(axis=1).ffill(axis=1).groupby("model").mean()
    return per_seed.reset_index().melt(id_vars="model", var_name="seed", value_name="value")


def normalised(scores: pd.DataFrame, *, over_rounds: bool = False) -> pd.DataFrame:
    """`scores` with a column `normalised`: value / best mean of a model on that task and metric.

    over_rounds: divide by the best of all rounds (Figure 5.3) instead of the same round (Table
    5.7). The result is relative to the models in the frame: never store it, and compare it only
    within one figure or table.
    """
    return scores.assign(normalised=scores["value"] / best_means(scores, over_rounds=over_rounds))


def best_means(scores: pd.DataFrame, *, over_rounds: bool = False) -> pd.Series:
    """The best mean of a model on the task and metric of each row, see `normalised`."""
    of_task = ["task", "metric"]
    of_round = [*of_task, "round"] if "round" in scores else of_task
    means = scores.groupby([*of_round, "model"], dropna=False)["value"].transform("mean")
    among = [scores[name] for name in (of_task if over_rounds else of_round)]
    return means.groupby(among, dropna=False).transform("max")


def interval_board(intervals: pd.DataFrame) -> pd.DataFrame:
    """Models x tasks as text, such as `.792 [.77, .81]`, best mean first in each round.

    The last column is the mean over tasks, or the single task; a model without some task comes last
    and has no mean. intervals: see `score_intervals`, perhaps with `round`.
    """
    main = main_rows(intervals)
    index = ["round", "model"] if "round" in main else ["model"]
    rows = main[["value", "low", "high"]].itertuples(index=False)
    main = main.assign(text=[with_interval(*row).replace(", ", f",{NO_BREAK}") for row in rows])
    table = main.pivot_table(
        index=index, columns="task", values="text", aggfunc="first", sort=False
    )
    means = main[main["task"] == table.columns[-1]].set_index(index)["value"]
    table = table.loc[means.reindex(table.index).sort_values(ascending=False, kind="stable").index]
    if "round" in main:
        table = table.loc[list(main["round"].unique())]
    return table.fillna("").rename_axis(columns=None)


def with_interval(value: float, low: float, high: float) -> str:
    """A score and its interval, as in `.792 [.77, .81]`."""
    return re.sub(r"\b0\.", ".", f"{value:.3f} [{low:.2f}, {high:.2f}]")


def standing(
    intervals: pd.DataFrame,
    comparison: pd.DataFrame,
    *,
    student: str,
    before: str | None,
    practice: str | None,
) -> str:
    """One sentence that compares the student with its best reference, practice, and its start.

    Means over tasks are compared; "better" and "worse" are the verdicts of paired tests. The best
    reference is that of the highest mean among those that `comparison` compares the student with.
    intervals: see `score_intervals`; comparison: see `verdicts`; before: the student before
    training, None where nothing was trained from it; practice: the reference that users have
    today, or None.
    """
    tasks = intervals.loc[intervals["task"] != OVERALL, "task"].nunique()
    scores = over_tasks(intervals).set_index("model")
    verdict_of = _verdicts(comparison, student)
    test_of = beside_references(comparison, student).set_index("reference")
    references = [model for model in verdict_of if model in scores.index]
    best = str(scores.loc[references, "value"].idxmax())

    def scored(model: str) -> str:
        return with_interval(*scores.loc[model, ["value", "low", "high"]])

    clauses = []
    for model in dict.fromkeys(filter(None, (best, practice, before))):
        among = model == best and len(references) > 1
        title = f"the best of {len(references)} references, {best}" if among else model
        takes = would_show(test_of.loc[[model]])
        clauses.append(f"{RELATIONS[verdict_of[model]]} {title} ({scored(model)}{takes})")
    over = f"{tasks} task{'' if tasks == 1 else 's'}"
    return f"In the mean over {over}, {student} ({scored(student)}) is {'; it is '.join(clauses)}."


def would_show(tests: pd.DataFrame) -> str:
    """What it takes to show the nearest of the differences that are not shown, as a clause.

    An example is `; 104 examples can show .031, about 480 this`; "" where all are shown, or models
    agree on every example. tests: see `verdicts`.
    """
    unclear = tests[(tests["verdict"] == UNCLEAR) & (tests["detectable"] > 0)]
    if unclear.empty:
        return ""
    nearest = unclear.sort_values("needed").iloc[0]
    takes = Needed(float(nearest["detectable"]), float(nearest["needed"]))
    return f"; {what_shows(int(nearest['examples']), takes)}"


def what_shows(examples: int, takes: Needed) -> str:
    """What so many examples can show, as in `104 examples can show .031, about 480 this`.

    The second number is left out where it is beyond reach.
    """
    least = f"{takes.detectable:.3f}".removeprefix("0")
    clause = f"{examples:,} examples can show {least}"
    if takes.examples <= REACHABLE * examples:
        clause += f", about {float(f'{takes.examples:.2g}'):,.0f} this"
    return clause


def told(tests: pd.DataFrame) -> str:
    """The tests of one model against another in words, by verdict.

    An example is `better on halves (+.041, p .002) and in the mean (+.020, p .013); not shown to
    differ on package (-.014, p .84; 104 examples can show .031, about 480 this)`. tests: see
    `verdicts`; p-values are corrected.
    """
    clauses = []
    for verdict in (BETTER, WORSE, UNCLEAR):
        cases = []
        rows = tests[tests["verdict"] == verdict]
        columns = ["task", "difference", "p_holm"]
        for row, task, d, p in rows[columns].itertuples():
            where = "in the mean" if task == OVERALL else f"on {task}"
            takes = would_show(rows.loc[[row]])
            cases.append(f"{where} ({_with_p(d, p)}{takes})")
        if cases:
            relation = "not shown to differ" if verdict == UNCLEAR else verdict
            clauses.append(f"{relation} {listed(cases)}")
    return "; ".join(clauses)


def test_board(tests: pd.DataFrame) -> pd.DataFrame:
    """The tests of one model: references × tasks, each as in `better: +.041, p .002`.

    A test that shows no difference has no word. tests: see `verdicts`; p-values are corrected.
    """
    columns = ["difference", "p_holm", "verdict"]
    cells = []
    for difference, p, verdict in tests[columns].itertuples(index=False):
        word = "" if verdict == UNCLEAR else f"{verdict}: "
        cells.append(f"{word}{_with_p(difference, p)}".replace(" ", NO_BREAK))
    table = tests.assign(test=cells).pivot_table(
        index="reference", columns="task", values="test", aggfunc="first", sort=False
    )
    return table.rename_axis(columns=None).fillna("")


def _with_p(difference: float, p: float) -> str:
    return f"{difference:+.3f}, {p_value(p)}".replace("0.", ".", 1)


def listed(words: Sequence[str]) -> str:
    """One or more words as a list in a sentence, as in `on a, on b and in the mean`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def p_value(p: float) -> str:
    """A p-value, as in `p .013` or `p < .001`."""
    return "p < .001" if p < 0.001 else f"p {p:.3f}".replace("0.", ".")


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
    """The simplest model that no paired test of the student beside a reference shows to be worse.

    These tests compare the means over tasks. Where references are shown to be better than the
    student, the simplest of them is taken, and otherwise the simplest among the student and the
    references not shown to be worse.

    intervals: see `score_intervals`; comparison: see `verdicts`; simplest_first: models that may be
    among the references, and the student; other references count as less simple than all of these.
    """
    verdict_of = _verdicts(comparison, student)  # on the student, by reference
    rank = {model: place for place, model in enumerate(simplest_first)}
    references = sorted(verdict_of, key=lambda model: rank.get(model, len(rank)))
    better = [model for model in references if verdict_of[model] == WORSE]
    simpler = [model for model in references if rank.get(model, len(rank)) < rank[student]]
    equal = [model for model in simpler if verdict_of[model] == UNCLEAR]
    if not better and not equal:
        worse = "every simpler model is shown to be worse, and " if simpler else ""
        return Choice(student, f"{worse}no model is shown to be better")

    model = (better or equal)[0]
    means = over_tasks(intervals).set_index("model")["value"]
    scores = [f"{means[name]:.3f}".removeprefix("0") for name in (model, student)]
    relation = (
        "shown to be better" if better else "the simplest model that is not shown to be worse"
    )
    reason = f"it is {relation} than {student} ({scores[0]} against {scores[1]} in the mean)"
    if len(better) > 1:
        reason += f", and it is the simplest of {len(better)} such models"
    return Choice(model, reason)


def _verdicts(comparison: pd.DataFrame, student: str) -> dict[str, str]:
    """The verdict on the student by reference, in the mean over tasks."""
    rows = beside_references(comparison, student)
    return dict(zip(rows["reference"], rows["verdict"], strict=True))


def beside_references(comparison: pd.DataFrame, student: str) -> pd.DataFrame:
    """The rows of `comparison` (see `verdicts`) on the student in the mean over tasks."""
    return over_tasks(comparison).query("model == @student")


def over_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the mean over tasks; for a single task the rows of the main metric."""
    means = rows[rows["task"] == OVERALL]
    return main_rows(rows) if means.empty else means


def main_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows of the metric that decides on each task, the first one that it has in the frame."""
    first = rows.groupby("task", sort=False)["metric"].transform("first")
    return rows[rows["metric"] == first]


def further_board(intervals: pd.DataFrame) -> pd.DataFrame:
    """Models x further metrics of tasks as text, such as `.792 [.77, .81]`, models in their order.

    intervals: see `score_intervals`, without rounds.
    """
    further = intervals.drop(main_rows(intervals).index)
    rows = further[["value", "low", "high"]].itertuples(index=False)
    column = further["task"] + ", " + further["metric"]
    text = [with_interval(*row).replace(", ", f",{NO_BREAK}") for row in rows]
    table = further.assign(column=column, text=text).pivot_table(
        index="model", columns="column", values="text", aggfunc="first", sort=False
    )
    return table.fillna("").rename_axis(columns=None)

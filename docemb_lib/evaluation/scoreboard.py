"""Scores of several models side by side: the tidy frame, tables, and sentences on the student.

The tidy frame has the columns `model, task, metric, seed, value`, and `round` for a final
evaluation in several rounds, the round with most examples last. Only raw scores are stored; what
depends on the models in a table (spread, rank, normalised scores) is computed on demand.
"""

import re
from collections.abc import Mapping, Sequence

import pandas as pd

from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import OVERALL, VERDICTS

# One per task; means and tables leave out further metrics.
MAIN_METRICS = ("accuracy", "map", "spearman")
METRIC_NAMES = {  # in tables and figures; others are as they are
    "map": "MAP",
    "mrr": "MRR",
    "ndcg@10": "nDCG@10",
    "recall@100": "recall@100",
    "f1_macro": "macro-F1",
    "spearman": "Spearman",
    "mean": "mean score",
}
BETTER, WORSE, UNCLEAR = VERDICTS
RELATIONS = {BETTER: "better than", WORSE: "worse than", UNCLEAR: "not shown to differ from"}
REACHABLE = 100  # times the examples at hand; a number of examples beyond it is not said
NO_BREAK = "\u00a0"  # inside an interval, so that a narrow column wraps before it


def score_frame(scores: Mapping[str, Mapping[str, Score]]) -> pd.DataFrame:
    """Return the tidy frame of {model: {task: score}}, with all metrics of a score."""
    rows: list[tuple[object, ...]] = []
    for model, by_task in scores.items():
        for task, score in by_task.items():
            for metric, values in score.by_seed.items():
                rows += [(model, task, metric, seed, value) for seed, value in enumerate(values)]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def last_round(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the last round, without the column `round`, which a frame may lack."""
    if "round" not in rows:
        return rows
    return rows[rows["round"] == rows["round"].iloc[-1]].drop(columns="round")


def mean_over_tasks(scores: pd.DataFrame) -> pd.Series:
    """Return the unweighted mean over tasks by model.

    A model without scores on some task (BM25 ranks only) has no mean. scores: tidy.
    """
    by_task = main_rows(scores).groupby(["model", "task"])["value"].mean().unstack("task")
    return by_task.mean(axis=1, skipna=False).dropna()


def normalised(scores: pd.DataFrame) -> pd.DataFrame:
    """Add a column `normalised`: value / best mean of a model on that task and metric.

    The result is relative to the models in the frame: never store it, and compare it only within
    one figure or table.
    """
    return scores.assign(normalised=scores["value"] / best_means(scores))


def best_means(scores: pd.DataFrame, *, over_rounds: bool = False) -> pd.Series:
    """Return the best mean of a model on the task and metric of each row.

    over_rounds: of all rounds (Figure 5.3) instead of the round of the row (Table 5.7).
    """
    of_round = [name for name in ("task", "metric", "round") if name in scores]
    means = scores.groupby([*of_round, "model"], dropna=False)["value"].transform("mean")
    among = of_round[:2] if over_rounds else of_round
    return means.groupby([scores[name] for name in among], dropna=False).transform("max")


def interval_board(intervals: pd.DataFrame) -> pd.DataFrame:
    """Return models x tasks as text, such as `.792 [.77, .81]`, best mean first in each round.

    The last column is the mean over tasks, or the single task; a model without some task comes last
    and has no mean. intervals: see `score_intervals`, perhaps with `round`.
    """
    rows = main_rows(intervals)
    index = ["round", "model"] if "round" in rows else ["model"]
    values = rows[["value", "low", "high"]].itertuples(index=False)
    texts = [with_interval(*row).replace(", ", f",{NO_BREAK}") for row in values]
    table = _board(rows, texts, index=index, columns="task")
    means = over_tasks(rows).groupby(index)["value"].first().reindex(table.index)
    order = means.sort_values(ascending=False, kind="stable").index
    if "round" not in rows:
        return table.loc[order]
    return table.loc[order].loc[list(rows["round"].unique())]


def test_board(tests: pd.DataFrame) -> pd.DataFrame:
    """Return the tests of one model: references × tasks, each as in `better: +.041, p .002`.

    A test that shows no difference has no word. tests: see `verdicts`; p-values are corrected.
    """
    cells = []
    columns = ["difference", "p_holm", "verdict"]
    for difference, p, verdict in tests[columns].itertuples(index=False):
        word = "" if verdict == UNCLEAR else f"{verdict}: "
        cells.append(f"{word}{_with_p(difference, p)}".replace(" ", NO_BREAK))
    return _board(tests, cells, index="reference", columns="task")


def _board(
    rows: pd.DataFrame, texts: Sequence[str], *, index: str | list[str], columns: str
) -> pd.DataFrame:
    """Return the texts of the rows as a table, "" where there is none."""
    table = rows.assign(text=texts).pivot_table(
        index=index, columns=columns, values="text", aggfunc="first", sort=False
    )
    return table.fillna("").rename_axis(columns=None)


def with_interval(value: float, low: float, high: float) -> str:
    """Write a score and its interval, as in `.792 [.77, .81]`."""
    return re.sub(r"\b0\.", ".", f"{value:.3f} [{low:.2f}, {high:.2f}]")


def _with_p(difference: float, p: float) -> str:
    return f"{difference:+.3f}, {p_value(p)}".replace("0.", ".", 1)


def p_value(p: float) -> str:
    """Write a p-value, as in `p .013` or `p < .001`."""
    return "p < .001" if p < 0.001 else f"p {p:.3f}".replace("0.", ".")


def listed(words: Sequence[str]) -> str:
    """Write one or more words as a list in a sentence, as in `on a, on b and in the mean`."""
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last


def standing(
    intervals: pd.DataFrame,
    comparison: pd.DataFrame,
    *,
    student: str,
    before: str | None,
    practice: str | None,
) -> str:
    """Write a sentence that compares the student with its best reference, practice, and its start.

    Means over tasks are compared; "better" and "worse" are the verdicts of paired tests. The best
    reference is that of the highest mean among those that `comparison` compares the student with.

    intervals: see `score_intervals`; comparison: see `verdicts`; before: the student before
    training, None where nothing was trained from it; practice: the reference that users have
    today, or None.
    """
    tasks = intervals.loc[intervals["task"] != OVERALL, "task"].nunique()
    scores = over_tasks(intervals).set_index("model")
    tests = beside_references(comparison, student).set_index("reference")
    references = [model for model in tests.index if model in scores.index]
    best = str(scores.loc[references, "value"].idxmax())

    def scored(model: str) -> str:
        return with_interval(*scores.loc[model, ["value", "low", "high"]])

    clauses = []
    for model in dict.fromkeys(filter(None, (best, practice, before))):
        among = model == best and len(references) > 1
        title = f"the best of {len(references)} references, {best}" if among else model
        relation = RELATIONS[str(tests.loc[model, "verdict"])]
        clauses.append(f"{relation} {title} ({scored(model)}{would_show(tests.loc[[model]])})")
    over = f"{tasks} task{'' if tasks == 1 else 's'}"
    return f"In the mean over {over}, {student} ({scored(student)}) is {'; it is '.join(clauses)}."


def would_show(tests: pd.DataFrame) -> str:
    """Write what it takes to show the nearest of the differences that are not shown, as a clause.

    An example is `; with 104 examples only differences of at least .031 can be shown; one of this
    size would need about 480`, whose second part is left out where it is beyond reach; "" where all
    are shown, or models agree on every example. tests: see `verdicts`.
    """
    unclear = tests[(tests["verdict"] == UNCLEAR) & (tests["detectable"] > 0)]
    if unclear.empty:
        return ""
    nearest = unclear.sort_values("needed").iloc[0]
    examples = nearest["examples"]
    shown = f"{nearest['detectable']:.3f}".removeprefix("0")
    clause = f"; with {examples:,} examples only differences of at least {shown} can be shown"
    needed = nearest["needed"]
    if needed <= REACHABLE * examples:
        clause += f"; one of this size would need about {float(f'{needed:.2g}'):,.0f}"
    return clause


def told(tests: pd.DataFrame) -> str:
    """Write the tests of one model against another in words, by verdict.

    An example is `better on halves (+.041, p .002) and in the mean (+.020, p .013); not shown to
    differ on package (-.014, p .84; with 104 examples only differences of at least .031 can be
    shown; one of this size would need about 480)`. tests: see `verdicts`; p-values are corrected.
    """
    where = "on " + tests["task"]
    where = where.mask(tests["task"] == OVERALL, "in the mean")
    return _by_verdict(tests, where, {UNCLEAR: "not shown to differ"})


def told_of_means(tests: pd.DataFrame) -> str:
    """Write the tests of one model against several in words: the means over tasks, by verdict.

    An example is `better than start (+.063, p .001); not shown to differ from SBERT-256 (+.013,
    p .188)`. tests: see `verdicts`; p-values are corrected.
    """
    tests = over_tasks(tests)
    return _by_verdict(tests, tests["reference"], RELATIONS)


def _by_verdict(tests: pd.DataFrame, names: pd.Series, relations: Mapping[str, str]) -> str:
    """Write the tests by verdict, each with its name, difference and p-value."""
    clauses = []
    for verdict in (BETTER, WORSE, UNCLEAR):
        cases = []
        rows = tests.loc[tests["verdict"] == verdict, ["difference", "p_holm"]]
        for row, difference, p in rows.itertuples():
            needed = would_show(tests.loc[[row]])
            cases.append(f"{names[row]} ({_with_p(difference, p)}{needed})")
        if cases:
            clauses.append(f"{relations.get(verdict, verdict)} {listed(cases)}")
    return "; ".join(clauses)


def choose_simplest(
    intervals: pd.DataFrame,
    comparison: pd.DataFrame,
    *,
    student: str,
    simplest_first: Sequence[str],
) -> tuple[str, str]:
    """Choose the simplest model that no paired test of the student beside a reference shows worse.

    These tests compare the means over tasks. Where references are shown to be better than the
    student, the simplest of them is taken, and otherwise the simplest among the student and the
    references not shown to be worse.

    Returns the model and the reason, a clause with "it" for the model.

    intervals: see `score_intervals`; comparison: see `verdicts`; simplest_first: models that may be
    among the references, and the student; other references count as less simple than all of these.
    """
    verdict_of = beside_references(comparison, student).set_index("reference")["verdict"]
    order = dict.fromkeys([*simplest_first, *verdict_of.index])
    better = [model for model in order if verdict_of.get(model) == WORSE]  # the student is worse
    before = simplest_first[: simplest_first.index(student)]
    simpler = [model for model in before if model in verdict_of]
    equal = [model for model in simpler if verdict_of[model] == UNCLEAR]
    if not better and not equal:
        worse = "every simpler model is shown to be worse, and " if simpler else ""
        return student, f"{worse}no model is shown to be better"

    model = (better or equal)[0]
    means = over_tasks(intervals).set_index("model")["value"]
    scores = [f"{means[name]:.3f}".removeprefix("0") for name in (model, student)]
    simplest = "the simplest model that is not shown to be worse"
    relation = "shown to be better" if better else simplest
    reason = f"it is {relation} than {student} ({scores[0]} against {scores[1]} in the mean)"
    if len(better) > 1:
        reason += f", and it is the simplest of {len(better)} such models"
    return model, reason


def beside_references(comparison: pd.DataFrame, student: str) -> pd.DataFrame:
    """Return the rows of `comparison` on the student in the mean over tasks, see `verdicts`."""
    return over_tasks(comparison).query("model == @student")


def over_tasks(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the mean over tasks; for a single task those of the main metric."""
    means = rows[rows["task"] == OVERALL]
    return main_rows(rows) if means.empty else means


def main_rows(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the metric that decides on each task, the first that it has there."""
    first = rows.groupby("task", sort=False)["metric"].transform("first")
    return rows[rows["metric"] == first]

"""What the thesis says of the order of models, on its own numbers and on recorded scores.

A claim is a line of the chapter that it belongs to: `better(compared, says, [first], [second])`,
where `compared` is what a figure or a table shows, see `in_figure` and `in_table`.
"""

from collections.abc import Mapping, Sequence
from itertools import combinations, product
from typing import Literal, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.retrieval import METRICS
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import ALPHA, Scores, decided_by, differences, holm
from docemb_lib.runs.models import Model, models_of_table
from docemb_lib.runs.run import Run
from docemb_lib.thesis.comparison import Finals, recorded_in_figures
from docemb_lib.thesis.values import (
    FIGURES,
    baseline_label,
    cells_of,
    is_of_thesis,
    published,
    rows_of,
    thesis_tasks,
)

SECTION = """## What the thesis claims

On the thesis' own numbers, which have no scores of single examples and therefore no tests, and on
recorded scores (`01_corpus` says when a claim holds). In brackets: the smallest of the differences
that should be positive. Other tasks than the thesis' do not test its claims."""
HOLDS = "holds"
FAILS = "does not hold"
UNDECIDED = "undecided"
# A name, or the rows of a figure with these values in these columns.
Member = str | Mapping[str, object]


class Compared(NamedTuple):
    """The models of a figure or table: what is published, and what is recorded here."""

    published: pd.DataFrame  # index: name; the column `value`, and those that describe the models
    scores: Scores  # recorded ones, by the names in the figure or table
    tests: bool  # whether these are scores of the thesis' tasks and models


def better(
    compared: Compared,
    says: str,
    *groups: Sequence[Member],
    of: Literal["each", "mean"] = "each",
) -> dict[str, str]:
    """Return a claim as a row: what it says, whether it holds in the thesis, and whether here.

    Each model of a group should be ahead of each of all later groups in the mean over tasks. Paired
    tests decide it here, corrected for their number by Holm.

    of: "mean" compares the means of groups, without a test.
    """
    names = [_names(compared.published, group) for group in groups]
    values = [compared.published.loc[group, "value"].to_numpy() for group in names]
    here = "not tested: not all of them have scores here"
    flat = [name for group in names for name in group]
    if flat and set(flat) <= set(compared.scores):
        here = _here(compared, names, of)
    return {"claim": says, "thesis": _said(_margins(values, of)), "here": here}


def claim_table(claims: Sequence[Mapping[str, str]]) -> pd.DataFrame:
    """The rows of several claims, see `better`, as a table."""
    return pd.DataFrame(claims).set_index("claim")


def verdict(differences: np.ndarray, p: np.ndarray) -> str:
    """Decide a claim whose differences should all be positive, of their p-values, both (N,)."""
    significant = holm(p) < ALPHA
    if any(significant & (differences < 0)):
        return FAILS
    return HOLDS if all(significant) else UNDECIDED


def _here(compared: Compared, names: list[list[str]], of: str) -> str:
    scores = compared.scores
    if of == "each":
        tests = []
        for first, later in combinations(names, 2):
            for model, reference in product(first, later):
                both = {model: scores[model], reference: scores[reference]}
                tests.append(differences(both, reference).iloc[-1])  # in the mean over tasks
        frame = pd.DataFrame(tests)
        margins = frame["difference"].to_numpy()
        decided = verdict(margins, frame["p"].to_numpy())
    else:
        means = [np.array([_mean(scores[name]) for name in group]) for group in names]
        margins = _margins(means, of)
        decided = "means only"
    if not compared.tests:
        decided = "not tested: other data"
    return f"{decided} ({margins.min():+.3f})"


def _margins(values: list[np.ndarray], of: str) -> np.ndarray:
    """By how much groups are ahead of later ones."""
    if of == "each":
        pairs = combinations(values, 2)
        return np.array([first.min() - later.max() for first, later in pairs])
    means = np.array([group.mean() for group in values])
    return means[:-1] - means[1:]


def _said(margins: np.ndarray) -> str:
    return f"{HOLDS if margins.min() > 0 else FAILS} ({margins.min():+.3f})"


def _mean(by_task: Mapping[str, Score]) -> float:
    return float(np.mean([score.mean for score in by_task.values()]))


def _names(rows: pd.DataFrame, group: Sequence[Member]) -> list[str]:
    names: list[str] = []
    for member in group:
        if isinstance(member, str):
            names.append(member)
            continue
        chosen = np.logical_and.reduce([rows[name] == value for name, value in member.items()])
        names += [name for name in rows.index[chosen] if name not in names]
    return names


def in_figure(run: Run, source: str) -> Compared:
    """A figure of chapter 4: mean normalised accuracies there, validation scores here.

    The recorded runs of the figure count, and this run beside those of its size.
    """
    (figure,) = [figure for figure in FIGURES if figure.source == source]
    recorded = recorded_in_figures(run, [source]).get(source, {})
    tables = [(name, each.label, each.table("models")) for name, each in recorded.items()]
    sizes = {run.of_record(record).only("documents", "seed") for record in recorded.values()}
    name_of_run = cells_of(figure, run.profile).get(run.cell)
    if name_of_run and run.in_thesis_form and sizes <= {run.only("documents", "seed")}:
        tables.append((name_of_run, run.label, run.evaluation.models))
    models: dict[str, Model] = {}
    for label, of_run, table in tables:
        for model in models_of_table(table):
            is_own = model.label == of_run
            name = label if is_own else baseline_label(model.kind, model.form)
            if name is not None:
                models[name] = model
    scores = _scores_of(run, models)
    return Compared(rows_of(figure), scores, is_of_thesis(run.profile))


def in_table(
    run: Run,
    finals: Finals,
    *,
    round_: str = "all",
    metric: str = "accuracy",
    task: str | None = None,
) -> Compared:
    """Table 5.7 in one round: the mean over the tasks of a metric, or one task."""
    rows = published("table_5_7").query("metric == @metric")
    rows = rows[rows["round"].isna() | (rows["round"] == round_)]  # retrieval has no rounds
    if task is not None:
        rows = rows[rows["task"] == task]
    values = rows.groupby("model")[["value"]].mean()
    tasks = [task] if task else thesis_tasks()[metric]
    scores = _scores_of(run, finals.models, round_)
    if metric in METRICS:
        scores = decided_by(scores, metric)
    of_tasks = {}
    for name, by_task in scores.items():
        asked = {each: by_task[each] for each in tasks if each in by_task}
        if len(asked) == len(tasks):
            of_tasks[name] = asked
    return Compared(values, of_tasks, tests=True)


def _scores_of(run: Run, models: Mapping[str, Model], round_: str | None = None) -> Scores:
    """The scores of models in a round, by other names, of those that have scores."""
    scores = run.scorer.recorded(models.values(), round_)
    return {name: scores[model.label] for name, model in models.items() if model.label in scores}

"""A run beside comparable recorded runs, and Table 5.7 and Figures 4.12, 5.3 to 5.6 from records.

Scores are rows of model, round, task, metric, value, like `published("table_5_7")`; intervals add
low and high. MAP scores the entire ordering, as the text says; the author's code counts 1,000 hits
(`evaluation.map_at`), which matters on GAMES with its 21,000 articles.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from textwrap import TextWrapper
from typing import NamedTuple

import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.protocols import round_name
from docemb_lib.evaluation.scoreboard import (
    MAIN_METRICS,
    last_round,
    normalised,
    with_interval,
)
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.runs import records
from docemb_lib.runs.models import Model, models_of_table
from docemb_lib.runs.records import Record
from docemb_lib.runs.run import Run
from docemb_lib.settings.labels import sizes, student_name
from docemb_lib.settings.notebooks import CHAPTER_4, EVALUATION
from docemb_lib.thesis.values import (
    BASELINE,
    FIGURES,
    ThesisValues,
    baseline_name,
    cells_of,
    final_name,
    published,
)

# The last columns of Table 5.7.
MEAN = "mean"
NORMALISED = "normalised mean"
NAME = "in the thesis"  # column: the name of a model in Table 5.7
BEST = "figure 4.12"  # of the students of Table 4.10
# JupyterLab breaks longer lines in words; reports join the lines.
LINES = TextWrapper(100, break_on_hyphens=False)

# ---- Paragraph Vectors beside recorded ones


class Entry(NamedTuple):
    """One run in a comparison."""

    label: str  # in the comparison
    model: str  # the run's own model in `scores`
    key: Run
    scores: pd.DataFrame  # tidy scores of the run's own model and of the baselines


def scores_of_runs(run: Run, scores: pd.DataFrame) -> pd.DataFrame:
    """The scores of a Paragraph Vector and of comparable recorded ones, for `plot_runs`.

    `scores` are those of this run's model and of its baselines. Returns the rows of all runs, those
    of another seed with it in their label, then each baseline once. The columns are own (whether it
    is the model of a run), group (its architecture, as the thesis' figure colours it), thesis (see
    `ThesisValues`) and its box (see `PUBLISHED_BOX`).
    """
    entries = [Entry(run.label, run.label, run, scores)]
    for record in run.comparable():
        seed = record.parameters["seed"]
        other = "" if seed == run.parameters["seed"] else f" (seed {seed})"
        entries.append(_entry(run, record, record.label + other))
    groups = []
    for entry in entries:
        groups.append("+".join("DM" if pv.dm else "DBOW" for pv in entry.key.paragraph_vectors))
    rows = _with_baselines(entries, groups, ThesisValues(run.notebook, run.profile))
    order = [*sorted({*groups}), BASELINE]
    return rows.assign(group=pd.Categorical(rows["group"], categories=order))


def _with_baselines(
    entries: Sequence[Entry], groups: Sequence[str], thesis: ThesisValues
) -> pd.DataFrame:
    """The scores of the entries' own models with their groups, then each baseline once."""
    frames = []
    others = []
    for entry, group in zip(entries, groups, strict=True):
        of_model = entry.scores["model"] == entry.model
        values = thesis.columns_of_run(entry.key)
        rows = entry.scores[of_model]
        frames.append(rows.assign(model=entry.label, own=True, group=group, **values))
        others.append(entry.scores[~of_model])
    baselines = pd.concat(others).drop_duplicates(["model", "task", "metric", "seed"])
    identified = zip(baselines["kind"], baselines["form"], strict=True)
    of_models = [thesis.columns_of_baseline(kind, form) for kind, form in identified]
    published_values = pd.DataFrame(of_models, index=baselines.index)
    frames.append(baselines.assign(own=False, group=BASELINE).join(published_values))
    rows = pd.concat(frames, ignore_index=True)
    return rows.assign(legend=thesis.legend)


def _entry(run: Run, record: Record, label: str) -> Entry:
    return Entry(label, record.label, run.of_record(record), record.table())


# ---- final evaluations: Table 5.7


def table_5_7(scores: pd.DataFrame, metric: str) -> pd.DataFrame:
    """Models × tasks of one metric, best mean first: part (a) with accuracy, part (b) with map.

    The columns after the tasks are the unweighted mean over them, the mean of scores divided by the
    best model's score of the same round, and NAME, if `scores` has it. Accuracy has a row per
    round; retrieval has the same score in each round.
    """
    rows = scores[scores["metric"] == metric]
    if metric != "accuracy":
        rows = rows.drop_duplicates(["model", "task"]).drop(columns="round")
    rows = normalised(rows)
    index = ["round", "model"] if "round" in rows else ["model"]
    table = rows.pivot_table(index=index, columns="task", values="value").rename_axis(columns=None)
    table[[MEAN, NORMALISED]] = rows.groupby(index)[["value", "normalised"]].mean()
    table = table.sort_values(MEAN, ascending=False, kind="stable")
    if NAME in rows:
        table[NAME] = rows.groupby(index)[NAME].first().fillna("")
    return table.loc[list(rows["round"].unique())] if "round" in rows else table


def beside_thesis(scores: pd.DataFrame, names: Mapping[str, str]) -> pd.DataFrame:
    """Add `thesis`, the value in Table 5.7, or NaN, and NAME.

    names: the names of models in Table 5.7, by model.
    """
    keys = ["model", "round", "task", "metric"]
    table = published("table_5_7").fillna({"round": ""}).set_index(keys)["value"].rename("thesis")
    in_table = scores[keys].assign(
        model=scores["model"].map(names),
        # in the table, retrieval belongs to no round
        round=scores["round"].mask(scores["metric"] != "accuracy", ""),
    )
    values = in_table.join(table, on=keys)["thesis"]
    return scores.assign(thesis=values, **{NAME: in_table["model"]})


def names_in_thesis(students: Iterable[tuple[str, Run]], models: Iterable[Model]) -> dict[str, str]:
    """The names in Table 5.7 by label, of students by their runs, and of baselines."""
    names = {label: final_name(key) for label, key in students}
    for model in models:
        names.setdefault(model.label, baseline_name(model.kind, model.form))
    return {label: name for label, name in names.items() if name is not None}


def deviations(scores: pd.DataFrame) -> pd.DataFrame:
    """A row per score that the thesis has, too: the difference, and whether the interval has it.

    scores: see `beside_thesis`, with low and high, the bounds of the 95% interval.
    """
    rows = scores[scores["thesis"].notna()].reset_index(drop=True)
    table = rows[["round", "model", NAME, "task", "metric"]]
    table = table.assign(
        here=[*map(with_interval, rows["value"], rows["low"], rows["high"])],
        thesis=rows["thesis"],
        difference=rows["value"] - rows["thesis"],
    )
    table["within interval"] = rows["thesis"].between(rows["low"], rows["high"])
    return table


class Finals(NamedTuple):
    """Several final evaluations, each model once."""

    # round, model, kind, form, task, metric, value, low, high, and the columns of `beside_thesis`
    scores: pd.DataFrame
    models: dict[str, Model]  # by the name in Table 5.7
    names: Mapping[str, str]  # of the runs' students in tables and figures, see `short_labels`


def short_labels(keys: Mapping[str, Run]) -> dict[str, str]:
    """Names of the students of final runs, by label; see `student_name`.

    Students of several sizes have theirs added. Runs that then have a name in common keep their
    labels, as do those of other notebooks.
    """
    final = {}
    for label, key in keys.items():
        if key.notebook == EVALUATION.name:
            final[label] = key.profile.parameters
    short = {label: student_name(p) for label, p in final.items()}
    if len({sizes(p) for p in final.values()}) > 1:
        short = {label: f"{short[label]};{sizes(p)}" for label, p in final.items()}
    uses = Counter(short.values())
    return {label: name for label, name in short.items() if uses[name] == 1}


def recorded_finals(run: Run) -> Finals:
    """The recorded final evaluations in the setting of this run, its own first.

    If several runs are the same student of the thesis, the run with most documents represents it,
    then the newest. Raises InputError where none is recorded.
    """
    own = [record for record in [run.record] if record is not None]
    recorded = [*own, *run.comparable()]
    if not recorded:
        problem = f"no final evaluation of profile {run.profile.name} is recorded"
        raise InputError(f"{run.notebook}: {problem}; execute {run.notebook} first")
    keys = [(record.label, run.of_record(record)) for record in recorded]  # by label as recorded
    intervals = [record.table("intervals") for record in recorded]
    models = [record.table("models") for record in recorded]

    # Intervals of a single round do not name it.
    single = round_name(run.profile.evaluation.largest_round)
    rows = pd.concat(i if "round" in i else i.assign(round=single) for i in intervals)
    rows = rows[rows["metric"].isin([*MAIN_METRICS, "mrr"]) & (rows["task"] != OVERALL)]
    rows = rows.drop_duplicates(["round", "model", "task", "metric"]).reset_index(drop=True)

    described = models_of_table(pd.concat(models).drop_duplicates("model"))
    most_first = sorted(keys, key=lambda labelled: -labelled[1].counting["documents"])
    known = names_in_thesis(most_first, described)
    by_label = {model.label: model for model in described}
    # The first model of a name.
    in_table = {name: by_label[label] for label, name in reversed(known.items())}
    return Finals(beside_thesis(rows, known), in_table, short_labels(dict(keys)))


# ---- figures of chapter 4


class _Group(NamedTuple):
    """What the runs of a figure have in common."""

    comparable: bool  # whether they have the setting of the run that shows them
    documents: int
    seed: int
    setting: str


def recorded_in_figures(
    run: Run, sources: Iterable[str], *, elsewhere: bool = False
) -> dict[str, dict[str, Record]]:
    """The recorded runs in figures of chapter 4, by figure and by the label of the row.

    The runs are in the order in which they ended. The runs of a figure share the setting of `run`,
    the number of documents and the seed. Of several such groups, the largest is taken, then that
    with most documents, then the newest. With `elsewhere`, runs of one other setting are taken if
    there are none of this setting.
    """
    asked = {*sources}
    cells = {f.source: cells_of(f, run.profile) for f in FIGURES if f.source in asked}
    groups: dict[str, dict[_Group, dict[str, Record]]] = {source: {} for source in cells}
    for notebook in CHAPTER_4:
        for record in records.all_records(notebook.name):
            comparable = record.setting == run.setting
            if record.status != "done" or not (comparable or elsewhere):
                continue
            key = run.of_record(record)
            if comparable and not key.in_thesis_form:
                continue
            documents = key.counting.get("documents", 0)  # Paragraph Vectors learn from all
            group = _Group(comparable, documents, key.counting["seed"], record.setting)
            for source, labels in cells.items():
                if key.cell in labels:
                    groups[source].setdefault(group, {})[labels[key.cell]] = record

    def rank(group: tuple[_Group, dict[str, Record]]) -> tuple[bool, int, int, str]:
        alike, runs = group
        newest = max(record.finished for record in runs.values())
        return alike.comparable, len(runs), alike.documents, newest

    chosen = {}
    for source, candidates in groups.items():
        if candidates:
            _, chosen[source] = max(candidates.items(), key=rank)
    return chosen


def best_of_chapter_4(run: Run) -> pd.DataFrame:
    """Validation scores for Figure 4.12, as `plot_runs` takes them.

    They are those of recorded runs of Table 4.10, which have their names in the thesis, and of the
    baselines. The frame is empty if none of these runs is recorded, see `recorded_in_figures`.
    """
    recorded = recorded_in_figures(run, [BEST], elsewhere=True).get(BEST, {})
    if not recorded:
        return pd.DataFrame()
    entries = [_entry(run, record, label) for label, record in recorded.items()]
    thesis = ThesisValues(run.notebook, run.profile)
    rows = _with_baselines(entries, ["student"] * len(entries), thesis)
    rows = rows[rows["own"] | rows["thesis"].notna()]
    return rows.assign(group=pd.Categorical(rows["group"], categories=["student", BASELINE]))


# ---- the SimDE paper


def beside_paper(scores: pd.DataFrame, few_shot: Mapping[str, int] | None = None) -> pd.DataFrame:
    """Tidy scores beside the SimDE paper's on common tasks (Table 2).

    `few_shot` is `evaluation.few_shot_table`, given with few-shot scores. Returns rows (source,
    model) and columns (task, metric).
    """
    paper = published("simde").assign(source="paper")
    if few_shot is None:
        scores = last_round(scores)
        paper = paper[paper["round"] == "all"]
    else:
        per_class = scores["task"].map(few_shot).fillna(few_shot.get("other", 0))
        scores = scores[scores["per_class"] == per_class]
        paper = paper[paper["round"] == "few-shot"]
    here = scores[["model", "task", "metric", "value"]].assign(source="here")
    rows = pd.concat([here, paper])
    common = rows.groupby(["task", "metric"])["source"].transform("nunique") == 2
    return rows[common].pivot_table(
        index=["source", "model"], columns=["task", "metric"], values="value", sort=False
    )

"""Table 5.7 of the thesis for any models, tasks and rounds, and its own numbers beside ours, score by score.

Scores are rows of model, round, task, metric, value, as intervals (with low and high) and `published("table_5_7")` have
them. The thesis ranks within the first 1,000 hits where we rank all articles: its MAP on GAMES is not quite ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.evaluation.protocols import round_name
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, normalised, with_interval
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.experiments import records
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.scores import Final
from docemb_lib.thesis.comparison import STRUCTURAL
from docemb_lib.thesis.values import BASELINE, ThesisValues, baseline_name, final_name, published

# ---- table 5


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


# ---- all comparable final evaluations together


Recorded = tuple[str, RunKey, pd.DataFrame, pd.DataFrame]  # label, key, intervals, models


class Finals(NamedTuple):
    """Several final evaluations, each model once."""

    scores: pd.DataFrame  # round, model, task, metric, value, low, high, and thesis: see `beside_thesis`
    labels: dict[str, str]  # the thesis' models → ours
    fingerprints: dict[str, str]  # of our models, by label
    masked: Mapping[str, Any] | None  # the parameters of our cosine-masked

    @property
    def not_drawn(self) -> dict[str, str]:
        """The thesis' figures that would say nothing of these scores, and why."""
        tasks = self.scores.groupby("metric")["task"].nunique()
        sorts, finds = (tasks.get(metric, 0) for metric in MAIN_METRICS)
        why = {}
        if sorts < 2:
            why["5.3"] = f"a box over tasks needs two with heads, there {'is one' if sorts else 'are none'}"
        if not sorts or self.scores["round"].nunique() < 2:
            why["5.4"] = "one round says no more than the bars of each task"
        if finds < 2:
            why["5.5"] = f"a span over retrieval tasks needs two, there {'is one' if finds else 'are none'}"
        if not finds:
            why["5.6"] = "there is no retrieval task"
        return why

    @property
    def left_out(self) -> str:
        """The same in words, a line each."""
        return "\n".join(f"Figure {number} is not drawn: {why}." for number, why in self.not_drawn.items())


def recorded_finals(run: Run, own: Final | None = None) -> Finals:
    """This run's evaluation, `own` or as it is recorded, and the recorded ones comparable with it.

    Of several runs that are the same student of the thesis, the one of most documents stands for it, then the newest.
    """
    found = [*_own(run, own), *((r.label, run.key_of(r), *_tables(run, r)) for r in run.comparable())]
    if not found:
        return Finals(pd.DataFrame(columns=["round", "model", "task", "metric", "value"]), {}, {}, None)
    only = round_name(run.profile.evaluation.rounds[-1])  # of all of them: they are comparable
    rows = pd.concat([_with_round(intervals, only) for _, _, intervals, _ in found])
    rows = rows[rows["metric"].isin([*MAIN_METRICS, "mrr"]) & (rows["task"] != OVERALL)]
    rows = rows.drop_duplicates(["round", "model", "task", "metric"]).reset_index(drop=True)
    students = {label: (key.parameters, final_name(key)) for label, key, *_ in found}
    baselines = {model: baseline_name(model, run.profile) for model in rows["model"].unique() if model not in students}
    labels = {theirs: ours for ours, theirs in baselines.items() if theirs is not None}
    masked = None
    for label, (parameters, theirs) in sorted(students.items(), key=lambda one: -one[1][0]["documents"]):
        if theirs is not None and theirs not in labels:
            labels[theirs] = label
            masked = parameters if theirs == "cosine-masked" else masked
    names = {label: theirs for label, (_, theirs) in students.items()} | baselines
    fingerprints = {
        model: fingerprint for *_, models in found[::-1] for model, fingerprint in models.itertuples(index=False)
    }
    known = {ours: theirs for ours, theirs in names.items() if theirs is not None}
    return Finals(beside_thesis(rows, known), labels, fingerprints, masked)


def _own(run: Run, own: Final | None) -> list[Recorded]:
    if own is not None:
        return [(run.label, run.key, own.intervals, own.models)]
    record = records.find(run.workspace, run.notebook, run.fingerprint)
    done = record is not None and record.status == "done"
    return [(record.label, run.key, *_tables(run, record))] if record is not None and done else []


def _tables(run: Run, record: Record) -> tuple[pd.DataFrame, pd.DataFrame]:
    return (
        records.table_of(run.workspace, record, "intervals"),
        records.table_of(run.workspace, record, "models")[["model", "fingerprint"]],
    )


def _with_round(intervals: pd.DataFrame, only: str) -> pd.DataFrame:
    """With the name of the round also where there is one only, which is not told."""
    return intervals if "round" in intervals else intervals.assign(round=only)


# ---- figure 4


CHAPTER_4 = (STRUCTURAL, "04_projections", "05_weighting")  # whose runs may be among them


def best_of_chapter_4(run: Run) -> pd.DataFrame:
    """The validation scores behind Figure 4.12: the recorded runs of Table 4.10 with the figure's baselines, as
    `plot_runs` takes them; empty where none of the four is recorded.

    Runs of one setting: this run's, or else that of the newest such run. Of a student that several runs have trained
    the one of most documents is shown, then the newest.
    """
    thesis = ThesisValues(run.notebook, run.profile)
    found: list[tuple[Record, float]] = []
    for notebook in CHAPTER_4:
        for record in records.all_records(notebook, workspace=run.workspace):
            value = thesis.of_run(run.key_of(record))
            if record.status == "done" and value is not None:
                found.append((record, value))
    if not found:
        return pd.DataFrame()
    found.sort(key=lambda one: (one[0].setting == run.key.setting, one[0].finished), reverse=True)
    found = [one for one in found if one[0].setting == found[0][0].setting]
    found.sort(key=lambda one: -one[0].parameters["documents"])
    shown = {value: record for record, value in reversed(found)}  # each value of the figure is another student's
    frames = []
    for value, record in shown.items():
        scores = records.scores_of(run.workspace, record)
        label = f"only-structural;{record.label}" if record.notebook == STRUCTURAL else record.label
        own = scores[scores["model"] == record.label]
        frames.append(own.assign(model=label, group="student", thesis=value))
    baselines = pd.concat([records.scores_of(run.workspace, record) for record in shown.values()])
    values = baselines["model"].map(thesis.of_baseline)
    frames.append(baselines[values.notna()].assign(group=BASELINE, thesis=values.dropna().astype(float)))
    rows = pd.concat(frames, ignore_index=True).drop_duplicates(["model", "task", "metric", "seed"])
    return rows.assign(group=pd.Categorical(rows["group"], categories=["student", BASELINE]))

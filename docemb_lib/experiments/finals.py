"""All comparable final evaluations together, each model once, beside the thesis' own; and which figures they make."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pandas as pd

from docemb_lib.evaluation.final_table import beside_thesis
from docemb_lib.evaluation.protocols import round_name
from docemb_lib.evaluation.scoreboard import MAIN_METRICS
from docemb_lib.evaluation.uncertainty import OVERALL
from docemb_lib.experiments import records
from docemb_lib.experiments.comparison import comparable
from docemb_lib.experiments.final import Final
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.thesis import baseline_name, final_name

Recorded = tuple[str, Mapping[str, Any], pd.DataFrame, pd.DataFrame]  # label, parameters, intervals, models


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
    found = [*_own(run, own), *((r.label, r.parameters, *_tables(run, r)) for r in comparable(run))]
    if not found:
        return Finals(pd.DataFrame(columns=["round", "model", "task", "metric", "value"]), {}, {}, None)
    only = round_name(run.profile.evaluation.rounds[-1])  # of all of them: they are comparable
    rows = pd.concat([_with_round(intervals, only) for _, _, intervals, _ in found])
    rows = rows[rows["metric"].isin([*MAIN_METRICS, "mrr"]) & (rows["task"] != OVERALL)]
    rows = rows.drop_duplicates(["round", "model", "task", "metric"]).reset_index(drop=True)
    students = {label: (parameters, final_name(run.profile, parameters)) for label, parameters, *_ in found}
    baselines = {model: baseline_name(model) for model in rows["model"].unique() if model not in students}
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
        return [(run.label, run.parameters, own.intervals, own.models)]
    record = records.find(run.workspace, run.notebook, run.fingerprint)
    done = record is not None and record.status == "done"
    return [(record.label, record.parameters, *_tables(run, record))] if record is not None and done else []


def _tables(run: Run, record: Record) -> tuple[pd.DataFrame, pd.DataFrame]:
    return (
        records.table_of(run.workspace, record, "intervals"),
        records.table_of(run.workspace, record, "models")[["model", "fingerprint"]],
    )


def _with_round(intervals: pd.DataFrame, only: str) -> pd.DataFrame:
    """With the name of the round also where there is one only, which is not told."""
    return intervals if "round" in intervals else intervals.assign(round=only)

"""The weighting explorer: recorded runs that differ from one run in λ and mask alone."""

from collections.abc import Hashable, Mapping
from functools import cache
from typing import Any

import pandas as pd

from docemb_lib.evaluation.scoreboard import MAIN_METRICS, with_interval
from docemb_lib.evaluation.uncertainty import differences
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import scored_model
from docemb_lib.runs.run import Run
from docemb_lib.thesis.comparison import is_sibling, structural_only
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice

PLACE = ["max_structural_len", "lam"]
COLUMNS = ["lam", "max_structural_len", "fingerprint", "task", "metric", "value", "low", "high"]


def weighting_points(run: Run) -> pd.DataFrame:
    """The scores of this run and of recorded runs that differ from it in λ and mask alone.

    The student of notebook 03 with the same structural loss, documents and seed stands at λ = 1.
    Returns a row per run and task, with the columns lam and max_structural_len (NaN: no weighting,
    no mask), fingerprint (of the student), task, metric, value, low, high: the 95% interval over
    validation examples. This run comes first; the last task of a run is the mean over all. Runs
    without intervals are left out.
    """
    siblings = [each for each in run.comparable() if is_sibling(run, run.of_record(each))]
    others = [(record, record.parameters) for record in siblings]
    if len(run.roles) == 2:
        for record in structural_only(run, [run]):
            others.append((record, {"lam": 1.0, "max_structural_len": None}))

    final = run.evaluation
    frames = [_at(run.parameters, final.intervals, final.models, run.label)]
    for record, parameters in others:
        intervals = record.table("intervals")
        if len(intervals):
            models = record.table("models")
            frames.append(_at(parameters, intervals, models, record.label))
    points = pd.concat(frames, ignore_index=True)
    return points.drop_duplicates([*PLACE, "task"])


def _at(
    parameters: Mapping[str, Any], intervals: pd.DataFrame, models: pd.DataFrame, label: str
) -> pd.DataFrame:
    """The main scores of the model with this label, at the λ and mask of `parameters`."""
    lam = parameters["lam"]
    if lam is None and parameters["lam_by_length"] is not None:
        lam = 1.0  # the weight of the shortest documents, see `Weighting`
    main = intervals["metric"].isin([*MAIN_METRICS, "mean"])
    scores = intervals[main & (intervals["model"] == label)]
    fingerprints = dict(zip(models["model"], models["fingerprint"], strict=True))
    mask = parameters["max_structural_len"]
    scores = scores.assign(lam=lam, max_structural_len=mask, fingerprint=fingerprints[label])
    return scores.astype(dict.fromkeys(PLACE, float))[COLUMNS]


def differences_to(run: Run, points: pd.DataFrame, fingerprint: str) -> pd.DataFrame:
    """Every other student of `points` minus the one with this fingerprint, paired by examples.

    Returns the columns of `points`, where value, low and high are those of the difference. Students
    without the answers to single examples are left out.
    """
    fingerprints = points["fingerprint"].dropna().unique()
    models = [scored_model(Identity(Kind.STUDENT, name=each), each) for each in fingerprints]
    scores = run.scorer.recorded(models)
    if fingerprint not in scores:
        return points.head(0)
    tests = differences(scores, fingerprint)
    tests = tests.rename(columns={"model": "fingerprint", "difference": "value"})
    places = points[[*PLACE, "fingerprint"]].drop_duplicates()
    return tests.merge(places, on="fingerprint")[COLUMNS]


def weighting_explorer(run: Run, points: pd.DataFrame) -> Explorer:
    """Explore how recorded runs differ from one of them, paired over validation examples.

    points: see `weighting_points`.
    """
    places = points.drop_duplicates("fingerprint").sort_values(PLACE)
    names = {_name(row): row["fingerprint"] for row in places.to_dict("records")}

    @cache
    def ahead_of(fingerprint: str) -> pd.DataFrame:
        return differences_to(run, points, fingerprint)

    def answer(task: str, fingerprint: str) -> Answer:
        ahead = ahead_of(fingerprint)
        ahead = ahead[ahead["task"] == task].set_index("fingerprint")
        rows = []
        for row in points[points["task"] == task].sort_values(PLACE).to_dict("records"):
            difference = "selected" if row["fingerprint"] == fingerprint else ""
            if row["fingerprint"] in ahead.index:
                value, low, high = ahead.loc[row["fingerprint"], ["value", "low", "high"]]
                difference = f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
            score = with_interval(row["value"], row["low"], row["high"])
            rows.append((_name(row), score, difference))
        columns = ["run", "score [95%]", "difference [95%]"]
        return Answer(html.table("differences", pd.DataFrame(rows, columns=columns)))

    tasks = list(points["task"].unique())[::-1]  # the mean first
    controls = {
        "task": choice({task: task for task in tasks}, tasks[0]),
        "run": choice(names, points["fingerprint"].iloc[0]),
    }
    return Explorer(controls, answer)


def _name(row: Mapping[Hashable, Any]) -> str:
    """The λ and the mask of a run, as in `λ 0.5, mask 256`."""
    lam = "plain sum" if pd.isna(row["lam"]) else f"λ {row['lam']:g}"
    mask = row["max_structural_len"]
    return lam if pd.isna(mask) else f"{lam}, mask {mask:.0f}"

"""The weighting explorer: recorded runs that differ from one run in λ and mask alone."""

from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Any

import ipywidgets
import pandas as pd

from docemb_lib.evaluation.scoreboard import MAIN_METRICS, with_interval
from docemb_lib.evaluation.uncertainty import differences
from docemb_lib.runs.kinds import Identity, Kind
from docemb_lib.runs.models import scored_model
from docemb_lib.runs.run import Run
from docemb_lib.thesis.comparison import is_sibling, structural_only
from docemb_lib.widgets.explorer import explore

PLACE = ["max_structural_len", "lam"]
INTERVAL = ["value", "low", "high"]
COLUMNS = ["lam", "max_structural_len", "fingerprint", "task", "metric", *INTERVAL]


def weighting_points(run: Run) -> pd.DataFrame:
    """The scores of this run and of recorded runs that differ from it in λ and mask alone.

    The student of notebook 03 with the same structural loss, documents and seed stands at λ = 1.
    Returns a row per run and task, with the columns lam and max_structural_len (NaN: no weighting,
    no mask), fingerprint (of the student), task, metric, value, low, high: the 95% interval over
    validation examples. This run comes first; the last task of a run is the mean over all.
    """
    others = []
    for record in run.comparable():
        if is_sibling(run, run.of_record(record)):
            others.append((record, record.parameters))
    if len(run.roles) == 2:
        for record in structural_only(run, [run]):
            others.append((record, {"lam": 1.0, "max_structural_len": None}))

    final = run.evaluation
    frames = [_at(run.parameters, final.intervals, final.models, run.label)]
    for record, parameters in others:
        intervals = record.table("intervals")
        frames.append(_at(parameters, intervals, record.table("models"), record.label))
    points = pd.concat(frames, ignore_index=True)
    return points.drop_duplicates([*PLACE, "task"])


def _at(
    parameters: Mapping[str, Any], intervals: pd.DataFrame, models: pd.DataFrame, label: str
) -> pd.DataFrame:
    """The main scores of the model with this label, at the λ and mask of `parameters`."""
    main = intervals["metric"].isin([*MAIN_METRICS, "mean"])
    scores = intervals[main & (intervals["model"] == label)]
    fingerprints = dict(zip(models["model"], models["fingerprint"], strict=True))
    place = {name: parameters[name] for name in PLACE}
    scores = scores.assign(**place, fingerprint=fingerprints[label])
    return scores.astype(dict.fromkeys(PLACE, float))[COLUMNS]


def differences_to(run: Run, points: pd.DataFrame, fingerprint: str) -> pd.DataFrame:
    """Every other student of `points` minus the one with this fingerprint, paired by examples.

    Returns the columns fingerprint, task, value, low and high, the last three of the difference.
    Students without the answers to single examples are left out.
    """
    fingerprints = points["fingerprint"].dropna().unique()
    models = [scored_model(Identity(Kind.STUDENT, name=each), each) for each in fingerprints]
    scores = run.scorer.recorded(models)
    if fingerprint not in scores:
        return points.head(0)
    tests = differences(scores, fingerprint)
    return tests.rename(columns={"model": "fingerprint", "difference": "value"})


def weighting_explorer(run: Run, points: pd.DataFrame) -> ipywidgets.VBox | None:
    """Explore how recorded runs differ from one of them, paired over validation examples.

    points: see `weighting_points`.
    """
    own = points["fingerprint"].iloc[0]
    points = points.sort_values(PLACE, kind="stable").set_index("fingerprint")
    names = {}
    for fingerprint, mask, lam in points[PLACE].itertuples():
        name = "plain sum" if pd.isna(lam) else f"λ {lam:g}"
        names[fingerprint] = name if pd.isna(mask) else f"{name}, mask {mask:.0f}"
    ahead_of = cache(partial(differences_to, run, points.reset_index()))

    def answer(task: str, selected: str) -> Iterable[Any]:
        shown = points[points["task"] == task]
        ahead = ahead_of(selected)
        texts = {selected: "selected"}
        ahead = ahead[ahead["task"] == task].set_index("fingerprint")
        for fingerprint, value, low, high in ahead[INTERVAL].itertuples():
            texts[fingerprint] = f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
        table = pd.DataFrame(index=shown.index.map(names))
        table["score [95%]"] = [*map(with_interval, *shown[INTERVAL].to_numpy().T)]
        table["difference [95%]"] = [texts.get(each, "") for each in shown.index]
        return [table.rename_axis("run")]

    tasks = list(points["task"].unique())[::-1]  # the mean first
    runs = [(name, fingerprint) for fingerprint, name in names.items()]
    return explore(
        answer,
        task=ipywidgets.Dropdown(options=tasks),
        selected=ipywidgets.Dropdown(options=runs, value=own),
    )

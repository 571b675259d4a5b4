"""The weighting explorer: scores of recorded runs that differ from one run in λ and mask alone."""

import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, with_interval
from docemb_lib.figures.results import plot_weighting
from docemb_lib.runs import records
from docemb_lib.runs.run import Run
from docemb_lib.sweeps.plan import profile_argument
from docemb_lib.thesis.comparison import is_sibling, structural_only
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider

COLUMNS = ["lam", "max_structural_len", "task", "metric", "value", "low", "high"]


def weighting_points(run: Run) -> pd.DataFrame:
    """The scores of this run and of recorded runs that differ from it in λ and mask alone.

    The student of notebook 03 with the same structural loss, documents and seed stands at λ = 1.
    Returns a row per run and task, with the columns lam and max_structural_len (NaN: no weighting,
    no mask), task, metric, value, low, high: the 95% interval over validation examples. The last
    task of a run is the mean over all. Runs without intervals are left out.
    """
    others = []
    for record in run.comparable():
        if is_sibling(run, run.key_of(record)):
            others.append((record, record.parameters))
    if len(run.key.roles) == 2:
        for record in structural_only(run, [run.key]):
            others.append((record, {"lam": 1.0, "max_structural_len": None}))

    frames = [_at(run.parameters, run.validation.intervals, run.label)]
    for record, parameters in others:
        intervals = records.table_of(run.workspace, record, "intervals")
        if len(intervals):
            frames.append(_at(parameters, intervals, record.label))
    points = pd.concat(frames, ignore_index=True)
    return points.drop_duplicates(["lam", "max_structural_len", "task"])


def _at(parameters: Mapping[str, Any], intervals: pd.DataFrame, label: str) -> pd.DataFrame:
    """The main scores of the model with this label, at the λ and mask of `parameters`."""
    lam = parameters["lam"]
    if lam is None and parameters["lam_by_length"] is not None:
        lam = 1.0  # the weight of the shortest documents, see `Weighting`
    main = intervals["metric"].isin([*MAIN_METRICS, "mean"])
    scores = intervals[main & (intervals["model"] == label)]
    scores = scores.assign(lam=lam, max_structural_len=parameters["max_structural_len"])
    return scores.astype({"lam": float, "max_structural_len": float})[COLUMNS]


def scores_at(points: pd.DataFrame, *, lam: float, mask: float | None) -> pd.DataFrame:
    """The recorded scores at a λ and mask: task, metric, value, low, high.

    There are no rows where there is no run.
    """
    masks = points["max_structural_len"]
    at_mask = masks.isna() if mask is None else masks == mask
    rows = points[at_mask & np.isclose(points["lam"], lam)]
    return rows[["task", "metric", "value", "low", "high"]].reset_index(drop=True)


def command_for(run: Run, profile: str | Path, *, lam: float, mask: int | None) -> str:
    """The shell command, for `notebooks/`, that makes the run with this λ and mask.

    The other parameters are those of `run`.
    """
    lam = round(lam, 6)  # steps of a slider add up to 0.15000000000000002
    executed = f"../outputs/{run.notebook}-lam-{lam}-mask-{mask}.ipynb"
    parameters = {**run.parameters, "lam": lam, "max_structural_len": mask}
    command = ["papermill", f"{run.notebook}.ipynb", executed]
    for name, value in {"profile": profile_argument(profile), **parameters}.items():
        command += ["-p", name, str(value)]
    return shlex.join(command)


def weighting_explorer(run: Run, points: pd.DataFrame, *, profile: str | Path) -> Explorer:
    """Explore scores by task, λ and mask; a point without a run shows the command that makes it.

    points: see `weighting_points`; profile: name or path as given to the run.
    """

    def answer(task: str, lam: float, mask: int | None) -> Answer:
        if not is_sibling(run, run.key):
            advice = "choose a structural loss and a contextual teacher"
            raise InputError(f"this run has a single teacher, so λ has no effect; {advice}")
        rows = scores_at(points, lam=lam, mask=mask)
        if rows.empty:
            command = html.number("command", command_for(run, profile, lam=lam, mask=mask), "code")
            text = (
                f"<p>{html.number('status', 'no run')}</p>"
                f"<p>To run it, in <code>notebooks/</code>: {command}</p>"
            )
        else:
            scores = [*map(with_interval, rows["value"], rows["low"], rows["high"])]
            table = rows[["task", "metric"]].assign(**{"score [95%]": scores})
            text = f"<p>{html.number('status', 'recorded')}</p>" + html.table("scores", table)
        figure = Figure(figsize=(8, 3.6))
        # fixed margins, because a layout engine takes a third of the time of an answer
        figure.subplots_adjust(left=0.1, right=0.76, bottom=0.15, top=0.91)
        plot_weighting(points, task=task, lam=lam, ax=figure.subplots())
        return Answer(text, figure, f"{task} by λ, a line for each mask")

    recorded = points[points["lam"].notna()]
    masks: set[int | None] = {int(mask) for mask in points["max_structural_len"].dropna()}
    masks.add(run.profile.structural_teacher.max_tokens)
    masks.add(run.profile.parameters.max_structural_len)
    labels: dict[str, int | None] = {str(mask): mask for mask in sorted(filter(None, masks))}
    labels["no mask"] = None
    tasks = list(points["task"].unique())[::-1]  # the mean first
    first = pd.Series({"lam": 0.5, "max_structural_len": np.nan})
    if len(recorded):
        first = recorded.iloc[0]
    mask = first["max_structural_len"]
    controls = {
        "task": choice({task: task for task in tasks}, tasks[0]),
        "λ": slider(0.0, 1.0, 0.05, float(first["lam"])),
        "mask": choice(labels, None if pd.isna(mask) else int(mask)),
    }
    return Explorer(controls, answer)

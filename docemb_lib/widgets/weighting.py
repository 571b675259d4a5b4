"""The weighting explorer: scores of the recorded runs that differ from one run in λ and mask alone."""

import shlex
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
    """The scores of this run and of the recorded runs that differ in λ and mask alone, a row per
    run and task.

    Beside them the student of notebook 03 with the same structural loss, documents and seed, at λ =
    1. Columns lam and max_structural_len (NaN: no weighting, no mask), task, metric, value, low,
      high: the 95% interval over validation
    examples. The last task of a run is the mean over all. Runs without intervals are left out.
    """
    frames = [_at(run.parameters, run.validation.intervals, run.label)]
    alone = {"lam": 1.0, "max_structural_len": None}
    made = [
        (record, record.parameters)
        for record in run.comparable()
        if is_sibling(run, run.key_of(record))
    ]
    made += [
        (record, alone) for record in structural_only(run, [run.key]) if len(run.key.roles) == 2
    ]
    for record, parameters in made:
        intervals = records.table_of(run.workspace, record, "intervals")
        if len(intervals):
            frames.append(_at(parameters, intervals, record.label))
    return pd.concat(frames, ignore_index=True).drop_duplicates(
        ["lam", "max_structural_len", "task"]
    )


def scores_at(points: pd.DataFrame, *, lam: float, mask: float | None) -> pd.DataFrame:
    """The recorded scores at a λ and mask: task, metric, value, low, high; no rows where there is
    no run.
    """
    masked = (
        points["max_structural_len"].isna()
        if mask is None
        else points["max_structural_len"] == mask
    )
    return points[masked & np.isclose(points["lam"], lam)][COLUMNS[2:]].reset_index(drop=True)


def command_for(run: Run, profile: str | Path, *, lam: float, mask: int | None) -> str:
    """The shell command, for `notebooks/`, that makes the run with this λ and mask and otherwise
    equal parameters.
    """
    lam = round(lam, 6)  # steps of a slider add up to 0.15000000000000002
    wanted = {
        "profile": profile_argument(profile),
        **run.parameters,
        "lam": lam,
        "max_structural_len": mask,
    }
    command = [
        "papermill",
        f"{run.notebook}.ipynb",
        f"../outputs/{run.notebook}-lam-{lam}-mask-{mask}.ipynb",
    ]
    return shlex.join(
        [*command, *(part for name, value in wanted.items() for part in ("-p", name, str(value)))]
    )


def _at(parameters: dict[str, Any], intervals: pd.DataFrame, model: str) -> pd.DataFrame:
    lam, mask = parameters["lam"], parameters["max_structural_len"]
    own = intervals[
        (intervals["model"] == model) & intervals["metric"].isin([*MAIN_METRICS, "mean"])
    ]
    if lam is None and parameters["lam_by_length"] is not None:
        lam = 1.0  # the weight of the shortest documents, see `Weighting`
    return own.assign(lam=lam, max_structural_len=mask).astype(dict.fromkeys(COLUMNS[:2], float))[
        COLUMNS
    ]


def weighting_explorer(run: Run, points: pd.DataFrame, *, profile: str | Path) -> Explorer:
    """Explore scores by task, λ and mask; a point without a run shows the command that makes it.

    points: see `weighting_points`; profile: name or path as given to the run.
    """
    recorded = points[points["lam"].notna()]
    given = run.profile.structural_teacher.max_tokens, run.profile.parameters.max_structural_len
    known = {
        int(mask) for mask in (*points["max_structural_len"].dropna(), *given) if mask is not None
    }
    masks: dict[str, int | None] = {**{str(mask): mask for mask in sorted(known)}, "no mask": None}
    tasks = list(points["task"].unique())[::-1]  # the mean first

    def answer(task: str, lam: float, mask: int | None) -> Answer:
        if not is_sibling(run, run.key):
            advice = "choose a structural loss and a contextual teacher"
            raise InputError(f"this run has a single teacher, so λ has no effect; {advice}")
        found = scores_at(points, lam=lam, mask=mask)
        text = f"<p>{html.number('status', 'no run' if found.empty else 'recorded')}</p>"
        if found.empty:
            command = command_for(run, profile, lam=lam, mask=mask)
            text += f"<p>To run it, in <code>notebooks/</code>: {html.number('command', command, 'code')}</p>"
        else:
            scores = [
                with_interval(*row)
                for row in found[["value", "low", "high"]].itertuples(index=False)
            ]
            text += html.table(
                "scores", found[["task", "metric"]].assign(**{"score [95%]": scores})
            )
        figure = Figure(figsize=(8, 3.6))
        # fixed margins, because a layout engine takes a third of the time of an answer
        figure.subplots_adjust(left=0.1, right=0.76, bottom=0.15, top=0.91)
        plot_weighting(points, task=task, lam=lam, ax=figure.subplots())
        return Answer(text, figure, f"{task} by λ, a line for each mask")

    lam, mask = (0.5, None) if recorded.empty else recorded[["lam", "max_structural_len"]].iloc[0]
    controls = {
        "task": choice({task: task for task in tasks}, tasks[0]),
        "λ": slider(0.0, 1.0, 0.05, float(lam)),
        "mask": choice(masks, None if pd.isna(mask) else int(mask)),
    }
    return Explorer(controls, answer)

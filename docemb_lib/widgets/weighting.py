"""The weighting explorer: scores of the recorded runs that differ from one run in λ and mask alone."""

from __future__ import annotations

import ast
import json
import shlex
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.errors import InputError
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, with_interval
from docemb_lib.experiments import records
from docemb_lib.experiments.plan import profile_argument
from docemb_lib.experiments.run import Run
from docemb_lib.figures.results import plot_weighting_points
from docemb_lib.thesis.comparison import is_sibling
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice, slider

COLUMNS = ["lam", "max_structural_len", "task", "metric", "value", "low", "high"]


def weighting_points(run: Run) -> pd.DataFrame:
    """The scores of this run and of the recorded runs that differ in λ and mask alone, a row per run and task.

    Columns lam and max_structural_len (NaN: no weighting, no mask), task, metric, value, low, high: the 95% interval
    over validation examples. Runs that were recorded without intervals are left out.
    """
    frames = [_at(run.parameters, run.validation.intervals, run.label)]
    for record in run.comparable():
        intervals = records.table_of(run.workspace, record, "intervals")
        if len(intervals) and is_sibling(run, run.key_of(record)):
            frames.append(_at(record.parameters, intervals, record.label))
    return pd.concat(frames, ignore_index=True).drop_duplicates(["lam", "max_structural_len", "task"])


def scores_at(points: pd.DataFrame, *, lam: float, mask: float | None) -> pd.DataFrame:
    """The recorded scores at a λ and mask: task, metric, value, low, high; no rows where there is no run."""
    masked = points["max_structural_len"].isna() if mask is None else points["max_structural_len"] == mask
    return points[masked & np.isclose(points["lam"], lam)][COLUMNS[2:]].reset_index(drop=True)


def command_for(run: Run, profile: str | Path, *, lam: float, mask: int | None) -> str:
    """The shell command, for `notebooks/`, that makes the run with this λ and mask and otherwise equal parameters."""
    lam = round(lam, 6)  # steps of a slider add up to 0.15000000000000002
    wanted = {"profile": profile_argument(profile), **run.parameters, "lam": lam, "max_structural_len": mask}
    command = ["papermill", f"{run.notebook}.ipynb", f"../outputs/{run.notebook}-lam-{lam}-mask-{mask}.ipynb"]
    defaults = _defaults(run)
    for name, value in wanted.items():
        command += [] if name in defaults and defaults[name] == value else ["-p", name, str(value)]
    return shlex.join(command)


def _at(parameters: dict[str, Any], intervals: pd.DataFrame, model: str) -> pd.DataFrame:
    lam, mask = parameters["lam"], parameters["max_structural_len"]
    own = intervals[(intervals["model"] == model) & intervals["metric"].isin(MAIN_METRICS)]
    if lam is None and parameters["lam_by_length"] is not None:
        lam = 1.0  # the weight of the shortest documents, see `Weighting`
    return own.assign(lam=lam, max_structural_len=mask).astype(dict.fromkeys(COLUMNS[:2], float))[COLUMNS]


def _defaults(run: Run) -> dict[str, Any]:
    """The parameters cell of the notebook as values by name; importing papermill would take a second."""
    notebook = run.workspace.root / "notebooks" / f"{run.notebook}.ipynb"
    cells = json.loads(notebook.read_text(encoding="utf-8"))["cells"]
    (own,) = ("".join(cell["source"]) for cell in cells if "parameters" in cell["metadata"].get("tags", ()))
    given = (node for node in ast.parse(own).body if isinstance(node, ast.Assign))
    return {ast.unparse(node.targets[0]): ast.literal_eval(node.value) for node in given}


def weighting_explorer(run: Run, points: pd.DataFrame, *, profile: str | Path) -> Explorer:
    """Explore scores by λ and mask; a point without a run shows the command that makes it.

    points: see `weighting_points`; profile: name or path as given to the run.
    """
    recorded = points[points["lam"].notna()]
    given = run.profile.structural_teacher.max_tokens, run.profile.parameters.max_structural_len
    known = {int(mask) for mask in (*points["max_structural_len"].dropna(), *given) if mask is not None}
    options = [*((str(mask), mask) for mask in sorted(known)), ("no mask", None)]

    def answer(lam: float, mask: int | None) -> Answer:
        if not is_sibling(run, run.key):
            advice = "choose a structural loss and a contextual teacher"
            raise InputError(f"this run has a single teacher, so λ has no effect; {advice}")
        command = partial(command_for, run, profile, lam=lam, mask=mask)
        if recorded.empty:
            raise InputError(f"no recorded run has a λ yet; in notebooks/, run {command()}")
        found = scores_at(points, lam=lam, mask=mask)
        text = f"<p>{html.number('status', 'no run' if found.empty else 'recorded')}</p>"
        if found.empty:
            text += f"<p>To run it, in <code>notebooks/</code>: {html.number('command', command(), 'code')}</p>"
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        plot_weighting_points(points, lam=lam, mask=mask, found=found, ax=figure.subplots())
        return Answer(text + _scores(found), figure, f"scores by λ with mask {mask}, a line for each task")

    lam, mask = (0.5, None) if recorded.empty else recorded[["lam", "max_structural_len"]].iloc[0]
    place = [value for _, value in options].index(None if pd.isna(mask) else int(mask))
    controls = {"λ": slider(0.0, 1.0, 0.05, float(lam)), "mask": choice(options, place)}
    return Explorer(controls, answer)


def _scores(found: pd.DataFrame) -> str:
    bounds = found[["value", "low", "high"]].itertuples(index=False)
    intervals = [with_interval(*row).split(" ", 1)[1] for row in bounds]
    shown = found[["task", "metric", "value"]].rename(columns={"value": "score"})
    return "" if found.empty else html.table("scores", shown.assign(**{"95% interval": intervals}))

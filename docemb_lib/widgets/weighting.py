"""Weighting explorer: what is recorded at a λ and a mask, and the command that would run what is not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
from matplotlib.figure import Figure

from docemb_lib.errors import InputError
from docemb_lib.evaluation.scoreboard import with_interval
from docemb_lib.figures.weighting import plot_weighting_points
from docemb_lib.widgets import html
from docemb_lib.widgets.controls import Check, Choice, Control, Slider
from docemb_lib.widgets.explorer import Answer, Explorer

if TYPE_CHECKING:
    from docemb_lib.experiments.run import Run
    from docemb_lib.experiments.weighting_points import Found


def weighting_explorer(run: Run, points: pd.DataFrame, *, profile: str | Path) -> Explorer:
    """Move λ and the mask over the recorded runs that differ from this one in them alone.

    points: see `weighting_points`; profile: as the run was told it.
    """
    from docemb_lib.experiments.comparison import is_sibling
    from docemb_lib.experiments.weighting_points import command_for, scores_at

    weighs = is_sibling(run, run.parameters)
    p = run.profile.parameters
    masks = {int(mask) for mask in points["max_structural_len"].dropna()}
    masks |= {mask for mask in (run.profile.structural_teacher.max_tokens, p.max_structural_len) if mask is not None}
    options = [*((str(mask), mask) for mask in sorted(masks)), ("no mask", None)]

    def answer(lam: float, mask: int | None, interpolate: bool) -> Answer:
        if not weighs:
            raise InputError("this run has one teacher alone, so λ weighs nothing; give it a teacher of either kind")
        if points["lam"].notna().sum() == 0:
            command = command_for(run, profile, lam=lam, mask=mask)
            raise InputError(f"no recorded run has a λ yet; in notebooks/, run {command}")
        found = scores_at(points, lam=lam, mask=mask, interpolate=interpolate)
        said = f"<p>{_status(found)}</p>"
        if found.status != "recorded":
            command = command_for(run, profile, lam=lam, mask=mask)
            said += f"<p>To run it, in <code>notebooks/</code>: {html.number('command', command, 'code')}</p>"
        figure = Figure(figsize=(8, 3.6), layout="constrained")
        plot_weighting_points(points, lam=lam, mask=mask, found=found.scores, ax=figure.subplots())
        return Answer(said + _scores(found), figure, f"scores by λ with mask {mask}, a line for each task")

    values = [value for _, value in options]
    recorded = points[points["lam"].notna()]
    lam, mask = (0.5, None) if recorded.empty else recorded[["lam", "max_structural_len"]].iloc[0]
    controls: dict[str, Control] = {
        "λ": Slider(0.0, 1.0, 0.05, float(lam)),
        "mask": Choice(options, values.index(None if pd.isna(mask) else int(mask)), slider=True),
        "interpolate": Check(),
    }
    return Explorer(controls, answer)


def _status(found: Found) -> str:
    status = html.number("status", found.status)
    if found.between is None:
        return status
    low, high = found.between
    return f"{status}: on the straight line between the runs with λ = {low:g} and {high:g}, no run of its own"


def _scores(found: Found) -> str:
    rows = []
    for score in found.scores.to_dict("records"):
        known = not pd.isna(score["low"])
        interval = with_interval(score["value"], score["low"], score["high"]).split(" ", 1)[1] if known else ""
        rows.append(
            html.row(
                [
                    html.cell("task", score["task"]),
                    html.cell("metric", score["metric"]),
                    html.cell("score", f"{score['value']:.3f}"),
                    html.cell("interval", interval),
                ],
                task=score["task"],
            )
        )
    return html.table("scores", ["task", "metric", "score", "95% interval"], rows) if rows else ""

"""The weighting explorer: recorded runs that differ from one run in λ and mask alone.

It compares them with a selected run, and makes missing ones.
"""

import os
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.base.errors import InputError
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, with_interval
from docemb_lib.evaluation.uncertainty import differences
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.kinds import Form, Kind
from docemb_lib.runs.models import Model
from docemb_lib.runs.run import Run
from docemb_lib.settings.files import WORKSPACE
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps.plan import profile_argument
from docemb_lib.thesis.comparison import is_sibling, structural_only
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import LESS, MORE, Answer, Control, Explorer, choice, slider
from docemb_lib.workspace import fingerprint_of

HALF = 120  # pixels of the drawn differences to each side of zero
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
    siblings = [each for each in run.comparable() if is_sibling(run, run.key_of(each))]
    others = [(record, record.parameters) for record in siblings]
    if len(run.key.roles) == 2:
        for record in structural_only(run, [run.key]):
            others.append((record, {"lam": 1.0, "max_structural_len": None}))

    final = run.validation
    frames = [_at(run.parameters, final.intervals, final.models, run.label)]
    for record, parameters in others:
        intervals = records.table_of(run.workspace, record, "intervals")
        if len(intervals):
            models = records.table_of(run.workspace, record, "models")
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


def scores_at(points: pd.DataFrame, *, lam: float, mask: float | None) -> pd.DataFrame:
    """The recorded scores at a λ and mask: fingerprint, task, metric, value, low, high.

    There are no rows where there is no run.
    """
    masks = points["max_structural_len"]
    at_mask = masks.isna() if mask is None else masks == mask
    rows = points[at_mask & np.isclose(points["lam"], lam)]
    return rows[COLUMNS[2:]].reset_index(drop=True)


def differences_to(run: Run, points: pd.DataFrame, fingerprint: str) -> pd.DataFrame:
    """Every other student of `points` minus the one with this fingerprint, paired by examples.

    Returns the columns of `points`, where value, low and high are those of the difference. Students
    without the answers to single examples are left out.
    """
    stage = run.stages.scores
    fingerprints = points["fingerprint"].dropna().unique()
    models = [Model(Kind.STUDENT, Form.SAVED, each, each) for each in fingerprints]
    scored = [model for model in models if stage.is_scored(model, final=False)]
    if fingerprint not in {model.label for model in scored}:
        return points.head(0)
    scores = stage.by_round(scored, final=False)[stage.largest_round(False)]
    tests = differences(scores, fingerprint, tested=False)
    tests = tests.rename(columns={"model": "fingerprint", "difference": "value"})
    places = points[[*PLACE, "fingerprint"]].drop_duplicates()
    return tests.merge(places, on="fingerprint")[COLUMNS]


def arguments_for(run: Run, profile: str | Path, *, lam: float, mask: int | None) -> list[str]:
    """The arguments of `docemb` that make the run with this λ and mask.

    Of its parameters, which are those of `run` else, only those are given that differ from the
    profile's.
    """
    # Steps of a slider add up to 0.15000000000000002.
    parameters = {**run.parameters, "lam": round(lam, 6), "max_structural_len": mask}
    loaded = Profile.load(profile)
    wanted = RunKey.of(run.notebook, loaded, **parameters).same_but()
    for name in list(parameters):
        fewer = {other: value for other, value in parameters.items() if other != name}
        if RunKey.of(run.notebook, loaded, **fewer).same_but() == wanted:
            parameters = fewer
    arguments = ["run", run.notebook]
    for name, value in parameters.items():
        arguments += ["-p", f"{name}={value}"]
    return [*arguments, "--profile", profile_argument(profile)]


class _Making(NamedTuple):
    """A run that a button has begun."""

    process: subprocess.Popen[bytes]
    log: Path  # what the command says


def _make(run: Run, arguments: list[str]) -> _Making:
    """Begin a run in a process of its own, which outlives this notebook."""
    folder = run.workspace.outputs / "notebooks" / run.notebook
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f"begun-{fingerprint_of({'run': arguments})}.log"
    # A kernel asks commands for colours and moving bars.
    plain = {name: value for name, value in os.environ.items() if not name.endswith("COLOR")}
    with log.open("wb") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "docemb_lib.cli", *arguments],
            cwd=run.workspace.root,
            env={**plain, WORKSPACE: str(run.workspace.root)},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return _Making(process, log)


def _table(points: pd.DataFrame, ahead: pd.DataFrame, task: str) -> str:
    """The runs' scores on a task, and their differences to the selected run in numbers and drawn.

    A click on the λ of a run selects it.
    """
    of_task = ahead[ahead["task"] == task].set_index("fingerprint")
    most = np.abs(of_task[["low", "high"]].to_numpy()).max(initial=0.01)
    rows = []
    for row in points[points["task"] == task].sort_values(PLACE).to_dict("records"):
        mask = None if pd.isna(row["max_structural_len"]) else int(row["max_structural_len"])
        lam = "plain sum"
        if not pd.isna(row["lam"]):
            lam = html.Markup(html.button(f"{row['lam']:g}", λ=row["lam"], mask=mask))
        difference = "selected"
        drawn = ""
        if row["fingerprint"] in of_task.index:
            value, low, high = of_task.loc[row["fingerprint"], ["value", "low", "high"]]
            difference = f"{value:+.3f} [{low:+.3f}, {high:+.3f}]"
            drawn = _drawn(value / most, low / most, high / most)
        rows.append(
            {
                "λ": lam,
                "mask": "none" if mask is None else f"{mask:,}",
                "score [95%]": with_interval(row["value"], row["low"], row["high"]),
                "difference [95%]": difference,
                f"from {-most:.3f} to {most:.3f}": html.Markup(drawn),
            }
        )
    return html.table("differences", pd.DataFrame(rows, dtype=object))


def _drawn(value: float, low: float, high: float) -> str:
    """A difference and its interval, from -1 to 1, around a line at zero; in colour without it."""
    left, dot, right = (HALF + (HALF - 4) * x for x in (low, value, high))
    sure = f"rgb({MORE if low > 0 else LESS})"
    colour = sure if low * high > 0 else "currentColor"
    zero = f'<path d="M{HALF} 0V16" stroke="currentColor" stroke-opacity="0.5"/>'
    line = f'<path d="M{left:.1f} 8H{right:.1f}" stroke="{colour}" stroke-width="2"/>'
    point = f'<circle cx="{dot:.1f}" cy="8" r="4" fill="{colour}"/>'
    return f'<svg width="{2 * HALF}" height="16" aria-hidden="true">{zero}{line}{point}</svg>'


def weighting_explorer(run: Run, points: pd.DataFrame, *, profile: str | Path) -> Explorer:
    """Explore by λ and mask how recorded runs differ from the selected one, and make missing runs.

    Differences are paired over validation examples. At a λ and mask without a run they are those to
    the run of this notebook. points: see `weighting_points`; profile: name or path as given to the
    run.
    """
    making: dict[tuple[float, int | None], _Making] = {}
    own = points["fingerprint"].iloc[0]

    def missing(lam: float, mask: int | None, *, make: bool | None) -> str:
        """What an answer says where there is no run, which a button makes."""
        arguments = arguments_for(run, profile, lam=lam, mask=mask)
        command = shlex.join(["docemb", *arguments])
        text = f"{html.number('command', command, 'code')} {html.copy_button(command)}"
        if make and (lam, mask) not in making:
            making[lam, mask] = _make(run, arguments)
        begun = making.get((lam, mask))
        if begun is None:
            button = html.button("make this run", make=True)
            return f"<p>{html.number('status', 'no run')}; {button}, or give {text}</p>"
        log = f"its messages are in {run.workspace.relative(begun.log)}"
        if begun.process.poll() is None:
            status = html.number("status", "running")
            look = html.button("look again", make=False)
            return f"<p>{status}: widgets.run_monitor() follows it; {look}; {log}</p>"
        del making[lam, mask]  # so that it can be made again
        return f"<p>{html.number('status', 'failed')}: {log}; command: {text}</p>"

    def refresh() -> None:
        """Add the runs that have been made meanwhile."""
        nonlocal points
        for place, begun in list(making.items()):
            if begun.process.poll() == 0:
                del making[place]
                points = weighting_points(run)
                ahead_of.cache_clear()

    @cache
    def ahead_of(fingerprint: str) -> pd.DataFrame:
        return differences_to(run, points, fingerprint)

    def answer(task: str, lam: float, mask: int | None, make: bool | None) -> Answer:
        if not is_sibling(run, run.key):
            advice = "choose a structural loss and a contextual teacher"
            raise InputError(f"this run has a single teacher, so λ has no effect; {advice}")
        refresh()
        rows = scores_at(points, lam=lam, mask=mask)
        if rows.empty:
            selected = own
            text = missing(lam, mask, make=make)
            reference = "the run of this notebook"
        else:
            selected = rows["fingerprint"].iloc[0]
            text = f"<p>{html.number('status', 'recorded')}</p>"
            reference = f"λ {lam:.2g}, {'no mask' if mask is None else f'mask {mask}'}"
        text += f"<p>Differences to {reference}:</p>"
        return Answer(text + _table(points, ahead_of(selected), task))

    recorded = points[points["lam"].notna()]
    masks: set[int | None] = {int(mask) for mask in points["max_structural_len"].dropna()}
    masks |= {run.profile.structural_teacher.max_tokens, run.profile.parameters.max_structural_len}
    labels: dict[str, int | None] = {str(mask): mask for mask in sorted(filter(None, masks))}
    labels["no mask"] = None
    tasks = list(points["task"].unique())[::-1]  # the mean first
    first, *_ = [*recorded.to_dict("records"), {"lam": 0.5, "max_structural_len": np.nan}]
    mask = first["max_structural_len"]
    controls = {
        "task": choice({task: task for task in tasks}, tasks[0]),
        "λ": slider(0.0, 1.0, 0.05, float(first["lam"])),
        "mask": choice(labels, None if pd.isna(mask) else int(mask)),
        "make": Control(None, None),
    }
    return Explorer(controls, answer)

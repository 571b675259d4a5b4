"""The state of runs and trainings, read from disk.

Any process can look at any time. A running run holds a file lock; the operating system frees the
lock of a process that died.
"""

import json
import time
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from docemb_lib.base.errors import InputError
from docemb_lib.base.integrity import warn_once
from docemb_lib.base.private import cell_has_begun
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.settings.profile import Profile
from docemb_lib.sweeps.execution import Planned
from docemb_lib.training import CHECKPOINTS, LOG
from docemb_lib.training.curve import parts_of
from docemb_lib.workspace import Workspace, is_locked

# The columns of the table of runs, by those of a frame of records.
RUNS = {
    "status": "state",
    "profile": "profile",
    "notebook": "notebook",
    "label": "run",
    "validation": "validation",
    "test": "test",
    "seconds": "took",
    "error": "at",
}
RUNNING = ".running.ipynb"  # see `Planned.working`


def runs_on_disk(workspace: Workspace, notebook: str | None = None) -> pd.DataFrame:
    """Unfinished runs, then recorded runs, newest first.

    Columns state (running, interrupted, done, failed), profile, notebook, run (its label),
    validation and test (means over tasks), took (seconds, of a running run until now), at (last
    line of progress, or the error).
    """
    unfinished = []
    for path in sorted((workspace.outputs / "notebooks").glob(f"{notebook or '*'}/.*{RUNNING}")):
        executed = path.with_name(path.name.removeprefix(".").removesuffix(RUNNING) + ".ipynb")
        copy = _notebook(path)
        papermill = copy.get("metadata", {}).get("papermill", {})
        running = is_locked(executed)
        took = np.nan
        if running and "start_time" in papermill:
            started = datetime.fromisoformat(papermill["start_time"])
            took = (datetime.now(UTC) - started).total_seconds()
        names = _names(path.parent.name, json.dumps(papermill.get("parameters")))
        unfinished.append(
            {
                "state": "running" if running else "interrupted",
                "profile": names[0],
                "notebook": path.parent.name,
                "run": names[1] or executed.stem,
                "took": took,
                "at": _progress(copy),
            }
        )
    recorded = records.frame(notebook, workspace=workspace, failed=True)
    recorded = recorded.reindex(columns=[*RUNS, "finished"])
    recorded = recorded.sort_values("finished", ascending=False, kind="stable")
    recorded = recorded.fillna({"error": ""}).rename(columns=RUNS)
    rows = [*unfinished, *recorded.to_dict("records")]
    numbers = dict.fromkeys(("validation", "test", "took"), float)
    return pd.DataFrame(rows, columns=[*RUNS.values()]).astype(numbers)


@lru_cache(maxsize=1000)
def _names(notebook: str, parameters: str) -> tuple[str, str]:
    """The profile and the label of a run; "" where its profile is gone."""
    try:
        values = dict(json.loads(parameters))
        profile = Profile.load(values.pop("profile"))
        return profile.name, RunKey.of(notebook, profile, **values).label
    except (InputError, KeyError, TypeError):
        return "", ""


def trainings_on_disk(workspace: Workspace) -> pd.DataFrame:
    """Students in training: their progress, the last loss and each of its parts, in readable form.

    Columns state, profile, training, update, time, time left, tokens/s, loss and parts of the loss.
    """
    students = workspace.outputs / "artefacts" / "student"
    rows = []
    for log in sorted(students.glob(f"*.partial/{CHECKPOINTS}/{LOG}")):
        lines = _lines(log)
        try:
            if lines:
                rows.append(_training(log, *lines))
        except (AttributeError, LookupError, TypeError, ValueError):
            problem = "this log is damaged or of another version of docemb; it is not shown"
            warn_once("%s: %s", workspace.relative(log), problem)
    return pd.DataFrame(rows)


def _training(log: Path, begin: dict[str, Any], *history: dict[str, Any]) -> dict[str, Any]:
    """A row of `trainings_on_disk`, from the lines of its log."""
    step = history[-1]["step"] if history else 0
    updates = begin["updates"]
    running = is_locked(log.parents[1].with_suffix(""))
    logged: dict[str, Any] = {}
    for line in history:
        if "learning_rate" in line:  # of an update, not of a validation
            logged = line
    elapsed = 0.0
    left = ""
    timed = [line for line in history if "at" in line]  # since this process began
    if timed:
        start = timed[0]["at"]
        end = timed[-1]["at"]
        elapsed = (time.time() if running else end) - start
        done = step - timed[0]["step"]
        if running and done:  # at the mean speed until now
            left = tqdm.format_interval((end - start) / done * (updates - step))
    row = {
        "state": "running" if running else "interrupted",
        "profile": begin["profile"],
        "training": begin["title"],
        "update": f"{step} of {updates}",
        "time": tqdm.format_interval(elapsed),
        "time left": left,
        "tokens/s": logged.get("tokens_per_second", np.nan),
    }
    return row | {name: logged[name] for name in parts_of(pd.DataFrame([logged]))}


def training_of(run: Planned, trainings: pd.DataFrame) -> dict[str, Any]:
    """The row of `trainings_on_disk` of a run's student, without what is not known yet.

    Empty if it is not in training.
    """
    if not run.key.trains or trainings.empty:
        return {}
    named = trainings["training"].eq(run.key.student_label)
    rows = trainings[named & trainings["profile"].eq(run.profile.name)]
    return dict(rows.iloc[0].dropna()) if len(rows) else {}


def _lines(path: Path) -> list[dict[str, Any]]:
    """The complete lines of a JSON-lines file that another process may write or delete."""
    lines = []
    try:
        for line in path.read_text(encoding="utf-8").splitlines():
            lines.append(json.loads(line))
    except (OSError, ValueError):
        pass
    return lines


def progress_of(path: Path) -> str:
    """The running cell of a notebook and the last line of its output."""
    return _progress(_notebook(path))


def _notebook(path: Path) -> dict[str, Any]:
    """A notebook that another process may write or delete; then it is empty."""
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}


def _progress(notebook: dict[str, Any]) -> str:
    if "cells" not in notebook:
        return ""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    begun = [number for number, cell in enumerate(code, 1) if cell_has_begun(cell)]
    if not begun:
        return "starting"
    text = ""
    for output in code[begun[-1] - 1]["outputs"]:
        if output["output_type"] == "stream":
            text += "".join(output.get("text", ""))
    progress = f"cell {begun[-1]} of {len(code)}"
    lines = text.strip().splitlines()  # a bar returns to the line's start
    return f"{progress}: {lines[-1].strip()}" if lines else progress

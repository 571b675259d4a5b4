"""The run monitor: the state of runs and trainings, read from disk.

Any process can watch at any time. A running run holds a file lock; the operating system frees the
lock of a process that died.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from ipywidgets import VBox
from tqdm import tqdm

from docemb_lib.base.private import cell_has_begun
from docemb_lib.runs import records
from docemb_lib.settings.notebooks import notebook_named
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer
from docemb_lib.workspace import Workspace, is_locked

# The columns of the table of runs, by those of a frame of records.
RUNS = {
    "status": "state",
    "notebook": "notebook",
    "label": "run",
    "validation": "validation",
    "test": "test",
    "seconds": "took",
    "error": "at",
}
RUNNING = ".running.ipynb"  # see `Planned.working`
EVERY = 3.0  # seconds between two readings
LAST = 30  # runs in the table: all are counted
NOT_LOSSES = {"step", "at", "epoch", "learning_rate", "grad_norm", "norm", "spread"}
NOTHING = "nothing has run yet; docemb run, or docemb sweep 05 --grid weighting-cosine"


def runs_on_disk(workspace: Workspace, notebook: str | None = None) -> pd.DataFrame:
    """Unfinished runs, then recorded runs, newest first.

    Columns state (running, interrupted, done, failed), notebook, run, validation and test (means
    over tasks), took (seconds), at (last line of progress, or the error).
    """
    unfinished = []
    for path in sorted((workspace.outputs / "notebooks").glob(f"{notebook or '*'}/.*{RUNNING}")):
        executed = path.with_name(path.name.removeprefix(".").removesuffix(RUNNING) + ".ipynb")
        state = "running" if is_locked(executed) else "interrupted"
        unfinished.append(
            {
                "state": state,
                "notebook": path.parent.name,
                "run": executed.stem,
                "at": progress_of(path),
            }
        )
    recorded = records.frame(notebook, workspace=workspace, failed=True)
    recorded = recorded.reindex(columns=[*RUNS, "finished"])
    recorded = recorded.sort_values("finished", ascending=False, kind="stable")
    recorded = recorded.fillna({"error": ""}).rename(columns=RUNS)
    rows = [*unfinished, *recorded.to_dict("records")]
    means = dict.fromkeys(("validation", "test"), float)
    return pd.DataFrame(rows, columns=[*RUNS.values()]).astype(means)


def trainings_on_disk(workspace: Workspace) -> pd.DataFrame:
    """Students in training: their progress, the last loss and each of its parts, in readable form.

    Columns training, state, update, tokens/s, time left, loss and parts of the loss.
    """
    from docemb_lib.training.trainer import CHECKPOINTS, LOG  # imports torch

    students = workspace.outputs / "artefacts" / "student"
    rows = []
    for log in sorted(students.glob(f"*.partial/{CHECKPOINTS}/{LOG}")):
        lines = _lines(log)
        if not lines:
            continue
        begin, *history = lines
        step = history[-1]["step"] if history else 0
        updates = begin["updates"]
        logged: dict[str, Any] = {}
        for line in history:
            if "learning_rate" in line:  # of an update, not of a validation
                logged = line
        running = is_locked(log.parents[1].with_suffix(""))
        row = {
            "training": begin["title"],
            "state": "running" if running else "interrupted",
            "update": f"{step} of {updates}",
            "tokens/s": logged.get("tokens_per_second", np.nan),
            "time left": _time_left(history, updates) if running else "",
        }
        for name, value in logged.items():
            if name not in NOT_LOSSES and not name.endswith("_per_second"):
                row[name] = value
        rows.append(row)
    return pd.DataFrame(rows)


def _time_left(history: list[dict[str, Any]], updates: int) -> str:
    """The time that the remaining updates take at the mean speed since this process began."""
    timed = [line for line in history if "at" in line]
    if not timed:
        return ""
    step = history[-1]["step"]
    done = step - timed[0]["step"]
    if not done:
        return ""
    seconds = (timed[-1]["at"] - timed[0]["at"]) / done
    return tqdm.format_interval(seconds * (updates - step))


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
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):  # being written, or deleted
        return ""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
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


class Monitor(Explorer):
    """An explorer without controls that refreshes every few seconds while the kernel is idle."""

    def live(self) -> VBox:
        self._watch = asyncio.get_running_loop().create_task(self._watch_disk())
        return super().live()

    def close(self) -> None:
        self._watch.cancel()
        super().close()

    async def _watch_disk(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            self.refresh()


def run_monitor(notebook: str | None = None) -> Monitor:
    """Runs and trainings of the workspace, from any process; closing the tab does not affect them.

    notebook: name or number of a notebook, to show its runs only.
    """
    workspace = Workspace()
    notebook = None if notebook is None else notebook_named(notebook)

    def answer() -> Answer:
        trainings = trainings_on_disk(workspace)
        runs = runs_on_disk(workspace, notebook)
        if runs.empty and trainings.empty:
            return Answer(html.message(NOTHING))
        counts = []
        for state, count in runs["state"].value_counts().items():
            counts.append(f"{html.number(str(state), count)} {state}")
        text = f"<p>{', '.join(counts)}</p>"
        if len(trainings):
            text += html.table("trainings", trainings, {"tokens/s": "{:,.0f}".format})
        text += html.table("runs", runs.head(LAST), {"took": tqdm.format_interval})
        return Answer(text)

    return Monitor({}, answer)

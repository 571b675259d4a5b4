"""The run monitor: state of runs and trainings, read from disk, so that any process can watch at
any time.

A running run holds a file lock; the operating system frees the lock of a process that died.
"""

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from docemb_lib.base.private import cell_has_begun
from docemb_lib.runs import records
from docemb_lib.settings.profile import notebook_named
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer
from docemb_lib.workspace import Workspace, is_locked

RUNS = ["state", "notebook", "run", "validation", "test", "took", "at"]
RECORDED = [
    "status",
    "notebook",
    "label",
    "validation",
    "test",
    "seconds",
    "error",
]  # the same, in a frame of records
RUNNING = ".running.ipynb"  # see `Planned.working`
EVERY = 3.0  # seconds between two readings
LAST = 30  # runs in the table: all are counted
NOT_LOSSES = {"step", "at", "epoch", "learning_rate", "grad_norm", "norm", "spread"}


def runs_on_disk(workspace: Workspace, notebook: str | None = None) -> pd.DataFrame:
    """Unfinished runs, then recorded runs, newest first.

    Columns state (running, interrupted, done, failed), notebook, run, validation and test (means
    over tasks), took (seconds), at (last line of progress, or the error).
    """
    rows: list[tuple[Any, ...]] = []
    for path in sorted((workspace.outputs / "notebooks").glob(f"{notebook or '*'}/.*{RUNNING}")):
        executed = path.with_name(path.name.removeprefix(".").removesuffix(RUNNING) + ".ipynb")
        state = "running" if is_locked(executed) else "interrupted"
        rows.append((state, path.parent.name, executed.stem, *[np.nan] * 3, _progress_of(path)))
    recorded = records.frame(notebook, workspace=workspace, failed=True).reindex(
        columns=[*RECORDED, "finished"]
    )
    recorded = recorded.sort_values("finished", ascending=False, kind="stable").fillna(
        {"error": ""}
    )
    rows += recorded[RECORDED].itertuples(index=False)
    return pd.DataFrame(rows, columns=RUNS).astype(dict.fromkeys(("validation", "test"), float))


def trainings_on_disk(workspace: Workspace) -> pd.DataFrame:
    """Students in training, in readable form: training, state, update, tokens/s, time left, and the
    last loss and each of its parts."""
    from docemb_lib.training.trainer import CHECKPOINTS, LOG  # imports torch

    rows: list[dict[str, Any]] = []
    for log in sorted(
        (workspace.outputs / "artefacts" / "student").glob(f"*.partial/{CHECKPOINTS}/{LOG}")
    ):
        head, *history = [*_lines(log)] or [{}]
        if not head:
            continue
        step, updates = history[-1]["step"] if history else 0, head["updates"]
        logged: dict[str, Any] = next(
            (row for row in reversed(history) if "learning_rate" in row), {}
        )
        timed = [row for row in history if "at" in row]
        running, left = is_locked(log.parents[1].with_suffix("")), ""
        if running and timed and (done := step - timed[0]["step"]):
            left = tqdm.format_interval(
                (timed[-1]["at"] - timed[0]["at"]) / done * (updates - step)
            )
        row = {"training": head["title"], "state": "running" if running else "interrupted"}
        speed = logged.get("tokens_per_second", np.nan)
        row |= {"update": f"{step} of {updates}", "tokens/s": speed, "time left": left}
        parts = {
            name: x
            for name, x in logged.items()
            if name not in NOT_LOSSES and not name.endswith("_per_second")
        }
        rows.append(row | parts)
    return pd.DataFrame(rows)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The complete lines of a JSON-lines file that another process may write or delete."""
    with suppress(OSError, ValueError):
        for line in path.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


def _progress_of(path: Path) -> str:
    """The running cell of a notebook and the last line of its output."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):  # being written, or deleted
        return ""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    begun = [number for number, cell in enumerate(code, 1) if cell_has_begun(cell)]
    if not begun:
        return "starting"
    texts = [
        output.get("text", "")
        for output in code[begun[-1] - 1]["outputs"]
        if output["output_type"] == "stream"
    ]
    lines = (
        "".join(part for text in texts for part in text).strip().splitlines()
    )  # a bar returns to the line's start
    return f"cell {begun[-1]} of {len(code)}" + (f": {lines[-1].strip()}" if lines else "")


class Monitor(Explorer):
    """An explorer without controls that refreshes every few seconds while the kernel is idle."""

    def live(self) -> Any:
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
        trainings, runs = trainings_on_disk(workspace), runs_on_disk(workspace, notebook)
        if runs.empty and trainings.empty:
            return Answer(
                html.message(
                    "nothing has run yet; docemb run, or docemb sweep 05 --grid weighting-cosine"
                )
            )
        counts = runs["state"].value_counts()
        text = f"<p>{', '.join(f'{html.number(str(state), count)} {state}' for state, count in counts.items())}</p>"
        text += (
            html.table("trainings", trainings, {"tokens/s": "{:,.0f}".format})
            if len(trainings)
            else ""
        )
        return Answer(text + html.table("runs", runs.head(LAST), {"took": tqdm.format_interval}))

    return Monitor({}, answer)

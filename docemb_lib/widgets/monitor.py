"""The run monitor: state of runs and trainings, read from disk, so that any process can watch at any time.

A running run holds a file lock; the operating system frees the lock of a process that died.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from tqdm import tqdm

from docemb_lib.experiments import records
from docemb_lib.experiments.execution import Planned, is_done
from docemb_lib.private import cell_has_begun
from docemb_lib.settings.profile import notebook_named
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer, choice
from docemb_lib.workspace import Workspace, is_locked

RUNS = ["state", "notebook", "run", "mean", "seconds", "at"]
TRAININGS = ["training", "state", "update", "updates", "tokens_per_second", "eta"]
RUNNING = ".running.ipynb"  # see `Planned.working`
EVERY = [("2 s", 2.0), ("10 s", 10.0), ("off", 0.0)]
LAST = 20  # recorded runs in the table; a sweep lists all
NOTHING = "nothing has run yet; docemb run, or docemb sweep 05 --grid weighting-cosine"
NOT_LOSSES = {"step", "at", "epoch", "learning_rate", "grad_norm", "norm", "spread"}


def runs_on_disk(workspace: Workspace, notebook: str | None = None) -> pd.DataFrame:
    """Unfinished runs, then recorded runs, newest first.

    Columns state (running, interrupted, done, failed), notebook, run, mean (score over tasks), seconds, at (last line
    of progress, or the error).
    """
    rows = []
    for path in sorted((workspace.outputs / "notebooks").glob(f"{notebook or '*'}/.*{RUNNING}")):
        executed = path.with_name(path.name.removeprefix(".").removesuffix(RUNNING) + ".ipynb")
        state = "running" if is_locked(executed) else "interrupted"
        rows.append((state, path.parent.name, executed.stem, np.nan, np.nan, _progress_of(path)))
    recorded = sorted(records.all_records(notebook, workspace=workspace), key=lambda record: record.finished)
    rows += [_recorded(record) for record in recorded[::-1]]
    return pd.DataFrame(rows, columns=RUNS)


def sweep_on_disk(planned: Sequence[Planned], workspace: Workspace) -> pd.DataFrame:
    """The planned runs in order, as in `runs_on_disk`; runs that have not started are waiting."""
    rows = []
    for run in planned:
        record = records.find(workspace, run.notebook, run.fingerprint)
        running = run.working.is_file() and is_locked(run.executed)
        if not running and record is not None and (record.status == "failed" or is_done(run, workspace)):
            rows.append(_recorded(record))
        else:
            state, at = ("running", _progress_of(run.working)) if running else ("waiting", "")
            rows.append((state, run.notebook, run.label, np.nan, np.nan, at))
    return pd.DataFrame(rows, columns=RUNS)


def time_left(runs: pd.DataFrame) -> float:
    """Seconds until a sweep ends, from the mean time of finished runs and the number of running ones; else NaN."""
    running, waiting = ((runs["state"] == state).sum() for state in ("running", "waiting"))
    mean = runs.loc[runs["state"] == "done", "seconds"].mean()
    return float(mean * (running + waiting) / max(1, running)) if running + waiting else 0.0


def trainings_on_disk(workspace: Workspace) -> pd.DataFrame:
    """Students in training: columns training, state, update, updates, tokens_per_second, eta (seconds), and the last
    value of the loss and of each part."""
    from docemb_lib.training.trainer import CHECKPOINTS, LOG  # imports torch

    rows = []
    for log in sorted((workspace.outputs / "artefacts" / "student").glob(f"*.partial/{CHECKPOINTS}/{LOG}")):
        head, *history = [*_lines(log)] or [{}]
        if not head:
            continue
        step = history[-1]["step"] if history else 0
        logged: dict[str, Any] = next((row for row in reversed(history) if "learning_rate" in row), {})
        timed = [row for row in history if "at" in row]
        done = step - timed[0]["step"] if timed else 0
        eta = (timed[-1]["at"] - timed[0]["at"]) / done * (head["updates"] - step) if done else np.nan
        state, eta = ("running", eta) if is_locked(log.parents[1].with_suffix("")) else ("interrupted", np.nan)
        values = head["title"], state, step, head["updates"], logged.get("tokens_per_second", np.nan), eta
        parts = {name: x for name, x in logged.items() if name not in NOT_LOSSES and not name.endswith("_per_second")}
        rows.append({**dict(zip(TRAININGS, values, strict=True)), **parts})
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=TRAININGS)


def _recorded(record: records.Record) -> tuple[Any, ...]:
    mean = record.metrics.get("mean", np.nan)
    return (record.status, record.notebook, record.label, mean, record.seconds, record.error or "")


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
    texts = [output.get("text", "") for output in code[begun[-1] - 1]["outputs"] if output["output_type"] == "stream"]
    lines = "".join(part for text in texts for part in text).strip().splitlines()  # a bar returns to the line's start
    return f"cell {begun[-1]} of {len(code)}" + (f": {lines[-1].strip()}" if lines else "")


class Monitor(Explorer):
    """An explorer that refreshes every few seconds while the kernel is idle."""

    def live(self) -> Any:
        self._watch = asyncio.get_running_loop().create_task(self._watch_disk())
        return super().live()

    def close(self) -> None:
        self._watch.cancel()
        super().close()

    async def _watch_disk(self) -> None:
        while True:
            await asyncio.sleep(self.settings["every"] or 1.0)
            if self.settings["every"]:
                self.refresh()


def run_monitor(
    notebook: str | None = None, grid: str | Path | None = None, *, profile: str | Path = "tiny",
    parameters: Mapping[str, Any] | None = None,
) -> Monitor:  # fmt: skip
    """Runs and trainings of the workspace, from any process; closing the tab does not affect them.

    notebook: name or number of a notebook, to show its runs only. grid: show all runs of this grid, waiting ones
    included, and the time left. profile, parameters: as given to the sweep of the grid.
    """
    from docemb_lib.experiments.plan import chosen_runs, resolve_sweep

    workspace = Workspace()
    notebook = None if notebook is None else notebook_named(notebook)
    given: dict[str, Any] = {"profile": profile, "parameters": parameters or {}}
    steps = None if grid is None else resolve_sweep(notebook, grid, workspace, **given)

    def answer(every: float) -> Answer:
        trainings, planned = trainings_on_disk(workspace), None if steps is None else chosen_runs(steps)
        runs, text = runs_on_disk(workspace, notebook) if planned is None else sweep_on_disk(planned, workspace), ""
        if planned is not None:
            left = time_left(runs)
            known = "not known yet" if np.isnan(left) else tqdm.format_interval(left)
            text = f"<p>time left: {html.number('left', known)}</p>"
        if runs.empty and trainings.empty:
            return Answer(html.message(NOTHING))
        counts = runs["state"].value_counts()
        text += f"<p>{', '.join(f'{html.number(str(state), count)} {state}' for state, count in counts.items())}</p>"
        recorded = runs["state"].isin(["done", "failed"])
        if planned is None and recorded.sum() > LAST:
            runs = runs[~recorded | (recorded.cumsum() <= LAST)]
            text += f"<p>the last {LAST} of {recorded.sum()} recorded runs:</p>"
        return Answer(text + _trainings(trainings) + _runs(runs))

    return Monitor({"every": choice(EVERY)}, answer)


def _runs(runs: pd.DataFrame) -> str:
    shown = runs.rename(columns={"mean": "mean score", "seconds": "took"})
    return html.table("runs", shown, {"took": tqdm.format_interval})


def _trainings(trainings: pd.DataFrame) -> str:
    if trainings.empty:
        return ""
    parts = list(trainings.columns[len(TRAININGS) :])
    shown = trainings[["training", "state", "tokens_per_second", "eta", *parts]]
    shown = shown.rename(columns={"tokens_per_second": "tokens/s", "eta": "time left"})
    shown.insert(2, "update", trainings["update"].astype(str) + " of " + trainings["updates"].astype(str))
    formats = {"tokens/s": "{:,.0f}".format, "time left": tqdm.format_interval, **dict.fromkeys(parts, "{:.4f}".format)}
    return html.table("trainings", shown, formats)

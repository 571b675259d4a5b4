"""A sweep in a cell of a notebook: its runs as a table, which follows them, and a button to stop.

The same call runs in a script, where it shows a progress bar. Where a sweep executes the notebook
itself, the call executes nothing and shows what is recorded: otherwise the runs of a sweep of this
notebook would begin sweeps of their own and wait for each other.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import HTML, display

from docemb_lib.base.private import kernel_id
from docemb_lib.base.progress import in_kernel, live_cell, progress, stopped
from docemb_lib.settings.labels import typeset
from docemb_lib.sweeps.execution import Planned, Reporter, Runs, Status
from docemb_lib.sweeps.kernels import is_run_of_sweep
from docemb_lib.sweeps.monitor import progress_of, training_of, trainings_on_disk
from docemb_lib.sweeps.plan import resolve_sweep, runs_of
from docemb_lib.sweeps.sweep import execute_plan, recorded
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.monitor import duration
from docemb_lib.workspace import Workspace

EVERY = 1.0  # seconds between two states of the table
# Interrupts the kernel as JupyterLab's own button does, through the server: a kernel that executes
# a cell answers no widget.
STOP = """
const button = document.createElement("button");
button.className = "docemb-stop";
button.textContent = "Stop the sweep";
button.onclick = () => {
    const settings = JSON.parse(document.getElementById("jupyter-config-data").textContent);
    const token = /_xsrf=([^;]+)/.exec(document.cookie);
    const headers = token ? {"X-XSRFToken": token[1]} : {};
    const url = settings.baseUrl + "api/kernels/KERNEL/interrupt";
    button.disabled = true;
    fetch(url, {method: "POST", headers});
};
element.appendChild(button);
"""


def sweep(
    notebook: str,
    grid: str | Path | Sequence[Mapping[str, object]],
    *,
    profile: str | Path = "tiny",
    parameters: Mapping[str, object] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> pd.DataFrame:
    """Execute the missing runs of a grid side by side, each in a notebook of its own.

    Returns a row for each run as of `records.frame`, with its `error` if it failed. The status of a
    run that is not recorded is "missing", for example because another process executes it. Raises
    InputError, before anything starts, for whatever is wrong with any run.

    Args:
        notebook: its name or number, e.g. "05_weighting" or "05".
        grid: a grid in `params/grids/` by name, the path of a .yaml file, or a list of parameters.
        profile: a profile in `params/` by name, or the path of a .yaml file.
        parameters: replace those of all runs.
        workers: how many processes on this machine; None: as many as there is room for.
        scheduler: address or scheduler file of a running Dask cluster, used instead of this
            machine.

    Example (a cell, or a script under `if __name__ == "__main__":`):
        >>> frame = sweep("05", [{"lam": 0.2}, {"lam": 0.5}], profile="tiny", workers=2)
        >>> frame[["lam", "validation"]]
    """
    workspace = Workspace()
    steps = resolve_sweep(notebook, grid, workspace, profile=profile, parameters=parameters or {})
    in_cell = in_kernel()
    reporter = RunTable(workspace) if in_cell else _ProgressBar()
    if is_run_of_sweep():
        runs = runs_of(steps)
        reporter.begin(runs, [run for run in runs if run.record(workspace) is None])
        reporter.close()
    else:
        try:
            execute_plan(
                steps, workspace, reporter, workers=workers, scheduler=scheduler, in_cell=in_cell
            )
        except KeyboardInterrupt:
            raise stopped("stopped the sweep") from None
    return recorded(runs_of(steps), workspace)


class RunTable(Reporter):
    """The runs of a sweep as a table below a cell, which is shown again as they go on.

    In an executed notebook its last state remains.
    """

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self.states: dict[Planned, str] = {}
        self.started: dict[Planned, float] = {}
        self.notes: dict[Planned, str] = {}  # the errors of failed runs
        self._table: Any = None  # the handles of the two outputs
        self._button: Any = None
        self._shown = 0.0

    def begin(self, runs: Runs, missing: Runs, where: str = "") -> None:
        for run in runs:
            self.states[run] = "waiting" if run in missing else "there already"
        if self._table is None:
            if missing and live_cell() is not None:
                button = {"application/javascript": STOP.replace("KERNEL", kernel_id())}
                self._button = display(button, raw=True, display_id=True)
            self._table = display(self.answer(), display_id=True)
        self._show()

    def start(self, run: Planned) -> None:
        self.states[run] = "running"
        self.started[run] = time.monotonic()
        self._show()

    def end(self, run: Planned, status: Status, seconds: float, error: str = "") -> None:
        names = {"built": "done", "reused": "there already", "elsewhere": "runs elsewhere"}
        self.states[run] = names.get(status, status)
        self.notes[run] = error
        self._show()

    def tick(self) -> None:
        if time.monotonic() - self._shown > EVERY:
            self._show()

    def close(self) -> None:
        for run, state in self.states.items():
            if state in ("waiting", "running"):
                self.states[run] = "missing"
        if self._button is not None:
            self._button.update({"text/plain": ""}, raw=True)
        if self._table is not None:
            self._show()

    def rows(self) -> pd.DataFrame:
        """A row for each run: run, state, took, its training, loss and mean of validation, at.

        While a student is in training, `loss` is that of its last update.
        """
        trainings = pd.DataFrame()
        if "running" in self.states.values():
            trainings = trainings_on_disk(self.workspace)
        labels = [run.label for run in self.states]
        rows = []
        for run, state in self.states.items():
            row: dict[str, object] = {
                "run": run.label if labels.count(run.label) == 1 else run.executed.stem,
                "state": state,
                "took": None,
                "update": None,
                "time left": None,
                "loss": None,
                "validation": None,
                "at": self.notes.get(run, ""),
            }
            record = run.record(self.workspace)
            if state == "running":
                row["took"] = time.monotonic() - self.started[run]
                row["at"] = progress_of(run.working)
                training = training_of(run, trainings)
                row |= {name: training.get(name) for name in ("update", "time left", "loss")}
            elif record is not None:
                row["took"] = record.seconds
                row["loss"] = record.metrics.get("validation_loss_after")
                row["validation"] = record.metrics.get("mean")
            rows.append(row)
        numbers = dict.fromkeys(("took", "loss", "validation"), float)
        return pd.DataFrame(rows).astype(numbers)

    def answer(self) -> HTML:
        rows = self.rows().dropna(axis="columns", how="all")
        profiles = ", ".join({run.profile.name: None for run in self.states})
        text = html.message(f"profile {profiles}")
        text += html.table("sweep", rows, {"took": duration, "run": typeset})
        return HTML(f'{html.STYLE}<div class="docemb-answer">{text}</div>')

    def _show(self) -> None:
        self._table.update(self.answer())
        self._shown = time.monotonic()


class _ProgressBar(Reporter):
    """A sweep as one progress bar."""

    bar: Any = None  # of tqdm, from `begin` on

    def begin(self, runs: Runs, missing: Runs, where: str = "") -> None:
        self.bar = self.bar or progress(desc=f"sweep of {runs[0].notebook}", total=0, unit="runs")
        self.bar.total += len(runs)
        self.bar.update(len(runs) - len(missing))

    def end(self, run: Planned, status: Status, seconds: float, error: str = "") -> None:
        self.bar.update()

    def close(self) -> None:
        if self.bar is not None:
            self.bar.close()

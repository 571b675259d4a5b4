"""How runs and trainings stand, read from what they leave on disk, so that any process may look at any time.

Nothing here is kept in memory: whoever looks again sees what there is by then. A run that a dead process left behind is
told from one at work by its lock, which the operating system frees.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from filelock import FileLock, Timeout
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.execution import Planned, is_done
from docemb_lib.private import cell_has_begun
from docemb_lib.settings.profile import NOTEBOOKS
from docemb_lib.training.checkpoints import CHECKPOINTS, LOG
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Choice, Explorer
from docemb_lib.workspace import Workspace

# ---- how runs and trainings stand


RUNS = ["run", "notebook", "state", "mean", "seconds", "at"]
TRAININGS = ["training", "state", "update", "updates", "tokens_per_second", "eta"]
RUNNING = ".running.ipynb"  # see `Planned.working`


def runs_on_disk(workspace: Workspace, notebook: str | None = None) -> pd.DataFrame:
    """Runs at work, then the recorded ones (of one notebook), newest first.

    Columns run, notebook, state (running, interrupted, done, failed), mean (score over tasks), seconds, at (the last
    line of its progress; of a failed run its error).
    """
    rows = []
    for path in sorted((workspace.outputs / "notebooks").glob(f"{notebook or '*'}/.*{RUNNING}")):
        executed = path.with_name(path.name.removeprefix(".").removesuffix(RUNNING) + ".ipynb")
        state = "running" if _is_locked(executed) else "interrupted"
        rows.append((executed.stem, path.parent.name, state, np.nan, np.nan, _progress_of(path)))
    recorded = sorted(records.all_records(notebook, workspace=workspace), key=lambda record: record.finished)
    rows += [_recorded(record) for record in recorded[::-1]]
    return pd.DataFrame(rows, columns=RUNS)


def sweep_on_disk(planned: Sequence[Planned], workspace: Workspace) -> pd.DataFrame:
    """The planned runs in their order, as `runs_on_disk`; those that nobody has begun are waiting."""
    rows = []
    for run in planned:
        record = records.find(workspace, run.notebook, run.fingerprint)
        if run.working.is_file() and _is_locked(run.executed):
            rows.append((run.label, run.notebook, "running", np.nan, np.nan, _progress_of(run.working)))
        elif record is not None and (record.status == "failed" or is_done(run, workspace)):
            rows.append(_recorded(record))
        else:
            rows.append((run.label, run.notebook, "waiting", np.nan, np.nan, ""))
    return pd.DataFrame(rows, columns=RUNS)


def time_left(runs: pd.DataFrame) -> float:
    """Seconds until a sweep ends, if what is missing takes as long as what is done, as many at a time as now.

    NaN while nothing is done.
    """
    missing = runs["state"].isin(["running", "waiting"]).sum()
    at_work = max(1, int((runs["state"] == "running").sum()))
    return float(runs.loc[runs["state"] == "done", "seconds"].mean() * missing / at_work) if missing else 0.0


def trainings_on_disk(workspace: Workspace) -> pd.DataFrame:
    """Students in training: training (what it is), state, update, updates, tokens_per_second, eta (seconds), and the
    last value of loss and of each of its parts."""
    rows = []
    for log in sorted((workspace.outputs / "artefacts" / "student").glob(f"*.partial/{CHECKPOINTS}/{LOG}")):
        if lines := list(_lines(log)):
            head, *history = lines
            folder = log.parents[1]
            row = {"training": head.get("title", folder.stem), "state": "running", **_last(head, history)}
            interrupted = {} if _is_locked(folder.with_suffix("")) else {"state": "interrupted", "eta": np.nan}
            rows.append(row | interrupted)
    return pd.DataFrame(rows) if rows else pd.DataFrame(columns=TRAININGS)


def _last(head: dict[str, Any], history: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Where a training stands, from the rows of its log."""
    updates = int(head.get("updates", 0))
    steps = [row["step"] for row in history if "step" in row] or [0]
    logged: dict[str, Any] = next((row for row in reversed(history) if "learning_rate" in row), {})
    timed = [row for row in history if "at" in row]
    done = steps[-1] - timed[0]["step"] if timed else 0
    eta = (timed[-1]["at"] - timed[0]["at"]) / done * (updates - steps[-1]) if done else np.nan
    beside = {"step", "at", "epoch", "learning_rate", "grad_norm", "norm", "spread", "cca", "share_of_peak"}
    parts = {name: value for name, value in logged.items() if name not in beside and not name.endswith("_per_second")}
    speed = logged.get("tokens_per_second", np.nan)
    return {"update": steps[-1], "updates": updates, "tokens_per_second": speed, "eta": eta, **parts}


def _recorded(record: records.Record) -> tuple[Any, ...]:
    error = "" if record.error is None else record.error
    return (record.label, record.notebook, record.status, record.metrics.get("mean", np.nan), record.seconds, error)


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The whole lines of a file of JSON that somebody may be writing; none of one that is gone."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except ValueError:
            return


def _progress_of(path: Path) -> str:
    """The last line that the running cell of a notebook has written, and which cell that is."""
    try:
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (OSError, ValueError, KeyError):  # just being written, or gone
        return ""
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    begun = [cell_has_begun(cell) for cell in code]
    if not any(begun):
        return "starting"
    number = max(place for place, has in enumerate(begun) if has)
    texts = [output.get("text", "") for output in code[number]["outputs"] if output["output_type"] == "stream"]
    written = "".join(part for text in texts for part in text).replace("\r", "\n").split("\n")
    said = [line.strip() for line in written if line.strip()]
    return f"cell {number + 1} of {len(code)}" + (f": {said[-1]}" if said else "")


def _is_locked(target: Path) -> bool:
    """Whether a living process builds `target`, see `workspace.locked`."""
    lock = target.with_name(f".{target.name}.lock")
    if not lock.is_file():
        return False
    try:
        with FileLock(lock).acquire(timeout=0):
            return False
    except Timeout:
        return True


# ---- run monitor


EVERY = [("2 s", 2.0), ("10 s", 10.0), ("off", 0.0)]
LAST = 20  # recorded runs in the table; of a sweep all
NOTHING = "nothing has run yet; docemb run, or docemb sweep 05 --grid weighting-cosine"


class Monitor(Explorer):
    """An explorer that answers anew every few seconds, while it is shown and its kernel is idle."""

    def live(self) -> Any:
        box = super().live()
        self._watch = asyncio.get_running_loop().create_task(self._keep_looking())
        return box

    def close(self) -> None:
        self._watch.cancel()
        super().close()

    async def _keep_looking(self) -> None:
        while True:
            await asyncio.sleep(self.settings["every"] or 1.0)
            if self.settings["every"]:
                self.refresh()


def run_monitor(
    notebook: str | None = None,
    grid: str | Path | None = None,
    *,
    profile: str | Path = "tiny",
    parameters: Mapping[str, Any] | None = None,
) -> Monitor:
    """Runs and trainings as they stand on disk, whoever has started them, wherever: a closed tab changes nothing.

    notebook: only its runs; its name or number. With a grid (and profile and parameters as the sweep was given), all of
    its runs, those that wait too, and the time that is left.
    """
    from docemb_lib.experiments.plan import resolve_sweep

    workspace = Workspace()
    if notebook is not None:
        known = [name for name in NOTEBOOKS if name.startswith(notebook)]
        if len(known) != 1:
            raise InputError(f"run_monitor: notebook {notebook!r} is unknown; known are {', '.join(NOTEBOOKS)}")
        notebook = known[0]
    planned = None
    if grid is not None:
        planned = resolve_sweep(notebook, grid, workspace, profile=profile, parameters=parameters or {})

    def answer(every: float) -> Answer:
        trainings = trainings_on_disk(workspace)
        if planned is None:
            runs, said = runs_on_disk(workspace, notebook), ""
        else:
            runs = sweep_on_disk(planned, workspace)
            left = time_left(runs)
            known = "not known yet" if pd.isna(left) else tqdm.format_interval(left)
            said = f"<p>time left: {html.number('left', known)}</p>"
        if runs.empty and trainings.empty:
            return Answer(html.message(NOTHING))
        counts = runs["state"].value_counts()
        said += f"<p>{', '.join(f'{html.number(str(state), count)} {state}' for state, count in counts.items())}</p>"
        recorded = runs["state"].isin(["done", "failed"])
        if planned is None and recorded.sum() > LAST:
            runs = runs[~recorded | (recorded.cumsum() <= LAST)]
            said += f"<p>the last {LAST} of {recorded.sum()} recorded runs:</p>"
        return Answer(said + _trainings(trainings) + _runs(runs))

    return Monitor({"every": Choice(EVERY)}, answer)


def _runs(runs: pd.DataFrame) -> str:
    rows = [
        html.row(
            [
                html.cell("state", run["state"]),
                html.cell("notebook", run["notebook"]),
                html.cell("run", run["run"]),
                html.cell("mean", "" if pd.isna(run["mean"]) else f"{run['mean']:.3f}"),
                html.cell("seconds", "" if pd.isna(run["seconds"]) else tqdm.format_interval(run["seconds"])),
                html.cell("at", run["at"]),
            ],
            state=run["state"],
        )
        for run in runs.to_dict("records")
    ]
    return html.table("runs", ["state", "notebook", "run", "mean score", "took", "at"], rows)


def _trainings(trainings: pd.DataFrame) -> str:
    if trainings.empty:
        return ""
    fixed = ["training", "state", "update", "updates", "tokens_per_second", "eta"]
    parts = [name for name in trainings.columns if name not in fixed]
    rows = []
    for training in trainings.to_dict("records"):
        speed, eta = training["tokens_per_second"], training["eta"]
        cells = [
            html.cell("training", training["training"]),
            html.cell("state", training["state"]),
            html.cell("update", f"{training['update']} of {training['updates']}"),
            html.cell("speed", "" if pd.isna(speed) else f"{speed:,.0f}"),
            html.cell("eta", "" if pd.isna(eta) else tqdm.format_interval(eta)),
            *(html.cell(name, "" if pd.isna(training[name]) else f"{training[name]:.4f}") for name in parts),
        ]
        rows.append(html.row(cells, state=training["state"]))
    return html.table("trainings", ["training", "state", "update", "tokens/s", "time left", *parts], rows)

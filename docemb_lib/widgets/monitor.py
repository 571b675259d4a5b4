"""Run monitor: how a sweep or a training stands, read from disk again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from tqdm import tqdm

from docemb_lib.errors import InputError
from docemb_lib.profile import NOTEBOOKS, Profile
from docemb_lib.widgets import html
from docemb_lib.widgets.controls import Choice
from docemb_lib.widgets.explorer import Answer, Explorer
from docemb_lib.workspace import Workspace

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
    from docemb_lib.experiments import watching
    from docemb_lib.experiments.grids import load_grid
    from docemb_lib.experiments.plan import resolve_grid, told

    workspace = Workspace()
    if notebook is not None:
        known = [name for name in NOTEBOOKS if name.startswith(notebook)]
        if len(known) != 1:
            raise InputError(f"run_monitor: notebook {notebook!r} is unknown; known are {', '.join(NOTEBOOKS)}")
        notebook = known[0]
    planned = None
    if grid is not None:
        loaded = Profile.load(profile)
        given = parameters or {}
        planned = resolve_grid(load_grid(grid, loaded), notebook, given, loaded, told(profile), workspace)

    def answer(every: float) -> Answer:
        trainings = watching.trainings_on_disk(workspace)
        if planned is None:
            runs, said = watching.runs_on_disk(workspace, notebook), ""
        else:
            runs = watching.sweep_on_disk(planned, workspace)
            left = watching.time_left(runs)
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

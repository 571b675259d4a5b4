"""The run monitor: the state of runs and trainings, which it reads again every few seconds."""

import asyncio

import pandas as pd
from ipywidgets import VBox
from tqdm import tqdm

from docemb_lib.base.errors import InputError, nearest
from docemb_lib.settings.labels import typeset
from docemb_lib.settings.notebooks import notebook_named
from docemb_lib.sweeps.monitor import runs_on_disk, trainings_on_disk
from docemb_lib.widgets import explorer as html
from docemb_lib.widgets.explorer import Answer, Explorer
from docemb_lib.workspace import Workspace

EVERY = 3.0  # seconds between two readings
LAST = 30  # runs in the table: all are counted
ALL = "all"  # in place of a profile
NOTHING = "nothing has run yet; docemb run, or docemb sweep 05 --grid weighting-cosine"


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


def run_monitor(notebook: str | None = None, profile: str | None = None) -> Monitor:
    """Runs and trainings of the workspace, from any process; closing the tab does not affect them.

    Args:
        notebook: name or number of a notebook, to show its runs only.
        profile: the name of a profile, to show its runs only, or "all". None: the profile of a run
            or training at work, or else that of the last run.
    """
    workspace = Workspace()
    notebook = None if notebook is None else notebook_named(notebook)

    def answer() -> Answer:
        trainings = trainings_on_disk(workspace)
        runs = runs_on_disk(workspace, notebook)
        if runs.empty and trainings.empty:
            return Answer(html.message(NOTHING))
        profiles = _profiles(trainings, runs)
        chosen = profile or profiles[0]
        text = ""
        if chosen != ALL:
            if chosen not in profiles:
                raise InputError(f"profile: {chosen} has no runs here{nearest(chosen, profiles)}")
            others = ", ".join(name for name in profiles if name != chosen)
            also = (
                f'; there are also runs of {others}: profile="{ALL}" shows them' if others else ""
            )
            text = html.message(f"profile {chosen}{also}")
            trainings, runs = (_of_profile(rows, chosen) for rows in (trainings, runs))
        states = runs["state"].value_counts()
        counts = [f"{html.number(str(state), n)} {state}" for state, n in states.items()]
        text += f"<p>{', '.join(counts)}</p>"
        formats = {"tokens/s": "{:,.0f}".format, "training": typeset, "run": typeset}
        if len(trainings):
            text += html.table("trainings", trainings, formats)
        text += html.table("runs", runs.head(LAST), {**formats, "took": duration})
        return Answer(text)

    return Monitor({}, answer)


def duration(seconds: float) -> str:
    return "" if pd.isna(seconds) else tqdm.format_interval(seconds)


def _profiles(trainings: pd.DataFrame, runs: pd.DataFrame) -> list[str]:
    """The profiles of runs and trainings: those at work, then by their newest run."""
    rows = pd.concat([frame.reindex(columns=["state", "profile"]) for frame in (trainings, runs)])
    order = {"running": 0, "interrupted": 2}
    rows = rows.sort_values("state", key=lambda state: state.map(order).fillna(1), kind="stable")
    return [*dict.fromkeys(rows["profile"])]


def _of_profile(rows: pd.DataFrame, profile: str) -> pd.DataFrame:
    """The rows of a profile, without the column that names it."""
    return rows[rows["profile"] == profile].drop(columns="profile") if len(rows) else rows

"""Sweeps: the runs of a grid, side by side, each a papermill run in a Dask worker process of its own.

A worker executes a run in its task thread, its notebook in a kernel. A process for each run in between would have
signals, but starting Python and papermill takes longer than the half second that a run may cost beyond its notebook;
so a thread watches instead whether the run is still wanted. What may die, and what then happens:

- a kernel: its run has failed, and is tried again by the next sweep;
- a worker: its kernel ends within two seconds, and Dask gives the run to another worker, at most three times where the
  workers are this sweep's own (a running scheduler has its own `allowed-failures`);
- the scheduler, or this process: its workers end, a worker of another's cluster ends its kernel with a checkpoint;
- Ctrl-C here: kernels may write a checkpoint, then everything ends.

Nothing needs to be known about what has happened before: finished runs are recognised by their fingerprint, and what
an interrupted one has built is there. A run that another sweep has in hand is left for later.

Each notebook shows all recorded runs, so one must be executed when all others have ended: the last of the grid waits.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol
from uuid import uuid4

import psutil

from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.cluster import (
    Expected,
    default_workers,
    expected_of,
    has_dashboard,
    local_workers,
    unfit,
    workers_of,
)
from docemb_lib.experiments.execution import (
    GRACE,
    Planned,
    RunError,
    UnwantedError,
    execute_run,
    is_done,
    record_failure,
)
from docemb_lib.experiments.plan import Step, check_run, resolve_sweep
from docemb_lib.experiments.run import Stages
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.progress import progress
from docemb_lib.workspace import Workspace

if TYPE_CHECKING:
    import pandas as pd


# ---- sweeps


TICK = 0.5  # seconds between two looks at the workers
PAUSE = 1.0  # seconds until a run that another sweep has in hand is asked for again


class Outcome(NamedTuple):
    """How an attempt at a run ended."""

    status: Literal["done", "failed", "later"]  # later: another sweep has it in hand, or its worker has to end
    error: str = ""  # of a failed run, one line


class SweepWatcher(Protocol):
    """Who is told how a sweep goes."""

    def prepares(self, what: str) -> None: ...

    def begins(self, planned: Sequence[Planned], missing: Sequence[Planned], where: str) -> None: ...

    def step(self, run: Planned, line: str) -> None: ...  # the first one says that it has begun

    def ends(self, run: Planned, outcome: Outcome) -> None: ...


class ClusterError(RuntimeError):
    """The workers are out of reach."""


def sweep(
    notebook: str,
    grid: str | Path | Sequence[Mapping[str, Any]],
    *,
    profile: str | Path = "tiny",
    parameters: Mapping[str, Any] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> pd.DataFrame:
    """Execute what is missing of a grid, and return its recorded runs as `records.frame` does, failed ones included.

    notebook: e.g. "05_weighting" or "05".
    grid: one in `params/grids/` by name, the path of a .yaml file, or a list of parameters.
    parameters: replace those of all runs. workers: how many processes here; None: as many as there is room for.
    scheduler: the address or file of a running Dask cluster, instead.
    Raises InputError before anything starts. In a script, call it under `if __name__ == "__main__":`.
    """
    workspace = Workspace()
    planned = resolve_sweep(notebook, grid, workspace, profile=profile, parameters=parameters or {})
    execute_sweep(planned, workspace, _Bar(), workers=workers, scheduler=scheduler)
    return recorded(planned, workspace)


def execute_sweep(
    planned: Sequence[Planned],
    workspace: Workspace,
    watcher: SweepWatcher,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
) -> list[str]:
    """Execute what is not there yet; a failing run stops no other. Returns a line for each that failed."""
    if workers is not None and (scheduler is not None or workers < 1):
        raise InputError(f"workers: got {workers}; write 1 or more, and leave it out where there is a scheduler")
    missing = [run for run in planned if not is_done(run, workspace)]
    if not missing:
        watcher.begins(planned, missing, "")
        return []
    if missing[0].notebook == "02_paragraph_vector":
        _prepare(missing, workspace, watcher)
    if scheduler is not None:
        expected = expected_of(workspace)
        with workers_of(scheduler, expected) as client:
            where = f"{_count(client)} workers of {scheduler} so far"
            watcher.begins(planned, missing, where + _dashboard(client))
            return _distribute(client, missing, workspace, watcher, expected)
    count = workers or default_workers(len(missing))
    with local_workers(count) as client:
        where = "1 worker" if count == 1 else f"{count} workers"
        watcher.begins(planned, missing, where + (_dashboard(client) if has_dashboard() else ""))
        try:
            return _distribute(client, missing, workspace, watcher)
        except KeyboardInterrupt:
            _wait_for_checkpoints()  # the workers would end before their kernels do
            raise


def recorded(planned: Sequence[Planned], workspace: Workspace) -> pd.DataFrame:
    """The records of these runs, in their order."""
    order = {run.fingerprint: number for number, run in enumerate(planned)}
    frame = records.frame(planned[0].notebook, workspace=workspace, failed=True)
    if frame.empty:
        return frame
    return frame[frame["fingerprint"].isin(order)].sort_values("fingerprint", key=lambda f: f.map(order), kind="stable")


def shown_together(planned: Sequence[Planned], workspace: Workspace) -> list[tuple[str, str]]:
    """Where all these runs stand beside each other: what the last one left, which waited for the others, as people are
    told it. Nothing if it failed."""
    found = [records.find(workspace, run.notebook, run.fingerprint) for run in planned]
    last = max((record for record in found if record is not None), key=lambda record: record.finished, default=None)
    if last is None or last.status != "done":
        return []
    (run,) = [run for run in planned if run.fingerprint == last.fingerprint]
    figures = [("figure of all", figure) for figure in last.figures if Path(figure).stem == "runs"]
    return [*figures, ("notebook of all", workspace.shown(run.executed))]


def _prepare(missing: Sequence[Planned], workspace: Workspace, watcher: SweepWatcher) -> None:
    """Count the words that Paragraph Vectors will be trained on: only then it is known which would keep none."""
    for run in missing:
        key = RunKey(run.notebook, run.profile)
        teachers = Stages(key, workspace).teachers
        for settings in key.paragraph_vectors:
            if not teachers.has_words(settings.preprocess):
                watcher.prepares(f"the words of the corpus, {settings.preprocess}")
                teachers.words(settings.preprocess)
        try:
            check_run(run, workspace)
        except InputError as error:
            raise InputError(f"{run.notebook} ({run.label}): {error}") from None


def _distribute(
    client: Any,
    missing: Sequence[Planned],
    workspace: Workspace,
    watcher: SweepWatcher,
    expected: Expected | None = None,
) -> list[str]:
    """Give each worker a run, and the next one when it has ended, the last run when all others have. By hand, because
    runs may have to wait.

    expected: what workers must have, where they may have something else.
    """
    topic = f"docemb-{uuid4()}"
    events: SimpleQueue[Any] = SimpleQueue()  # what workers say, and futures that are done
    client.subscribe_topic(topic, lambda event: events.put(event[1]))
    waiting = [(0.0, run) for run in missing]  # not before that time
    at_work: dict[Any, Planned] = {}
    failures: list[str] = []
    try:
        while waiting or at_work:
            for _ in range(_count(client) - len(at_work)):
                alone = len(waiting) + len(at_work) == 1
                may_begin = (e for e in waiting if e[0] <= time.monotonic() and (alone or e[1] is not missing[-1]))
                ready = next(may_begin, None)
                if ready is None:
                    break
                waiting.remove(ready)
                future = client.submit(attempt, ready[1], workspace, topic, expected, pure=False)
                at_work[future] = ready[1]
                future.add_done_callback(events.put)
            try:
                event = events.get(timeout=TICK)
            except Empty:
                continue
            if isinstance(event, dict):
                running = {run.fingerprint: run for run in at_work.values()}
                if event["run"] in running:
                    watcher.step(running[event["run"]], event["line"])
                continue
            run = at_work.pop(event)
            outcome = _outcome(event, run, workspace)
            watcher.ends(run, outcome)
            if outcome.status == "later":
                waiting.append((time.monotonic() + PAUSE, run))
            elif outcome.status == "failed":
                failures.append(outcome.error)
    except BaseException:
        with suppress(Exception):  # the scheduler may be the reason
            client.cancel(list(at_work))  # workers see it, and end their kernels after a checkpoint
        raise
    return failures


def attempt(run: Planned, workspace: Workspace, topic: str, expected: Expected | None) -> Outcome:
    """A task: one run, in the task thread of a worker."""
    from distributed import Status, get_worker
    from filelock import Timeout

    worker = get_worker()
    key, said = worker.get_current_task(), 0.0

    def tell(line: str) -> None:
        nonlocal said
        if time.monotonic() - said >= 1.0:
            said = time.monotonic()
            worker.log_event(topic, {"run": run.fingerprint, "line": line})

    def unwanted() -> bool:
        task = worker.state.tasks.get(key)
        return worker.status not in (Status.running, Status.paused) or task is None or task.state != "executing"

    if expected is not None and (problem := unfit(expected, worker)):  # it may be a late one
        raise InputError(f"worker {worker.address} {problem}")
    try:
        execute_run(run, workspace, tell=tell, wait=False, unwanted=unwanted)
    except (Timeout, UnwantedError):
        return Outcome("later")
    except (RunError, InputError) as error:
        return Outcome("failed", str(error))
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        return Outcome("failed", record_failure(run, workspace, reason, traceback.format_exc()))
    return Outcome("done")


def _outcome(future: Any, run: Planned, workspace: Workspace) -> Outcome:
    from distributed import KilledWorker

    if future.status == "finished":
        return future.result()
    if future.status != "error":  # nobody but the connection has cancelled it
        raise ClusterError("the scheduler is out of reach; the same command goes on from here")
    error = future.exception()
    if isinstance(error, KilledWorker):
        reason = f"its worker died in each of {error.allowed_failures + 1} attempts; out of memory?"
        return Outcome("failed", record_failure(run, workspace, reason, ""))
    raise error


def _count(client: Any) -> int:
    try:
        return len(client.nthreads())
    except (OSError, TimeoutError):
        raise ClusterError("the scheduler is out of reach; the same command goes on from here") from None


def _dashboard(client: Any) -> str:
    try:
        return f", dashboard at {client.dashboard_link}"
    except KeyError:  # the scheduler has none
        return ""


def _wait_for_checkpoints() -> None:
    kernels = []
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if "ipykernel_launcher" in process.cmdline():
                kernels.append(process)
    psutil.wait_procs(kernels, timeout=GRACE)


class _Bar:
    """A sweep as one progress bar."""

    def prepares(self, what: str) -> None:
        """Long steps of it have bars of their own."""

    def begins(self, planned: Sequence[Planned], missing: Sequence[Planned], where: str) -> None:
        self.bar: Any = progress(desc=f"sweep of {planned[0].notebook}", total=len(planned), unit="runs")
        self.bar.update(len(planned) - len(missing))

    def step(self, run: Planned, line: str) -> None:
        """One bar has no room for it."""

    def ends(self, run: Planned, outcome: Outcome) -> None:
        self.bar.update(outcome.status != "later")


# ---- executing a plan


class PlanWatcher(Protocol):
    """Who is told how the single runs of a plan go: the command line's progress lines, or nobody."""

    def begins(self, run: Planned, number: int, total: int, remaining_s: float | None) -> None: ...

    def step(self, line: str) -> None: ...

    def ends(self, run: Planned, seconds: float, *, built: bool) -> None: ...


def missing_runs(steps: Sequence[Step], workspace: Workspace) -> list[Planned]:
    """The runs that are not there yet. Raises InputError for what is wrong with any of them; those of grids have been
    checked already."""
    missing = [run for step in steps for run in step.runs if not is_done(run, workspace)]
    for step in steps:
        if step.grid is None and step.runs[0] in missing:
            check_run(step.runs[0], workspace)
    return missing


def execute_plan(
    steps: Sequence[Step],
    workspace: Workspace,
    watcher: PlanWatcher,
    sweeping: Callable[[], AbstractContextManager[SweepWatcher]],
) -> list[str]:
    """Execute what is not there yet. Returns a line for each run of a grid that failed; it stops no other.

    sweeping: makes a watcher for each grid.
    Raises InputError before anything starts, and RunError at the first notebook that fails outside of grids.
    """
    missing, total = missing_runs(steps, workspace), sum(len(step.runs) for step in steps)
    failures: list[str] = []
    spent, done_weight, number = 0.0, 0.0, 0
    for step in steps:
        weight = sum(run.weight for run in step.runs if run in missing)
        start = time.perf_counter()
        if step.grid is not None:
            with sweeping() as sweep_watcher:
                failures += execute_sweep(step.runs, workspace, sweep_watcher)
        else:
            (run,) = step.runs
            left = sum(other.weight for other in missing) - done_weight
            watcher.begins(run, number + 1, total, spent / done_weight * left if done_weight and weight else None)
            if weight:
                execute_run(run, workspace, tell=watcher.step)
            watcher.ends(run, time.perf_counter() - start, built=weight > 0)
        number += len(step.runs)
        if weight:
            spent, done_weight = spent + time.perf_counter() - start, done_weight + weight
    return failures

"""Sweeps and plans: many runs, those of a grid side by side and compared at the end.

Each run of a sweep is a papermill run in the task thread of a Dask worker process of its own; a
second thread polls whether the run is still wanted. Grids that follow each other in a plan share
their workers: the runs of the next one begin while the last ones of a grid are at work. What
follows when a process is killed:

- a kernel: its run has failed; the next sweep tries it again;
- a worker: its kernel ends within two seconds, and Dask gives the run to another worker, at most
  three times on this machine (a running scheduler has `allowed-failures` of its own);
- the scheduler, or this process: its workers end; workers of another cluster end their kernels with
  a checkpoint;
- Ctrl-C here: kernels may write a checkpoint, then all processes end.

The same command continues, since finished runs and artefacts are recognised. When all these runs
have ended, a worker executes for each grid the notebook of its first finished run again as a
separate page, which trains nothing and shows all runs. A grid goes without where a single run of
its notebook follows in the plan, whose own notebook shows them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import cache, partial
from itertools import groupby
from math import nan
from operator import itemgetter
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

import pandas as pd
from filelock import Timeout

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import in_kernel, stopped
from docemb_lib.runs import records
from docemb_lib.runs.pipeline import Stages
from docemb_lib.sweeps import cluster, execution, kernels
from docemb_lib.sweeps.execution import (
    Planned,
    RunError,
    Runs,
    Status,
    UnwantedError,
    is_done,
    records_of,
)
from docemb_lib.sweeps.grids import GridLike
from docemb_lib.sweeps.plan import Step, resolve_sweep, runs_of
from docemb_lib.sweeps.progress import Progress
from docemb_lib.workspace import Workspace, is_locked

if TYPE_CHECKING:
    from distributed import Client, Future

RUN_OF_SWEEP = "DOCEMB_RUN_OF_SWEEP"  # the variable that marks the workers of a sweep
TICK = 0.5  # seconds between two polls of the number of workers
ARRIVAL = 60.0  # seconds that a network file system may take to show a record
UNREACHABLE = "the scheduler is out of reach; give the same command again, which goes on from here"


def missing_runs(planned: Runs, workspace: Workspace) -> list[Planned]:
    """The runs that are not done.

    Raises InputError if data, models or settings of any of them are wrong or missing.
    """
    missing = [run for run in planned if not is_done(run, workspace)]
    checked = set()
    for run in missing:
        stages = Stages(run.key, workspace)
        if stages.checked_as in checked:
            continue
        checked.add(stages.checked_as)
        try:
            stages.check()
        except InputError as error:
            raise InputError(f"{run.notebook} ({run.label}): {error}") from None
    return missing


def sweep(
    notebook: str,
    grid: GridLike,
    *,
    profile: str | Path = "tiny",
    parameters: Mapping[str, object] | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
) -> pd.DataFrame:
    """Execute the missing runs of a grid side by side, each in a notebook of its own.

    Returns a row for each run as of `records.frame`, with its `error` if it failed. The status of a
    run that is not recorded is "missing", for example because another process executes it. In a run
    of a sweep nothing is executed: otherwise the runs of a sweep of their own notebook would begin
    sweeps and wait for each other. Raises InputError, before anything starts, for whatever is wrong
    with any run.

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
    if RUN_OF_SWEEP not in os.environ:
        try:
            execute_plan(
                steps, workspace, workers=workers, scheduler=scheduler, in_cell=in_kernel()
            )
        except KeyboardInterrupt:
            raise stopped("stopped the sweep") from None
    return recorded(runs_of(steps), workspace)


def execute_plan(
    steps: Sequence[Step],
    workspace: Workspace,
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    in_cell: bool = False,
) -> list[str]:
    """Execute the missing runs of a plan, and draw the comparison of each grid.

    Returns a line for each run of a grid that failed. Raises InputError before anything starts, and
    RunError at the first notebook outside of grids that fails.

    Args:
        workers: processes for grids on this machine; None: as many as there is room for.
        scheduler: address or scheduler file of a running Dask cluster for grids, used instead of
            this machine.
        in_cell: for a notebook that executes a grid and compares its runs itself. No comparison is
            drawn. A run that another process executes is left out, because that one may be waiting
            for the run of this notebook.
    """
    if workers is not None and scheduler is not None:
        raise InputError(f"workers: the scheduler {scheduler} has its own; leave workers out")
    if scheduler is not None and not scheduler.strip():
        raise InputError("scheduler: the argument is empty; name an address or a file")
    if workers is not None and workers < 1:
        raise InputError(f"workers: got {workers}; give 1 or more")
    planned = runs_of(steps)
    missing = {*missing_runs(planned, workspace)}
    side_by_side = sum(run in missing for step in steps if step.grid for run in step.runs)
    count = workers or (cluster.default_workers(side_by_side) if side_by_side else 1)
    where = f"; workers: {scheduler or count}" if side_by_side else ""
    failures: list[str] = []
    with ExitStack() as stack:
        progress = Progress(in_cell=in_cell)
        stack.callback(progress.close)

        @cache
        def client() -> Client:
            """The workers' client, which is started by the first grid and serves all of them."""
            started = cluster.workers_of(scheduler) if scheduler else cluster.local_workers(count)
            return stack.enter_context(started)

        def execute(runs: Runs) -> dict[Planned, str]:
            return _distribute(client, runs, workspace, progress, wait=not in_cell)

        repeated = [run for run in planned if run in missing]
        progress.begin(planned, repeated, where)
        for line in execution.repetitions(repeated, workspace):
            progress.say(line)
        if side_by_side:
            client()  # starts the workers beside the first run, which may be alone
        later = [*steps]
        for wave in _waves(steps):
            first, *_ = wave
            del later[: len(wave)]
            if first.grid is None:
                _execute_alone(first.runs[0], workspace, progress)
                if first is steps[0]:  # the corpus is built: check its size for all runs
                    missing_runs(planned, workspace)
                continue
            todo = [run for run in runs_of(wave) if run in missing]
            progress.ended += len(runs_of(wave)) - len(todo)
            failed = execute(todo)
            failures += failed.values()
            if not in_cell:
                pages = _missing_pages(wave, later, failed, workspace)
                progress.runs += len(pages)
                failures += [f"comparison: {error}" for error in execute(pages).values()]
    return failures


def _waves(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps of a plan in groups: grids that follow each other are shared out together.

    A single run is a group of its own.
    """
    together = [step.grid is not None for step in steps]
    for is_pooled, group in groupby(zip(together, steps, strict=True), key=itemgetter(0)):
        wave = [step for _, step in group]
        yield from [wave] if is_pooled else ([step] for step in wave)


def _missing_pages(
    grids: Sequence[Step],
    later: Sequence[Step],
    failed: Collection[Planned],
    workspace: Workspace,
) -> list[Planned]:
    """The pages of comparison to be executed when the runs of some grids have ended.

    There is none for a grid where a single run of its notebook and profile follows `later`.
    """
    pages = []
    shown = {(step.runs[0].notebook, step.runs[0].profile.name) for step in later if not step.grid}
    for step in grids:
        first = step.runs[0]
        if (first.notebook, first.profile.name) not in shown and {*step.runs}.difference(failed):
            page = comparison_page(step.runs, failed)
            if not is_done(page, workspace):
                pages.append(page)
    return pages


def _execute_alone(run: Planned, workspace: Workspace, progress: Progress) -> None:
    """Execute a run that is no part of a grid, in this process."""
    start = time.perf_counter()
    progress.start(run)
    built = execution.execute_run(run, workspace, report=partial(progress.step, run))
    progress.end(run, "built" if built else "reused", time.perf_counter() - start)


def recorded(planned: Runs, workspace: Workspace) -> pd.DataFrame:
    """A row for each of these runs as of `records.frame`; status "missing": there is no record."""
    rows = []
    for run in planned:
        record = records.find(workspace, run.notebook, run.fingerprint)
        if record is None:
            record = records.Record.of(run.key, status="missing", seconds=nan, finished="")
        rows.append(records.row_of(record, with_error=True))
    return pd.DataFrame(rows)


def comparison_paths(planned: Runs, workspace: Workspace) -> list[tuple[str, str]]:
    """Names and paths of the comparison of a grid.

    They are those of its page and, where the notebook saves them, of its figure and its table.
    """
    done = records_of(planned, workspace)
    page = comparison_page(planned).executed
    if not done or not page.is_file():
        return []
    paths = [("comparison", workspace.relative(page))]
    for figure in map(Path, done[0].figures):
        if figure.stem == "runs":
            paths.append(("comparison figure", str(figure)))
            paths.append(("comparison table", str(figure.with_suffix(".csv"))))
    return paths


def comparison_page(runs: Runs, failed: Collection[Planned] = ()) -> Planned:
    """The page that compares the runs that have not failed.

    It is another execution of the first of these, which trains nothing.
    """
    done = [run for run in runs if run not in failed]
    executed = runs[0].executed.with_name(f"comparison-{runs[0].executed.name}")
    compared = tuple(run.fingerprint for run in done)
    return replace(done[0], executed=executed, compared=compared)


def _distribute(
    client: Callable[[], Client],
    runs: Runs,
    workspace: Workspace,
    progress: Progress,
    *,
    wait: bool,
) -> dict[Planned, str]:
    """Give each worker a run, and the next one when it has ended; return the errors.

    Dask's own queue would give a worker several runs, which would count as tried when their worker
    dies. Raises ConnectionError without the scheduler.

    client: gives the client of the workers, which it starts if there is anything to do.
    """
    waiting = [*runs]
    failed: dict[Planned, str] = {}
    ended: SimpleQueue[Future] = SimpleQueue()
    at_work: dict[Future, tuple[Planned, float]] = {}  # future → run and start
    try:
        while waiting or at_work:
            try:
                workers = len(client().nthreads())
            except OSError:
                raise ConnectionError(UNREACHABLE) from None
            while waiting and len(at_work) < workers:
                # Prefer a run that no other command executes.
                free = (run for run in waiting if not is_locked(run.executed))
                run = next(free, waiting[0])
                waiting.remove(run)
                future = client().submit(
                    attempt, run, workspace, cluster.signature(), wait=wait, pure=False
                )
                at_work[future] = (run, time.monotonic())
                future.add_done_callback(ended.put)
                progress.start(run)
            progress.show()
            try:
                future = ended.get(timeout=TICK)
            except Empty:  # perhaps a worker has joined
                continue
            run, start = at_work.pop(future)
            status, error = _outcome(future, run, workspace)
            if status == "failed":
                failed[run] = error
            progress.end(run, status, time.monotonic() - start, error)
    except BaseException as error:
        if at_work:
            with suppress(Exception):  # this fails, too, if the scheduler is lost
                # Workers notice it, and end their kernels after a checkpoint.
                client().cancel(list(at_work))
        if isinstance(error, KeyboardInterrupt):
            # Otherwise the workers would end before their kernels have written checkpoints.
            kernels.wait_for_kernels()
        raise
    return failed


def attempt(
    run: Planned, workspace: Workspace, expected: Mapping[str, str], *, wait: bool
) -> tuple[Status, str]:
    """Execute one run, as a task of a worker that must have the `expected` signature.

    Returns how the run has ended, and the error of a failed one in one line. Raises InputError in
    an unfit worker, see `cluster.unfit`.
    """
    import distributed

    worker = distributed.get_worker()
    key = worker.get_current_task()

    def unwanted() -> bool:
        task = worker.state.tasks.get(key)
        if task is None or task.state != "executing":
            return True
        return worker.status not in (distributed.Status.running, distributed.Status.paused)

    os.environ[RUN_OF_SWEEP] = "1"  # kernels inherit it
    problem = cluster.unfit(expected, workspace.root, worker)
    if problem:
        raise InputError(f"worker {worker.address} {problem}")
    try:
        built = execution.execute_run(run, workspace, unwanted=unwanted, wait=wait)
        return "built" if built else "reused", ""
    except Timeout:
        return "elsewhere", ""
    except UnwantedError:
        raise distributed.Reschedule from None
    except (RunError, InputError) as error:
        return "failed", str(error)


def _outcome(future: Future, run: Planned, workspace: Workspace) -> tuple[Status, str]:
    """What `attempt` has returned, or why there is no result.

    Raises ConnectionError without the scheduler, and InputError for a worker that is unfit for any
    run, or that writes its records elsewhere.
    """
    from distributed import KilledWorker

    if future.status not in ("finished", "error"):  # only a lost connection cancels a future
        raise ConnectionError(UNREACHABLE)
    try:
        status, error = future.result()
        end = time.monotonic() + ARRIVAL
        while status in ("built", "reused") and run.record(workspace) is None:
            if time.monotonic() > end:
                executed = f"a worker has executed {run.notebook} ({run.label})"
                mend = "the workers must share this folder with the sweep"
                raise InputError(
                    f"{workspace.outputs}: {executed}, but its record is not there; {mend}"
                )
            time.sleep(TICK)
        return status, error
    except KilledWorker as error:
        died = f"its worker died in each of {error.allowed_failures + 1} attempts"
        reason = f"{died}; if the memory was full, give fewer workers"
    except InputError:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
    return "failed", execution.record_failure(run, workspace, reason, "")

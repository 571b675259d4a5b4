"""Sweeps and plans: many runs, those of a grid side by side and compared at the end.

A sweep is `client.map(attempt, runs)` on Dask workers: processes of this machine, or those of a
running cluster. Each executes a run in a kernel of its own. What follows when a process is killed:

- a kernel: its run has failed; the next sweep tries it again;
- a worker: its kernel ends within a second, and Dask gives the run to another worker, at most three
  times on this machine (a running scheduler has `allowed-failures` of its own);
- the scheduler, or this process: the workers of this machine end with their kernels; those of
  another cluster end the runs that they are executing.

The same command continues, since finished runs and artefacts are recognised. When all runs of a
grid have ended, its first finished run is executed once more, which trains nothing, to show all of
them, unless it does. A grid goes without where a single run of its notebook follows in the plan.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, partial
from itertools import groupby
from math import nan
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import pandas as pd
from filelock import Timeout
from tqdm import tqdm

from docemb_lib.base.errors import InputError, plain
from docemb_lib.base.progress import in_kernel, stopped
from docemb_lib.runs import cluster, records
from docemb_lib.runs.execution import RunError, execute, record_failure, record_of
from docemb_lib.runs.grids import GridLike
from docemb_lib.runs.plan import Step, resolve_sweep, runs_of
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import locked, outputs, relative
from docemb_lib.settings.files import WORKSPACE, find_root

if TYPE_CHECKING:
    from distributed import Client, Future

RUN_OF_SWEEP = "DOCEMB_RUN_OF_SWEEP"  # the variable that marks the workers of a sweep
ARRIVAL = 60.0  # seconds that a network file system may take to show a run
UNREACHABLE = "the scheduler is out of reach; give the same command again, which goes on from here"


class Progress:
    """A bar, the same in a terminal and in a cell; none in a file or a pipe.

    Lines are printed above it, in a cell only those about failures.
    """

    def __init__(self, runs: list[Run], missing: int, where: str, *, in_cell: bool) -> None:
        self.in_cell = in_cell
        self.runs = len(runs)
        self.ended = 0  # of all runs, those that were done before included
        self.uses = Counter((run.notebook, run.name) for run in runs)
        self.bar = tqdm(
            desc="runs",
            bar_format="{desc} [{elapsed}]",
            leave=in_cell,
            disable=not in_kernel() and not sys.stderr.isatty(),
            file=sys.stdout if in_kernel() else sys.stderr,
        )
        self.say(already_there(self.runs, self.runs - missing) + where)

    def say(self, line: str, *, always: bool = False) -> None:
        """Print a line above the bar."""
        if always or not self.in_cell:
            with tqdm.external_write_mode():
                print(plain(line), flush=True)

    def begin(self, run: Run) -> None:
        self.say(f"begins  {self._name(run)}")
        self.show(run)

    def show(self, run: Run, line: str = "") -> None:
        """Let the bar name a run at work and the last line of its notebook."""
        text = f"{self.ended}/{self.runs} runs  {self._name(run)}  {line}"
        columns = shutil.get_terminal_size().columns - len(" [00:00:00] ")
        self.bar.set_description_str(plain(text)[:columns].rstrip())

    def end(self, run: Run, outcome: str, error: str = "") -> None:
        """Say how a run has ended."""
        self.ended += 1
        self.say(f"[{self.ended}/{self.runs}] {outcome}  {self._name(run)}", always=bool(error))
        if error:  # now, because a later interruption leaves no summary
            self.say(f"        {error}", always=True)

    def _name(self, run: Run) -> str:
        is_one = self.uses[run.notebook, run.name] == 1
        name = run.name if is_one else run.folder.name
        return f"{run.notebook}  {name}{', beside the others' if run.beside else ''}"


def already_there(runs: int, there: int) -> str:
    """`1 run, already there` or `12 runs, 3 of them already there`."""
    if runs == 1:
        return "1 run, already there" if there else "1 run, not there yet"
    return f"{runs} runs, {there} of them already there"


class Outcome(NamedTuple):
    """How a run has ended."""

    said: str  # "" for a run that another process executes at this time
    error: str = ""  # of a failed run, in one line


def missing_runs(planned: Sequence[Run]) -> list[Run]:
    """The runs that are not done.

    Raises InputError if data, models or settings of any of them are wrong or missing.
    """
    missing = [run for run in planned if not run.is_done]
    checked = set()
    for run in missing:
        if run.checked_as in checked:
            continue
        checked.add(run.checked_as)
        try:
            run.check()
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
    steps = resolve_sweep(notebook, grid, profile=profile, parameters=parameters or {})
    if RUN_OF_SWEEP not in os.environ:
        try:
            execute_plan(steps, workers=workers, scheduler=scheduler, in_cell=in_kernel())
        except KeyboardInterrupt:
            raise stopped("stopped the sweep") from None
    return recorded(runs_of(steps))


def execute_plan(
    steps: Sequence[Step],
    *,
    workers: int | None = None,
    scheduler: str | None = None,
    in_cell: bool = False,
) -> list[str]:
    """Execute the missing runs of a plan, and the comparison of each grid.

    Returns a line for each run of a grid that failed. Raises InputError before anything starts, and
    RunError at the first notebook outside of grids that fails.

    Args:
        workers: processes for grids on this machine; None: as many as there is room for.
        scheduler: address or scheduler file of a running Dask cluster for grids, used instead of
            this machine.
        in_cell: for a notebook that executes a grid and compares its runs itself. There is no
            comparison. A run that another process executes is left out, because that one may be
            waiting for the run of this notebook.
    """
    if workers is not None and scheduler is not None:
        raise InputError(f"workers: the scheduler {scheduler} has its own; leave workers out")
    if scheduler is not None and not scheduler.strip():
        raise InputError("scheduler: the argument is empty; name an address or a file")
    if workers is not None and not (isinstance(workers, int) and workers >= 1):
        raise InputError(f"workers: got {workers!r}; give 1 or more")
    planned = runs_of(steps)
    missing = {*missing_runs(planned)}
    side_by_side = sum(run in missing for step in steps if step.grid for run in step.runs)
    count = workers or (cluster.default_workers(side_by_side) if side_by_side else 1)
    where = f"; workers: {scheduler or count}" if side_by_side else ""
    failures: list[str] = []
    with ExitStack() as stack:
        stack.callback(_remove_partial, missing)  # once the workers have ended
        progress = Progress(planned, len(missing), where, in_cell=in_cell)
        stack.callback(progress.bar.close)

        @cache
        def client() -> Client:
            """The workers' client, which is started by the first grid and serves all of them."""
            started = cluster.workers_of(scheduler) if scheduler else cluster.local_workers(count)
            return stack.enter_context(started)

        def distribute(runs: Sequence[Run]) -> dict[Run, str]:
            return _distribute(client(), runs, progress, wait=not in_cell) if runs else {}

        if side_by_side:
            client()  # starts the workers beside the first run, which may be alone
        later = [*steps]
        for wave in _waves(steps):
            del later[: len(wave)]
            todo = [run for run in runs_of(wave) if run in missing]
            progress.ended += len(runs_of(wave)) - len(todo)
            if wave[0].grid is None:
                for run in todo:
                    _execute_alone(run, progress)
                if todo and wave[0] is steps[0]:  # the corpus is built: check its size for all runs
                    missing_runs(planned)
                continue
            failed = distribute(todo)
            failures += failed.values()
            if not in_cell:
                comparisons = _missing_comparisons(wave, later, failed)
                progress.runs += len(comparisons)
                failures += [f"comparison: {error}" for error in distribute(comparisons).values()]
    return failures


def _waves(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps of a plan in groups: grids that follow each other are shared out together.

    A single run is a group of its own.
    """
    together = [step.grid is not None for step in steps]
    for is_pooled, group in groupby(zip(together, steps, strict=True), key=itemgetter(0)):
        wave = [step for _, step in group]
        yield from [wave] if is_pooled else ([step] for step in wave)


def _execute_alone(run: Run, progress: Progress) -> None:
    """Execute a run that is no part of a grid, with all cores."""
    start = time.perf_counter()
    progress.begin(run)
    built = execute(run, report=partial(progress.show, run))
    progress.end(run, f"done in {_since(start)}" if built else "already there")


def _distribute(
    client: Client, runs: Sequence[Run], progress: Progress, *, wait: bool
) -> dict[Run, str]:
    """Execute runs in workers and return the errors.

    Runs that other processes execute come last. Raises ConnectionError without the scheduler.

    wait: for these; if not, they are left out.
    """
    from distributed import as_completed

    failed: dict[Run, str] = {}
    numbered = [*runs]
    topic = f"docemb-{uuid4()}"  # of the events that workers send
    client.subscribe_topic(topic, lambda event: progress.begin(numbered[event[1]]))
    places = [*range(len(runs))]
    for waits in (False, True) if wait else (False,):
        task = partial(
            attempt, topic=topic, expected=cluster.signature(), root=find_root(), wait=waits
        )
        futures = client.map(task, [numbered[place] for place in places], places, pure=False)
        place_of = dict(zip(futures, places, strict=True))
        places = []
        try:
            for future in as_completed(futures, loop=client.loop):
                run = numbered[place_of[future]]
                outcome = _outcome(future, run)
                future.release()  # a result that its worker loses would be computed again
                if outcome.error:
                    failed[run] = outcome.error
                if outcome.said:
                    progress.end(run, outcome.said, outcome.error)
                else:
                    places.append(place_of[future])
        finally:
            with suppress(Exception):  # this fails, too, if the scheduler is lost
                client.cancel(futures)  # those that have not begun
    return failed


def attempt(
    run: Run, place: int, *, topic: str, expected: Mapping[str, str], root: Path, wait: bool
) -> Outcome:
    """Execute one run, as a task of a worker that must have the `expected` signature.

    An event of the `topic` gives the place of the run when it begins. Raises InputError in an unfit
    worker, see `cluster.unfit`.
    """
    from distributed import get_worker

    worker = get_worker()
    problem = cluster.unfit(expected, root, worker)
    if problem:
        raise InputError(f"worker {worker.address} {problem}")
    os.environ[RUN_OF_SWEEP] = "1"  # kernels inherit both
    os.environ[WORKSPACE] = str(root)
    worker.log_event(topic, place)
    start = time.perf_counter()
    try:
        built = execute(run, wait=wait)
    except Timeout:
        return Outcome("")
    except (RunError, InputError) as error:
        return Outcome(f"failed in {_since(start)}", str(error))
    return Outcome(f"done in {_since(start)}" if built else "already there")


def _remove_partial(runs: Iterable[Run]) -> None:
    """Remove what workers that were killed have left, unless another process executes the run."""
    for run in runs:
        if run.partial.is_dir():
            with suppress(Timeout), locked(run.folder, wait=False):
                shutil.rmtree(run.partial, ignore_errors=True)


def _since(start: float) -> str:
    """`02:05`: minutes and seconds since a reading of `perf_counter`."""
    return tqdm.format_interval(time.perf_counter() - start)


def _outcome(future: Future, run: Run) -> Outcome:
    """What `attempt` has returned, or why there is no result.

    Raises ConnectionError without the scheduler, and InputError for a worker that is unfit for any
    run, or that publishes its runs elsewhere.
    """
    from distributed import KilledWorker

    if future.status not in ("finished", "error"):  # only a lost connection cancels a future
        raise ConnectionError(UNREACHABLE)
    try:
        outcome = future.result()
    except InputError:
        raise
    except KilledWorker as error:
        died = f"its worker died in each of {error.allowed_failures + 1} attempts"
        reason = f"{died}; if the memory was full, give fewer workers"
        return Outcome("failed", _recorded_failure(run, reason))
    except Exception as error:
        return Outcome("failed", _recorded_failure(run, f"{type(error).__name__}: {error}"))
    end = time.monotonic() + ARRIVAL
    while outcome.said and not outcome.error and not run.is_done:
        if time.monotonic() > end:
            executed = f"a worker has executed {run.notebook} ({run.label}), but it is not there"
            mend = "the workers must share this folder with the sweep"
            raise InputError(f"{outputs()}: {executed}; {mend}")
        time.sleep(1.0)
    return outcome


def _recorded_failure(run: Run, reason: str) -> str:
    """Record why a run failed, unless another process executes it; returns a line that says it."""
    with suppress(Timeout), locked(run.folder, wait=False):
        return record_failure(run, reason)
    return f"{run.notebook} ({run.label}): {reason}"


def _missing_comparisons(
    grids: Sequence[Step], later: Sequence[Step], failed: Collection[Run]
) -> list[Run]:
    """The comparisons to be executed when the runs of some grids have ended.

    There is none for a grid where a single run of its notebook and profile follows `later`.
    """
    shown = {(step.runs[0].notebook, step.runs[0].profile.name) for step in later if not step.grid}
    missing = []
    for step in grids:
        first = step.runs[0]
        done = [run for run in step.runs if run not in failed]
        if (first.notebook, first.profile.name) not in shown and done:
            comparison = comparison_of(done)
            if not comparison.is_done:
                missing.append(comparison)
    return missing


def comparison_of(runs: Sequence[Run]) -> Run:
    """The first of these runs, which is done when it shows all of them."""
    comparison = Run(runs[0].notebook, runs[0].profile)
    comparison.beside = tuple(run.key for run in runs)
    return comparison


def recorded(planned: Sequence[Run]) -> pd.DataFrame:
    """A row for each of these runs as of `records.frame`; status "missing": there is no record."""
    rows = []
    for run in planned:
        record = run.record or records.read(run.failed)
        if record is None:
            record = record_of(run, status="missing", seconds=nan, finished="")
        rows.append(records.row_of(record, with_error=True))
    return pd.DataFrame(rows)


def comparison_paths(planned: Sequence[Run]) -> list[tuple[str, str]]:
    """The folder with the comparison of a grid, by name, if there is one."""
    done = [run for run in planned if run.is_done]
    if not done or not comparison_of(done).is_done:
        return []
    return [("comparison", relative(comparison_of(done).folder))]

"""Executing a plan: line after line, what is not there yet; the runs of a grid as a sweep."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from docemb_lib.experiments.execution import Planned, execute_run, is_done
from docemb_lib.experiments.plan import Step, check_run
from docemb_lib.experiments.sweeps import SweepWatcher, execute_sweep
from docemb_lib.workspace import Workspace


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

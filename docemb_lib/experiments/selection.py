"""Model selection: the best of recorded runs, by the mean validation score over the sweep tasks."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import chain, product
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.execution import Planned, Runs
from docemb_lib.workspace import Workspace

LATER = "chosen when the sweep has ended"  # stands for the label of a run yet to be chosen
LISTED = 5  # runs that the text about a selection shows, at least


class UnchosenError(InputError):
    """The records do not tell which runs are best: some have not ended, or too few have succeeded."""


class Candidates(NamedTuple):
    """The runs of one sweep, of which the best are selected."""

    grid: str
    overrides: Mapping[str, Any]  # parameters given for all runs
    runs: list[Planned]


def selection_in(raw: Mapping[str, Any], notebook: str | None, runs: Sequence[Mapping[str, Any]], path: Path) -> Any:
    """The fields `best_of` and `compounds` of a grid's file. Raises InputError."""
    best_of, compounds = raw.get("best_of", []), raw.get("compounds", 0)
    if type(best_of) is not list or any(type(one) is not list or {*map(type, one)} != {str} for one in best_of):
        raise InputError(f"{path}: best_of: write lists of names of grids, as in [[structural]], got {best_of!r}")
    if type(compounds) is not int or compounds < 0:
        raise InputError(f"{path}: compounds: write how many models of each kind, got {compounds!r}")
    if best_of and (compounds or notebook != "06_evaluation"):
        raise InputError(f"{path}: best_of makes final students; write notebook: 06_evaluation, and no compounds")
    listed = sum(run.get("compound") is not None for run in runs) if compounds else len(runs)
    if (made := compounds**2 or len(best_of)) and listed != made:
        problem = f"{'compounds' if compounds else 'best_of'} replaces {made} runs, but {listed} are listed"
        raise InputError(f"{path}: {problem}; list {made}, which are executed with `winners: thesis`")
    return best_of, compounds


def choose_runs(
    groups: Sequence[Sequence[Candidates]], make: Callable[[Runs], Planned], compounds: int,
    workspace: Workspace, coming: Collection[Path] = (),
) -> list[Planned]:  # fmt: skip
    """What `make` makes of the best run of each group or, for `compounds`, of each pair of so many best ones.

    coming: executed copies of runs that are executed before; where there are any, none is chosen yet. Raises
    UnchosenError.
    """
    for grid, overrides, runs in chain(*groups):
        missing = [run for run in runs if not records.find(workspace, run.notebook, run.fingerprint)]
        if any(run.executed not in coming for run in missing):
            given = [part for name, value in overrides.items() for part in ("-p", f"{name}={value}")]
            options = ["--grid", grid, "--profile", str(runs[0].parameters["profile"]), *given]
            command = shlex.join(["docemb", "sweep", runs[0].notebook[:2], *options])
            said = f"{len(missing)} of the {len(runs)} runs of grid {grid}, of which the best are taken, have not ended"
            raise UnchosenError(f"winners: own: {said}; run `{command}` first")
    if coming:
        return []
    selected = [_select_best(group, compounds or 1, workspace) for group in groups]
    best, text = [runs for runs, _ in selected], "\n\n".join(text for _, text in selected)
    made = map(make, product(*best) if compounds else best)
    return [*{run.executed: replace(run, chosen=text) for run in made}.values()]  # equal ones once


def _select_best(sweeps: Sequence[Candidates], count: int, workspace: Workspace) -> tuple[list[Planned], str]:
    """The `count` best runs, of equal ones the first, and how they were selected, as Markdown."""
    runs, names = [run for sweep in sweeps for run in sweep.runs], " and ".join(sweep.grid for sweep in sweeps)
    found = [(record.metrics.get("mean", nan), run) for run in runs for record in records.finished([run], workspace)]
    scored = sorted(((mean, run) for mean, run in found if isfinite(mean)), key=lambda one: -one[0])
    if len(scored) < count:
        said = f"{len(scored)} of the {len(runs)} runs of {names} have succeeded, {count} must"
        raise UnchosenError(f"winners: own: {said}")
    rows = [f"| {mean:.4f} | {run.label} |" for mean, run in scored[: max(count, LISTED)]]
    rows[:count] = [f"| **{mean:.4f}** | **{run.label}** |" for mean, run in scored[:count]]
    best = f"the best of {len(scored)} recorded runs (of {len(runs)}) of {names}"
    head = [f"Selected by validation scores, in bold: {best}.", "", "| mean over the sweep tasks | run |", "|---|---|"]
    return [run for _, run in scored[:count]], "\n".join([*head, *rows])

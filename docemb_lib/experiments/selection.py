"""Model selection: the best of recorded runs, by the mean validation score over the sweep tasks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.errors import InputError
from docemb_lib.experiments import records
from docemb_lib.experiments.execution import Planned
from docemb_lib.workspace import Workspace

LISTED = 5  # runs that the text about a selection shows, at least


class Candidates(NamedTuple):
    """The runs of a grid, of which the best are selected."""

    grid: str
    runs: list[Planned]
    parameters: list[dict[str, Any]]  # of the runs to be made, one for each


def selection_in(raw: Mapping[str, Any], path: Path) -> tuple[list[list[str]], int]:
    """The fields `best_of` and `compounds` of a grid's file. Raises InputError."""
    best_of, compounds = raw.get("best_of", []), raw.get("compounds", 0)
    lists = [best_of, *best_of] if isinstance(best_of, list) else [best_of]
    if not all(isinstance(one, list) for one in lists) or not all(isinstance(one, str) for one in chain(*lists[1:])):
        raise InputError(f"{path}: best_of: write lists of names of grids, as in [[structural]], got {best_of!r}")
    if type(compounds) is not int or compounds < 0:
        raise InputError(f"{path}: compounds: write how many models of each kind, got {compounds!r}")
    return best_of, compounds


def has_ended(run: Planned, workspace: Workspace) -> bool:
    """Whether the run has succeeded or failed."""
    return records.find(workspace, run.notebook, run.fingerprint) is not None


def select_best(group: Sequence[Candidates], workspace: Workspace, count: int) -> tuple[list[dict[str, Any]], str]:
    """The parameters of the `count` best, of equal ones the first, and how they were selected, as Markdown.

    Failed runs are not selected. Raises InputError if a run has not ended, or fewer than `count` have succeeded.
    """
    scored = []
    for grid, runs, parameters in group:
        if missing := sum(not has_ended(run, workspace) for run in runs):
            command = f"docemb sweep {runs[0].notebook[:2]} --grid {grid} --profile {runs[0].parameters['profile']}"
            problem = f"{missing} of the {len(runs)} runs of grid {grid}, of which the best are taken, have not ended"
            raise InputError(f"winners: own: {problem}; run `{command}` first")
        for run, own in zip(runs, parameters, strict=True):
            scored += [(record.metrics["mean"], run.label, own) for record in records.finished([run], workspace)]
    names, total = " and ".join(one.grid for one in group), sum(len(one.runs) for one in group)
    if len(scored) < count:
        raise InputError(f"winners: own: {len(scored)} of the {total} runs of {names} have succeeded, {count} must")
    scored.sort(key=lambda one: -one[0])
    rows = [f"| {mean:.4f} | {label} |" for mean, label, _ in scored[: max(count, LISTED)]]
    rows[:count] = [f"| **{mean:.4f}** | **{label}** |" for mean, label, _ in scored[:count]]
    told = f"Selected by validation scores, in bold: the best of {len(scored)} recorded runs (of {total}) of {names}."
    head = [told, "", "| mean over the sweep tasks | run |", "|---|---|"]
    return [own for _, _, own in scored[:count]], "\n".join([*head, *rows])

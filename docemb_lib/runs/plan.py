"""The runs of a profile's plan or of a sweep, resolved before the first one starts.

A line of a plan is a run, several runs, or a grid, see `grids`. No data and no models are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from docemb_lib.base.errors import InputError
from docemb_lib.runs.execution import code_of, compare_pair
from docemb_lib.runs.grids import Grid, GridLike, NotebookParameters, load_grid
from docemb_lib.runs.run import Run
from docemb_lib.settings import profile as profiles
from docemb_lib.settings.notebooks import notebook_named
from docemb_lib.settings.profile import PlanLine, Profile


class Step(NamedTuple):
    """One line of a plan, resolved.

    The runs of a grid go side by side, and a failing one stops no other.
    """

    runs: list[Run]
    grid: str | None  # name of the grid; None: a single run


def resolve_plan(
    profile: Profile, *, first: str | None = None, only: str | None = None
) -> list[Step]:
    """The lines of the plan of a profile.

    Raises InputError for anything that is wrong with a line; `missing_runs` also asks for data and
    models.

    Args:
        first: leave out the lines of notebooks before this one, e.g. "03".
        only: take the lines of this notebook alone, those marked `on_request` included; where the
            plan has none, one run with the profile's parameters.
    """
    start = "" if first is None else notebook_named(first)
    only = None if only is None else notebook_named(only)
    steps: list[Step] = []
    notebooks = []
    for number, line in enumerate(profile.plan, 1):
        try:
            of_line = Profile.load(line.profile) if line.profile else profile
            grid = _grid_of(line, of_line)
            notebook = str(line.notebook) if grid is None else grid.notebook_of_runs(line.notebook)
            notebooks.append(notebook)
            if not _is_asked_for(line, notebook, start, only):
                continue
            if grid is None:
                steps.append(Step([_planned(notebook, of_line, line.parameters)], None))
            else:
                steps.append(Step(_runs(grid, notebook, of_line, line.parameters), grid.name))
        except InputError as error:
            where = f"profile {profile.name}: plan, line {number} ({line})"
            raise InputError(f"{where}: {error}") from None
    _check_folders(steps, profile)
    if not steps and only is not None:
        return resolve_run(only, {}, profile)
    if not steps:
        asked = f"--from {first}" if first else "an empty plan"
        known = ", ".join(dict.fromkeys(notebooks)) or "none: add lines to `plan`"
        problem = f"{asked} leaves no run; the plan's notebooks are {known}"
        raise InputError(f"profile {profile.name}: {problem}")
    return steps


def resolve_run(notebook: str, parameters: Mapping[str, object], profile: Profile) -> list[Step]:
    """A single run as a plan: one notebook with these parameters over those of the profile.

    Where the profile's plan runs this notebook in another profile, as `thesis` runs 06_evaluation
    in `thesis-final`, this run is in that profile, too. Raises InputError for anything that is
    wrong.

    notebook: its name or number.
    """
    notebook = notebook_named(notebook)
    profiles.check_names(notebook, parameters)
    lines = [line for line in profile.plan if line.notebook == notebook and not line.on_request]
    planned_in = {line.profile for line in lines}
    other = planned_in.pop() if len(planned_in) == 1 else None
    return [Step([_planned(notebook, Profile.load(other) if other else profile, parameters)], None)]


def resolve_sweep(
    notebook: str | None,
    grid: GridLike,
    *,
    profile: str | Path,
    parameters: Mapping[str, object],
) -> list[Step]:
    """A sweep as a plan; arguments as of `docemb_lib.sweep`; no notebook where the grid names one.

    Raises InputError for anything that is wrong.
    """
    loaded = Profile.load(profile)
    given = load_grid(grid, loaded)
    notebook = given.notebook_of_runs(notebook)
    return [Step(_runs(given, notebook, loaded, parameters), given.name)]


def planned_beside(run: Run) -> list[NotebookParameters]:
    """The parameters of the other runs that a plan has of the notebook of this run.

    Runs of named grids, of other profiles and on request are left out.
    """
    original = Profile.load(run.profile.source)
    planned: dict[str, NotebookParameters] = {}
    for line in original.plan:
        elsewhere = line.grid is not None or line.profile is not None or line.on_request
        if line.notebook != run.notebook or elsewhere:
            continue
        for parameters in line.runs or [{}]:
            other = Run.of(run.notebook, original, **{**parameters, **line.parameters})
            planned[other.same_but()] = other.parameters
    planned.pop(run.same_but(), None)
    return list(planned.values())


def runs_of(steps: Iterable[Step]) -> list[Run]:
    """The runs of a plan."""
    return [run for step in steps for run in step.runs]


def _planned(notebook: str, profile: Profile, parameters: Mapping[str, object]) -> Run:
    """One run with these parameters over those of the profile. Raises InputError."""
    run = Run.of(notebook, profile, **parameters)
    run.check_parameters()
    code_of(run.source)
    compare_pair(run.source)
    return run


def _runs(
    grid: Grid, notebook: str, profile: Profile, overrides: Mapping[str, object]
) -> list[Run]:
    """The runs of a grid, each with `overrides`.

    Raises InputError for an invalid run, and for two that are the same.
    """
    planned: list[Run] = []
    # Parameters that count, or a folder → number of the first run that has it.
    first: dict[str, int] = {}
    for number, given in enumerate(grid.runs, 1):
        parameters = {**given, **overrides}
        try:
            if "profile" in parameters:
                mend = "give it as --profile"
                raise InputError(f"profile: a sweep has one profile for all its runs; {mend}")
            run = _planned(notebook, profile, parameters)
            earlier = first.get(run.same_but()) or first.get(run.slug)
            if earlier:
                same = f"it is the same as run {earlier} ({run.label})"
                raise InputError(f"{same}; leave one of them out, or vary another parameter")
        except InputError as error:
            raise InputError(f"grid {grid.name}: run {number}: {error}") from None
        first[run.same_but()] = number
        first[run.slug] = number
        planned.append(run)
    return planned


def _grid_of(line: PlanLine, profile: Profile) -> Grid | None:
    """The grid of a line, or its own runs as one; None for a single run."""
    if line.runs is not None:
        return load_grid(line.runs, profile)._replace(name="side by side")
    return None if line.grid is None else load_grid(line.grid, profile)


def _is_asked_for(line: PlanLine, notebook: str, start: str, only: str | None) -> bool:
    """Whether `resolve_plan` takes a line, which is one of this notebook.

    Notebooks before `start` are left out; the names of notebooks sort in their order.
    """
    if only is not None:
        return notebook == only
    return not line.on_request and notebook >= start


def _check_folders(steps: Sequence[Step], profile: Profile) -> None:
    """Raise InputError if runs with different settings would be published as the same folder."""
    folders: dict[tuple[str, str], Run] = {}
    for run in runs_of(steps):
        other = folders.setdefault((run.notebook, run.slug), run)
        # The keys are computed only where needed, because they read the corpus files.
        if other is not run and other.key != run.key:
            same = f"two runs with different settings would both write {run.slug}"
            mend = "give one of them a profile of another name"
            raise InputError(f"profile {profile.name}: plan: {same}; {mend}")

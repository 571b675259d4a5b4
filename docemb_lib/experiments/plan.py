"""The runs of a profile's plan or of a grid, resolved and checked before anything starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib.errors import InputError
from docemb_lib.experiments.execution import Planned
from docemb_lib.experiments.grids import Grid, load_grid
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.profile import NOTEBOOKS, Profile, check_names, profile_path
from docemb_lib.workspace import Workspace


class Step(NamedTuple):
    """One line of a plan, resolved."""

    runs: list[Planned]
    grid: str | None  # whose runs they are: they go side by side, and a failing one stops no other; None: a single run


def told(profile: str | Path) -> str:
    """A profile's name, or its path as notebooks, which run in a folder of their own, can read it."""
    return str(profile_path(profile) if Path(profile).suffix in {".yaml", ".yml"} else profile)


def resolve_plan(
    profile: Profile, name: str, workspace: Workspace, *, first: str | None = None, only: str | None = None
) -> list[Step]:
    """The lines of the plan, those from notebook `first` on, or of notebook `only`; grids are checked whole.

    name: the profile as the notebooks are told it. Raises InputError before anything is executed.
    """
    steps, notebooks = [], []
    copies: dict[Path, tuple[int, str]] = {}  # executed copy → line and fingerprint of the run that it is of
    for number, line in enumerate(profile.plan, 1):
        try:
            its, told_as = (profile, name) if line.profile is None else (Profile.load(line.profile), told(line.profile))
            grid = None if line.grid is None else load_grid(line.grid, its)
            notebooks.append(notebook := str(line.notebook) if grid is None else _notebook_of(grid, line.notebook))
            if not _wanted(notebook, first, only) or (line.on_request and only is None):
                continue
            if grid is None:
                runs = [_planned(notebook, line.parameters, its, told_as, workspace)]
            else:
                runs = resolve_grid(grid, notebook, line.parameters, its, told_as, workspace)
            for run in runs:
                earlier, fingerprint = copies.setdefault(run.executed, (number, run.fingerprint))
                if fingerprint != run.fingerprint:
                    raise InputError(
                        f"line {earlier} has another run whose executed copy is {run.executed.name}; "
                        "give one of them a profile of another name"
                    )
        except InputError as error:
            raise InputError(f"profile {profile.name}: plan, line {number} ({line}): {error}") from None
        steps.append(Step(runs, None if grid is None else grid.name))
    if not steps:
        asked = f"--only {only}" if only else f"--from {first}" if first else "an empty plan"
        known = ", ".join(dict.fromkeys(notebooks)) or "none: add lines to `plan`"
        raise InputError(f"profile {profile.name}: {asked} leaves no run; the plan's notebooks are {known}")
    return steps


def resolve_sweep(
    notebook: str,
    grid: str | Path | Sequence[Mapping[str, Any]],
    workspace: Workspace,
    *,
    profile: str | Path,
    parameters: Mapping[str, Any],
) -> list[Planned]:
    """The runs of a sweep from what people say, see `sweeps.sweep`. Raises InputError before anything is executed."""
    loaded = Profile.load(profile)
    return resolve_grid(load_grid(grid, loaded), notebook, parameters, loaded, told(profile), workspace)


def resolve_grid(
    grid: Grid, notebook: str | None, overrides: Mapping[str, Any], profile: Profile, name: str, workspace: Workspace
) -> list[Planned]:
    """The runs of a grid, checked whole, with `overrides` in each of them.

    notebook: its name or number; None: as the grid says. name: the profile as the notebooks are told it.
    Raises InputError naming grid, run and field.
    """
    notebook = _notebook_of(grid, notebook)
    planned: list[Planned] = []
    first: dict[str | Path, int] = {}  # by fingerprint and by executed copy: the number of the run that had it first
    for number, given in enumerate(grid.runs, 1):
        where = f"grid {grid.name}: run {number}"
        parameters = {**given, **overrides}
        try:
            if "profile" in parameters:
                raise InputError("profile: a sweep has one for all its runs; give it as --profile")
            check_names(notebook, parameters)
            run = _planned(notebook, parameters, profile, name, workspace)
            check_run(run, workspace)
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        if earlier := first.get(run.fingerprint) or first.get(run.executed):
            mend = (
                f"the grid varies what is given for all runs: {', '.join(overrides)}"
                if overrides
                else "leave one of them out"
            )
            raise InputError(f"{where}: the same as run {earlier} ({run.label}); {mend}")
        first |= {run.fingerprint: number, run.executed: number}
        planned.append(run)
    return planned


def check_run(run: Planned, workspace: Workspace) -> None:
    """Everything about a run that can be wrong and is cheap to find out. Raises InputError."""
    from docemb_lib.experiments.run import Stages

    Stages(RunKey(run.notebook, run.profile), workspace).check()


def _planned(
    notebook: str, parameters: Mapping[str, Any], profile: Profile, name: str, workspace: Workspace
) -> Planned:
    key = RunKey.of(notebook, profile, **parameters)
    source = workspace.root / "notebooks" / f"{notebook}.ipynb"
    if not source.is_file():
        raise InputError(f"{source}: no such notebook; regenerate it with `jupytext --sync notebooks/*.py`")
    return Planned(
        notebook=notebook,
        profile=key.profile,
        parameters={"profile": name, **key.parameters},
        label=key.label,
        fingerprint=key.fingerprint,
        source=source,
        executed=workspace.outputs / "notebooks" / notebook / f"{key.slug}.ipynb",
    )


def _notebook_of(grid: Grid, asked: str | None) -> str:
    """The notebook that is asked for by name or number, which the grid must be for."""
    if asked is None and grid.notebook is None:
        raise InputError(f"grid {grid.name}: notebook is missing; say which of {', '.join(NOTEBOOKS)} it is for")
    names = []
    for name in filter(None, (asked, grid.notebook)):
        found = [known for known in NOTEBOOKS if known.startswith(name)]
        if len(found) != 1:
            where = "" if name == asked else f"grid {grid.name}: "
            raise InputError(f"{where}notebook {name!r} is unknown; known are {', '.join(NOTEBOOKS)}")
        names += found
    if names[0] != names[-1]:
        raise InputError(f"grid {grid.name}: is for notebook {names[-1]}, not for {names[0]}")
    return names[0]


def _wanted(notebook: str, first: str | None, only: str | None) -> bool:
    for asked in (first, only):
        if asked is not None and not any(name.startswith(asked) for name in NOTEBOOKS):
            raise InputError(f"no notebook begins with {asked!r}; there are {', '.join(NOTEBOOKS)}")
    if only is not None:
        return notebook.startswith(only)
    return first is None or notebook >= first

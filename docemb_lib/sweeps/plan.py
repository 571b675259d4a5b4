"""The runs of a profile's plan or of a sweep, resolved before the first one starts.

A line of a plan is a run, several runs, or a grid, see `grids`. No data and no models are read.
"""

import json
import re
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import NamedTuple

from docemb_lib.base.errors import InputError
from docemb_lib.runs.key import RunKey
from docemb_lib.settings import profile as profiles
from docemb_lib.settings.notebooks import notebook_named
from docemb_lib.settings.profile import PlanLine, Profile
from docemb_lib.sweeps.execution import Planned, Runs
from docemb_lib.sweeps.grids import Grid, GridLike, NotebookParameters, load_grid
from docemb_lib.workspace import Workspace

CONFLICT = re.compile(r"^(<<<<<<<|>>>>>>>) ", re.MULTILINE)  # a line that git leaves


class Step(NamedTuple):
    """One line of a plan, resolved.

    The runs of a grid go side by side, and a failing one stops no other.
    """

    runs: list[Planned]
    grid: str | None  # name of the grid; None: a single run


class _Resolver(NamedTuple):
    """Resolves runs of one profile in a workspace."""

    profile: Profile
    name: str  # of the profile for notebooks, see `profile_argument`
    workspace: Workspace

    def of_profile(self, profile: str | None) -> "_Resolver":
        """The resolver of another profile; None: this one."""
        if profile is None:
            return self
        return _Resolver(Profile.load(profile), profile_argument(profile), self.workspace)

    def run(self, notebook: str, parameters: Mapping[str, object]) -> Planned:
        """One run with these parameters over those of the profile. Raises InputError."""
        key = RunKey.of(notebook, self.profile, **parameters)
        key.check()
        source = self.workspace.root / "notebooks" / f"{notebook}.ipynb"
        if not source.is_file():
            mend = "make it again with `docemb init` or `jupytext --sync *.py`"
            raise InputError(f"{source}: there is no such notebook; {mend}")
        state = source.stat()
        problem = _fault_of_notebook(source, state.st_size, state.st_mtime_ns)
        if problem:
            mend = f"restore it, or give `jupytext --to ipynb {notebook}.py` there"
            raise InputError(f"{source}: {problem}; {mend}")
        executed = self.workspace.outputs / "notebooks" / notebook / f"{key.slug}.ipynb"
        return Planned(key, {"profile": self.name, **key.parameters}, source, executed)

    def runs(self, grid: Grid, notebook: str, overrides: Mapping[str, object]) -> list[Planned]:
        """The runs of a grid, each with `overrides`.

        Raises InputError for an invalid run, and for two that are the same.
        """
        planned: list[Planned] = []
        # Parameters that count, or an executed copy → number of the first run that has it.
        first: dict[str | Path, int] = {}
        for number, given in enumerate(grid.runs, 1):
            parameters = {**given, **overrides}
            try:
                if "profile" in parameters:
                    mend = "give it as --profile"
                    raise InputError(f"profile: a sweep has one profile for all its runs; {mend}")
                profiles.check_names(notebook, parameters)
                run = self.run(notebook, parameters)
                counting = run.key.same_but()
                earlier = first.get(counting) or first.get(run.executed)
                if earlier:
                    same = f"it is the same as run {earlier} ({run.label})"
                    raise InputError(f"{same}; leave one of them out, or vary another parameter")
            except InputError as error:
                raise InputError(f"grid {grid.name}: run {number}: {error}") from None
            first[counting] = number
            first[run.executed] = number
            planned.append(run)
        return planned


def resolve_plan(
    profile: Profile,
    name: str,
    workspace: Workspace,
    *,
    first: str | None = None,
    only: str | None = None,
) -> list[Step]:
    """The lines of the plan of a profile.

    Raises InputError for anything that is wrong with a line; `missing_runs` also asks for data and
    models.

    Args:
        name: of the profile for notebooks, see `profile_argument`.
        first: leave out the lines of notebooks before this one, e.g. "03".
        only: take the lines of this notebook alone, those marked `on_request` included; where the
            plan has none, one run with the profile's parameters.
    """
    start = "" if first is None else notebook_named(first)
    only = None if only is None else notebook_named(only)
    of_plan = _Resolver(profile, name, workspace)
    steps: list[Step] = []
    notebooks = []
    for number, line in enumerate(profile.plan, 1):
        try:
            resolver = of_plan.of_profile(line.profile)
            given = line.grid or line.runs
            grid = None if given is None else load_grid(given, resolver.profile)
            if grid is not None and line.runs is not None:
                grid = grid._replace(name="side by side")
            notebook = str(line.notebook) if grid is None else grid.notebook_of_runs(line.notebook)
            notebooks.append(notebook)
            if not _is_asked_for(line, notebook, start, only):
                continue
            if grid is None:
                steps.append(Step([resolver.run(notebook, line.parameters)], None))
            else:
                steps.append(Step(resolver.runs(grid, notebook, line.parameters), grid.name))
        except InputError as error:
            where = f"profile {profile.name}: plan, line {number} ({line})"
            raise InputError(f"{where}: {error}") from None
    _check_copies(runs_of(steps), profile)
    if not steps and only is not None:
        return resolve_run(only, {}, profile, name, workspace)
    if not steps:
        asked = f"--from {first}" if first else "an empty plan"
        known = ", ".join(dict.fromkeys(notebooks)) or "none: add lines to `plan`"
        problem = f"{asked} leaves no run; the plan's notebooks are {known}"
        raise InputError(f"profile {profile.name}: {problem}")
    return steps


def resolve_run(
    notebook: str,
    parameters: Mapping[str, object],
    profile: Profile,
    name: str,
    workspace: Workspace,
) -> list[Step]:
    """A single run as a plan: one notebook with these parameters over those of the profile.

    Where the profile's plan runs this notebook in another profile, as `thesis` runs 06_evaluation
    in `thesis-final`, this run is in that profile, too. Raises InputError for anything that is
    wrong.

    Args:
        notebook: its name or number.
        name: of the profile for notebooks, see `profile_argument`.
    """
    notebook = notebook_named(notebook)
    profiles.check_names(notebook, parameters)
    lines = [line for line in profile.plan if line.notebook == notebook and not line.on_request]
    planned_in = {line.profile for line in lines}
    other = planned_in.pop() if len(planned_in) == 1 else None
    resolver = _Resolver(profile, name, workspace).of_profile(other)
    return [Step([resolver.run(notebook, parameters)], None)]


def resolve_sweep(
    notebook: str | None,
    grid: GridLike,
    workspace: Workspace,
    *,
    profile: str | Path,
    parameters: Mapping[str, object],
) -> list[Step]:
    """A sweep as a plan; arguments as of `docemb_lib.sweep`; no notebook where the grid names one.

    Raises InputError for anything that is wrong.
    """
    resolver = _Resolver(Profile.load(profile), profile_argument(profile), workspace)
    loaded = load_grid(grid, resolver.profile)
    notebook = loaded.notebook_of_runs(notebook)
    return [Step(resolver.runs(loaded, notebook, parameters), loaded.name)]


def planned_beside(key: RunKey, profile: str | Path) -> list[NotebookParameters]:
    """The parameters of the other runs that a plan has of the notebook of this run.

    Runs of named grids, of other profiles and on request are left out. profile: as given to the
    run, by name or path.
    """
    original = Profile.load(profile)
    planned: dict[str, NotebookParameters] = {}
    for line in original.plan:
        elsewhere = line.grid is not None or line.profile is not None or line.on_request
        if line.notebook != key.notebook or elsewhere:
            continue
        for parameters in line.runs or [{}]:
            given = {**parameters, **line.parameters}
            other = RunKey.of(key.notebook, original, **given)
            planned[other.same_but()] = other.parameters
    planned.pop(key.same_but(), None)
    return list(planned.values())


def runs_of(steps: Iterable[Step]) -> list[Planned]:
    """The runs of a plan."""
    return [run for step in steps for run in step.runs]


@cache  # a grid asks for each of its runs
def _fault_of_notebook(source: Path, size: int, time: int) -> str:
    """Why a notebook cannot be executed with parameters; "" for a sound one.

    size, time: of the file, so that a changed one is read again.
    """
    text = source.read_text(encoding="utf-8", errors="replace")
    marked = "git has left conflict markers (<<<<<<<) in it"
    if CONFLICT.search(text):
        return marked
    try:
        cells = json.loads(text)["cells"]
        code = [cell for cell in cells if cell["cell_type"] == "code"]
        sources = ["".join(cell["source"]) for cell in code]
        tags = [tag for cell in code for tag in cell["metadata"].get("tags", ())]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        return f"this is no notebook ({type(error).__name__}: {error})"
    if not code:
        return "it has no cells of code"
    if CONFLICT.search("\n".join(sources)):
        return marked
    if tags.count("parameters") != 1:
        number = tags.count("parameters")
        return f"{number} cells have the tag `parameters`, and one must have it"
    return ""


def profile_argument(profile: str | Path) -> str:
    """A profile as a notebook's parameter: its name, or the absolute path of its file.

    The path is absolute because notebooks run in their own folder.
    """
    is_file = Path(profile).suffix in {".yaml", ".yml"}
    return str(profiles.profile_path(profile) if is_file else profile)


def _is_asked_for(line: PlanLine, notebook: str, start: str, only: str | None) -> bool:
    """Whether `resolve_plan` takes a line, which is one of this notebook.

    Notebooks before `start` are left out; the names of notebooks sort in their order.
    """
    if only is not None:
        return notebook == only
    return not line.on_request and notebook >= start


def _check_copies(runs: Runs, profile: Profile) -> None:
    """Raise InputError if runs with different settings would write the same executed copy."""
    copies: dict[Path, Planned] = {}
    for run in runs:
        other = copies.setdefault(run.executed, run)
        # The fingerprints are computed only where needed, because they read the corpus files.
        if other is not run and other.fingerprint != run.fingerprint:
            same = f"two runs with different settings would both write {run.executed.name}"
            mend = "give one of them a profile of another name"
            raise InputError(f"profile {profile.name}: plan: {same}; {mend}")

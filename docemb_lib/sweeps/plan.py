"""The runs of a profile's plan or of a sweep, resolved before the first one starts.

A line of a plan is a run, several runs, or a grid, see `grids`. No data and no models are read.

With `winners: own` in the profile of a plan or a sweep, the records choose runs of a grid when the
grid begins. `best_of: [[weighting-cosine], [structural]]` replaces its runs by final students with
the parameters of the best run of each list of grids. `compounds: 3` replaces its compounds by those
of its three best DM and DBOW. The best have the highest mean validation score.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import product
from math import isfinite, nan
from operator import itemgetter
from pathlib import Path
from typing import NamedTuple

from docemb_lib.base.errors import InputError
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.settings import profile as profiles
from docemb_lib.settings.notebooks import STUDENT_RUN, notebook_named
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
    # Gives the runs that records choose in place of `runs`.
    choose: Callable[[], list[Planned]] | None = None


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

    def run(
        self, notebook: str, parameters: Mapping[str, object], alike: RunKey | None = None
    ) -> Planned:
        """One run with these parameters over those of the profile. Raises InputError.

        alike: another run of this notebook by this resolver.
        """
        key = replace(RunKey.of(notebook, self.profile, **parameters), alike=alike)
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
                run = self.run(notebook, parameters, planned[0].key if planned else None)
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

    def runs_in_plan(self, grid_name: str) -> list[Planned]:
        """The runs of a grid with the parameters that the profile's plan gives them, if any."""
        grid = load_grid(grid_name, self.profile)
        lines = [
            line
            for line in self.profile.plan
            if line.grid == grid_name and line.profile is None and not line.on_request
        ]
        if not lines:
            return self.runs(grid, grid.notebook_of_runs(None), {})
        runs = []
        for line in lines:
            runs += self.runs(grid, grid.notebook_of_runs(line.notebook), line.parameters)
        return runs


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
                steps += _steps_of(grid, notebook, line.parameters, resolver, of_plan)
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

    Raises InputError for anything that is wrong, and where records that choose runs are missing.
    """
    resolver = _Resolver(Profile.load(profile), profile_argument(profile), workspace)
    loaded = load_grid(grid, resolver.profile)
    notebook = loaded.notebook_of_runs(notebook)
    first, *others = _steps_of(loaded, notebook, parameters, resolver, resolver)
    if first.choose is not None:
        first = Step(first.choose(), first.grid)
    return [first, *others]


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
    """The runs of a plan; those to be chosen by records stand as the thesis chose them."""
    return [run for step in steps for run in step.runs]


def chosen_runs(steps: Iterable[Step]) -> list[Planned]:
    """The runs of a plan that are known by now, those that records choose included."""
    runs: list[Planned] = []
    for step in steps:
        with suppress(InputError):  # of records that are missing
            runs += step.runs if step.choose is None else step.choose()
    return runs


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


def _steps_of(
    grid: Grid,
    notebook: str,
    overrides: Mapping[str, object],
    resolver: _Resolver,
    chooser: _Resolver,
) -> list[Step]:
    """A grid as one step or, where records choose some of its runs, with a last step for these.

    chooser: resolves in the profile whose `winners` counts, in which the grids of `best_of` are
    compared.
    """
    runs = resolver.runs(grid, notebook, overrides)
    if chooser.profile.winners == "thesis" or not (grid.best_of or grid.compounds):
        return [Step(runs, grid.name)]
    singles = []
    if grid.compounds:
        singles = [run for run in runs if run.parameters.get("compound") is None]
    listed = [run for run in runs if run not in singles]
    count = grid.compounds**2 or len(grid.best_of)
    if len(listed) != count:
        problem = f"best_of or compounds choose {count} runs to stand for the {len(listed)} listed"
        raise InputError(f"grid {grid.name}: {problem}; list {count}")
    groups = _groups(grid, singles, chooser)

    def choose() -> list[Planned]:
        best = [_best_runs(group, grid.compounds or 1, resolver.workspace) for group in groups]
        chosen: dict[Path, Planned] = {}  # by their executed copies, to have equal runs once
        for members in product(*best) if grid.compounds else best:
            recipe = {**_recipe(grid, [run for run, _ in members]), **overrides}
            run = resolver.run(notebook, recipe)
            means = ", ".join(f"{run.label} ({mean:.4f})" for run, mean in members)
            among = f"among the recorded runs of {grid.name}"
            text = f"Chosen for its mean score over the sweep tasks, {among}: {means}"
            chosen[run.executed] = replace(run, chosen=text)
        return list(chosen.values())

    last = Step(listed, grid.name, choose)
    return [Step(singles, grid.name), last] if singles else [last]


def _groups(grid: Grid, singles: Runs, chooser: _Resolver) -> list[list[Planned]]:
    """The groups of runs of which records choose the best: one group for each part of a recipe."""
    groups = []
    if grid.compounds:
        for dm in (True, False):
            groups.append([run for run in singles if run.parameters["dm"] is dm])
    for names in grid.best_of:
        groups.append([run for name in names for run in chooser.runs_in_plan(name)])
    return groups


def _recipe(grid: Grid, members: Runs) -> NotebookParameters:
    """The parameters of the run that is made from the chosen ones.

    It is a compound of them, or with `best_of` a student with the parameters of the first.
    """
    if grid.best_of:
        settings = members[0].profile.parameters
        return {name: getattr(settings, name) for name in STUDENT_RUN if name != "documents"}
    return {"compound": "+".join(run.label for run in members)}


def _best_runs(runs: Runs, count: int, workspace: Workspace) -> Sequence[tuple[Planned, float]]:
    """The `count` runs with the highest mean validation score, best first, and this mean.

    Of equal runs the first is taken. Raises InputError if runs are not recorded, or too few have a
    score.
    """
    recorded = []
    for run in runs:
        record = records.find(workspace, run.notebook, run.fingerprint)
        if record is not None:
            recorded.append((run, record.metrics.get("mean", nan)))
    scored = [(run, mean) for run, mean in recorded if isfinite(mean)]
    best = sorted(scored, key=itemgetter(1), reverse=True)[:count]
    if len(recorded) < len(runs) or len(best) < count:
        notebook = runs[0].notebook
        few = f"{len(recorded)} of the {len(runs)} runs of {notebook} to choose from are recorded"
        mend = f"execute their sweep first (`docemb sweep`), of which at least {count} must succeed"
        raise InputError(f"winners: own: {few}, and {len(best)} of these have a score; {mend}")
    return best

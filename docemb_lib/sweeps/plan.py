"""The runs of a profile's plan or of a grid, resolved before the first one starts, without data or
models.

A line of a plan is a run or a grid. A grid lists the runs of one `notebook`: one by one (`runs`),
as products of lists of values (`axes`: one mapping, or a list of mappings), or both, on top of the
values that all runs share (`base`):

    notebook: 05_weighting
    base: {contextual_teacher: PV}
    axes: {structural_loss: [cosine, mse], lam: [0.2, 0.5]}
    runs: [{structural_loss: cosine, lam: null}]

`params/grids/` holds the eight grids of the thesis, and `soft-cca-beta`. A grid with `scale:
thesis` is written in the thesis' widths and scaled to the widths of the profile; any other grid is
taken as it is. `names` are names of single runs, each with the parameters by which the run is
found, as in `names: {no-weighting: {lam: null}}`.

With `winners: own` in the profile of a plan or a sweep, the records choose runs of a grid when the
grid begins. `best_of: [[weighting-cosine], [structural]]` replaces its runs by final students with
the parameters of the best run of each list of grids. `compounds: 3` replaces its compounds by those
of its three best DM and DBOW. The best have the highest mean validation score.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import product
from math import isfinite, nan
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field, NonNegativeInt

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.stages import sbert_of
from docemb_lib.settings import profile as profiles
from docemb_lib.settings.parameters import members_of
from docemb_lib.settings.profile import NOTEBOOKS, SHIPPED, STUDENT_RUN, Profile, width
from docemb_lib.settings.projections import parse_projection, with_widths
from docemb_lib.settings.sections import Section, label_of_paragraph_vector
from docemb_lib.sweeps.execution import Planned, Runs
from docemb_lib.workspace import Workspace

THESIS = Profile(name="thesis")  # the thesis' settings are the defaults
THESIS_WIDTH = 768  # of the thesis' student
GridLike = str | Path | Sequence[Mapping[str, Any]]  # a name or file, or the parameters of each run


class Step(NamedTuple):
    """One line of a plan, resolved.

    The runs of a grid go side by side, and a failing one stops no other.
    """

    runs: list[Planned]
    grid: str | None  # name of the grid; None: a single run
    choose: Callable[[], list[Planned]] | None = (
        None  # gives the runs that records choose in place of `runs`
    )


class GridFile(Section):
    """The content of a grid's file."""

    notebook: (
        Annotated[str, BeforeValidator(lambda name: f"{name:02d}" if type(name) is int else name)]
        | None
    ) = None
    scale: Literal["thesis"] | None = None
    base: dict[str, Any] = {}
    axes: Annotated[
        list[dict[str, Annotated[list[Any], Field(min_length=1)]]],
        BeforeValidator(lambda axes: axes if isinstance(axes, list) else [axes]),
    ] = []
    runs: list[dict[str, Any]] = []
    names: dict[str, dict[str, Any]] = {}
    best_of: list[Annotated[list[str], Field(min_length=1)]] = []
    compounds: NonNegativeInt = 0


class Grid(NamedTuple):
    """Sets of notebook parameters, not validated yet."""

    name: str  # for error messages
    notebook: str | None  # if the grid's file names one
    runs: list[dict[str, Any]]
    names: Mapping[str, int]  # {name: place of the run}
    best_of: list[list[str]]  # names of grids
    compounds: int  # of so many models of each kind; 0: those in `runs`


def resolve_plan(
    profile: Profile,
    name: str,
    workspace: Workspace,
    *,
    first: str | None = None,
    only: str | None = None,
) -> list[Step]:
    """The lines of the plan of a profile, whose name for notebooks is `name`, see
    `profile_argument`.

    first: only lines from this notebook on, e.g. "03". only: only lines of this notebook, those
    marked `on_request` included; where the plan has none, one run with the profile's parameters.
    Raises InputError for anything that is wrong with a line; `missing_runs` also asks for data and
    models.
    """
    for asked in (asked for asked in (first, only) if asked is not None):
        profiles.notebook_named(asked)
    steps: list[Step] = []
    notebooks = []
    for number, line in enumerate(profile.plan, 1):
        try:
            source = profile if line.profile is None else Profile.load(line.profile)
            source_name = name if line.profile is None else profile_argument(line.profile)
            grid = None if line.grid is None else load_grid(line.grid, source)
            notebooks.append(
                notebook := str(line.notebook)
                if grid is None
                else _notebook_of(grid, line.notebook)
            )
            if (
                line.on_request or notebook < (first or "")
                if only is None
                else not notebook.startswith(only)
            ):
                continue
            rest: Any = (notebook, line.parameters, source, source_name, workspace)
            if grid is None:
                steps.append(Step([_planned(*rest)], None))
            else:
                steps += _steps_of(grid, *rest, chooser=(profile, name))
        except InputError as error:
            raise InputError(
                f"profile {profile.name}: plan, line {number} ({line}): {error}"
            ) from None
    copies: dict[Path, Planned] = {}
    for run in runs_of(steps):
        other = copies.setdefault(run.executed, run)
        if (
            other is not run and other.fingerprint != run.fingerprint
        ):  # computed late: it reads the corpus files
            same = f"two runs with different settings would both write {run.executed.name}"
            raise InputError(
                f"profile {profile.name}: plan: {same}; give one of them a profile of another name"
            )
    if not steps and only is not None:
        return resolve_run(only, {}, profile, name, workspace)
    if not steps:
        asked = f"--from {first}" if first else "an empty plan"
        known = ", ".join(dict.fromkeys(notebooks)) or "none: add lines to `plan`"
        raise InputError(
            f"profile {profile.name}: {asked} leaves no run; the plan's notebooks are {known}"
        )
    return steps


def resolve_run(
    notebook: str, parameters: Mapping[str, Any], profile: Profile, name: str, workspace: Workspace
) -> list[Step]:
    """A single run as a plan: one notebook, by its name or number, with these parameters over those
    of the profile.

    name: see `profile_argument`. Where the profile's plan runs this notebook in another profile, as
    `tiny` runs 06_evaluation in `tiny-final`, this run is in that profile, too. Raises InputError
    for anything that is wrong.
    """
    found = profiles.notebook_named(notebook)
    profiles.check_names(found, parameters)
    elsewhere = [
        line.profile for line in profile.plan if line.notebook == found and line.profile is not None
    ]
    if elsewhere:
        profile = Profile.load(elsewhere[0])
        name = profile_argument(elsewhere[0])
    return [Step([_planned(found, parameters, profile, name, workspace)], None)]


def resolve_sweep(
    notebook: str | None,
    grid: GridLike,
    workspace: Workspace,
    *,
    profile: str | Path,
    parameters: Mapping[str, Any],
) -> list[Step]:
    """A sweep as a plan; arguments as of `sweeps.sweep`, and no notebook where the grid names one."""
    chooser = loaded, name = Profile.load(profile), profile_argument(profile)
    found = load_grid(grid, loaded)
    notebook = _notebook_of(found, notebook)
    first, *rest = _steps_of(found, notebook, parameters, loaded, name, workspace, chooser=chooser)
    return [first if first.choose is None else Step(first.choose(), first.grid), *rest]


def runs_of(steps: Iterable[Step]) -> list[Planned]:
    """The runs of a plan; those to be chosen by records stand as the thesis chose them."""
    return [run for step in steps for run in step.runs]


def chosen_runs(steps: Iterable[Step]) -> list[Planned]:
    """The runs of a plan that are known by now, those that records choose included."""
    found: list[Planned] = []
    for step in steps:
        with suppress(InputError):  # of records that are missing
            found += step.runs if step.choose is None else step.choose()
    return found


def _steps_of(
    grid: Grid,
    notebook: str,
    overrides: Mapping[str, Any],
    profile: Profile,
    name: str,
    workspace: Workspace,
    *,
    chooser: tuple[Profile, str],
) -> list[Step]:
    """A grid as one step or, where records choose some of its runs, with a last step for these.

    chooser: the profile whose `winners` counts and in which the grids of `best_of` are compared,
    and its name.
    """
    runs = _resolve_grid(grid, notebook, overrides, profile, name, workspace)
    if chooser[0].winners == "thesis" or not (grid.best_of or grid.compounds):
        return [Step(runs, grid.name)]
    single = [run for run in runs if grid.compounds and run.parameters.get("compound") is None]
    if len(runs) - len(single) != (grid.compounds**2 or len(grid.best_of)):
        listed, chosen = len(runs) - len(single), grid.compounds**2 or len(grid.best_of)
        problem = f"best_of or compounds choose {chosen} runs to stand for the {listed} listed"
        raise InputError(f"grid {grid.name}: {problem}; list {chosen}")
    groups: list[list[Planned]] = []  # the best of each are chosen
    if grid.compounds:
        groups += [[run for run in single if run.parameters["dm"] is dm] for dm in (True, False)]
    lines = [line for line in chooser[0].plan if line.profile is None and not line.on_request]
    for names in grid.best_of:
        groups.append([])
        for other in names:
            found = load_grid(other, chooser[0])
            given = [(line.notebook, line.parameters) for line in lines if line.grid == other] or [
                (None, {})
            ]
            groups[-1] += [
                run for own in given for run in _resolve_grid(found, *own, *chooser, workspace)
            ]

    def choose() -> list[Planned]:
        best = [_best_runs(group, grid.compounds or 1, workspace) for group in groups]
        found: dict[Path, Planned] = {}  # equal ones once
        for members in product(*best) if grid.compounds else best:
            recipe: dict[str, Any] = {"compound": "+".join(run.label for run, _ in members)}
            if grid.best_of:
                settings = members[0][0].profile.parameters
                recipe = {own: getattr(settings, own) for own in STUDENT_RUN if own != "documents"}
            run = _planned(notebook, {**recipe, **overrides}, profile, name, workspace)
            means = ", ".join(f"{run.label} ({mean:.4f})" for run, mean in members)
            text = f"Chosen for its mean score over the sweep tasks, among the recorded runs of {grid.name}: {means}"
            found[run.executed] = replace(run, chosen=text)
        return list(found.values())

    later = Step([run for run in runs if run not in single], grid.name, choose)
    return [Step(single, grid.name), later] if single else [later]


def _best_runs(runs: Runs, count: int, workspace: Workspace) -> list[tuple[Planned, float]]:
    """The `count` runs with the highest mean validation score, best first, and this mean; of equal
    runs the first.
    """
    found = [(run, records.find(workspace, run.notebook, run.fingerprint)) for run in runs]
    means = [(run, record.metrics.get("mean", nan)) for run, record in found if record is not None]
    best = sorted(((run, mean) for run, mean in means if isfinite(mean)), key=lambda one: -one[1])[
        :count
    ]
    if len(means) < len(runs) or len(best) < count:
        few = f"{len(means)} of the {len(runs)} runs of {runs[0].notebook} to choose from are recorded"
        mend = f"execute their sweep first (`docemb sweep`), of which at least {count} must succeed"
        raise InputError(f"winners: own: {few}, and {len(best)} of these have a score; {mend}")
    return best


def profile_argument(profile: str | Path) -> str:
    """A profile as a notebook's parameter: its name, or its absolute path, since notebooks run in
    their own folder.
    """
    return str(
        profiles.profile_path(profile) if Path(profile).suffix in {".yaml", ".yml"} else profile
    )


def _planned(
    notebook: str, given: Mapping[str, Any], profile: Profile, name: str, workspace: Workspace
) -> Planned:
    key = RunKey.of(notebook, profile, **given)
    key.check()
    source = workspace.root / "notebooks" / f"{notebook}.ipynb"
    if not source.is_file():
        mend = "make it again with `docemb init` or `jupytext --sync *.py`"
        raise InputError(f"{source}: there is no such notebook; {mend}")
    executed = workspace.outputs / "notebooks" / notebook / f"{key.slug}.ipynb"
    return Planned(key, {"profile": name, **key.parameters}, source, executed)


def _resolve_grid(
    grid: Grid,
    notebook: str | None,
    overrides: Mapping[str, Any],
    profile: Profile,
    name: str,
    workspace: Workspace,
) -> list[Planned]:
    """The runs of a grid, each with `overrides`; no two of them may be the same."""
    notebook = _notebook_of(grid, notebook)
    planned: list[Planned] = []
    first: dict[
        str | Path, int
    ] = {}  # parameters that count, or executed copy → number of the first run that has it
    for number, given in enumerate(grid.runs, 1):
        parameters = {**given, **overrides}
        try:
            if "profile" in parameters:
                mend = "give it as --profile"
                raise InputError(f"profile: a sweep has one profile for all its runs; {mend}")
            profiles.check_names(notebook, parameters)
            run = _planned(notebook, parameters, profile, name, workspace)
            if earlier := first.get(run.key.same_but()) or first.get(run.executed):
                same = f"it is the same as run {earlier} ({run.label})"
                raise InputError(f"{same}; leave one of them out, or vary another parameter")
        except InputError as error:
            raise InputError(f"grid {grid.name}: run {number}: {error}") from None
        first |= {run.key.same_but(): number, run.executed: number}
        planned.append(run)
    return planned


def _notebook_of(grid: Grid, asked: str | None) -> str:
    """The notebook of a grid's runs; a name or number that is `asked` for must agree with the
    grid's own.
    """
    names = [
        name
        for name in (None if asked is None else profiles.notebook_named(asked), grid.notebook)
        if name
    ]
    if not names:
        raise InputError(
            f"grid {grid.name}: notebook is missing; say which of {', '.join(NOTEBOOKS)} it is for"
        )
    if names[0] != names[-1]:
        problem = f"it is for notebook {names[-1]}, not for {names[0]}"
        raise InputError(f"grid {grid.name}: {problem}; name {names[-1]}")
    return names[0]


def grid(name: str, profile: str | Path | Profile = "thesis") -> list[dict[str, Any]]:
    """The runs of a grid in `params/grids/` as notebook parameters, scaled to a profile where the
    grid says so.

    The last width of both projections becomes that of the profile's student or contextual teacher,
    as in the thesis; hidden widths and vector sizes shrink in proportion, and the mask becomes the
    structural teacher's context.

    Example:
        >>> runs = grid("weighting-cosine", "tiny")
        >>> len(runs), runs[0]["lam"]
        (9, 0.95)
    """
    return load_grid(name, profile if isinstance(profile, Profile) else Profile.load(profile)).runs


def grid_place(key: RunKey) -> str:
    """The grid in `params/grids/`, scaled to the profile, that a run belongs to: `structural, run 3
    of 11`; or "".
    """
    for name in _grid_files():
        with suppress(InputError):  # of a grid whose runs do not fit this profile
            found = load_grid(name, key.profile)
            own = found.runs if found.notebook == key.notebook else []
            runs = [RunKey.bare(key.notebook, key.profile, **run) for run in own]
            if key.cell in (cells := [run.cell for run in runs]):
                return f"{name}, run {cells.index(key.cell) + 1} of {len(cells)}"
    return ""


def names_in_grids(key: RunKey, *grids: str) -> list[str]:
    """The names of a run in `grids` (none given: all in `params/grids/`), which are those of the
    thesis.

    A run has a name at the widths of the thesis and at those of its profile, and in each notebook
    that can make it.
    """
    found: dict[str, None] = {}
    for name, profile in product(grids or _grid_files(), (THESIS, key.profile)):
        with suppress(InputError):  # of a grid whose runs do not fit this profile
            grid = load_grid(name, profile)
            notebook = grid.notebook or key.notebook
            keys = {
                own: RunKey.bare(notebook, profile, **grid.runs[at])
                for own, at in grid.names.items()
            }
            found |= dict.fromkeys(own for own, run in keys.items() if run.cell == key.cell)
    return list(found)


def _grid_files() -> dict[str, Path]:
    roots = (SHIPPED, profiles.find_root())
    return {
        file.stem: file
        for root in roots
        for file in sorted((root / "params" / "grids").glob("*.yaml"))
    }


def load_grid(given: GridLike, profile: Profile) -> Grid:
    """A grid in `params/grids/` by name, of a .yaml file, or of the runs' own parameters."""
    name, source, raw = "given", "grid", {"runs": given}
    if isinstance(given, str | Path):
        path = profiles.yaml_file("grid", given, _grid_files())
        name, source, raw = str(given), str(path), profiles.read_yaml(path)
    if not isinstance(raw, dict):
        mend = "write it as those in params/grids/"
        raise InputError(f"{source}: a grid is a mapping with `axes` or `runs`; {mend}")
    file = profiles.validated(GridFile, raw, source)
    notebook = (
        None
        if file.notebook is None
        else profiles.notebook_named(file.notebook, source=f"{source}: ")
    )
    varied = [
        dict(zip(lists, chosen, strict=True))
        for lists in file.axes
        for chosen in product(*lists.values())
    ]
    runs = [{**file.base, **run} for run in (*varied, *file.runs)]
    if not runs:
        mend = "list some under `runs`, or values under `axes`"
        raise InputError(f"{source}: there are no runs; {mend}")
    names = {}
    for own, wanted in file.names.items():
        places = [place for place, run in enumerate(runs) if wanted.items() <= run.items()]
        if len(places) != 1:
            problem = f"{len(places)} runs have these parameters"
            mend = "give parameters that one run alone has"
            raise InputError(f"{source}: names: {own}: {problem}; {mend}")
        names[own] = places[0]
    if file.scale is not None:
        if (student := width(profile.student.model)) is None:
            from docemb_lib.student.loading import load_config

            student = int(load_config(pretrained.resolve(profile.student.model)).hidden_size)
        runs = [
            _scaled(run, profile, student, f"{source}: run {number}")
            for number, run in enumerate(runs, 1)
        ]
    return Grid(name, notebook, runs, names, file.best_of, file.compounds)


def _scaled(
    parameters: Mapping[str, Any], profile: Profile, student: int, where: str
) -> dict[str, Any]:
    """Parameters in the thesis' widths, scaled to a profile and the width of its student.

    Builds no artefact.
    """
    THESIS.with_parameters(source=where, **parameters)  # the code below relies on valid values
    scaled, by_student = dict(parameters), student / THESIS_WIDTH
    if (teacher := scaled.get("contextual_teacher")) is not None:
        before, after = (one.contextual_teachers.width(teacher) for one in (THESIS, profile))
        ends = {THESIS_WIDTH: student, before: after}
        for name, factor in (
            ("student_projection", by_student),
            ("contextual_projection", after / before),
        ):
            if name in scaled:
                scaled[name] = _scaled_projection(
                    str(scaled[name]), factor, ends, f"{where}: {name}"
                )
    if scaled.get("max_structural_len") is not None:
        structural = profile.structural_teacher
        scaled["max_structural_len"] = (
            structural.max_tokens or sbert_of(structural, "truncate").max_tokens
        )
    if "vector_size" in scaled:
        scaled["vector_size"] = _times(scaled["vector_size"], by_student)
    if scaled.get("compound") is not None:
        members = [
            m | {"vector_size": _times(m["vector_size"], by_student)}
            for m in members_of(scaled["compound"])
        ]
        scaled["compound"] = "+".join(label_of_paragraph_vector(**one) for one in members)
    return scaled


def _scaled_projection(spec: str, factor: float, ends: Mapping[int, int], where: str) -> str:
    """The same layers with other widths: the last one from `ends`, those before it times `factor`."""
    widths = [width for width, _ in parse_projection(spec)]
    if not widths:
        return spec
    if widths[-1] not in ends:
        problem = f"{spec} cannot be scaled to the profile, because it does not end in"
        mend = "let it end so, or leave `scale` out"
        raise InputError(f"{where}: {problem} {' or '.join(map(str, ends))}; {mend}")
    return with_widths(spec, [*(_times(width, factor) for width in widths[:-1]), ends[widths[-1]]])


def _times(size: int, factor: float) -> int:
    return max(2, round(size * factor))

"""The runs of a profile's plan or of a grid, resolved before the first one starts, without data or models.

A line of a plan is a run or a grid. A grid lists the runs of one `notebook`: one by one (`runs`), as products of lists
of values (`axes`: one mapping, or a list of mappings), or both, on top of the values that all runs share (`base`):

    notebook: 05_weighting
    base: {contextual_teacher: PV}
    axes: {structural_loss: [cosine, mse], lam: [0.2, 0.5]}
    runs: [{structural_loss: cosine, lam: null}]

`params/grids/` holds the eight grids of the thesis, and `soft-cca-beta`. A grid with `scale: thesis` is written in the
thesis' widths and scaled to the widths of the profile; any other grid is taken as it is. `names` are names of single
runs, each with the parameters by which the run is found, as in `names: {no-weighting: {lam: null}}`.

With `winners: own` in the profile of a plan or a sweep, records choose runs of a grid: `best_of: [[weighting-cosine],
[structural]]` replaces its runs by final students with the parameters of the best run of each list of grids,
`compounds: 3` its compounds by those of its three best DM and DBOW. The best runs have the highest mean validation
score. All that are compared must have ended, so runs are chosen when the runs before have been executed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

from docemb_lib import pretrained
from docemb_lib.errors import InputError, nearest
from docemb_lib.experiments.execution import Planned, Runs, is_done
from docemb_lib.experiments.records import Candidates, UnchosenError, choose_runs, selection_in
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.stages import sbert_of
from docemb_lib.integrity import read_json
from docemb_lib.projections import parse_projection, with_widths
from docemb_lib.settings import label_of_paragraph_vector, members_of
from docemb_lib.settings.profile import (
    FINAL,
    NOTEBOOKS,
    SHIPPED,
    STUDENT_RUN,
    TRAINING,
    Profile,
    check_names,
    find_root,
    notebook_named,
    profile_path,
    read_yaml,
    width,
)  # fmt: skip
from docemb_lib.workspace import Workspace

THESIS = Profile(name="thesis")  # the thesis' settings are the defaults
THESIS_WIDTH = 768  # of the thesis' student
GRID_FIELDS = ("notebook", "scale", "base", "axes", "runs", "names", "best_of", "compounds")
GridLike = str | Path | Sequence[Mapping[str, Any]]  # a name or file, or the parameters of each run


class Step(NamedTuple):
    """One line of a plan, resolved."""

    runs: list[Planned]
    grid: str | None  # name of the grid; its runs go side by side, and a failing one stops no other. None: a single run
    later: Runs = ()  # those of `runs` that stand for runs yet to be chosen, in checks and estimates
    choose: Callable[[], list[Planned]] = list  # gives the runs in their place, when the runs before have ended

    @property
    def known(self) -> list[Planned]:
        return [run for run in self.runs if run not in self.later]


class Grid(NamedTuple):
    """Sets of notebook parameters, not validated yet."""

    name: str  # for error messages
    notebook: str | None  # if the grid's file names one
    runs: list[dict[str, Any]]
    names: Mapping[str, int]  # {name: place of the run}
    best_of: Sequence[Sequence[str]] = ()  # names of grids
    compounds: int = 0  # of so many models of each kind; 0: those in `runs`


def resolve_plan(
    profile: Profile, name: str, workspace: Workspace, *, first: str | None = None, only: str | None = None
) -> list[Step]:
    """The lines of the plan of a profile, whose name for notebooks is `name`, see `profile_argument`.

    first: only lines from this notebook on, e.g. "03". only: only lines of this notebook, those marked `on_request`
    included. Raises InputError for anything that is wrong with a line; `missing_runs` also asks for data and models.
    """
    for asked in (asked for asked in (first, only) if asked is not None):
        notebook_named(asked)
    steps: list[Step] = []
    notebooks = []
    sweeps: list[Candidates] = []  # the grids of all lines so far in this profile
    copies: dict[Path, tuple[int, Planned]] = {}  # executed copy → its run and the line of that
    for number, line in enumerate(profile.plan, 1):
        try:
            source = profile if line.profile is None else Profile.load(line.profile)
            source_name = name if line.profile is None else profile_argument(line.profile)
            grid = None if line.grid is None else load_grid(line.grid, source)
            notebooks.append(notebook := str(line.notebook) if grid is None else _notebook_of(grid, line.notebook))
            rest: Any = (notebook, line.parameters, source, source_name, workspace)
            unwanted = line.on_request or notebook < (first or "") if only is None else not notebook.startswith(only)
            if unwanted and profile.winners == "thesis":
                continue
            runs = [_planned(*rest)] if grid is None else _resolve_grid(grid, *rest)
            if grid is not None and line.profile is None:
                sweeps.append(Candidates(grid.name, line.parameters, runs))
            if unwanted:
                continue
            step = Step(runs, None if grid is None else grid.name)
            if grid is not None:
                step = _choosing(step, grid, *rest, chooser=(profile, name), sweeps=sweeps, earlier=runs_of(steps))
            for run in step.runs:
                earlier, other = copies.setdefault(run.executed, (number, run))
                if other is not run and other.fingerprint != run.fingerprint:  # which asks for the files of a corpus
                    same = f"line {earlier} has another run whose executed copy is {run.executed.name}"
                    raise InputError(f"{same}; give one of them a profile of another name")
        except InputError as error:
            raise InputError(f"profile {profile.name}: plan, line {number} ({line}): {error}") from None
        steps.append(step)
    if not steps:
        asked = f"--only {only}" if only else f"--from {first}" if first else "an empty plan"
        known = ", ".join(dict.fromkeys(notebooks)) or "none: add lines to `plan`"
        raise InputError(f"profile {profile.name}: {asked} leaves no run; the plan's notebooks are {known}")
    return steps


def resolve_sweep(
    notebook: str | None, grid: GridLike, workspace: Workspace, *, profile: str | Path, parameters: Mapping[str, Any]
) -> list[Step]:
    """A sweep as a plan of one step; arguments as of `sweeps.sweep`, and no notebook where the grid names one."""
    chooser = loaded, name = Profile.load(profile), profile_argument(profile)
    found = load_grid(grid, loaded)
    rest: Any = (_notebook_of(found, notebook), parameters, loaded, name, workspace)
    return [_choosing(Step(_resolve_grid(found, *rest), found.name), found, *rest, chooser=chooser)]


def runs_of(steps: Iterable[Step]) -> list[Planned]:
    return [run for step in steps for run in step.runs]


def chosen_runs(steps: Iterable[Step]) -> list[Planned]:
    """The runs that are known, and those that can be chosen by now."""
    found: list[Planned] = []
    for step in steps:
        found += step.known
        with suppress(UnchosenError):
            found += step.choose()
    return found


def _choosing(
    step: Step, grid: Grid, notebook: str, overrides: Mapping[str, Any], profile: Profile, name: str,
    workspace: Workspace, *, chooser: tuple[Profile, str], sweeps: Sequence[Candidates] = (), earlier: Runs = (),
) -> Step:  # fmt: skip
    """The step of a grid with the runs that records choose, now or later, if it has any.

    chooser: the profile whose `winners` counts, and its name; grids that `sweeps` lacks are taken as they are in it.
    earlier: runs that are executed before.
    """
    if chooser[0].winners == "thesis" or not (grid.best_of or grid.compounds):
        return step
    later = [run for run in step.runs if grid.best_of or run.parameters["compound"] is not None]
    known = [run for run in step.runs if run not in later]
    groups: list[list[Candidates]] = []
    for dm in (True, False) if grid.compounds else ():
        groups.append([Candidates(grid.name, overrides, [run for run in known if run.parameters["dm"] is dm])])
    for names in grid.best_of:
        groups.append([])
        for other in names:
            found = [sweep for sweep in sweeps if sweep.grid == other]
            runs = [] if found else _resolve_grid(load_grid(other, chooser[0]), None, {}, *chooser, workspace)
            groups[-1] += found or [Candidates(other, {}, runs)]

    def make(best: Runs) -> Planned:
        recipe = {own: getattr(best[0].profile.parameters, own) for own in STUDENT_RUN if own != "documents"}
        given = {"compound": "+".join(run.label for run in best)} if grid.compounds else recipe
        return _planned(notebook, {**given, **overrides}, profile, name, workspace)

    candidates = [run for sweep in chain(*groups) for run in sweep.runs]
    for run in candidates if grid.best_of else ():
        if run.notebook not in TRAINING or run.notebook in FINAL:
            raise InputError(f"grid {grid.name}: best_of: names a grid of {run.notebook}; name those of 03, 04 or 05")
        make([run])  # none is refused in the end
    choose = partial(choose_runs, groups, make, grid.compounds, workspace)
    before = {run.executed for run in (*earlier, *known)}
    chosen = choose({run.executed for run in candidates if run.executed in before and not is_done(run, workspace)})
    return Step([*known, *chosen], grid.name) if chosen else Step(step.runs, grid.name, later, choose)


def profile_argument(profile: str | Path) -> str:
    """A profile as a notebook's parameter: its name, or its absolute path, since notebooks run in their own folder."""
    return str(profile_path(profile) if Path(profile).suffix in {".yaml", ".yml"} else profile)


def _planned(notebook: str, given: Mapping[str, Any], profile: Profile, name: str, workspace: Workspace) -> Planned:
    key = RunKey.of(notebook, profile, **given)
    key.check()
    source = workspace.root / "notebooks" / f"{notebook}.ipynb"
    if not source.is_file():
        raise InputError(f"{source}: no such notebook; regenerate it with `docemb init` or `jupytext --sync *.py`")
    read_json(source, "remove it and regenerate it with `jupytext --sync notebooks/*.py`")
    executed = workspace.outputs / "notebooks" / notebook / f"{key.slug}.ipynb"
    return Planned(key, {"profile": name, **key.parameters}, source, executed)


def _resolve_grid(
    grid: Grid, notebook: str | None, overrides: Mapping[str, Any], profile: Profile, name: str, workspace: Workspace
) -> list[Planned]:
    """The runs of a grid, each with `overrides`; no two of them may be the same."""
    notebook = _notebook_of(grid, notebook)
    planned: list[Planned] = []
    first: dict[str | Path, int] = {}  # parameters that count, or executed copy → number of the first run that has it
    for number, given in enumerate(grid.runs, 1):
        parameters = {**given, **overrides}
        try:
            if "profile" in parameters:
                raise InputError("profile: a sweep has one for all its runs; give it as --profile")
            check_names(notebook, parameters)
            run = _planned(notebook, parameters, profile, name, workspace)
            if earlier := first.get(run.key.same_but()) or first.get(run.executed):
                varied = f"the grid varies what is given for all runs: {', '.join(overrides)}"
                mend = varied if overrides else "leave one of them out"
                raise InputError(f"the same as run {earlier} ({run.label}); {mend}")
        except InputError as error:
            raise InputError(f"grid {grid.name}: run {number}: {error}") from None
        first |= {run.key.same_but(): number, run.executed: number}
        planned.append(run)
    return planned


def _notebook_of(grid: Grid, asked: str | None) -> str:
    """The notebook of a grid's runs; a name or number that is `asked` for must agree with the grid's own."""
    names = [name for name in (None if asked is None else notebook_named(asked), grid.notebook) if name]
    if not names:
        raise InputError(f"grid {grid.name}: notebook is missing; say which of {', '.join(NOTEBOOKS)} it is for")
    if names[0] != names[-1]:
        raise InputError(f"grid {grid.name}: is for notebook {names[-1]}, not for {names[0]}")
    return names[0]


def grid(name: str, profile: str | Path | Profile = "thesis") -> list[dict[str, Any]]:
    """The runs of a grid in `params/grids/` as notebook parameters, scaled to a profile where the grid says so.

    The last width of both projections becomes that of the profile's student or contextual teacher, as in the thesis;
    hidden widths and vector sizes shrink in proportion, and the mask becomes the structural teacher's context.

    Example:
        >>> runs = grid("weighting-cosine", "tiny")
        >>> len(runs), runs[0]["lam"]
        (9, 0.95)
    """
    return load_grid(name, profile if isinstance(profile, Profile) else Profile.load(profile)).runs


def grid_place(key: RunKey) -> str:
    """The grid in `params/grids/`, scaled to the profile, that a run belongs to: `structural, run 3 of 16`; or ""."""
    for name in _grid_files():
        with suppress(InputError):  # of a grid whose runs do not fit this profile
            found = load_grid(name, key.profile)
            own = found.runs if found.notebook == key.notebook else []
            runs = [RunKey.bare(key.notebook, key.profile, **run) for run in own]
            if key.cell in (cells := [run.cell for run in runs]):
                return f"{name}, run {cells.index(key.cell) + 1} of {len(cells)}"
    return ""


def names_in_grids(key: RunKey, *grids: str) -> list[str]:
    """The names of a run in `grids` (none given: all in `params/grids/`), which are those of the thesis.

    A run has a name at the widths of the thesis and at those of its profile, and in each notebook that can make it.
    """
    found: dict[str, None] = {}
    for name, profile in product(grids or _grid_files(), (THESIS, key.profile)):
        with suppress(InputError):  # of a grid whose runs do not fit this profile
            _, notebook, runs, places, *_ = load_grid(name, profile)
            keys = {own: RunKey.bare(notebook or key.notebook, profile, **runs[at]) for own, at in places.items()}
            found |= dict.fromkeys(own for own, run in keys.items() if run.cell == key.cell)
    return list(found)


def _grid_files() -> dict[str, Path]:
    roots = (SHIPPED, find_root())
    return {file.stem: file for root in roots for file in sorted((root / "params" / "grids").glob("*.yaml"))}


def load_grid(given: GridLike, profile: Profile) -> Grid:
    """A grid in `params/grids/` by name, of a .yaml file, or of the runs' own parameters."""
    if not isinstance(given, str | Path):
        if not isinstance(given, Sequence) or not given:
            raise InputError(f"grid: write a list of mappings from parameters to values, got {given!r}")
        return Grid("given", None, [_mapping(run, f"grid: run {number}") for number, run in enumerate(given, 1)], {})
    path, name = Path(given), str(given)
    if path.suffix not in {".yaml", ".yml"}:
        if name not in (files := _grid_files()):
            known = ", ".join(sorted(files))
            raise InputError(f"grid {name!r} is unknown; known are {known}, or give the path of a .yaml file")
        path = files[name]
    elif not path.is_file():
        raise InputError(f"grid {name}: no such file")
    stat = path.stat()
    raw = _read(path, stat.st_mtime_ns, stat.st_size)
    if not isinstance(raw, dict):
        raise InputError(f"{path}: a grid is a mapping with `axes` or `runs`, see params/grids/")
    for key in raw:
        if key not in GRID_FIELDS:
            raise InputError(f"{path}: unknown key {key!r}{nearest(str(key), GRID_FIELDS)}")
    notebook = raw.get("notebook")
    if notebook is not None:
        asked = f"{notebook:02d}" if type(notebook) is int else str(notebook)  # YAML reads 05 as a number
        notebook = notebook_named(asked, source=f"{path}: ")
    runs = list(_runs(raw, path))
    if not runs:
        raise InputError(f"{path}: no runs; list some under `runs`, or values under `axes`")
    names = {}
    for own, values in _mapping(raw.get("names") or {}, f"{path}: names").items():
        wanted = _mapping(values, f"{path}: names: {own}").items()
        places = [place for place, run in enumerate(runs) if wanted <= run.items()]
        if len(places) != 1:
            raise InputError(f"{path}: names: {own}: {len(places)} runs have these parameters; name those of one run")
        names[own] = places[0]
    if "scale" in raw:
        if raw["scale"] != THESIS.name:
            raise InputError(f"{path}: scale: write thesis, or leave it out, got {raw['scale']!r}")
        if (student := width(profile.student.model)) is None:
            from docemb_lib.student.loading import load_config

            student = int(load_config(pretrained.resolve(profile.student.model)).hidden_size)
        runs = [_scaled(run, profile, student, f"{path}: run {number}") for number, run in enumerate(runs, 1)]
    return Grid(name, notebook, runs, names, *selection_in(raw, notebook, runs, path))


@lru_cache
def _read(path: Path, *state: int) -> Any:
    """The content of a grid's file in this state: a notebook asks each file for the place and the names of its run."""
    return read_yaml(path)


def _runs(raw: Mapping[str, Any], path: Path) -> Iterator[dict[str, Any]]:
    base = _mapping(raw.get("base") or {}, f"{path}: base")
    axes = raw.get("axes") or []
    for number, lists in enumerate(axes if isinstance(axes, list) else [axes], 1):
        where = f"{path}: axes, product {number}" if isinstance(axes, list) else f"{path}: axes"
        for name, values in _mapping(lists, where).items():
            if not isinstance(values, list) or not values:
                raise InputError(f"{where}: {name}: write a list of values, got {values!r}")
        for chosen in product(*lists.values()):
            yield {**base, **dict(zip(lists, chosen, strict=True))}
    runs = raw.get("runs") or []
    if not isinstance(runs, list):
        raise InputError(f"{path}: runs: write a list of mappings, got {runs!r}")
    for number, run in enumerate(runs, 1):
        yield {**base, **_mapping(run, f"{path}: runs, line {number}")}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(name, str) for name in value):
        raise InputError(f"{where}: write a mapping from parameters to values, got {value!r}")
    return dict(value)


def _scaled(parameters: Mapping[str, Any], profile: Profile, student: int, where: str) -> dict[str, Any]:
    """Parameters in the thesis' widths, scaled to a profile and the width of its student. Builds no artefact."""
    THESIS.with_parameters(source=where, **parameters)  # the code below relies on valid values
    scaled, by_student = dict(parameters), student / THESIS_WIDTH
    if (teacher := scaled.get("contextual_teacher")) is not None:
        before, after = (one.contextual_teachers.width(teacher) for one in (THESIS, profile))
        ends = {THESIS_WIDTH: student, before: after}
        for name, factor in (("student_projection", by_student), ("contextual_projection", after / before)):
            if name in scaled:
                scaled[name] = _scaled_projection(str(scaled[name]), factor, ends, f"{where}: {name}")
    if scaled.get("max_structural_len") is not None:
        structural = profile.structural_teacher
        scaled["max_structural_len"] = structural.max_tokens or sbert_of(structural, "truncate").max_tokens
    if "vector_size" in scaled:
        scaled["vector_size"] = _times(scaled["vector_size"], by_student)
    if scaled.get("compound") is not None:
        members = [
            one | {"vector_size": _times(one["vector_size"], by_student)} for one in members_of(scaled["compound"])
        ]
        scaled["compound"] = "+".join(label_of_paragraph_vector(**one) for one in members)
    return scaled


def _scaled_projection(spec: str, factor: float, ends: Mapping[int, int], where: str) -> str:
    """The same layers with other widths: the last one from `ends`, those before it times `factor`."""
    widths = [width for width, _ in parse_projection(spec)]
    if not widths:
        return spec
    if widths[-1] not in ends:
        raise InputError(f"{where}: {spec} cannot be scaled, it does not end in {' or '.join(map(str, ends))}")
    return with_widths(spec, [*(_times(width, factor) for width in widths[:-1]), ends[widths[-1]]])


def _times(size: int, factor: float) -> int:
    return max(2, round(size * factor))

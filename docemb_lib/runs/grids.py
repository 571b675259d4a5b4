"""Grids: the sets of notebook parameters that a table of the thesis, or one's own question, needs.

A grid lists the runs of one `notebook`: one by one (`runs`), as products of lists of values
(`axes`: one mapping, or a list of mappings), or both, on top of the values that all runs share
(`base`):

    notebook: 05_weighting
    base: {contextual_teacher: PV}
    axes: {structural_loss: [cosine, mse], lam: [0.2, 0.5]}
    runs: [{structural_loss: cosine, lam: null}]

`params/grids/` holds the eight grids of the thesis, `soft-cca-beta`, `contextual-losses` and
`weighting-teachers`. A grid with `scale: thesis` is written in the thesis' widths
and scaled to the widths of the profile; any other grid is taken as it is. `names` are names of
single runs, each with the parameters by which the run is found, as in `names: {no-weighting: {lam:
null}}`.
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.runs.identity import RunIdentity
from docemb_lib.runs.stages import sbert_of
from docemb_lib.settings.files import SHIPPED, find_root, read_yaml, yaml_file
from docemb_lib.settings.notebooks import REGISTRY, notebook_named
from docemb_lib.settings.parameters import members_of
from docemb_lib.settings.profile import Profile, validated, width
from docemb_lib.settings.projections import IDENTITY, parse_projection, with_widths
from docemb_lib.settings.sections import Section, label_of_paragraph_vector

THESIS = Profile(name="thesis")  # the thesis' settings are the defaults
THESIS_WIDTH = 768  # of the thesis' student
NotebookParameters = dict[str, Any]  # those of a notebook, by name
# A name or file, or the parameters of each run.
GridLike = str | Path | Sequence[Mapping[str, object]]


class GridFile(Section):
    """The content of a grid's file."""

    notebook: (
        Annotated[str, BeforeValidator(lambda name: f"{name:02d}" if type(name) is int else name)]
        | None
    ) = None
    scale: Literal["thesis"] | None = None
    base: NotebookParameters = {}
    axes: Annotated[
        list[dict[str, Annotated[list[Any], Field(min_length=1)]]],
        BeforeValidator(lambda axes: axes if isinstance(axes, list) else [axes]),
    ] = []
    runs: list[NotebookParameters] = []
    names: dict[str, NotebookParameters] = {}


class Grid(NamedTuple):
    """Sets of notebook parameters, which are not validated yet."""

    name: str  # for error messages
    notebook: str | None  # if the grid's file names one
    runs: list[NotebookParameters]
    names: Mapping[str, int]  # {name: place of the run}

    def notebook_of_runs(self, asked: str | None) -> str:
        """The notebook of the grid's runs; one that is `asked` for must be the grid's own.

        Raises InputError where they differ, and where there is none.
        """
        notebook = None if asked is None else notebook_named(asked)
        if notebook and self.notebook and notebook != self.notebook:
            problem = f"it is for notebook {self.notebook}, not for {notebook}"
            raise InputError(f"grid {self.name}: {problem}; name {self.notebook}")
        notebook = notebook or self.notebook
        if not notebook:
            known = ", ".join(REGISTRY)
            raise InputError(
                f"grid {self.name}: notebook is missing; say which of {known} it is for"
            )
        return notebook


def grid(name: str, profile: str | Path | Profile = "thesis") -> list[NotebookParameters]:
    """The runs of a grid in `params/grids/` as notebook parameters, scaled to a profile.

    A grid that is not marked `scale: thesis` is not scaled. Both projections end as wide as the
    larger of the two embeddings, the student's or the contextual teacher's, as in the thesis
    (section 4.5.2); hidden widths and vector sizes shrink in proportion, and the mask becomes the
    structural teacher's context.

    Example:
        >>> runs = grid("weighting-cosine", "tiny")
        >>> len(runs), runs[0]["lam"]
        (9, 0.95)
    """
    return load_grid(name, profile if isinstance(profile, Profile) else Profile.load(profile)).runs


def names_in_grids(key: RunIdentity, *grids: str) -> list[str]:
    """The names that the thesis gives a run in `grids` (none given: all in `params/grids/`).

    A run has a name at the widths of the thesis and at those of its profile, and in each notebook
    that can make it. A student has one only in the form of the thesis, see `in_thesis_form`.
    """
    if not key.in_thesis_form:
        return []
    names: list[str] = []
    for grid_name, profile in product(grids or _grid_files(), (THESIS, key.profile)):
        with suppress(InputError):  # of a grid whose runs do not fit this profile
            grid = load_grid(grid_name, profile)
            notebook = grid.notebook or key.notebook
            cells = {
                name: RunIdentity.bare(notebook, profile, **grid.runs[place]).cell
                for name, place in grid.names.items()
            }
            names += [name for name, cell in cells.items() if cell == key.cell]
    return list(dict.fromkeys(names))


def load_grid(given: GridLike, profile: Profile) -> Grid:
    """A grid in `params/grids/` by name, of a .yaml file, or of the runs' own parameters.

    Raises InputError for whatever is wrong with the file.
    """
    name = "given"
    source = "grid"
    content: Any = {"runs": given}
    if isinstance(given, str | Path):
        path = yaml_file("grid", given, _grid_files())
        name = str(given)
        source = str(path)
        content = read_yaml(path)
    if not isinstance(content, dict):
        mend = "write it as those in params/grids/"
        raise InputError(f"{source}: a grid is a mapping with `axes` or `runs`; {mend}")
    file = validated(GridFile, content, source)
    notebook = file.notebook
    if notebook is not None:
        notebook = notebook_named(notebook, source=f"{source}: ")
    runs = _runs_in(file)
    if not runs:
        mend = "list some under `runs`, or values under `axes`"
        raise InputError(f"{source}: there are no runs; {mend}")
    names = _places(file.names, runs, f"{source}: names")
    if file.scale is not None:
        student = _student_width(profile)
        runs = [
            _scaled(run, profile, student, f"{source}: run {number}")
            for number, run in enumerate(runs, 1)
        ]
    return Grid(name, notebook, runs, names)


def _grid_files() -> dict[str, Path]:
    """The grids of docemb and, over them, those of the working folder, by name."""
    files = {}
    for root in (SHIPPED, find_root()):
        for file in sorted((root / "params" / "grids").glob("*.yaml")):
            files[file.stem] = file
    return files


def _runs_in(file: GridFile) -> list[NotebookParameters]:
    """The runs of a grid's file: the products of its axes, then the runs listed one by one."""
    runs = []
    for axes in file.axes:
        for values in product(*axes.values()):
            runs.append({**file.base, **dict(zip(axes, values, strict=True))})
    return runs + [{**file.base, **run} for run in file.runs]


def _places(
    names: Mapping[str, NotebookParameters], runs: Sequence[NotebookParameters], where: str
) -> dict[str, int]:
    """The place of the run that each name stands for, by the parameters that it alone has."""
    places = {}
    for name, wanted in names.items():
        matching = [place for place, run in enumerate(runs) if wanted.items() <= run.items()]
        if len(matching) != 1:
            problem = f"{len(matching)} runs have these parameters"
            mend = "give parameters that one run alone has"
            raise InputError(f"{where}: {name}: {problem}; {mend}")
        places[name] = matching[0]
    return places


def _student_width(profile: Profile) -> int:
    """The width of a profile's student; of an unusual encoder it is read from the model's files."""
    usual_width = width(profile.student.model)
    if usual_width is not None:
        return usual_width
    from docemb_lib.student.loading import load_config

    return int(load_config(pretrained.resolve(profile.student.model)).hidden_size)


def _scaled(
    parameters: NotebookParameters, profile: Profile, student: int, where: str
) -> NotebookParameters:
    """Parameters in the thesis' widths, scaled to a profile and the width of its student.

    Builds no artefact. Raises InputError for invalid parameters, and for a projection that does
    not end in the width of the thesis' student or contextual teacher.
    """
    THESIS.with_parameters(source=where, **parameters)  # the code below relies on valid values
    scaled = dict(parameters)
    by_student = student / THESIS_WIDTH
    teacher = scaled.get("contextual_teacher")
    if teacher is not None:
        before = THESIS.contextual_teachers.width(teacher)
        after = profile.contextual_teachers.width(teacher)
        # The larger embedding of the thesis becomes the larger one here, whichever that is.
        in_thesis = sorted((THESIS_WIDTH, before), reverse=True)
        ends = dict(zip(in_thesis, sorted((student, after), reverse=True), strict=True))
        if str(scaled.get("contextual_projection", "")).strip() == IDENTITY:
            # A teacher without a projection sets the width of both views.
            ends[before] = after
        factors = {"student_projection": by_student, "contextual_projection": after / before}
        for name, factor in factors.items():
            if name in scaled:
                spec = str(scaled[name])
                scaled[name] = _scaled_projection(spec, factor, ends, f"{where}: {name}")
    if scaled.get("max_structural_len") is not None:
        structural = profile.structural_teacher
        scaled["max_structural_len"] = (
            structural.max_tokens or sbert_of(structural, "truncate").max_tokens
        )
    if "vector_size" in scaled:
        scaled["vector_size"] = _times(scaled["vector_size"], by_student)
    if scaled.get("compound") is not None:
        members = members_of(scaled["compound"])
        for member in members:
            member["vector_size"] = _times(member["vector_size"], by_student)
        scaled["compound"] = "+".join(label_of_paragraph_vector(**member) for member in members)
    return scaled


def _scaled_projection(spec: str, factor: float, ends: Mapping[int, int], where: str) -> str:
    """The same layers with other widths: the last from `ends`, the others times `factor`."""
    widths = [width for width, _ in parse_projection(spec)]
    if not widths:
        return spec
    *hidden, last = widths
    if last not in ends:
        problem = f"{spec} cannot be scaled to the profile, because it does not end in"
        mend = "let it end so, or leave `scale` out"
        raise InputError(f"{where}: {problem} {' or '.join(map(str, ends))}; {mend}")
    return with_widths(spec, [*(_times(width, factor) for width in hidden), ends[last]])


def _times(size: int, factor: float) -> int:
    return max(2, round(size * factor))

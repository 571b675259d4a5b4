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
and scaled to the widths of the profile; any other grid is taken as it is.
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import BeforeValidator, Field

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.runs.stages import sbert_of
from docemb_lib.settings.files import SHIPPED, find_root, read_yaml, yaml_file
from docemb_lib.settings.notebooks import REGISTRY, notebook_named
from docemb_lib.settings.parameters import Parameters, members_of
from docemb_lib.settings.profile import Profile, validated, width
from docemb_lib.settings.projections import parse_projection, with_widths
from docemb_lib.settings.sections import Section, label_of_paragraph_vector

THESIS = Profile(name="thesis")  # the thesis' settings are the defaults
THESIS_WIDTH = 768  # of the thesis' student
NotebookParameters = dict[str, Any]  # those of a notebook, by name
# A name or file, or the parameters of each run.
GridLike = str | Path | Sequence[Mapping[str, object]]


class GridFile(Section):
    """The content of a grid's file."""

    notebook: Annotated[str, Field(coerce_numbers_to_str=True)] | None = None
    scale: Literal["thesis"] | None = None
    base: NotebookParameters = {}
    axes: Annotated[
        list[dict[str, Annotated[list[Any], Field(min_length=1)]]],
        BeforeValidator(lambda axes: axes if isinstance(axes, list) else [axes]),
    ] = []
    runs: list[NotebookParameters] = []
    names: list[str] = []


class Grid(NamedTuple):
    """Sets of notebook parameters, which are not validated yet."""

    name: str  # for error messages
    notebook: str | None  # if the grid's file names one
    runs: list[NotebookParameters]
    names: list[str]  # in the thesis, of the first runs

    def notebook_of_runs(self, asked: str | None) -> str:
        """The notebook of the grid's runs; one that is `asked` for must be the grid's own.

        Raises InputError where they differ, and where there is none.
        """
        notebook = self.notebook if asked is None else notebook_named(asked)
        if notebook is None:
            known = ", ".join(REGISTRY)
            raise InputError(
                f"grid {self.name}: notebook is missing; say which of {known} it is for"
            )
        if self.notebook not in (None, notebook):
            problem = f"it is for notebook {self.notebook}, not for {notebook}"
            raise InputError(f"grid {self.name}: {problem}; name {self.notebook}")
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


def load_grid(given: GridLike, profile: Profile) -> Grid:
    """A grid in `params/grids/` by name, of a .yaml file, or of the runs' own parameters.

    Raises InputError for whatever is wrong with the file.
    """
    name = "given"
    content: Any = {"runs": given}
    if isinstance(given, str | Path):
        name = str(given)
        content = read_yaml(yaml_file("grid", given, _grid_files())) or {}
    source = f"grid {name}"
    flat = Parameters.model_fields.keys() & content if isinstance(content, dict) else ()
    if flat:
        raise InputError(
            f"{source}: {', '.join(sorted(flat))}: put the lists of values under `axes`"
        )
    file = validated(GridFile, content, source)
    notebook = file.notebook
    if notebook is not None:
        notebook = notebook_named(notebook, source=f"{source}: ")
    runs = [*_listed(file)]
    if not runs:
        mend = "list some under `runs`, or values under `axes`"
        raise InputError(f"{source}: there are no runs; {mend}")
    if file.scale is not None:
        for place, run in enumerate(runs):
            runs[place] = _scaled(run, profile, f"{source}: run {place + 1}")
    return Grid(name, notebook, runs, file.names)


def _grid_files() -> dict[str, Path]:
    """The grids of docemb and, over them, those of the working folder, by name."""
    files = {}
    for root in (SHIPPED, find_root()):
        for file in sorted((root / "params" / "grids").glob("*.yaml")):
            files[file.stem] = file
    return files


def _listed(file: GridFile) -> Iterator[NotebookParameters]:
    """The runs of a grid's file: the products of its axes, then the runs listed one by one."""
    for axes in file.axes:
        for values in product(*axes.values()):
            yield file.base | dict(zip(axes, values, strict=True))
    for run in file.runs:
        yield file.base | run


def _student_width(profile: Profile) -> int:
    """The width of a profile's student; of an unusual encoder it is read from the model's files."""
    usual_width = width(profile.student.model)
    if usual_width is not None:
        return usual_width
    from docemb_lib.student.loading import load_config

    return int(load_config(pretrained.resolve(profile.student.model)).hidden_size)


def _scaled(run: NotebookParameters, profile: Profile, where: str) -> NotebookParameters:
    """The parameters of a run in the thesis' widths, scaled to a profile.

    Builds no artefact. Raises InputError, which begins with `where`, for invalid parameters.
    """
    valid = THESIS.with_parameters(source=where, **run).parameters
    student = _student_width(profile)
    by_student = student / THESIS_WIDTH
    values = {**run, "vector_size": _times(valid.vector_size, by_student)}
    if valid.contextual_teacher is not None:
        teacher = profile.contextual_teachers.width(valid.contextual_teacher)
        by_teacher = teacher / THESIS.contextual_teachers.width(valid.contextual_teacher)
        # A teacher without a projection sets the width of both views.
        end = max(student, teacher) if parse_projection(valid.contextual_projection) else teacher
        for side, factor in {"student": by_student, "contextual": by_teacher}.items():
            spec = getattr(valid, f"{side}_projection")
            sizes = [_times(size, factor) for size, _ in parse_projection(spec)]
            values[f"{side}_projection"] = with_widths(spec, [*sizes[:-1], end]) if sizes else spec
    if valid.max_structural_len is not None:
        structural = profile.structural_teacher
        values["max_structural_len"] = (
            structural.max_tokens or sbert_of(structural, "truncate").max_tokens
        )
    if valid.compound is not None:
        members = members_of(valid.compound)
        for member in members:
            member["vector_size"] = _times(member["vector_size"], by_student)
        values["compound"] = "+".join(label_of_paragraph_vector(**member) for member in members)
    return {name: values[name] for name in run}


def _times(size: int, factor: float) -> int:
    return max(2, round(size * factor))

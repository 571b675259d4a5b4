"""Profile: one validated, frozen object for all that a run depends on, read from `params/*.yaml`.

Two kinds of settings meet here. `parameters` is the vocabulary of the notebooks (flat names, one meaning everywhere);
the other sections say which corpus, teachers, student and sizes a profile stands for. Defaults are the thesis'.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from docemb_lib.errors import InputError
from docemb_lib.settings import (
    LINKED_TASKS,
    ContextualTeachers,
    Corpus,
    Evaluation,
    FurtherTeacher,
    Parameters,
    Section,
    SimDE,
    StructuralTeacher,
    Student,
    TextSource,
    Training,
)
from docemb_lib.settings.profile_file import ProfileFile, read_profile_file

Model = TypeVar("Model", bound=BaseModel)
STUDENT_RUN = (
    "structural_loss", "distance", "gamma", "temperature", "negatives", "contextual_teacher", "contextual_loss",
    "student_projection", "contextual_projection", "lam", "lam_by_length", "max_structural_len", "form", "documents",
)  # fmt: skip
WEIGHTING = ("lam", "lam_by_length", "max_structural_len", "form")
NOTEBOOKS: dict[str, tuple[str, ...]] = {  # the parameters that each notebook takes, besides `profile` and `seed`
    "01_corpus": (),
    "02_paragraph_vector": ("dm", "vector_size", "min_count", "preprocess", "compound"),
    "03_structural": ("structural_loss", "distance", "gamma", "temperature", "negatives", "documents"),
    "04_projections": tuple(name for name in STUDENT_RUN if name not in WEIGHTING),
    "05_weighting": STUDENT_RUN,
    "06_evaluation": STUDENT_RUN,
    "07_simde": ("pairs", "pair_temperature", "mlm_weight", "beside_teachers", "documents"),
}
TRAINING = tuple(name for name, parameters in NOTEBOOKS.items() if "documents" in parameters)  # train a student
SELF_SUPERVISED = ("07_simde",)  # of these: the student learns from pairs of texts
FINAL = ("06_evaluation", "07_simde")  # score the final tasks on their test splits
BESIDE_CONTEXTUAL = ("04_projections", "05_weighting", *FINAL)  # compare the student with all Paragraph Vectors
_UNWEIGHTED = {"max_structural_len": None, "lam": None, "lam_by_length": None, "form": "weighted"}
FIXED: dict[str, dict[str, Any]] = {  # what a notebook is not about is switched off in its runs
    "03_structural": {"contextual_teacher": None, **_UNWEIGHTED},
    "04_projections": _UNWEIGHTED,
}
WIDTHS = {  # hidden sizes of encoders that students and structural teachers are often made of
    "all-MiniLM-L6-v2": 384,
    "sentence-transformers/all-MiniLM-L6-v2": 384,
    "sentence-transformers/all-MiniLM-L12-v2": 384,
    "sentence-transformers/all-mpnet-base-v2": 768,
    "allenai/longformer-base-4096": 768,
    "allenai/longformer-large-4096": 1024,
    "sentence-transformers/all-roberta-large-v1": 1024,
}


PYDANTICS = ("function-", "lax-or-strict[", "list[", "dict[")  # how it calls validators and members of a union


class PlanLine(BaseModel):
    """One line of the plan: a run of a notebook, or all runs of a grid, with the parameters they are given."""

    model_config = ConfigDict(extra="allow", frozen=True)
    notebook: str | None = None  # None: the grid's own
    grid: str | None = None  # in params/grids/ by name, or a .yaml file
    profile: str | None = None  # another one than that of the plan, by name or as a .yaml file
    on_request: bool = False  # runs where `--only` asks for its notebook, and nowhere else

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        if self.notebook is not None:
            check_names(self.notebook, self.parameters)
        elif self.grid is None:
            raise ValueError("names neither a notebook nor a grid; write {notebook: 05_weighting} or {grid: final}")
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def __str__(self) -> str:
        return " ".join(filter(None, (self.notebook, self.grid and f"grid {self.grid}", self.profile)))


class Profile(Section):
    """All that a run depends on. `Profile.load("tiny", lam=0.8)`; every field may be set in its YAML file."""

    name: str
    parameters: Parameters = Parameters()
    corpus: Corpus = Corpus()
    structural_teacher: StructuralTeacher = StructuralTeacher()
    contextual_teachers: ContextualTeachers = ContextualTeachers()
    further_teachers: list[FurtherTeacher] = []  # of every student, in whatever notebook
    student: Student = Student()
    training: Training = Training()
    simde: SimDE = SimDE()
    evaluation: Evaluation = Evaluation()
    plan: list[PlanLine] = []

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        student, teacher = width(self.student.model), width(self.structural_teacher.model)
        if student and teacher and student != teacher:
            fits = ", ".join(name for name, size in WIDTHS.items() if size == student)
            raise ValueError(
                f"student.model {self.student.model} is {student} wide, structural_teacher.model "
                f"{self.structural_teacher.model} is {teacher} wide; they must be equal"
                + (f" (as wide as the student: {fits})" if fits else "")
            )
        names = [further.name for further in self.further_teachers]
        if len(set(names)) < len(names):
            raise ValueError(f"further_teachers: their names must differ, got {', '.join(names)}")
        for further in self.further_teachers:
            theirs = width(further.model) if further.model else None
            bare = further.student_projection == further.teacher_projection == "-"
            if bare and student and theirs and student != theirs:
                raise ValueError(
                    f"further_teachers: {further.name} is {theirs} wide, student.model {self.student.model} {student}; "
                    f"give it a student_projection that ends in {theirs}"
                )
        if self.corpus.source != "installed-docs":
            linked = [t for t in (*self.evaluation.tasks, *self.evaluation.sweep_tasks) if t in LINKED_TASKS]
            if linked:
                raise ValueError(f"evaluation.tasks: {linked[0]} needs corpus.source installed-docs; use halves")
        return self

    @classmethod
    def load(cls, name: str | Path = "tiny", **overrides: Any) -> Self:
        """Read a profile by name (`params/NAME.yaml`) or path; `overrides` replace notebook parameters by name.

        An override that equals the string "profile" leaves the profile's own value.
        Raises InputError, one line naming file, field, value and mend.
        """
        path = profile_path(name)
        file = read_profile_file(path)
        named = file.origins.get(("name",)) == path  # not by its base
        raw = file.content if named else {**file.content, "name": path.stem}
        profile = _validated(cls, raw, file)
        for number, line in enumerate(profile.plan, 1):  # values, before any run starts; grids see `resolve_plan`
            if line.grid is None and line.profile is None:
                source = f"{file.origin(('plan',))}: plan, line {number} ({line})"
                profile.for_notebook(str(line.notebook), source=source, **line.parameters)
        return profile.with_parameters(**overrides)

    @property
    def text_sources(self) -> list[TextSource]:
        """Of the students' corpus, and of the contextual teachers' where they have one of their own."""
        return [self.corpus, *filter(None, [self.contextual_teachers.corpus])]

    def for_notebook(self, notebook: str, *, source: str | None = None, **overrides: Any) -> Self:
        """The profile as a run of `notebook` sees it. InputError for a parameter that the notebook does not take."""
        check_names(notebook, overrides)
        return self.with_parameters(source=source or notebook, **{**overrides, **FIXED.get(notebook, {})})

    def with_tasks(self, tasks: Sequence[str], *, source: str) -> Self:
        """The same profile with other tasks in its final evaluation; `source` names them in an error."""
        raw = self.model_dump()
        raw["evaluation"]["tasks"] = list(tasks)
        return _validated(type(self), raw, source)

    def with_parameters(self, *, source: str = "parameters", **overrides: Any) -> Self:
        """The same profile with notebook parameters replaced; `source` names them in an error."""
        given = {name: value for name, value in overrides.items() if value != "profile" and name != "profile"}
        parameters = _validated(Parameters, {**self.parameters.model_dump(), **given}, source)
        return self.model_copy(update={"parameters": parameters})


def _validated(model: type[Model], raw: dict[str, Any], source: str | ProfileFile) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        where = source.origin(error.errors()[0]["loc"]) if isinstance(source, ProfileFile) else source
        raise InputError(f"{where}: {_explain(error, model)}") from None


def profile_path(name: str | Path) -> Path:
    """`tiny` → params/tiny.yaml of this workspace; a path stays itself. InputError where there is no such file."""
    as_path = Path(name)
    if as_path.suffix in {".yaml", ".yml"}:
        for candidate in (as_path, find_root() / as_path):
            if candidate.is_file():
                return candidate.resolve()
        raise InputError(f"profile {name}: no such file")
    folder = find_root() / "params"
    path = folder / f"{name}.yaml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
        raise InputError(f"profile {str(name)!r} is unknown; known are {known}, or give the path of a .yaml file")
    return path


def find_root(start: Path | None = None) -> Path:
    """The folder that holds `params/`: from `start` (the working directory) upwards, then the installed source."""
    start = Path.cwd() if start is None else start
    source = Path(__file__).resolve().parents[2]
    for folder in (start, *start.parents, source):
        if any((folder / "params").glob("*.yaml")):
            return folder
    raise InputError(f"no folder with params/*.yaml in {start} or above it; run docemb inside its checkout")


def width(model: str) -> int | None:
    """Hidden size of a known model or of a local folder with a config.json; None where only loading would tell."""
    if model in WIDTHS:
        return WIDTHS[model]
    config = Path(model) / "config.json"
    if not config.is_file():
        return None
    try:
        found = json.loads(config.read_text(encoding="utf-8"))
    except ValueError as error:
        raise InputError(f"{config}: not valid JSON ({error}); restore the file") from None
    return found.get("hidden_size") if isinstance(found, dict) else None


def check_names(notebook: str, names: Any) -> None:
    """Refuse a notebook or a parameter of it that does not exist, naming the nearest one that does."""
    if notebook not in NOTEBOOKS:
        raise InputError(f"notebook {notebook!r} is unknown; known are {', '.join(NOTEBOOKS)}")
    allowed = ("profile", "seed", *NOTEBOOKS[notebook])
    for name in names:
        if name not in allowed:
            raise InputError(f"{notebook}: unknown parameter {name!r}{_nearest(name, allowed)}")


def _nearest(name: str, allowed: Any) -> str:
    close = difflib.get_close_matches(name, allowed, n=1)
    return (f"; did you mean {close[0]}?" if close else "") + f" (allowed: {', '.join(allowed)})"


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first of pydantic's errors as one line: field, value, what is allowed."""
    first = error.errors()[0]
    field = ".".join(str(part) for part in first["loc"] if not str(part).startswith(PYDANTICS))
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    if first["type"] == "extra_forbidden":
        for part in first["loc"][:-1]:
            model = _section(model, str(part)) or model
        return f"unknown key {field!r}{_nearest(str(first['loc'][-1]), list(model.model_fields))}{more}"
    message = first["msg"].removeprefix("Value error, ")
    value = first["input"]
    if isinstance(value, (dict, BaseModel)):  # a whole section: its fields speak for themselves
        return f"{field}: {message}{more}" if field else f"{message}{more}"
    return f"{field}: {message[0].lower()}{message[1:]}, got {value!r}{more}"


def _section(model: type[BaseModel], field: str) -> type[BaseModel] | None:
    info = model.model_fields.get(field)
    candidates = [] if info is None else [info.annotation, *get_args(info.annotation)]
    return next((c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), None)

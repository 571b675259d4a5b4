"""Profile: one validated, frozen object for all that a run depends on, read from `params/*.yaml`.

Two kinds of settings meet here. `parameters` is the vocabulary of the notebooks (flat names, one meaning everywhere);
the other sections say which corpus, teachers, student and sizes a profile stands for. Defaults are the thesis'.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Sequence
from glob import glob
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
    StructuralTeacher,
    Student,
    Training,
)
from docemb_lib.yaml_file import read_yaml

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
}
TRAINING = tuple(name for name, parameters in NOTEBOOKS.items() if "documents" in parameters)  # train a student
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


class PlannedRun(BaseModel):
    """One line of the plan: a notebook and the parameters it is given."""

    model_config = ConfigDict(extra="allow", frozen=True)
    notebook: str

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        check_names(self.notebook, self.parameters)
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


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
    evaluation: Evaluation = Evaluation()
    plan: list[PlannedRun] = []

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
        raw = read_yaml(path)
        if not isinstance(raw, dict):
            raise InputError(f"{path}: empty; a profile is a mapping, see params/own.yaml")
        raw.setdefault("name", path.stem)
        _locate(raw, path.parent)
        _locate_data(raw, path.parent)
        profile = _validated(cls, raw, str(path))
        for number, run in enumerate(profile.plan, 1):  # each run's values, before any of them starts
            profile.for_notebook(run.notebook, source=f"{path}: plan, run {number} ({run.notebook})", **run.parameters)
        return profile.with_parameters(**overrides)

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


def _validated(model: type[Model], raw: dict[str, Any], source: str) -> Model:
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error, model)}") from None


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
    source = Path(__file__).resolve().parent.parent
    for folder in (start, *start.parents, source):
        if any((folder / "params").glob("*.yaml")):
            return folder
    raise InputError(f"no folder with params/*.yaml in {start} or above it; run docemb inside its checkout")


def _locate(raw: dict[str, Any], folder: Path) -> None:
    """Make the models that a profile names relative to its own folder absolute: notebooks run in another one.

    A model's name is a path only if there is such a folder.
    """
    teachers = _dicts(raw.get("further_teachers"))
    for settings in _dicts([raw.get("student"), raw.get("structural_teacher"), *teachers]):
        model = settings.get("model")
        if isinstance(model, str) and (folder / model).is_dir():
            settings["model"] = str((folder / model).resolve())


def _locate_data(raw: dict[str, Any], folder: Path) -> None:
    """The same for the files of the corpus and of tasks; a hub's data set is a path only where there is such a one."""

    def absolute(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: absolute(one) for name, one in value.items()}
        if isinstance(value, list):
            return [absolute(one) for one in value]
        return str((folder / value).resolve()) if isinstance(value, str) else value

    def absolute_if_there(value: Any) -> Any:
        return absolute(value) if isinstance(value, str) and glob(str(folder / value)) else value

    for corpus in _dicts([raw.get("corpus")]):
        if "path" in corpus:
            corpus["path"] = absolute(corpus["path"])
        for settings in _dicts(corpus.get("datasets")):
            settings.update({"dataset": absolute_if_there(settings["dataset"])} if "dataset" in settings else {})
    for evaluation in _dicts([raw.get("evaluation")]):
        for settings in _dicts(evaluation.get("own_tasks")):
            settings.update({field: absolute(settings[field]) for field in ("path", "relevance") if field in settings})
        if isinstance(benchmarks := evaluation.get("benchmarks"), dict):
            evaluation["benchmarks"] = {name: absolute_if_there(place) for name, place in benchmarks.items()}


def _dicts(value: Any) -> list[dict[str, Any]]:
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def width(model: str) -> int | None:
    """Hidden size of a known model or of a local folder with a config.json; None where only loading would tell."""
    if model in WIDTHS:
        return WIDTHS[model]
    config = Path(model) / "config.json"
    if config.is_file():
        return json.loads(config.read_text(encoding="utf-8")).get("hidden_size")
    return None


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
    field = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-"))
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

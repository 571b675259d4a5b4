"""Profile: one validated, frozen object with all settings of a run, read from `params/*.yaml`.

The section `parameters` holds the notebook parameters; the others set corpus, teachers, student and
sizes. In a YAML file, keys of a mapping replace those of the file that its key `base` names.
"""

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError, model_validator

from docemb_lib.base.errors import InputError, nearest
from docemb_lib.base.files import read_json
from docemb_lib.base.private import UNION_LOCATIONS
from docemb_lib.settings import sections
from docemb_lib.settings.files import Settings, find_root, read_profile_file, yaml_file
from docemb_lib.settings.notebooks import REGISTRY, unknown_notebook
from docemb_lib.settings.parameters import Parameters

# The word in a notebook's cell that leaves a parameter as the profile has it.
AS_IN_PROFILE = "profile"
Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")
# Hidden sizes of the usual encoders of students and structural teachers.
WIDTHS = {
    "all-MiniLM-L6-v2": 384,
    "sentence-transformers/all-MiniLM-L6-v2": 384,
    "sentence-transformers/all-MiniLM-L12-v2": 384,
    "sentence-transformers/all-mpnet-base-v2": 768,
    "allenai/longformer-base-4096": 768,
    "allenai/longformer-large-4096": 1024,
    "sentence-transformers/all-roberta-large-v1": 1024,
    "google-bert/bert-base-uncased": 768,
}


class PlanLine(BaseModel):
    """One line of the plan: a run of a notebook, or several side by side, and their parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)
    notebook: str | None = None  # None: the notebook of the grid
    grid: str | None = None  # in params/grids/ by name, or a .yaml file
    # Instead of a grid: the parameters of each run of the notebook
    runs: list[Settings] | None = Field(None, min_length=1)
    profile: str | None = None  # by name or as a .yaml file; None: the profile of the plan
    on_request: bool = False  # only `docemb run NOTEBOOK` runs it

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        if self.runs is not None and (self.grid is not None or self.notebook is None):
            raise ValueError("runs: they belong to a notebook and stand in place of a grid")
        if self.notebook is not None:
            for parameters in (self.parameters, *(self.runs or ())):
                check_names(self.notebook, parameters)
        elif self.grid is None:
            raise ValueError(
                "names neither a notebook nor a grid; "
                "write {notebook: 05_weighting} or {grid: final}"
            )
        return self

    @property
    def parameters(self) -> Settings:
        """The notebook parameters that this line gives."""
        return dict(self.model_extra or {})

    def __str__(self) -> str:
        grid = self.grid and f"grid {self.grid}"
        runs = None if self.runs is None else f"{len(self.runs)} runs"
        return " ".join(filter(None, (self.notebook, grid, runs, self.profile)))


class Profile(sections.Section):
    """All settings of a run. The YAML file of a profile may set every field.

    Example:
        >>> from docemb_lib import Profile
        >>> Profile.load("tiny", lam=0.8).parameters.lam
        0.8
    """

    name: str
    parameters: Parameters = Parameters()
    notebooks: dict[str, Settings] = {}  # parameters of single notebooks, over `parameters`
    corpus: sections.Corpus = sections.Corpus()
    structural_teacher: sections.StructuralTeacher = sections.StructuralTeacher()
    contextual_teachers: sections.ContextualTeachers = sections.ContextualTeachers()
    student: sections.Student = sections.Student()
    training: sections.Training = sections.Training()
    simde: sections.SimDE = sections.SimDE()
    evaluation: sections.Evaluation = sections.Evaluation()
    plan: list[PlanLine] = []
    _source: str = PrivateAttr("")
    _computed: dict[Hashable, Any] = PrivateAttr(default_factory=dict)

    @model_validator(mode="after")
    def _notebooks_take_their_parameters(self) -> Self:
        for notebook, parameters in self.notebooks.items():
            check_names(notebook, parameters)
        return self

    @model_validator(mode="after")
    def _student_is_as_wide_as_its_teacher(self) -> Self:
        model = self.student.model
        teacher = self.structural_teacher.model
        student_width = width(model)
        teacher_width = width(teacher)
        if student_width and teacher_width and student_width != teacher_width:
            raise ValueError(
                f"student.model {model} is {student_width} wide, structural_teacher.model "
                f"{teacher} is {teacher_width} wide; choose models of one width"
            )
        return self

    @model_validator(mode="after")
    def _tasks_have_their_links(self) -> Self:
        if self.corpus.source == "installed-docs":
            return self
        for task in (*self.evaluation.tasks, *self.evaluation.sweep_tasks):
            if task in sections.LINKED_TASKS:
                raise ValueError(
                    f"evaluation.tasks: {task} needs the links between pages of corpus.source "
                    "installed-docs; "
                    "name halves, or tasks of your own in own_tasks"
                )
        return self

    @classmethod
    def load(cls, name: str | Path = "tiny", **overrides: Any) -> Self:
        """Read and validate a profile by its name in `params/` or its .yaml file.

        `overrides` replace notebook parameters. Raises InputError for a file that is missing or
        has a wrong value.
        """
        path = profile_path(name)
        raw, files = read_profile_file(path)
        source = str(path)
        if len(files) > 1:
            source += f" (base: {', '.join(map(str, files[1:]))})"
        profile = validated(cls, {"name": path.stem, **raw}, source).with_parameters(**overrides)
        # Notebooks run in their own folder, which a relative path would not start from.
        profile._source = str(path if Path(name).suffix in {".yaml", ".yml"} else name)
        return profile

    @classmethod
    def of_links(cls, texts: Path, links: str | None, **fields: object) -> Self:
        """The profile of one task, retrieval if `fields` have no other kind.

        All links are for test. Raises InputError for a wrong value.

        links: a table, see `read_links`; None: texts is a folder of BEIR's layout; fields: others
        of `OwnTask`.
        """
        encoder = {"model": "all-MiniLM-L6-v2", "max_tokens": 256}
        relevance = {"test": links} if links else None
        task = {"name": "links", "kind": "retrieval", "path": texts, "relevance": relevance}
        raw = {
            "name": "links",
            "structural_teacher": encoder,
            "student": encoder,
            "evaluation": {"tasks": ["links"], "own_tasks": [task | fields]},
        }
        return validated(cls, raw, "--texts")

    @property
    def source(self) -> str:
        """The profile as a notebook's parameter: its name, or the absolute path of its file."""
        return self._source or self.name

    @property
    def text_sources(self) -> list[sections.TextSource]:
        """The students' corpus, and the corpus of the contextual teachers if it is another one."""
        return [self.corpus, *filter(None, [self.contextual_teachers.corpus])]

    @property
    def models(self) -> list[str]:
        """The encoders of the student and of the structural teacher, by name."""
        return [self.student.model, self.structural_teacher.model]

    def for_notebook(self, notebook: str, **overrides: object) -> Self:
        """The profile for a run of `notebook`, with its values in `notebooks` below `overrides`.

        A value AS_IN_PROFILE leaves a parameter as the profile has it. Raises InputError
        for a parameter that the notebook does not take.
        """
        check_names(notebook, overrides)
        given = {
            name: value
            for name, value in overrides.items()
            if name != "profile" and value != AS_IN_PROFILE
        }
        parameters = {
            **self.notebooks.get(notebook, {}),
            **given,
            **REGISTRY[notebook].fixed,
        }
        return self.with_parameters(source=notebook, **parameters)

    def once(self, name: Hashable, compute: Callable[[], Result]) -> Result:
        """Return what `compute` gives, computed once for this profile and its copies for runs."""
        if name not in self._computed:
            self._computed[name] = compute()
        return self._computed[name]

    def fresh(self) -> Self:
        """The same profile without what `once` has computed, for another process."""
        profile = self.model_copy()
        profile._computed = {}
        return profile

    def with_tasks(self, tasks: Sequence[str], *, source: str) -> Self:
        """The same profile with other tasks in its final evaluation.

        Raises InputError for an unknown task; `source` begins the line of this error.
        """
        raw = self.model_dump()
        raw["evaluation"]["tasks"] = [*tasks]
        return validated(type(self), raw, source)

    def with_parameters(self, *, source: str = "parameters", **overrides: object) -> Self:
        """The same profile with notebook parameters replaced.

        Raises InputError for a wrong value; `source` begins the line of this error.
        """
        parameters = validated(Parameters, {**self.parameters.model_dump(), **overrides}, source)
        notebooks = {}
        for notebook, values in self.notebooks.items():
            notebooks[notebook] = {k: value for k, value in values.items() if k not in overrides}
        return self.model_copy(update={"parameters": parameters, "notebooks": notebooks})


def validated(model: type[Model], raw: Mapping[str, object], source: str) -> Model:
    """A model made of `raw`. Raises InputError in one line that begins with `source`."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error)}") from None


def profile_path(name: str | Path) -> Path:
    """The file of a profile: `params/NAME.yaml` of this workspace, or the given .yaml file.

    Raises InputError where there is no such file.
    """
    shipped = (find_root() / "params").glob("*.yaml")
    return yaml_file("profile", name, {path.stem: path for path in shipped})


def width(model: str) -> int | None:
    """Hidden size of a known model, or of a local folder with a config.json; None if not known."""
    return WIDTHS.get(model) or local_config(model).get("hidden_size")


def local_config(model: str) -> Settings:
    """The config.json of a local model, or {} without one. Raises InputError for broken JSON."""
    file = Path(model) / "config.json"
    config = read_json(file, "restore it") if file.is_file() else {}
    return config if isinstance(config, dict) else {}


def check_names(notebook: str, names: Iterable[str]) -> None:
    """Raise InputError for an unknown notebook or parameter, naming the nearest known one."""
    if notebook not in REGISTRY:
        raise InputError(unknown_notebook(notebook))
    allowed = ("profile", *REGISTRY[notebook].values)
    for name in names:
        if name not in allowed:
            raise InputError(f"{notebook}: unknown parameter {name!r}{nearest(name, allowed)}")


def _explain(error: ValidationError) -> str:
    """An error of pydantic in one line: field, value and what is allowed.

    The first one of the longest path: above it, a union says that the value is no other type.
    """
    first = max(error.errors(), key=lambda each: len(each["loc"]))
    place = [str(part) for part in first["loc"]]
    field = ".".join(part for part in place if not part.startswith(UNION_LOCATIONS))
    message = first["msg"].removeprefix("Value error, ")
    if isinstance(first["input"], dict | BaseModel):
        # The value is a whole section, and the message names its fields.
        return f"{field}: {message}".removeprefix(": ")
    return f"{field}: {message[0].lower()}{message[1:]}, got {first['input']!r:.200}"

"""Profile: one validated, frozen object with all settings of a run, read from `params/*.yaml`.

The section `parameters` holds the notebook parameters; the others set corpus, teachers, student and
sizes. In a YAML file, keys of a mapping replace those of the file named by its key `base`.
"""

import re
from collections.abc import Mapping, Sequence
from glob import glob
from os.path import expanduser
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from docemb_lib.base.errors import InputError, nearest
from docemb_lib.base.integrity import read_json
from docemb_lib.base.private import UNION_LOCATIONS
from docemb_lib.settings import sections
from docemb_lib.settings.parameters import Parameters

PACKAGE = Path(__file__).resolve().parents[1]
# The folder of the notebooks and params that come with docemb: in a wheel the package, in a
# checkout the one around it.
SHIPPED = PACKAGE if (PACKAGE / "params").is_dir() else PACKAGE.parent
Model = TypeVar("Model", bound=BaseModel)
STUDENT_RUN = (
    "structural_loss",
    "distance",
    "gamma",
    "temperature",
    "contextual_teacher",
    "contextual_loss",
    "delta",
    "beta",
    "student_projection",
    "contextual_projection",
    "lam",
    "lam_by_length",
    "max_structural_len",
    "documents",
)
_UNWEIGHTED = {"max_structural_len": None, "lam": None, "lam_by_length": None}
NOTEBOOKS: dict[
    str, tuple[str, ...]
] = {  # the parameters that each notebook takes, besides `profile` and `seed`
    "01_corpus": (),
    "02_paragraph_vector": ("dm", "vector_size", "min_count", "preprocess", "compound"),
    "03_structural": ("structural_loss", "distance", "gamma", "temperature", "documents"),
    "04_projections": tuple(name for name in STUDENT_RUN if name not in _UNWEIGHTED),
    "05_weighting": STUDENT_RUN,
    "06_evaluation": STUDENT_RUN,
    "07_simde": ("pairs", "pair_temperature", "mlm_weight", "beside_teachers", "documents"),
}
TRAINING = tuple(
    name for name, parameters in NOTEBOOKS.items() if "documents" in parameters
)  # train a student
SELF_SUPERVISED = ("07_simde",)  # of these: the student learns from pairs of texts
FINAL = ("06_evaluation", "07_simde")  # score the final tasks on their test splits
BESIDE_CONTEXTUAL = (
    "04_projections",
    "05_weighting",
    *FINAL,
)  # compare the student with all Paragraph Vectors
FIXED: dict[str, dict[str, Any]] = {  # parameters fixed per notebook
    "03_structural": {"contextual_teacher": None, **_UNWEIGHTED},
    "04_projections": _UNWEIGHTED,
}
WIDTHS = {  # hidden sizes of the usual encoders of students and structural teachers
    "all-MiniLM-L6-v2": 384,
    "sentence-transformers/all-MiniLM-L6-v2": 384,
    "sentence-transformers/all-MiniLM-L12-v2": 384,
    "sentence-transformers/all-mpnet-base-v2": 768,
    "allenai/longformer-base-4096": 768,
    "allenai/longformer-large-4096": 1024,
    "sentence-transformers/all-roberta-large-v1": 1024,
    "google-bert/bert-base-uncased": 768,
}
Place = tuple[str | int, ...]  # the keys and positions that lead to a value
# Fields that hold paths, from the folder of their file, where the value begins with a dot or there
# is such a file. Other values are names, of a hub or in `params/`.
_PATHS = re.compile(
    r"(contextual_teachers\.)?corpus\.(path|datasets\.dataset)|evaluation\.own_tasks\.(path|relevance)(\.\w+)?"
    r"|evaluation\.benchmarks\.[\w-]+|(student|structural_teacher|further_teachers)\.model|plan\.(grid|profile)"
)
TAKEN_NAMES = (
    "structural",
    "contextual",
    "loss",
    "step",
    "epoch",
    "norm",
    "spread",
    "cca",
)  # columns of a history
_ALWAYS_PATHS = re.compile(
    r"(contextual_teachers\.)?corpus\.path|evaluation\.own_tasks\.(path|relevance)(\.\w+)?"
    r"|evaluation\.benchmarks\.(aan|oc|s2orc|pan|wines|games)"  # which no hub has
)
MOST_DIGITS = 40  # of an integer in a YAML text


class PlanLine(BaseModel):
    """One line of the plan: a run of a notebook, or all runs of a grid, and their parameters."""

    model_config = ConfigDict(extra="allow", frozen=True)
    notebook: str | None = None  # None: the notebook of the grid
    grid: str | None = None  # in params/grids/ by name, or a .yaml file
    profile: str | None = None  # by name or as a .yaml file; None: the profile of the plan
    on_request: bool = False  # only `docemb run NOTEBOOK` runs it

    @model_validator(mode="after")
    def _known_parameters(self) -> Self:
        if self.notebook is not None:
            check_names(self.notebook, self.parameters)
        elif self.grid is None:
            raise ValueError(
                "names neither a notebook nor a grid; write {notebook: 05_weighting} or {grid: final}"
            )
        return self

    @property
    def parameters(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    def __str__(self) -> str:
        return " ".join(
            filter(None, (self.notebook, self.grid and f"grid {self.grid}", self.profile))
        )


class Profile(sections.Section):
    """All settings of a run. The YAML file of a profile may set every field.

    Example:
        >>> from docemb_lib import Profile
        >>> Profile.load("tiny", lam=0.8).parameters.lam
        0.8
    """

    name: str
    parameters: Parameters = Parameters()
    notebooks: dict[str, dict[str, Any]] = {}  # parameters of single notebooks, over `parameters`
    corpus: sections.Corpus = sections.Corpus()
    structural_teacher: sections.StructuralTeacher = sections.StructuralTeacher()
    contextual_teachers: sections.ContextualTeachers = sections.ContextualTeachers()
    further_teachers: list[sections.FurtherTeacher] = []  # of every student, in every notebook
    student: sections.Student = sections.Student()
    training: sections.Training = sections.Training()
    simde: sections.SimDE = sections.SimDE()
    evaluation: sections.Evaluation = sections.Evaluation()
    plan: list[PlanLine] = []
    winners: Literal["thesis", "own"] = (
        "thesis"  # runs that grids build on: the thesis' or the best recorded here
    )

    @model_validator(mode="after")
    def _sections_agree(self) -> Self:
        for notebook, own in self.notebooks.items():
            check_names(notebook, own)
        names = [*TAKEN_NAMES, *(further.name for further in self.further_teachers)]
        if len(set(names)) < len(names):
            taken = next(name for number, name in enumerate(names) if name in names[:number])
            reserved = f"given twice, or is one that docemb uses ({', '.join(TAKEN_NAMES)})"
            raise ValueError(f"further_teachers: the name {taken!r} is {reserved}; choose another")
        student, teacher = width(self.student.model), width(self.structural_teacher.model)
        if student and teacher and student != teacher:
            fits = ", ".join(name for name, size in WIDTHS.items() if size == student)
            wide = f"{student} wide, structural_teacher.model {self.structural_teacher.model} is {teacher} wide"
            hint = f" (as wide as the student: {fits})" if fits else ""
            raise ValueError(
                f"student.model {self.student.model} is {wide}; they must be equal{hint}"
            )
        linked = [
            t
            for t in (*self.evaluation.tasks, *self.evaluation.sweep_tasks)
            if t in sections.LINKED_TASKS
        ]
        if linked and self.corpus.source != "installed-docs":
            needs = f"{linked[0]} needs the links between pages of corpus.source installed-docs"
            mend = "name halves, or tasks of your own in own_tasks"
            raise ValueError(f"evaluation.tasks: {needs}; {mend}")
        return self

    @classmethod
    def load(cls, name: str | Path = "tiny", **overrides: Any) -> Self:
        """Read and validate a profile by its name in `params/` or its .yaml file; `overrides`
        replace parameters.
        """
        path = profile_path(name)
        raw, files = read_profile_file(path)
        source = (
            str(path) if len(files) == 1 else f"{path} (base: {', '.join(map(str, files[1:]))})"
        )
        return validated(cls, {"name": path.stem, **raw}, source).with_parameters(**overrides)

    @property
    def text_sources(self) -> list[sections.TextSource]:
        """The students' corpus, and the corpus of the contextual teachers if it is another one."""
        return [self.corpus, *filter(None, [self.contextual_teachers.corpus])]

    @property
    def models(self) -> list[str]:
        """The encoder of the student and the pretrained teachers, by name."""
        further = [teacher.model for teacher in self.further_teachers if teacher.model]
        return [self.student.model, self.structural_teacher.model, *further]

    def for_notebook(self, notebook: str, *, source: str | None = None, **overrides: Any) -> Self:
        """The profile for a run of `notebook`, with its values in `notebooks` where `overrides`
        gives none.

        Raises InputError for a parameter that the notebook does not take.
        """
        check_names(notebook, overrides)
        given = {name: value for name, value in overrides.items() if value != "profile"}
        own = {**self.notebooks.get(notebook, {}), **given, **FIXED.get(notebook, {})}
        return self.with_parameters(source=source or notebook, **own)

    def with_tasks(self, tasks: Sequence[str], *, source: str) -> Self:
        """The same profile with other tasks in its final evaluation; `source` names them in an
        error.
        """
        raw = self.model_dump()
        raw["evaluation"]["tasks"] = list(tasks)
        return validated(type(self), raw, source)

    def with_parameters(self, *, source: str = "parameters", **overrides: Any) -> Self:
        """The same profile with notebook parameters replaced; `source` names them in an error."""
        given = {name: value for name, value in overrides.items() if "profile" not in (name, value)}
        parameters = validated(Parameters, {**self.parameters.model_dump(), **given}, source)
        rest = {
            name: {k: value for k, value in own.items() if k not in given}
            for name, own in self.notebooks.items()
        }
        return self.model_copy(update={"parameters": parameters, "notebooks": rest})


def validated(model: type[Model], raw: dict[str, Any], source: str) -> Model:
    """A model made of `raw`. Raises InputError in one line that begins with `source`."""
    try:
        return model.model_validate(raw)
    except ValidationError as error:
        raise InputError(f"{source}: {_explain(error, model)}") from None


def profile_path(name: str | Path) -> Path:
    """The file of a profile: `params/NAME.yaml` of this workspace, or the given .yaml file.

    Raises InputError.
    """
    return yaml_file(
        "profile", name, {path.stem: path for path in (find_root() / "params").glob("*.yaml")}
    )


def yaml_file(kind: str, name: str | Path, known: Mapping[str, Path]) -> Path:
    """The `known` file of this name, or the given .yaml file. kind: in errors, what the file holds."""
    if Path(name).suffix in {".yaml", ".yml"}:
        for candidate in (Path(name), find_root() / name):
            if candidate.is_file():
                return candidate.resolve()
        names = ", ".join(sorted(known))
        mend = f"give the path of one, or one of {names}"
        raise InputError(f"{kind} {name}: there is no such file; {mend}")
    if str(name) not in known:
        names = ", ".join(sorted(known))
        raise InputError(
            f"{kind} {str(name)!r} is unknown; known are {names}, or give the path of a .yaml file"
        )
    return known[str(name)]


def find_root() -> Path:
    """The working folder: the one that the working directory lies in, or else the checkout that
    docemb runs from.
    """
    if (root := folder_above()) is None and SHIPPED == PACKAGE:  # installed from a wheel
        problem = f"{Path.cwd()} lies in no working folder (one with params/ and notebooks/)"
        raise InputError(f"{problem}; make it one with `docemb init`")
    return root or SHIPPED


def folder_above() -> Path | None:
    """The nearest folder from the working directory upwards that holds `params/*.yaml`; None: there
    is none.
    """
    here = Path.cwd()
    return next(
        (folder for folder in (here, *here.parents) if any((folder / "params").glob("*.yaml"))),
        None,
    )


def width(model: str) -> int | None:
    """Hidden size of a known model, or of a local folder with a config.json; None if it is not
    known yet.
    """
    return WIDTHS.get(model) or local_config(model).get("hidden_size")


def local_config(model: str) -> dict[str, Any]:
    """The config.json of a local model; {} without one. Raises InputError for broken JSON."""
    if not (config := Path(model) / "config.json").is_file():
        return {}
    found = read_json(config, "restore it")
    return found if isinstance(found, dict) else {}


def notebook_named(name: str, *, source: str = "") -> str:
    """The notebook of this name or number, e.g. 05. Raises InputError unless there is one; `source`
    begins its line.
    """
    found = [notebook for notebook in NOTEBOOKS if notebook.startswith(name)]
    if len(found) != 1:
        raise InputError(f"{source}{_unknown_notebook(name)}")
    return found[0]


def _unknown_notebook(name: str) -> str:
    return f"notebook {name!r} is unknown; known are {', '.join(NOTEBOOKS)}"


def check_names(notebook: str, names: Any) -> None:
    """Raise InputError for an unknown notebook or parameter, naming the nearest known one."""
    if notebook not in NOTEBOOKS:
        raise InputError(_unknown_notebook(notebook))
    allowed = ("profile", "seed", *NOTEBOOKS[notebook])
    unknown = [name for name in names if name not in allowed]
    if not unknown:
        return
    if unknown[0] in Profile.model_fields:
        use = "name the profile instead, as in -p profile mine.yaml"
        raise InputError(
            f"{notebook}: {unknown[0]} is a field of a profile and no parameter of a notebook; {use}"
        )
    raise InputError(f"{notebook}: unknown parameter {unknown[0]!r}{nearest(unknown[0], allowed)}")


def _explain(error: ValidationError, model: type[BaseModel]) -> str:
    """The first error of pydantic in one line: field, value and what is allowed."""
    first = error.errors()[0]
    field = ".".join(
        str(part) for part in first["loc"] if not str(part).startswith(UNION_LOCATIONS)
    )
    if first["type"] == "extra_forbidden":
        for part in first["loc"][:-1]:
            info = model.model_fields.get(str(part))
            candidates = [] if info is None else [info.annotation, *get_args(info.annotation)]
            model = next(
                (c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)), model
            )
        return f"unknown key {field!r}{nearest(str(first['loc'][-1]), list(model.model_fields))}"
    message = first["msg"].removeprefix("Value error, ")
    if isinstance(
        first["input"], (dict, BaseModel)
    ):  # a whole section: the message names its fields
        return f"{field}: {message}" if field else message
    return f"{field}: {message[0].lower()}{message[1:]}, got {first['input']!r:.200}"


def read_profile_file(path: Path) -> tuple[dict[str, Any], list[Path]]:
    """A profile merged with its bases, and the files that were read, the profile first.

    Raises InputError.
    """
    files: list[Path] = []
    return _read(path, (), (), files), files


def read_yaml(path: Path) -> Any:
    """The content of a YAML file.

    Raises InputError where it is not YAML, or where a mapping has a key twice.
    """
    try:
        return parse_yaml(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, OSError) as error:
        problem = f"the file is not readable as YAML ({error})"
        raise InputError(f"{path}: {problem}; correct it") from None


def parse_yaml(text: str) -> Any:
    """The value that a text in YAML stands for. Raises yaml.YAMLError for one that is none."""
    try:
        return yaml.load(text, _Loader)
    except (
        Exception
    ) as error:  # PyYAML raises many kinds, for example for a date that does not exist
        raise yaml.YAMLError(str(error)) from None


class _Loader(yaml.SafeLoader):
    """YAML without equal keys, long numbers, and aliases, of which a few can stand for billions of
    values.

    The depth is bounded by Python's limit of recursion.
    """

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("an alias (*) is not read; write the value again")
        return super().compose_node(parent, index)

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        if len(node.value) > MOST_DIGITS:
            raise yaml.YAMLError(
                f"a number of {len(node.value):,} digits; write at most {MOST_DIGITS}"
            )
        return super().construct_yaml_int(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := [key for number, key in enumerate(keys) if key in keys[:number]]:
            raise yaml.YAMLError(
                f"the key {twice[0]!r} is there twice; keep one of them{node.start_mark}"
            )
        return super().construct_mapping(node, deep=deep)


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def _read(path: Path, place: Place, readers: tuple[Path, ...], files: list[Path]) -> dict[str, Any]:
    """The mapping that a file gives for `place`; adds it and its bases to `files`.

    readers: the files whose chain of bases leads here, the profile first.
    """
    if path in readers:
        circle = " → ".join(file.name for file in (*readers[readers.index(path) :], path))
        raise InputError(f"{readers[-1]}: base: {circle} leads in a circle; take one of them out")
    raw = read_yaml(path)
    if not isinstance(raw, dict):
        mend = "write `name: value` lines, as in params/own.yaml"
        raise InputError(f"{path}: the file holds no settings; {mend}")
    files.append(path)

    def merge(base: dict[str, Any], raw: dict[str, Any], place: Place) -> dict[str, Any]:
        """The mapping `raw` over its own base, or without one over the mapping `base` of an outer
        base.
        """
        if "base" in raw:
            if (
                not isinstance(raw["base"], str)
                or not (file := (path.parent / raw["base"]).resolve()).is_file()
            ):
                mend = "name a .yaml file, relative to the folder of this one"
                problem = f"there is no file {raw['base']!r}; {mend}"
                raise InputError(f"{path}: {'.'.join(map(str, (*place, 'base')))}: {problem}")
            base = _read(file, place, (*readers, path), files)
            if not place:
                base.pop("name", None)  # of another profile
        content = dict(base)
        for key, value in raw.items():
            if isinstance(value, dict):
                earlier = content.get(key)
                content[key] = merge(
                    earlier if isinstance(earlier, dict) else {}, value, (*place, key)
                )
            elif key != "base":
                content[key] = value
        return content

    return merge({}, _absolute(raw, place, path.parent), place)


def _absolute(value: Any, place: Place, folder: Path) -> Any:
    """`value` with absolute paths, because notebooks run in another folder. folder: that of its
    file.
    """
    if isinstance(value, dict):
        return {key: _absolute(one, (*place, key), folder) for key, one in value.items()}
    if isinstance(value, list):
        return [_absolute(one, place, folder) for one in value]
    if not isinstance(value, str):
        return value
    field, path = ".".join(map(str, place)), folder / expanduser(value)
    perhaps = _PATHS.fullmatch(field) and (value.startswith((".", "~")) or glob(str(path)))
    return str(path.resolve()) if perhaps or _ALWAYS_PATHS.fullmatch(field) else value

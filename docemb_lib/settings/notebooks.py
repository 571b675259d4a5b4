"""The registry of the notebooks: which parameters a notebook takes, and what a run of it does."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from docemb_lib.base.errors import InputError

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


@dataclass(frozen=True)
class Notebook:
    """A notebook: the parameters that it takes, and what a run of it does."""

    name: str
    parameters: tuple[str, ...] = ()  # besides `profile` and `seed`, which every notebook takes
    fixed: Mapping[str, None] = field(default_factory=dict)  # parameters that are switched off
    self_supervised: bool = False  # the student learns from pairs of texts, without a teacher
    final: bool = False  # the student is scored on the test splits of the final tasks
    beside_contextual: bool = False  # the student is compared with all Paragraph Vectors

    @property
    def trains(self) -> bool:
        """Whether a run trains a student."""
        return "documents" in self.parameters


_ALL = (
    Notebook("01_corpus"),
    Notebook("02_paragraph_vector", ("dm", "vector_size", "min_count", "preprocess", "compound")),
    Notebook(
        "03_structural",
        ("structural_loss", "distance", "gamma", "temperature", "documents"),
        fixed={"contextual_teacher": None, **_UNWEIGHTED},
    ),
    Notebook(
        "04_projections",
        tuple(name for name in STUDENT_RUN if name not in _UNWEIGHTED),
        fixed=_UNWEIGHTED,
        beside_contextual=True,
    ),
    Notebook("05_weighting", STUDENT_RUN, beside_contextual=True),
    Notebook("06_evaluation", STUDENT_RUN, final=True, beside_contextual=True),
    Notebook(
        "07_simde",
        ("pairs", "pair_temperature", "mlm_weight", "beside_teachers", "documents"),
        self_supervised=True,
        final=True,
        beside_contextual=True,
    ),
)
REGISTRY: Mapping[str, Notebook] = {notebook.name: notebook for notebook in _ALL}
# The same by property, for modules that ask for one of them.
NOTEBOOKS = {notebook.name: notebook.parameters for notebook in _ALL}
TRAINING = tuple(notebook.name for notebook in _ALL if notebook.trains)
SELF_SUPERVISED = tuple(notebook.name for notebook in _ALL if notebook.self_supervised)
FINAL = tuple(notebook.name for notebook in _ALL if notebook.final)
BESIDE_CONTEXTUAL = tuple(notebook.name for notebook in _ALL if notebook.beside_contextual)


def notebook_named(name: str, *, source: str = "") -> str:
    """The notebook of this name or number, for example 05.

    Raises InputError unless there is exactly one; `source` begins the line of this error.
    """
    names = [notebook for notebook in REGISTRY if notebook.startswith(name)]
    if len(names) != 1:
        raise InputError(f"{source}{unknown_notebook(name)}")
    return names[0]


def unknown_notebook(name: str) -> str:
    """The error about a notebook that there is not."""
    return f"notebook {name!r} is unknown; known are {', '.join(REGISTRY)}"

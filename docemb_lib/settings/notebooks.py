"""The registry of the notebooks: which parameters a notebook takes, and what a run of it does.

A new notebook gets an entry here; new parameters of it are fields of `Parameters`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from docemb_lib.base.errors import InputError, nearest
from docemb_lib.settings import labels
from docemb_lib.settings.parameters import SINGLE, Parameters

STRUCTURAL_LOSS = ("structural_loss", "distance", "gamma", "temperature")
CONTEXTUAL_LOSS = (
    "contextual_teacher",
    "contextual_loss",
    "delta",
    "beta",
    "student_projection",
    "contextual_projection",
)
WEIGHTS = ("lam", "lam_by_length", "max_structural_len")
STUDENT_RUN = (*STRUCTURAL_LOSS, *CONTEXTUAL_LOSS, *WEIGHTS, "weighting", "documents")


@dataclass(frozen=True)
class Notebook:
    """A notebook: the parameters that it takes, and what a run of it does."""

    name: str  # of its file; the names sort in the order of the chapters
    label: Callable[[Parameters], str]  # the short, readable name of a run
    parameters: tuple[str, ...] = ()  # besides `profile` and `seed`, which every notebook takes
    fixed: Mapping[str, None] = field(default_factory=dict)  # parameters that are switched off
    fits_paragraph_vector: bool = False  # the model of a run is the Paragraph Vector that it fits
    self_supervised: bool = False  # the student learns from pairs of texts, without a teacher
    final: bool = False  # the student is scored on the test splits of the final tasks
    has_words: bool = False  # the student gets a half of words if the profile has one
    beside_contextual: bool = False  # the student is compared with all Paragraph Vectors

    @property
    def trains(self) -> bool:
        """Whether a run trains a student."""
        return "documents" in self.parameters

    @property
    def values(self) -> tuple[str, ...]:
        """All parameters of a run but the profile."""
        return ("seed", *self.parameters)


CORPUS = Notebook("01_corpus", lambda p: "corpus")
PARAGRAPH_VECTOR = Notebook(
    "02_paragraph_vector",
    labels.paragraph_vector_label,
    (*SINGLE, "compound"),
    fits_paragraph_vector=True,
)
STRUCTURAL = Notebook(
    "03_structural",
    labels.student_label,
    (*STRUCTURAL_LOSS, "documents"),
    fixed=dict.fromkeys(("contextual_teacher", *WEIGHTS)),
)
PROJECTIONS = Notebook(
    "04_projections",
    labels.student_label,
    (*STRUCTURAL_LOSS, *CONTEXTUAL_LOSS, "documents"),
    fixed=dict.fromkeys(WEIGHTS),
    beside_contextual=True,
)
WEIGHTING = Notebook(
    "05_weighting",
    labels.student_label,
    STUDENT_RUN,
    beside_contextual=True,
)
EVALUATION = Notebook(
    "06_evaluation",
    labels.student_label,
    STUDENT_RUN,
    final=True,
    has_words=True,
    beside_contextual=True,
)
SIMDE = Notebook(
    "07_simde",
    labels.pairs_label,
    ("pairs", "pair_temperature", "mlm_weight", "documents"),
    self_supervised=True,
    final=True,
    beside_contextual=True,
)
# The notebooks whose models stand in the figures of the thesis.
CHAPTER_4 = (PARAGRAPH_VECTOR, STRUCTURAL, PROJECTIONS, WEIGHTING)
_ALL = (CORPUS, *CHAPTER_4, EVALUATION, SIMDE)
# Notebooks with parameters of their own, which make no run of a profile and leave no record.
FREE = ("00_one_page", "08_adapt", "09_own_documents", "10_chapter_5", "11_tricks")
REGISTRY: Mapping[str, Notebook] = {notebook.name: notebook for notebook in _ALL}


def notebook_named(name: str, *, source: str = "") -> str:
    """The notebook of this name or number, for example 05 or 5.

    Raises InputError unless there is exactly one; `source` begins the line of this error.
    """
    name = str(name)
    start = name and name.zfill(2)
    names = [notebook for notebook in REGISTRY if notebook.startswith(start)]
    if len(names) != 1:
        raise InputError(f"{source}{unknown_notebook(name)}")
    return names[0]


def unknown_notebook(name: str) -> str:
    """The error about a notebook that there is not."""
    others = f"{', '.join(FREE)} make no run of a profile: open them in JupyterLab"
    return f"notebook {name!r} is unknown{nearest(name, REGISTRY)}; {others}"

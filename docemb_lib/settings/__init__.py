"""The sections of a profile and the notebook parameters: one frozen model each, every field with unit or reason.

Defaults are the thesis'; combinations that make no sense are refused here, values one by one in the fields.
"""

from docemb_lib.settings.corpus import Corpus, HubDataset, TextSource
from docemb_lib.settings.evaluation import (
    EMBEDDED_TASKS,
    HEADS,
    LINKED_TASKS,
    MTEB,
    ON_HUB,
    BenchmarkName,
    Evaluation,
    HeadSettings,
    OwnTask,
    PairFeatures,
    SimDEName,
    SplitName,
)
from docemb_lib.settings.parameters import SINGLE, Parameters, label_of_paragraph_vector, members_of
from docemb_lib.settings.section import MinCount, ProjectionSpec, Section
from docemb_lib.settings.simde import SimDE
from docemb_lib.settings.student import UNDECISIVE, Student, Training
from docemb_lib.settings.teachers import (
    ContextualName,
    ContextualTeachers,
    FurtherTeacher,
    ParagraphVectorSettings,
    StructuralTeacher,
)

__all__ = [
    "EMBEDDED_TASKS",
    "HEADS",
    "LINKED_TASKS",
    "MTEB",
    "ON_HUB",
    "SINGLE",
    "UNDECISIVE",
    "BenchmarkName",
    "ContextualName",
    "ContextualTeachers",
    "Corpus",
    "Evaluation",
    "FurtherTeacher",
    "HeadSettings",
    "HubDataset",
    "MinCount",
    "OwnTask",
    "PairFeatures",
    "ParagraphVectorSettings",
    "Parameters",
    "ProjectionSpec",
    "Section",
    "SimDE",
    "SimDEName",
    "SplitName",
    "StructuralTeacher",
    "Student",
    "TextSource",
    "Training",
    "label_of_paragraph_vector",
    "members_of",
]

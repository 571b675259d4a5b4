"""The settings of docemb: the sections of a profile, the notebook parameters, and the profile that holds both.

Each section is a frozen pydantic model. Its fields check single values, its validators check combinations, and its
defaults are those of the thesis.
"""

# isort: off
from docemb_lib.settings.parameters import Parameters, length_ramp, members_of
from docemb_lib.settings.sections import (
    HEADS, NOT_IN_FINGERPRINT, ON_HUB, SINGLE, BenchmarkName, Corpus, Evaluation, FurtherTeacher, HeadSettings,
    HubDataset, Long, OwnTask, PairFeatures, ParagraphVectorSettings, SimDE, SimDEName, StructuralTeacher, Student,
    TextSource, Training, label_of_paragraph_vector,
)  # fmt: skip

__all__ = [
    "HEADS", "NOT_IN_FINGERPRINT", "ON_HUB", "SINGLE", "BenchmarkName", "Corpus", "Evaluation",
    "FurtherTeacher", "HeadSettings", "HubDataset", "Long", "OwnTask", "PairFeatures", "ParagraphVectorSettings",
    "Parameters", "SimDE", "SimDEName", "StructuralTeacher", "Student", "TextSource", "Training",
    "label_of_paragraph_vector", "length_ramp", "members_of",
]  # fmt: skip

"""Data for the figures and tables of the notebooks, from a run, its stages and recorded runs."""

from docemb_lib.views.compared import (
    Weighted,
    by_weighting,
    compared,
    held_out_embeddings,
    recorded,
)
from docemb_lib.views.corpus import described_tasks
from docemb_lib.views.students import (
    documents_to_read,
    embeddings_before,
    endings,
    readings,
    students_of_runs,
    taught,
    validation_embeddings,
)

__all__ = [
    "Weighted",
    "by_weighting",
    "compared",
    "described_tasks",
    "documents_to_read",
    "embeddings_before",
    "endings",
    "held_out_embeddings",
    "readings",
    "recorded",
    "students_of_runs",
    "taught",
    "validation_embeddings",
]

"""Data for the figures and tables of the notebooks, from a run, its stages and recorded runs."""

from docemb_lib.views.compared import compared, recorded
from docemb_lib.views.corpus import (
    described_tasks,
    structural_limit,
)
from docemb_lib.views.losses import (
    ThreeDocuments,
    contextual_losses,
    objectives_of,
    three_documents,
    weights_by_length,
)
from docemb_lib.views.students import (
    counted_endings,
    documents_to_read,
    embeddings_before,
    endings,
    hypotheses_of_students,
    kept_of_teachers,
    probes_of_teachers,
    readings,
    students_of_runs,
    taught,
    validation_embeddings,
)

__all__ = [
    "ThreeDocuments",
    "compared",
    "contextual_losses",
    "counted_endings",
    "described_tasks",
    "documents_to_read",
    "embeddings_before",
    "endings",
    "hypotheses_of_students",
    "kept_of_teachers",
    "objectives_of",
    "probes_of_teachers",
    "readings",
    "recorded",
    "structural_limit",
    "students_of_runs",
    "taught",
    "three_documents",
    "validation_embeddings",
    "weights_by_length",
]

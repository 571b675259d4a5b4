"""Data for the figures and tables of the notebooks, from a run, its stages and recorded runs."""

from docemb_lib.views.corpus import (
    corpus_statistics,
    described_tasks,
    held_out_lengths,
    seen_by_models,
    structural_limit,
    tasks_beside_thesis,
)
from docemb_lib.views.losses import (
    ThreeDocuments,
    contextual_losses,
    objectives_of,
    three_documents,
    weights_by_length,
)
from docemb_lib.views.reading import (
    counted_endings,
    documents_to_read,
    endings,
    readings,
)
from docemb_lib.views.simde import (
    attention_of_students,
    distances_of_halves,
    redundancy_beside_paper,
    similarity_beside_paper,
    sizes_beside_paper,
    students_beside,
)
from docemb_lib.views.students import (
    embeddings_before,
    hypotheses_of_students,
    learnt,
    probes_of_teachers,
    students_of_runs,
    taught,
    validation_embeddings,
)

__all__ = [
    "ThreeDocuments",
    "attention_of_students",
    "contextual_losses",
    "corpus_statistics",
    "counted_endings",
    "described_tasks",
    "distances_of_halves",
    "documents_to_read",
    "embeddings_before",
    "endings",
    "held_out_lengths",
    "hypotheses_of_students",
    "learnt",
    "objectives_of",
    "probes_of_teachers",
    "readings",
    "redundancy_beside_paper",
    "seen_by_models",
    "similarity_beside_paper",
    "sizes_beside_paper",
    "structural_limit",
    "students_beside",
    "students_of_runs",
    "tasks_beside_thesis",
    "taught",
    "three_documents",
    "validation_embeddings",
    "weights_by_length",
]

"""Data for the figures and tables of the notebooks, computed from a run, its stages and recorded runs."""

from __future__ import annotations

from docemb_lib.views.runs import (
    centring,
    corpus_tables,
    described_tasks,
    final_metrics,
    in_figure_4_4,
    opening_words,
    own_metrics,
    probes_of_teachers,
    projection_layers,
    split_lengths,
    student_metrics,
    students_of_runs,
    validation_embeddings,
    weights_by_length,
    widths_of,
)
from docemb_lib.views.simde import (
    attention_of_students,
    beside_paper,
    distances_of_halves,
    example_halves,
    few_shot,
    gain_over_start,
    redundancy_beside_paper,
    similarity_of_sentences,
    students_beside,
)

__all__ = [
    "attention_of_students", "beside_paper", "centring", "corpus_tables", "described_tasks", "distances_of_halves",
    "example_halves", "few_shot", "final_metrics", "gain_over_start", "in_figure_4_4", "opening_words", "own_metrics",
    "probes_of_teachers", "projection_layers", "redundancy_beside_paper", "similarity_of_sentences", "split_lengths",
    "student_metrics", "students_beside", "students_of_runs", "validation_embeddings", "weights_by_length", "widths_of",
]  # fmt: skip

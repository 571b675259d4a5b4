"""Data for the figures and tables of the notebooks, computed from a run, its stages and recorded runs."""

from docemb_lib.evaluation.benchmarks import beside_thesis as tasks_beside_thesis
from docemb_lib.views.runs import (
    centring,
    corpus_statistics,
    corpus_tables,
    described_tasks,
    in_figure_4_4,
    neighbours_of_validation,
    opening_words,
    probes_of_teachers,
    projection_layers,
    split_lengths,
    structural_limit,
    students_of_runs,
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
    "attention_of_students", "beside_paper", "centring", "corpus_statistics", "corpus_tables", "described_tasks",
    "distances_of_halves", "example_halves", "few_shot", "gain_over_start", "in_figure_4_4", "neighbours_of_validation",
    "opening_words", "probes_of_teachers", "projection_layers", "redundancy_beside_paper", "similarity_of_sentences",
    "split_lengths", "structural_limit", "students_beside", "students_of_runs", "tasks_beside_thesis",
    "weights_by_length", "widths_of",
]  # fmt: skip

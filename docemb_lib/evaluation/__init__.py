"""Evaluation of frozen embeddings: tasks with data and metric, heads and rankings that score them,
tables that compare.

A model is anything with `embed(texts)`. Tasks come from the embedded corpus, published benchmarks
and a user's own files; scores come with intervals and paired tests.
"""

from docemb_lib.evaluation.benchmarks import benchmark_task
from docemb_lib.evaluation.catalogue import load_task
from docemb_lib.evaluation.protocols import evaluate
from docemb_lib.evaluation.scoreboard import normalised
from docemb_lib.evaluation.tasks import (
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    Score,
    ScoredPairs,
    Task,
)
from docemb_lib.settings.sections import HeadSettings

__all__ = [
    "Classification",
    "HeadSettings",
    "Labelled",
    "LabelledPairs",
    "Pairs",
    "Ranking",
    "Retrieval",
    "Score",
    "ScoredPairs",
    "Task",
    "benchmark_task",
    "evaluate",
    "load_task",
    "normalised",
]

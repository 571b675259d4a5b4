"""Evaluation of frozen embeddings: tasks with data and metric, heads and rankings that score them, tables that compare.

A model is anything with `embed(texts)`. Tasks come from the embedded corpus, published benchmarks, mteb and a user's
own files; scores come with intervals and paired tests.
"""

from docemb_lib.evaluation.benchmarks import benchmark_task
from docemb_lib.evaluation.catalogue import load_task, task_fingerprint
from docemb_lib.evaluation.embedded import embedded_tasks
from docemb_lib.evaluation.heads import train_heads
from docemb_lib.evaluation.protocols import few_shot_scores, final_scores, validation_score
from docemb_lib.evaluation.readers import own_task
from docemb_lib.evaluation.retrieval import TfIdf
from docemb_lib.evaluation.scoreboard import normalised, score_frame, scoreboard
from docemb_lib.evaluation.soundness import problems, task_statistics
from docemb_lib.evaluation.tasks import (
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    Score,
    Task,
    evaluate,
)
from docemb_lib.evaluation.uncertainty import score_intervals
from docemb_lib.settings import HeadSettings

__all__ = [
    "Classification",
    "HeadSettings",
    "Labelled",
    "LabelledPairs",
    "Pairs",
    "Ranking",
    "Retrieval",
    "Score",
    "Task",
    "TfIdf",
    "benchmark_task",
    "embedded_tasks",
    "evaluate",
    "few_shot_scores",
    "final_scores",
    "load_task",
    "normalised",
    "own_task",
    "problems",
    "score_frame",
    "score_intervals",
    "scoreboard",
    "task_fingerprint",
    "task_statistics",
    "train_heads",
    "validation_score",
]

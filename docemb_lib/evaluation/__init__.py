"""How good are embeddings? Tasks with their data and metric, heads and rankings that score them, tables that compare.

Models come in as anything with `embed(texts)`, frozen; scores go out as tidy frames. Also here: the four embedded
tasks, the thesis' eight and one's own from files, the TF-IDF floor, the thesis' own numbers and protocols, and how sure
a score is.
"""

from docemb_lib.evaluation.baselines import TfIdf
from docemb_lib.evaluation.benchmarks import benchmark_task
from docemb_lib.evaluation.catalogue import load_task, task_fingerprint
from docemb_lib.evaluation.embedded import embedded_tasks
from docemb_lib.evaluation.heads import pair_features, train_heads
from docemb_lib.evaluation.protocols import final_scores, for_validation, validation_score, validation_texts
from docemb_lib.evaluation.readers import own_task
from docemb_lib.evaluation.scoreboard import interval_board, normalised, score_frame, scoreboard, standing
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
from docemb_lib.evaluation.uncertainty import by_length, compare, score_intervals
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
    "by_length",
    "compare",
    "embedded_tasks",
    "evaluate",
    "final_scores",
    "for_validation",
    "interval_board",
    "load_task",
    "normalised",
    "own_task",
    "pair_features",
    "problems",
    "score_frame",
    "score_intervals",
    "scoreboard",
    "standing",
    "task_fingerprint",
    "task_statistics",
    "train_heads",
    "validation_score",
    "validation_texts",
]

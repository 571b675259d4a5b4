"""How good are embeddings? Tasks with their data and metric, heads and rankings that score them, tables that compare.

Models come in as anything with `embed(texts)`, frozen; scores go out as tidy frames. Also here: the four embedded
tasks, the TF-IDF floor, and the thesis' own numbers.
"""

from docemb_lib.evaluation.baselines import TfIdf
from docemb_lib.evaluation.embedded_tasks import embedded_tasks
from docemb_lib.evaluation.heads import HeadSettings, pair_features, train_heads
from docemb_lib.evaluation.published import published
from docemb_lib.evaluation.scoreboard import normalised, score_frame, scoreboard, standing
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
    "embedded_tasks",
    "evaluate",
    "normalised",
    "pair_features",
    "published",
    "score_frame",
    "scoreboard",
    "standing",
    "train_heads",
]

"""What a final evaluation says: scores with intervals, which differences are shown, how they change with length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.evaluation.by_length import by_length
from docemb_lib.evaluation.scoreboard import interval_board, scoreboard
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import differences, score_intervals, verdicts
from docemb_lib.experiments.embedding_cache import Model
from docemb_lib.experiments.models import SBERT_CHUNKS, SBERT_TRUNCATED, UNTRAINED
from docemb_lib.experiments.profile_tasks import task_inputs
from docemb_lib.experiments.scoring import Rounds, scores_by_round, tidy
from docemb_lib.experiments.stages import Stages

RECIPE = 1  # raised whenever lengths would be counted otherwise
REFERENCES = (SBERT_CHUNKS, SBERT_TRUNCATED, UNTRAINED)  # the first is what a user does today
LENGTHS = "lengths.npy"


class Final(NamedTuple):
    """The final evaluation of several models, as tidy frames."""

    scores: pd.DataFrame  # model, task, metric, seed, value, and round where there are several
    intervals: pd.DataFrame  # see `score_intervals`, and round
    comparison: pd.DataFrame  # see `compare`; of the last round
    models: pd.DataFrame  # model, fingerprint: what the scores are found by again

    @property
    def tables(self) -> dict[str, pd.DataFrame]:
        """What a record keeps beside the scores."""
        return {"intervals": self.intervals, "comparison": self.comparison, "models": self.models}

    @property
    def board(self) -> pd.DataFrame:
        """Models x tasks with intervals, best mean first; last the deviation of that mean over head seeds."""
        parts = self.scores.groupby("round", sort=False) if "round" in self.scores else [(None, self.scores)]
        spread = {name: scoreboard(rows)["std"] for name, rows in parts}
        of_row = pd.concat(spread) if "round" in self.scores else spread[None]
        return interval_board(self.intervals).assign(**{"± head seeds": of_row.map("{:.3f}".format)})


def final_evaluation(stages: Stages, models: Sequence[Model], *, student: str) -> Final:
    """Score the models on all tasks of the profile and say how sure that is.

    student: the label of the model that is compared with each of the REFERENCES there are among the models; the others
    are compared with the first of these.
    """
    rounds = scores_by_round(stages, models, final=True)
    intervals = pd.concat(
        [score_intervals(scores).assign(round=name) for name, scores in rounds.items()], ignore_index=True
    )
    return Final(
        scores=tidy(rounds),
        intervals=intervals if len(rounds) > 1 else intervals.drop(columns="round"),
        comparison=_comparison(last_scores(rounds), student),
        models=pd.DataFrame([(model.label, model.fingerprint) for model in models], columns=["model", "fingerprint"]),
    )


def scores_by_length(stages: Stages, models: Sequence[Model]) -> pd.DataFrame:
    """Every model's score on each task in buckets of length, with intervals; of the last round.

    Columns model, task, metric, bucket, examples, value, low, high. A length is that of the example, of a pair the
    longer document's, of retrieval the query's, in tokens of the structural teacher.
    """
    scores = last_scores(scores_by_round(stages, models, final=True))
    lengths = {task: example_lengths(stages, task) for task in stages.profile.evaluation.tasks}
    return pd.concat(
        [
            by_length(score.per_example[score.metric], lengths[task]).assign(
                model=model, task=task, metric=score.metric
            )
            for model, by_task in scores.items()
            for task, score in by_task.items()
        ],
        ignore_index=True,
    )


def example_lengths(stages: Stages, name: str) -> np.ndarray:
    """Tokens of each test example of a task, counted once: (N,); see `example_lengths` of a task."""
    inputs = {
        "recipe": RECIPE,
        "tokens": pretrained.fingerprint(pretrained.resolve(stages.profile.structural_teacher.model)),
        **task_inputs(stages.profile, name, lambda: stages.corpus.fingerprint),
    }

    def build(folder: Path) -> None:
        task = stages.tasks[name]
        counted = stages.structural_teacher.count_tokens(task.texts("test"))
        np.save(folder / LENGTHS, task.example_lengths(counted, "test"))

    return np.load(stages.workspace.artefact("task-lengths", inputs, build).path / LENGTHS)


def last_scores(rounds: Rounds) -> dict[str, dict[str, Score]]:
    """{model: {task: score}} of the round with most examples to learn from."""
    return list(rounds.values())[-1]


def _comparison(scores: Mapping[str, Mapping[str, Score]], student: str) -> pd.DataFrame:
    """All of its tests count together when p-values are corrected; empty where no reference is among the models."""
    found = []
    for reference in REFERENCES:
        compared = scores if reference == REFERENCES[0] else (reference, student)
        if reference in scores and reference != student and len(compared) > 1:
            found.append(differences({model: scores[model] for model in compared}, reference))
    return verdicts(pd.concat(found, ignore_index=True)) if found else pd.DataFrame()

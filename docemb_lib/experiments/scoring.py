"""Scores of models on the profile's tasks, each computed once; a model's texts are embedded in one go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from docemb_lib.evaluation.outside_tasks import task_fingerprint
from docemb_lib.evaluation.scoreboard import score_frame
from docemb_lib.experiments.embedding_cache import Model, embed_once
from docemb_lib.experiments.stages import Stages
from docemb_lib.workspace import write_text

if TYPE_CHECKING:
    from docemb_lib.evaluation.tasks import Task

RECIPE = 1  # raised whenever tasks would be made or scored otherwise


def score_models(stages: Stages, models: Iterable[Model], *, final: bool) -> pd.DataFrame:
    """Tidy scores: a row per model, task, metric and head seed, with its `value`.

    final: all tasks of the profile on their test splits; otherwise the sweep's tasks on their validation splits, so
    that no choice between runs looks at a test split.
    """
    evaluation = stages.profile.evaluation
    names, split = (evaluation.tasks, "test") if final else (evaluation.sweep_tasks, "validation")
    tasks = _Tasks(stages)
    rows = [row for model in models for row in _score(stages, tasks, model, names, split)]
    return pd.DataFrame(rows)


def cosine_scores(stages: Stages, models: Iterable[Model]) -> pd.DataFrame:
    """What cosines alone make of the final evaluation's retrieval and pair tasks, on their test splits: a row per
    model, columns spread and `score_cosines` of each task; empty where all tasks are of another kind. The texts are
    those that `score_models` embeds."""
    from docemb_lib.evaluation.cosines import asks_what_belongs_together, score_cosines, spread

    made = _Tasks(stages)
    named = {name: made[name] for name in stages.profile.evaluation.tasks}
    tasks = {name: task for name, task in named.items() if asks_what_belongs_together(task)}
    if not tasks:
        return pd.DataFrame()
    texts = list(dict.fromkeys(text for task in tasks.values() for text in task.texts("test")))
    row_of = {text: row for row, text in enumerate(texts)}
    rows = {}
    for model in models:
        embeddings = embed_once(stages.workspace, model, texts)
        scores = {
            name: score_cosines(task, embeddings[[row_of[text] for text in task.texts("test")]])
            for name, task in tasks.items()
        }
        rows[model.label] = {"spread": spread(embeddings), **scores}
    return pd.DataFrame.from_dict(rows, orient="index").rename_axis("model")


class _Tasks:
    """The tasks by name, made when first asked for: a run whose scores are there makes none."""

    def __init__(self, stages: Stages) -> None:
        self.stages = stages
        self.made: dict[str, Task] = {}

    def __getitem__(self, name: str) -> Task:
        from docemb_lib.evaluation import embedded_tasks, load_task

        if name not in self.made:
            profile = self.stages.profile
            if outside := load_task(name, profile.evaluation):
                self.made[name] = outside
                return outside
            rows, limit = self.stages.split("tasks"), profile.evaluation.documents
            (self.made[name],) = embedded_tasks(rows, [name], seed=profile.corpus.seed, limit=limit)
        return self.made[name]


def _score(stages: Stages, tasks: _Tasks, model: Model, names: Sequence[str], split: str) -> list[dict[str, Any]]:
    evaluation = stages.profile.evaluation
    inputs = {
        "recipe": RECIPE,
        "model": model.fingerprint,
        "corpus": stages.corpus.fingerprint,
        "tasks": list(names),
        "outside": [task_fingerprint(name, evaluation) for name in names],
        "split": split,
        "documents": evaluation.documents,
        "head": evaluation.head.model_dump(),
        "seeds": evaluation.seeds,
    }

    def build(folder: Path) -> None:
        texts = list(dict.fromkeys(text for name in names for text in tasks[name].texts(split)))
        row_of = {text: row for row, text in enumerate(texts)}
        embeddings = embed_once(stages.workspace, model, texts)
        scores = {}
        for name in names:
            own = embeddings[[row_of[text] for text in tasks[name].texts(split)]]
            scores[name] = tasks[name].score(own, split, head=evaluation.head, seeds=evaluation.seeds)
        rows = score_frame({model.label: scores}).drop(columns="model").to_dict("records")
        write_text(folder / "scores.json", json.dumps(rows))

    artefact = stages.workspace.artefact("scores", inputs, build)
    rows = json.loads((artefact.path / "scores.json").read_text(encoding="utf-8"))
    return [{"model": model.label, **row} for row in rows]

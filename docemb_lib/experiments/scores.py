"""Embeddings of task texts, each (model, text) computed once, however many tasks and splits ask for it."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.protocols import final_scores, for_validation, round_name, validation_score, validation_texts
from docemb_lib.evaluation.scoreboard import MAIN_METRICS, score_frame
from docemb_lib.evaluation.tasks import Embedder, HeadTask, Score
from docemb_lib.experiments.students import Stages
from docemb_lib.workspace import MANIFEST, Workspace, write_text

if TYPE_CHECKING:
    from docemb_lib.evaluation.tasks import Task
    from docemb_lib.settings import Evaluation


# ---- embeddings of task texts


KIND = "embeddings"


class Model(NamedTuple):
    """Anything that embeds texts; `load` is called only if some text has not been embedded yet."""

    label: str  # as in tables
    fingerprint: str  # equal for two models only if they embed alike
    load: Callable[[], Embedder]


def embed_once(workspace: Workspace, model: Model, texts: Sequence[str]) -> np.ndarray:
    """Float32 (N, D) in the order of `texts`.

    What is missing is embedded in one go and published as a further shard of the model's embeddings.
    """
    keys = [hashlib.sha256(text.encode()).hexdigest()[:24] for text in texts]
    known = _shards(workspace, model)
    missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in known}
    if missing:

        def build(folder: Path) -> None:
            vectors = np.asarray(model.load().embed(list(missing.values())), dtype=np.float32)
            np.save(folder / "embeddings.npy", vectors)
            content = {"model": model.fingerprint, "label": model.label, "texts": list(missing)}
            (folder / "shard.json").write_text(json.dumps(content), encoding="utf-8")

        workspace.artefact(f"{KIND}/{_shelf(model)}", {"model": model.fingerprint, "texts": sorted(missing)}, build)
        known = _shards(workspace, model)
    return np.stack([known[key] for key in keys])


def _shards(workspace: Workspace, model: Model) -> dict[str, np.ndarray]:
    """Text key → embedding (D,), of all shards of the model."""
    found: dict[str, np.ndarray] = {}
    for manifest in sorted((workspace.outputs / "artefacts" / KIND / _shelf(model)).glob(f"*/{MANIFEST}")):
        folder = manifest.parent
        if folder.suffix:  # being built, or on its way out
            continue
        texts = json.loads((folder / "shard.json").read_text(encoding="utf-8"))["texts"]
        found.update(zip(texts, np.load(folder / "embeddings.npy", mmap_mode="r"), strict=True))
    return found


def _shelf(model: Model) -> str:
    return hashlib.sha256(model.fingerprint.encode()).hexdigest()[:16]


# ---- a task's scores on disk


NUMBERS = "scores.json"  # {round: {metric, values, extra}}
EXAMPLES = "per_example.npz"  # round/metric: float32 (seeds, N)


def write_scores(folder: Path, by_round: Mapping[str, Score]) -> None:
    """Write a task's score of every round."""
    numbers = {
        name: {"metric": score.metric, "values": score.values, "extra": dict(score.extra)}
        for name, score in by_round.items()
    }
    write_text(folder / NUMBERS, json.dumps(numbers))
    examples: dict[str, Any] = {
        f"{name}/{metric}": answers for name, score in by_round.items() for metric, answers in score.per_example.items()
    }
    np.savez_compressed(folder / EXAMPLES, **examples)


def read_scores(folder: Path) -> dict[str, Score]:
    """{round: score}, as they were written."""
    numbers = json.loads((folder / NUMBERS).read_text(encoding="utf-8"))
    with np.load(folder / EXAMPLES) as stored:
        examples = {key: stored[key] for key in stored.files}
    return {
        name: Score(
            score["metric"],
            tuple(score["values"]),
            extra=score["extra"],
            per_example={
                key.removeprefix(f"{name}/"): answers for key, answers in examples.items() if key.startswith(f"{name}/")
            },
        )
        for name, score in numbers.items()
    }


# ---- scores of models on the profile's tasks


RECIPE = 2  # raised whenever tasks would be made or scored otherwise
SCORES_KIND = "scores"
TOLD = (*MAIN_METRICS, "mrr", "f1_macro")  # the metrics of tidy scores, records and model cards; artefacts have all

Rounds = dict[str, dict[str, dict[str, Score]]]  # {round: {model: {task: score}}}


def score_models(stages: Stages, models: Iterable[Model], *, final: bool) -> pd.DataFrame:
    """Tidy scores: a row per model, task, metric and head seed, with its `value`; see `tidy`.

    final: all tasks of the profile on their test splits; otherwise the sweep's tasks on their validation splits, so
    that no choice between runs looks at a test split.
    """
    return tidy(scores_by_round(stages, models, final=final))


def scores_by_round(stages: Stages, models: Iterable[Model], *, final: bool) -> Rounds:
    """The same with what every example got, by round: those of the profile, or the only one that runs have.

    A ranking trains nothing and has the same score in every round.
    """
    evaluation = stages.profile.evaluation
    names = evaluation.tasks if final else evaluation.sweep_tasks
    found: Rounds = {}
    for model in models:
        for task, by_round in _scores(stages, model, names, final=final).items():
            for name, score in by_round.items():
                found.setdefault(name, {}).setdefault(model.label, {})[task] = score
    return found


def tidy(rounds: Rounds) -> pd.DataFrame:
    """Columns model, task, metric, seed, value of the metrics that are told, and `round` where there are several."""
    frames = [score_frame(scores).assign(round=name) for name, scores in rounds.items()]
    rows = pd.concat(frames, ignore_index=True)
    rows = rows[rows["metric"].isin(TOLD)].reset_index(drop=True)
    return rows if len(rounds) > 1 else rows.drop(columns="round")


def is_scored(stages: Stages, model: Model) -> bool:
    """Whether the model has its scores on all tasks of the final evaluation."""
    names = stages.profile.evaluation.tasks
    return all(stages.workspace.is_built(SCORES_KIND, _inputs(stages, model, name, final=True)) for name in names)


def cosine_scores(stages: Stages, models: Iterable[Model]) -> pd.DataFrame:
    """What cosines alone make of the final evaluation's retrieval and pair tasks, on their test splits: a row per
    model, columns spread and `score_cosines` of each task; empty where all tasks are of another kind. The texts are
    those that `score_models` embeds."""
    from docemb_lib.evaluation.protocols import asks_what_belongs_together, score_cosines, spread

    named = {name: stages.tasks[name] for name in stages.profile.evaluation.tasks}
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


def _scores(stages: Stages, model: Model, names: Sequence[str], *, final: bool) -> dict[str, dict[str, Score]]:
    """{task: {round: score}} of one model; the texts of all tasks that are missing are embedded together."""
    evaluation, workspace = stages.profile.evaluation, stages.workspace
    inputs = {name: _inputs(stages, model, name, final=final) for name in names}

    @cache
    def embedded() -> dict[str, np.ndarray]:
        missing = [name for name in names if not workspace.is_built(SCORES_KIND, inputs[name])]
        texts = [text for name in missing for text in _texts(stages.tasks[name], evaluation, final=final)]
        texts = list(dict.fromkeys(texts))
        return dict(zip(texts, embed_once(workspace, model, texts), strict=True))

    found = {}
    for name in names:

        def build(folder: Path, name: str = name) -> None:
            task = stages.tasks[name]
            embeddings = np.stack([embedded()[text] for text in _texts(task, evaluation, final=final)])
            write_scores(folder, _score(task, embeddings, evaluation, final=final))

        found[name] = read_scores(workspace.artefact(SCORES_KIND, inputs[name], build).path)
    return found


def _inputs(stages: Stages, model: Model, name: str, *, final: bool) -> dict[str, Any]:
    evaluation = stages.profile.evaluation
    protocol = {"rounds"} if final else {"limit", "folds"}
    return {
        "recipe": RECIPE,
        "model": model.fingerprint,
        **task_inputs(stages.profile, name, lambda: stages.corpus.fingerprint),
        **evaluation.model_dump(include={"head", "seeds", *protocol}),
    }


def _texts(task: Task, evaluation: Evaluation, *, final: bool) -> list[str]:
    """What scoring needs embedded, each text once."""
    if isinstance(task, HeadTask) and not final:
        return validation_texts(for_validation(task, evaluation.limit))
    return task.texts("test" if final else "validation")


def _score(task: Task, embeddings: np.ndarray, evaluation: Evaluation, *, final: bool) -> dict[str, Score]:
    """{round: score}. embeddings: (N, D), row i of `_texts(...)[i]`."""
    rounds = {round_name(limit): limit for limit in evaluation.rounds} if final else {round_name(None): None}
    if not isinstance(task, HeadTask):
        return dict.fromkeys(rounds, task.score(embeddings, "test" if final else "validation"))
    if final:
        return final_scores(task, embeddings, rounds=rounds, head=evaluation.head, seeds=evaluation.seeds)
    cut = for_validation(task, evaluation.limit)
    score = validation_score(cut, embeddings, head=evaluation.head, seeds=evaluation.seeds, folds=evaluation.folds)
    return dict.fromkeys(rounds, score)

"""What a notebook shows beside its own run: all recorded runs of its kind, and their students on the same documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from docemb_lib.evaluation.distances import teacher_distances
from docemb_lib.evaluation.scoreboard import mean_over_tasks
from docemb_lib.experiments import records
from docemb_lib.experiments.embedding_cache import Model, embed_once
from docemb_lib.experiments.models import (
    SBERT_CHUNKS,
    SBERT_TRUNCATED,
    UNTRAINED,
    student_model,
    untrained_model,
)
from docemb_lib.experiments.objectives import weighting_of
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.run import Run
from docemb_lib.workspace import MANIFEST, Artefact

if TYPE_CHECKING:
    from docemb_lib.experiments.stages import Stages


VIEWED = ("lam", "contextual_teacher", "structural_loss")  # of a run, for figures to choose by


def means_of_runs(run: Run, scores: pd.DataFrame) -> pd.DataFrame:
    """Mean over tasks of every model in this run's `scores` and in the recorded runs comparable with it.

    Comparable are runs of the same notebook whose profile, texts and versions are the same. Returns a row per model,
    run and head seed: model, seed, value, own (whether it is a run's student, rather than a baseline), `mask` and some
    parameters of its run. Where runs share a label, what sets them apart from this run is added to it.
    """
    frames = [_means(scores, run.label, run.parameters)]
    for record in _others(run):
        frames.append(
            _means(records.scores_of(run.workspace, record), record.label, record.parameters, _apart(run, record))
        )
    means = pd.concat(frames, ignore_index=True)
    own = means["own"]
    return pd.concat([means[~own].drop_duplicates(["model", "seed"]), means[own]], ignore_index=True)


def own_metrics(run: Run, scores: pd.DataFrame) -> dict[str, float]:
    """What a run records of its own model's scores: `mean` over tasks, and `<task>/<metric>`, means over head seeds."""
    own = scores[scores["model"] == run.label]
    by_task = own.groupby(["task", "metric"], as_index=False)["value"].mean()
    names = by_task["task"] + "/" + by_task["metric"]
    return {"mean": float(mean_over_tasks(own)["value"].mean()), **dict(zip(names, by_task["value"], strict=True))}


def student_metrics(run: Run, scores: pd.DataFrame, validation: pd.DataFrame) -> dict[str, float]:
    """What a student's run records: its scores, its validation loss before and after, its spread."""
    return {
        **own_metrics(run, scores),
        "validation_loss_before": validation["loss"].iloc[0],
        "validation_loss_after": validation["loss"].iloc[-1],
        "spread": validation["spread"].iloc[-1],
    }


def final_metrics(run: Run, scores: pd.DataFrame, validation: pd.DataFrame) -> dict[str, float]:
    """What a final evaluation records: the student's own, and the means over tasks of those it is compared with."""
    means = mean_over_tasks(scores).groupby("model")["value"].mean()
    others = {"before": UNTRAINED, "sbert_truncated": SBERT_TRUNCATED, "sbert_chunks": SBERT_CHUNKS}
    compared = {f"mean_{name}": float(means[model]) for name, model in others.items()}
    return {**student_metrics(run, scores, validation), **compared}


def students_of_runs(run: Run, student: Artefact) -> list[Model]:
    """The student as it started, this run's, and those of the recorded runs of its notebook and profile that used as
    many documents and the same seed."""
    p = run.profile.parameters
    models = [untrained_model(run.stages), student_model(run.label, student)]
    for record in _others(run):
        folder = run.workspace.root / (record.student or "")
        same = (record.parameters["documents"], record.parameters["seed"]) == (p.documents, p.seed)
        if same and record.student is not None and (folder / MANIFEST).is_file():
            models.append(student_model(record.label, Artefact("student", folder.resolve().name, folder.resolve())))
    return models


def validation_embeddings(stages: Stages, model: Model) -> np.ndarray:
    """The model's embeddings of the corpus' validation documents: float32 (N, D), each computed once."""
    return embed_once(stages.workspace, model, stages.split("validation")["text"][:])


def distances_to_teacher(run: Run, models: list[Model], *, negatives: int = 20) -> dict[str, pd.DataFrame]:
    """For both distances, a tidy frame of positives and negatives of every model on the validation documents.

    Keys "cosine" and "mse"; columns model, kind, value, auc, see `teacher_distances`.
    """
    stages = run.stages
    teacher = np.asarray(
        stages.teacher_embeddings(stages.structural_teacher, "validation", len(stages.split("validation")))
    )
    embedded = {model.label: validation_embeddings(stages, model) for model in models}
    return {
        distance: pd.concat(
            [
                teacher_distances(student, teacher, distance=distance, negatives=negatives).assign(model=label)
                for label, student in embedded.items()
            ],
            ignore_index=True,
        )
        for distance in ("cosine", "mse")
    }


def _others(run: Run) -> list[Record]:
    """Recorded runs comparable with this one, newest first, without it."""
    found = records.all_records(run.notebook, workspace=run.workspace)
    same = [r for r in found if r.status == "done" and r.setting == run.setting and r.fingerprint != run.fingerprint]
    return same[::-1]


def _apart(run: Run, record: Record) -> str:
    """What a record's label leaves out and this run has otherwise, as an addition to the label."""
    if record.label != run.label:
        names = ["documents", "seed"]
    else:
        names = [name for name in record.parameters if name not in {"lam", "max_structural_len"}]
    other = [name for name in names if record.parameters.get(name) != run.parameters.get(name)]
    return "".join(f" ({name} {record.parameters[name]})" for name in other)


def _means(scores: pd.DataFrame, label: str, parameters: dict[str, Any], suffix: str = "") -> pd.DataFrame:
    """Means over tasks per model and head seed; the run's own student carries its parameters."""
    means = mean_over_tasks(scores)
    means["own"] = means["model"] == label
    for name in VIEWED:
        means[name] = [parameters.get(name) if own else None for own in means["own"]]
    longest = parameters.get("max_structural_len")
    means["mask"] = "no mask" if longest is None else f"mask {longest}"
    means.loc[means["own"], "model"] = label + suffix
    return means


def projection_layers(run: Run) -> pd.DataFrame:
    """The layers of both projections of this run: side, layer, shape (out × in), weights (biases included)."""
    from torch import nn

    from docemb_lib.losses import Projection

    p, stages = run.profile.parameters, run.stages
    if p.contextual_teacher is None:
        return pd.DataFrame(columns=["side", "layer", "shape", "weights"])
    student_width = stages.student_width
    sides = {
        "student": Projection(p.student_projection, student_width),
        "contextual": Projection(p.contextual_projection, stages.contextual_width(p.contextual_teacher)),
    }
    rows = []
    for side, projection in sides.items():
        for layer in projection.layers:
            linear = isinstance(layer, nn.Linear)
            shape = f"{layer.out_features} × {layer.in_features}" if linear else ""
            rows.append((side, type(layer).__name__, shape, sum(t.numel() for t in layer.parameters())))
        if not len(projection.layers):
            rows.append((side, "identity", f"{projection.out_features}", 0))
    return pd.DataFrame(rows, columns=["side", "layer", "shape", "weights"])


def weights_by_length(run: Run) -> pd.DataFrame:
    """The weights of both losses for each training document of this run: length, structural, contextual; by length."""
    import torch

    p = run.profile.parameters
    lengths = np.sort(run.stages.split("train")["n_structural_tokens"][: p.documents])
    weighting = weighting_of(p)
    structural, contextual = weighting.weights(torch.from_numpy(lengths))
    if p.structural_loss is None:
        structural, contextual = torch.zeros_like(structural), torch.ones_like(contextual)
    elif p.contextual_teacher is None:  # the plain mean, masked documents counting zero
        structural, contextual = weighting.keep(torch.from_numpy(lengths)).float(), torch.zeros_like(contextual)
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})

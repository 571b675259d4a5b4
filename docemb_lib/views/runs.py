"""What the diagrams show of a run beside its profile: how wide its embeddings are, how one of its documents begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.probes import probe
from docemb_lib.evaluation.scoreboard import last_round, mean_over_tasks
from docemb_lib.evaluation.soundness import HERE, THESIS, task_lengths, task_statistics
from docemb_lib.experiments.models import (
    SBERT_CHUNKS,
    SBERT_TRUNCATED,
    UNTRAINED,
    centred_model,
    student_model,
    untrained_model,
)
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import roles_of, weighting_of
from docemb_lib.experiments.scores import Model, cosine_scores, embed_once
from docemb_lib.thesis.comparison import comparable
from docemb_lib.thesis.values import FIGURE_4_4, published
from docemb_lib.workspace import MANIFEST, Artefact

if TYPE_CHECKING:
    from docemb_lib.experiments.students import Stages
    from docemb_lib.teachers.store import Teacher


# ---- what the diagrams show of a run beside its profile


def widths_of(run: Run) -> dict[str, int]:
    """Dimensions of the embeddings of the `student` and, where there is one, the `contextual` teacher."""
    stages, teacher = run.stages, run.profile.parameters.contextual_teacher
    return {
        "student": stages.student_width,
        **({} if teacher is None else {"contextual": stages.contextual_width(teacher)}),
    }


def opening_words(run: Run, words: int = 12) -> list[str]:
    """The first words of the first training document, as the run's Paragraph Vector (its first member) reads them."""
    from docemb_lib.teachers.words import preprocess

    (settings, *_) = run.stages.asked_paragraph_vectors()
    return preprocess(run.stages.split("train")["text"][0], settings.preprocess)[:words]


# ---- what 01_corpus shows


RECIPE = 1  # raised whenever the same tasks would be counted otherwise
STATISTICS, LENGTHS = "statistics.parquet", "lengths.parquet"
CORPUS_COLUMNS = ("documents", "tokens", "mean", "std", "over_384", "over_512")  # of Tables 4.1 and 5.1


class DescribedTasks(NamedTuple):
    """The tasks of a profile: `statistics` as `task_statistics` has them, and their documents' `lengths`: task, split,
    n_student_tokens, n_structural_tokens."""

    statistics: pd.DataFrame
    lengths: pd.DataFrame


def corpus_tables(statistics: pd.DataFrame, name: str) -> pd.DataFrame:
    """Tables 4.1 and 5.1 with the corpus at hand first: a row per corpus and split.

    statistics: see `corpus_statistics`; name: what the corpus is called.
    """
    ours = statistics[statistics["split"].isin(["train", "validation"])].assign(corpus=name, of=HERE)
    both = pd.concat([ours, published("corpora").assign(of=THESIS)])
    return both.set_index(["of", "corpus", "split"])[list(CORPUS_COLUMNS)]


def split_lengths(stages: Stages, splits: Sequence[str] = ("train", "validation")) -> pd.DataFrame:
    """The documents of the corpus' splits for Figures 4.1 and 5.1: split, source, tokens (the student's)."""
    frames = []
    for split in splits:
        table = stages.split(split).select_columns(["source", "n_student_tokens"]).to_pandas()
        frames.append(table.rename(columns={"n_student_tokens": "tokens"}).assign(split=split))
    return pd.concat(frames, ignore_index=True)


def described_tasks(stages: Stages) -> DescribedTasks:
    """All tasks of the profile, each counted once: what is counted is an artefact."""
    evaluation = stages.profile.evaluation
    names = dict.fromkeys((*evaluation.tasks, *evaluation.sweep_tasks))
    folders = {name: _described(stages, name) for name in names}
    statistics, lengths = (
        pd.concat([pd.read_parquet(folder / file).assign(task=name) for name, folder in folders.items()])
        for file in (STATISTICS, LENGTHS)
    )
    return DescribedTasks(statistics.reset_index(drop=True), lengths.reset_index(drop=True))


def _described(stages: Stages, name: str) -> Path:
    profile = stages.profile
    student, structural = profile.student.model, profile.structural_teacher.model
    inputs = {
        "recipe": RECIPE,
        **task_inputs(profile, name, lambda: stages.corpus.fingerprint),
        "limit": profile.evaluation.limit,
        "counters": [pretrained.fingerprint(pretrained.resolve(model)) for model in (student, structural)],
    }

    def build(folder: Path) -> None:
        from docemb_lib.student import count_tokens

        counters = {
            "n_student_tokens": lambda texts: count_tokens(pretrained.resolve(student), texts),
            "n_structural_tokens": stages.sbert("truncate").count_tokens,
        }
        task = stages.tasks[name]
        lengths = task_lengths(task, counters)
        lengths.to_parquet(folder / LENGTHS, index=False)
        task_statistics(task, lengths, limit=profile.evaluation.limit).to_parquet(folder / STATISTICS, index=False)

    return stages.workspace.artefact("task-statistics", inputs, build).path


# ---- what a notebook shows of its run beside its scores


SHOWN = 1000  # validation documents that views look at, as Figure 4.4 does
PROBED = 300  # training documents that a probe is fitted on


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
    """What a final evaluation records of its last round: the student's own, and the means over tasks of those it is
    compared with."""
    scores = last_round(scores)
    means = mean_over_tasks(scores).groupby("model")["value"].mean()
    others = {"before": UNTRAINED, "sbert_truncated": SBERT_TRUNCATED, "sbert_chunks": SBERT_CHUNKS}
    compared = {f"mean_{name}": float(means[model]) for name, model in others.items()}
    return {**student_metrics(run, scores, validation), **compared}


def students_of_runs(run: Run, student: Artefact) -> list[Model]:
    """The student as it started, this run's, and those of the comparable recorded runs of its notebook that used as
    many documents and the same seed: those of Figure 4.4 first, in its order."""
    p = run.profile.parameters
    models = [student_model(run.label, student)]
    for record in comparable(run):
        folder = run.workspace.root / (record.student or "")
        same = (record.parameters["documents"], record.parameters["seed"]) == (p.documents, p.seed)
        if same and record.student is not None and (folder / MANIFEST).is_file():
            models.append(student_model(record.label, Artefact("student", folder.resolve().name, folder.resolve())))
    place = {label: row for row, label in enumerate(FIGURE_4_4)}
    return [untrained_model(run.stages), *sorted(models, key=lambda model: place.get(model.label, len(place)))]


def in_figure_4_4(run: Run, distances: pd.DataFrame) -> pd.DataFrame:
    """Of the tidy distances of `students_of_runs` those of the models that Figure 4.4 shows, and of this run's."""
    return distances[distances["model"].isin([UNTRAINED, *FIGURE_4_4, run.label])]


def validation_embeddings(stages: Stages, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D), each computed once."""
    return embed_once(stages.workspace, model, stages.split("validation")["text"][:SHOWN])


def probes_of_teachers(run: Run, student: Artefact) -> pd.DataFrame:
    """What a linear map reads of each of the run's teachers, off its student and off the student as it started.

    Fitted on at most `PROBED` of the run's training documents, measured on the first `SHOWN` validation documents, all
    of them and apart by whether a document fits into one window of the structural teacher. Columns model, teacher,
    bucket, documents, r2, overlap, see `probe`.
    """
    stages, p = run.stages, run.profile.parameters
    train = min(PROBED, p.documents)
    texts = stages.split("train")["text"][:train]
    limit = stages.structural_teacher.max_text_tokens
    whole = np.asarray(stages.split("validation")["n_structural_tokens"][:SHOWN]) <= limit
    buckets = {f"up to {limit} tokens": whole, "longer": ~whole}
    frames = []
    for model in (untrained_model(stages), student_model(run.label, student)):
        fitted_on = embed_once(stages.workspace, model, texts)
        judged_on = validation_embeddings(stages, model)
        for name, teacher in stages.teachers().items():
            known = np.asarray(stages.teacher_embeddings(teacher, "train", p.documents)[:train])
            truth = _validation_of(stages, teacher)
            found = probe((fitted_on, known), (judged_on, truth), buckets)
            frames.append(found.assign(model=model.label, teacher=f"{name} teacher"))
    return pd.concat(frames, ignore_index=True)[["model", "teacher", "bucket", "documents", "r2", "overlap"]]


def centring(run: Run, student: Artefact) -> pd.DataFrame:
    """What subtracting the mean training embedding does to a student where cosines decide; a row per model. A student
    that is centred by itself (`student.centre`) has one row.

    Columns: spread, the mean cosine distance of two task texts, and each task of the final evaluation that asks what
    belongs together, see `score_cosines`.
    """
    if run.profile.student.centre:
        both = [student_model("student, centred", student)]
    else:
        own = student_model("student", student)
        both = [own, centred_model(run.stages, own)]
    return cosine_scores(run.stages, [untrained_model(run.stages), *both])


def _validation_of(stages: Stages, teacher: Teacher) -> np.ndarray:
    """The teacher's embeddings of the same documents, out of the store that training made."""
    return np.asarray(stages.teacher_embeddings(teacher, "validation", len(stages.split("validation")))[:SHOWN])


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
    weighting, roles = weighting_of(p), roles_of(p, run.profile.further_teachers)
    structural, contextual = weighting.weights(torch.from_numpy(lengths))
    if "structural" not in roles:
        structural, contextual = torch.zeros_like(structural), torch.ones_like(contextual)
    elif "contextual" not in roles:  # the plain mean, masked documents counting zero
        structural, contextual = weighting.keep(torch.from_numpy(lengths)).float(), torch.zeros_like(contextual)
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})

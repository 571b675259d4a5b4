"""Data for the figures and tables of notebooks 01 to 06: a run's corpus, tasks, students, probes and weights."""

from __future__ import annotations

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


SHOWN = 1000  # validation documents in views, as in Figure 4.4
PROBED = 300  # training documents that a probe is fitted on
RECIPE = 1  # raised whenever the same tasks would be counted otherwise
STATISTICS, LENGTHS = "statistics.parquet", "lengths.parquet"
CORPUS_COLUMNS = ("documents", "tokens", "mean", "std", "over_384", "over_512")  # of Tables 4.1 and 5.1


def widths_of(run: Run) -> dict[str, int]:
    """Widths of the `student` and, if there is one, of the `contextual` teacher, by these names."""
    stages, teacher = run.stages, run.profile.parameters.contextual_teacher
    contextual = {} if teacher is None else {"contextual": stages.contextual_width(teacher)}
    return {"student": stages.student_width, **contextual}


def opening_words(run: Run, words: int = 12) -> list[str]:
    """The first words of the first training document, preprocessed as for the run's (first) Paragraph Vector."""
    from docemb_lib.teachers.words import preprocess

    (settings, *_) = run.stages.asked_paragraph_vectors()
    return preprocess(run.stages.split("train")["text"][0], settings.preprocess)[:words]


class DescribedTasks(NamedTuple):
    """The tasks of a profile."""

    statistics: pd.DataFrame  # see `task_statistics`
    lengths: pd.DataFrame  # of documents: task, split, n_student_tokens, n_structural_tokens


def corpus_tables(statistics: pd.DataFrame, name: str) -> pd.DataFrame:
    """Tables 4.1 and 5.1 with this corpus first: a row per corpus and split.

    statistics: see `corpus_statistics`; name: of this corpus.
    """
    here = statistics[statistics["split"].isin(["train", "validation"])].assign(corpus=name, of=HERE)
    both = pd.concat([here, published("corpora").assign(of=THESIS)])
    return both.set_index(["of", "corpus", "split"])[list(CORPUS_COLUMNS)]


def split_lengths(stages: Stages) -> pd.DataFrame:
    """Lengths of training and validation documents for Figures 4.1 and 5.1: source, tokens (of the student), split."""
    frames = [
        stages.split(split).select_columns(["source", "n_student_tokens"]).to_pandas().assign(split=split)
        for split in ("train", "validation")
    ]
    return pd.concat(frames, ignore_index=True).rename(columns={"n_student_tokens": "tokens"})


def described_tasks(stages: Stages) -> DescribedTasks:
    """Statistics and lengths of all tasks of the profile. Each task is counted once and kept as an artefact."""
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


def own_metrics(run: Run, scores: pd.DataFrame) -> dict[str, float]:
    """The metrics in the record of a run: `mean` over tasks, and `<task>/<metric>`, means over head seeds."""
    own = scores[scores["model"] == run.label]
    by_task = own.groupby(["task", "metric"], as_index=False)["value"].mean()
    names = by_task["task"] + "/" + by_task["metric"]
    return {"mean": float(mean_over_tasks(own)["value"].mean()), **dict(zip(names, by_task["value"], strict=True))}


def student_metrics(run: Run, scores: pd.DataFrame, validation: pd.DataFrame) -> dict[str, float]:
    """`own_metrics` of a student's run, its validation loss before and after training, and its spread."""
    return {
        **own_metrics(run, scores),
        "validation_loss_before": validation["loss"].iloc[0],
        "validation_loss_after": validation["loss"].iloc[-1],
        "spread": validation["spread"].iloc[-1],
    }


def final_metrics(run: Run, scores: pd.DataFrame, validation: pd.DataFrame) -> dict[str, float]:
    """`student_metrics` of the last round of a final evaluation, and the means over tasks of three baselines."""
    scores = last_round(scores)
    means = mean_over_tasks(scores).groupby("model")["value"].mean()
    baselines = {"before": UNTRAINED, "sbert_truncated": SBERT_TRUNCATED, "sbert_chunks": SBERT_CHUNKS}
    compared = {f"mean_{name}": float(means[model]) for name, model in baselines.items()}
    return {**student_metrics(run, scores, validation), **compared}


def students_of_runs(run: Run, student: Artefact) -> list[Model]:
    """The untrained student, this run's, and recorded comparable ones of its notebook with equal documents and seed.

    Students of Figure 4.4 come first, in the order of the figure.
    """
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
    """The rows of `distances` (tidy, with a column model) that belong to Figure 4.4 or to this run's student."""
    return distances[distances["model"].isin([UNTRAINED, *FIGURE_4_4, run.label])]


def validation_embeddings(stages: Stages, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D). Each is computed once."""
    return embed_once(stages.workspace, model, stages.split("validation")["text"][:SHOWN])


def probes_of_teachers(run: Run, student: Artefact) -> pd.DataFrame:
    """How well a linear map predicts each teacher's embeddings from the student's, before and after distillation.

    The map is fitted on at most `PROBED` training documents of the run and measured on the first `SHOWN` validation
    documents: on all, and separately on those that fit into the structural teacher's window and on longer ones.
    Columns model, teacher, bucket, documents, r2, overlap; see `probe`.
    """
    stages, p = run.stages, run.profile.parameters
    train = min(PROBED, p.documents)
    texts, validation = stages.split("train")["text"][:train], stages.split("validation")
    limit = stages.structural_teacher.max_text_tokens
    short = np.asarray(validation["n_structural_tokens"][:SHOWN]) <= limit
    buckets = {f"up to {limit} tokens": short, "longer": ~short}
    frames = []
    for model in (untrained_model(stages), student_model(run.label, student)):
        embeddings = embed_once(stages.workspace, model, texts), validation_embeddings(stages, model)
        for name, teacher in stages.teachers().items():
            fitted = np.asarray(stages.teacher_embeddings(teacher, "train", p.documents)[:train])
            measured = np.asarray(stages.teacher_embeddings(teacher, "validation", len(validation))[:SHOWN])
            found = probe((embeddings[0], fitted), (embeddings[1], measured), buckets)
            frames.append(found.assign(model=model.label, teacher=f"{name} teacher"))
    return pd.concat(frames, ignore_index=True)[["model", "teacher", "bucket", "documents", "r2", "overlap"]]


def centring(run: Run, student: Artefact) -> pd.DataFrame:
    """Cosine scores of the student with and without the mean training embedding subtracted, a row per model.

    Columns: spread (mean cosine distance of two task texts), and each retrieval or pair task of the final evaluation;
    see `score_cosines`. With `student.centre` in the profile the student is centred already and has one row.
    """
    if run.profile.student.centre:
        both = [student_model("student, centred", student)]
    else:
        own = student_model("student", student)
        both = [own, centred_model(run.stages, own)]
    return cosine_scores(run.stages, [untrained_model(run.stages), *both])


def projection_layers(run: Run) -> pd.DataFrame:
    """The layers of both projections of this run: side, layer, shape (out × in), weights (with biases)."""
    from torch import nn

    from docemb_lib.losses import Projection

    p, stages = run.profile.parameters, run.stages
    if p.contextual_teacher is None:
        return pd.DataFrame(columns=["side", "layer", "shape", "weights"])
    sides = {
        "student": Projection(p.student_projection, stages.student_width),
        "contextual": Projection(p.contextual_projection, stages.contextual_width(p.contextual_teacher)),
    }
    rows = []
    for side, projection in sides.items():
        for layer in projection.layers:
            shape = f"{layer.out_features} × {layer.in_features}" if isinstance(layer, nn.Linear) else ""
            rows.append((side, type(layer).__name__, shape, sum(t.numel() for t in layer.parameters())))
        if not len(projection.layers):
            rows.append((side, "identity", f"{projection.out_features}", 0))
    return pd.DataFrame(rows, columns=["side", "layer", "shape", "weights"])


def weights_by_length(run: Run) -> pd.DataFrame:
    """The weights of both losses for each training document of this run, sorted by length.

    Columns length (structural tokens), structural, contextual.
    """
    import torch

    p = run.profile.parameters
    lengths = np.sort(run.stages.split("train")["n_structural_tokens"][: p.documents])
    weighting, roles = weighting_of(p), roles_of(p, run.profile.further_teachers)
    structural, contextual = weighting.weights(torch.from_numpy(lengths))
    if "structural" not in roles:
        structural, contextual = torch.zeros_like(structural), torch.ones_like(contextual)
    elif "contextual" not in roles:  # a plain mean, in which masked documents count as zero
        structural, contextual = weighting.keep(torch.from_numpy(lengths)).float(), torch.zeros_like(contextual)
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})

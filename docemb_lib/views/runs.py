"""Data for the figures and tables of notebooks 01 to 06: corpus, tasks, students, probes and weights of a run."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.corpus.build import corpus_statistics as describe_splits
from docemb_lib.evaluation.benchmarks import HERE, THESIS, task_lengths, task_statistics
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.probes import probe
from docemb_lib.evaluation.retrieval import neighbours
from docemb_lib.experiments.models import UNTRAINED, Model, centred_model, embed_once, student_model, untrained_model
from docemb_lib.experiments.plan import THESIS as THESIS_PROFILE
from docemb_lib.experiments.run import Run, Stages
from docemb_lib.experiments.runkey import STRUCTURAL, RunKey
from docemb_lib.experiments.stages import CorpusStage
from docemb_lib.experiments.students import recorded_student, weighting_of
from docemb_lib.thesis.values import FIGURE_4_4, loss_of, published

SHOWN = 1000  # validation documents in views, as in Figure 4.4
PROBED = 300  # training documents that a probe is fitted on
STATISTICS, LENGTHS = "statistics.parquet", "lengths.parquet"
CORPUS_COLUMNS = ("documents", "tokens", "mean", "std", "over_384", "over_512")  # of Tables 4.1 and 5.1


class DescribedTasks(NamedTuple):
    """The tasks of a profile."""

    statistics: pd.DataFrame  # see `task_statistics`
    lengths: pd.DataFrame  # of documents: task, split, n_student_tokens, n_structural_tokens


def widths_of(run: Run) -> dict[str, int]:
    """Widths of the `student` and, if there is one, of the `contextual` teacher, by these names."""
    teacher, teachers = run.profile.parameters.contextual_teacher, run.profile.contextual_teachers
    contextual = {} if teacher is None else {"contextual": teachers.width(teacher)}
    return {"student": run.stages.students.width, **contextual}


def opening_words(run: Run, words: int = 12) -> list[str]:
    """The first words of the first training document, preprocessed as for the run's (first) Paragraph Vector."""
    from docemb_lib.teachers.words import preprocess

    settings = run.key.paragraph_vectors[0]
    return preprocess(run.stages.corpus.split("train")["text"][0], settings.preprocess)[:words]


def corpus_statistics(run: Run) -> pd.DataFrame:
    """Documents and their lengths, a row per split of the run's corpus; see `docemb_lib.corpus.build`."""
    corpus = run.stages.corpus
    return describe_splits(
        {name: corpus.split(name) for name in ("train", "validation", "tasks")},
        limit=structural_limit(run),
        student_limit=run.profile.student.max_tokens,
    )


def structural_limit(run: Run) -> int:
    """The tokens of the longest text that the structural teacher does not truncate."""
    return run.stages.teachers.sbert("truncate").max_text_tokens


def corpus_tables(statistics: pd.DataFrame, name: str) -> pd.DataFrame:
    """Tables 4.1 and 5.1 with this corpus first: a row per corpus and split.

    statistics: see `corpus_statistics`; name: of this corpus.
    """
    here = statistics[statistics["split"].isin(["train", "validation"])].assign(corpus=name, of=HERE)
    both = pd.concat([here, published("corpora").assign(of=THESIS)])
    return both.set_index(["of", "corpus", "split"])[list(CORPUS_COLUMNS)]


def split_lengths(run: Run) -> pd.DataFrame:
    """Lengths of training and validation documents for Figures 4.1 and 5.1: source, tokens (of the student), split."""
    columns = {"source": "source", "n_student_tokens": "tokens"}
    frames = [
        run.stages.corpus.split(split).select_columns(list(columns)).to_pandas().assign(split=split)
        for split in ("train", "validation")
    ]
    return pd.concat(frames, ignore_index=True).rename(columns=columns)


def described_tasks(run: Run) -> DescribedTasks:
    """Statistics and lengths of all tasks of the profile. Each task is counted once and kept as an artefact."""
    evaluation = run.profile.evaluation
    names = dict.fromkeys((*evaluation.tasks, *evaluation.sweep_tasks))
    folders = {name: _described(run.stages, name) for name in names}
    statistics, lengths = (
        pd.concat([pd.read_parquet(folder / file).assign(task=name) for name, folder in folders.items()])
        for file in (STATISTICS, LENGTHS)
    )
    return DescribedTasks(statistics.reset_index(drop=True), lengths.reset_index(drop=True))


def _described(stages: Stages, name: str) -> Path:
    profile = stages.key.profile
    student, structural = profile.student.model, profile.structural_teacher.model
    inputs = {
        **task_inputs(profile, name, lambda: stages.corpus.fingerprint),
        "limit": profile.evaluation.limit,
        "counters": [pretrained.fingerprint(pretrained.resolve(model)) for model in (student, structural)],
    }

    def build(folder: Path) -> None:
        from docemb_lib.student import count_tokens

        counters = {
            "n_student_tokens": lambda texts: count_tokens(pretrained.resolve(student), texts),
            "n_structural_tokens": stages.teachers.sbert("truncate").count_tokens,
        }
        task = stages.scores.tasks[name]
        lengths = task_lengths(task, counters)
        lengths.to_parquet(folder / LENGTHS, index=False)
        task_statistics(task, lengths, limit=profile.evaluation.limit).to_parquet(folder / STATISTICS, index=False)

    return stages.workspace.artefact("task-statistics", inputs, build).path


def students_of_runs(run: Run) -> list[Model]:
    """The untrained student, this run's, and recorded comparable ones with equal documents and seed.

    Students of Figure 4.4 come first, in the order of the figure.
    """
    losses = [loss_of(**loss) for loss in FIGURE_4_4]
    size = {name: run.key.counting[name] for name in ("documents", "seed")}
    found = [(run.key.only(*STRUCTURAL), run.model)]
    for record in run.comparable():
        key, student = run.key_of(record), recorded_student(run.workspace, record)
        if student is not None and size.items() <= key.counting.items():
            found.append((key.only(*STRUCTURAL), student_model(record.label, student)))
    found.sort(key=lambda one: losses.index(one[0]) if one[0] in losses else len(losses))
    return [untrained_model(run.stages.students), *(model for _, model in found)]


def in_figure_4_4(run: Run, distances: pd.DataFrame) -> pd.DataFrame:
    """The rows of `distances` (tidy, with a column model) that belong to Figure 4.4 or to this run's student."""
    shown = [RunKey.of(run.notebook, THESIS_PROFILE, **loss).label for loss in FIGURE_4_4]
    return distances[distances["model"].isin([UNTRAINED, *shown, run.label])]


def validation_embeddings(corpus: CorpusStage, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D). Each is computed once."""
    return embed_once(corpus.workspace, model, corpus.split("validation")["text"][:SHOWN])


def neighbours_of_validation(run: Run, *, queries: int = 3, k: int = 3) -> pd.DataFrame:
    """The k nearest neighbours of the first validation documents by the cosine of the run's model; see `neighbours`."""
    corpus = run.stages.corpus
    rows = validation_embeddings(corpus, run.model)
    return neighbours(rows, corpus.split("validation")["id"][:], queries=range(queries), k=k)


def probes_of_teachers(run: Run) -> pd.DataFrame:
    """How well a linear map predicts each teacher's embeddings from the student's, before and after distillation.

    The map is fitted on at most `PROBED` training documents of the run and measured on the first `SHOWN` validation
    documents: on all, and separately on those that fit into the structural teacher's window and on longer ones.
    Columns model, teacher, bucket, documents, r2, overlap; see `probe`.
    """
    corpus, teachers, p = run.stages.corpus, run.stages.teachers, run.profile.parameters
    train, validation = min(PROBED, p.documents), corpus.split("validation")
    texts = corpus.split("train")["text"][:train]
    limit = teachers.structural.max_text_tokens
    short = np.asarray(validation["n_structural_tokens"][:SHOWN]) <= limit
    buckets = {f"up to {limit} tokens": short, "longer": ~short}
    frames = []
    for model in (untrained_model(run.stages.students), run.model):
        embeddings = embed_once(run.workspace, model, texts), validation_embeddings(corpus, model)
        for name, teacher in teachers.of_student.items():
            fitted = np.asarray(teachers.embeddings(teacher, "train", p.documents)[:train])
            measured = np.asarray(teachers.embeddings(teacher, "validation", len(validation))[:SHOWN])
            found = probe((embeddings[0], fitted), (embeddings[1], measured), buckets)
            frames.append(found.assign(model=model.label, teacher=f"{name} teacher"))
    return pd.concat(frames, ignore_index=True)[["model", "teacher", "bucket", "documents", "r2", "overlap"]]


def centring(run: Run) -> pd.DataFrame:
    """Cosine scores of the student with and without the mean training embedding subtracted, a row per model.

    Columns: spread (mean cosine distance of two task texts), and each retrieval or pair task of the final evaluation;
    see `score_cosines`. With `student.centre` in the profile the student is centred already and has one row.
    """
    if run.profile.student.centre:
        both = [run.model._replace(label="student, centred")]
    else:
        own = run.model._replace(label="student")
        both = [own, centred_model(run.stages.corpus, own)]
    return run.stages.scores.of_cosines([untrained_model(run.stages.students), *both])


def projection_layers(run: Run) -> pd.DataFrame:
    """The layers of both projections of this run: side, layer, shape (out × in), weights (with biases)."""
    from torch import nn

    from docemb_lib.losses import Projection

    p = run.profile.parameters
    if p.contextual_teacher is None:
        return pd.DataFrame(columns=["side", "layer", "shape", "weights"])
    rows = []
    for side, spec in {"student": p.student_projection, "contextual": p.contextual_projection}.items():
        projection = Projection(spec, widths_of(run)[side])
        for layer in projection.layers:
            shape = f"{layer.out_features} × {layer.in_features}" if isinstance(layer, nn.Linear) else ""
            rows.append((side, type(layer).__name__, shape, sum(t.numel() for t in layer.parameters())))
        if not len(projection.layers):
            rows.append((side, "identity", f"{projection.out_features}", 0))
    return pd.DataFrame(rows, columns=["side", "layer", "shape", "weights"])


def weights_by_length(run: Run) -> pd.DataFrame:
    """The weights of both losses for each training document, by length: length, structural, contextual."""
    import torch

    p = run.profile.parameters
    lengths = np.sort(run.stages.corpus.split("train")["n_structural_tokens"][: p.documents])
    weighting, roles = weighting_of(p), run.key.roles
    structural, contextual = weighting.weights(torch.from_numpy(lengths))
    if "structural" not in roles:
        structural, contextual = torch.zeros_like(structural), torch.ones_like(contextual)
    elif "contextual" not in roles:  # a plain mean, in which masked documents count as zero
        structural, contextual = weighting.keep(torch.from_numpy(lengths)).float(), torch.zeros_like(contextual)
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})

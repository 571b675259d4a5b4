"""What the diagrams show of a run beside its profile: how wide its embeddings are, how one of its documents begins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.corpus.build import corpus_statistics as describe_splits
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.probes import probe
from docemb_lib.evaluation.retrieval import neighbours
from docemb_lib.evaluation.soundness import HERE, THESIS, task_lengths, task_statistics
from docemb_lib.experiments.grids import THESIS as THESIS_PROFILE
from docemb_lib.experiments.models import UNTRAINED, Model, centred_model, embed_once, student_model, untrained_model
from docemb_lib.experiments.run import Run, Stages
from docemb_lib.experiments.runkey import STRUCTURAL, RunKey
from docemb_lib.experiments.stages import CorpusStage
from docemb_lib.experiments.students import recorded_student, weighting_of
from docemb_lib.thesis.values import FIGURE_4_4, loss_of, published

if TYPE_CHECKING:
    from docemb_lib.teachers.store import Teacher


# ---- what the diagrams show of a run beside its profile


def widths_of(run: Run) -> dict[str, int]:
    """Dimensions of the embeddings of the `student` and, where there is one, the `contextual` teacher."""
    teacher, contextual = run.profile.parameters.contextual_teacher, run.profile.contextual_teachers
    return {
        "student": run.stages.students.width,
        **({} if teacher is None else {"contextual": contextual.width(teacher)}),
    }


def opening_words(run: Run, words: int = 12) -> list[str]:
    """The first words of the first training document, as the run's Paragraph Vector (its first member) reads them."""
    from docemb_lib.teachers.words import preprocess

    settings = run.key.paragraph_vectors[0]
    return preprocess(run.stages.corpus.split("train")["text"][0], settings.preprocess)[:words]


# ---- what 01_corpus shows


STATISTICS, LENGTHS = "statistics.parquet", "lengths.parquet"
CORPUS_COLUMNS = ("documents", "tokens", "mean", "std", "over_384", "over_512")  # of Tables 4.1 and 5.1


class DescribedTasks(NamedTuple):
    """The tasks of a profile: `statistics` as `task_statistics` has them, and their documents' `lengths`: task, split,
    n_student_tokens, n_structural_tokens."""

    statistics: pd.DataFrame
    lengths: pd.DataFrame


def corpus_statistics(run: Run) -> pd.DataFrame:
    """Documents and their lengths, a row per split of the run's corpus."""
    corpus = run.stages.corpus
    return describe_splits(
        {name: corpus.split(name) for name in ("train", "validation", "tasks")},
        limit=structural_limit(run),
        student_limit=run.profile.student.max_tokens,
    )


def structural_limit(run: Run) -> int:
    """The longest text, in tokens, that the structural teacher reads whole."""
    return run.stages.teachers.sbert("truncate").max_text_tokens


def corpus_tables(statistics: pd.DataFrame, name: str) -> pd.DataFrame:
    """Tables 4.1 and 5.1 with the corpus at hand first: a row per corpus and split.

    statistics: see `corpus_statistics`; name: what the corpus is called.
    """
    ours = statistics[statistics["split"].isin(["train", "validation"])].assign(corpus=name, of=HERE)
    both = pd.concat([ours, published("corpora").assign(of=THESIS)])
    return both.set_index(["of", "corpus", "split"])[list(CORPUS_COLUMNS)]


def split_lengths(run: Run, splits: Sequence[str] = ("train", "validation")) -> pd.DataFrame:
    """The documents of the corpus' splits for Figures 4.1 and 5.1: split, source, tokens (the student's)."""
    frames = []
    for split in splits:
        table = run.stages.corpus.split(split).select_columns(["source", "n_student_tokens"]).to_pandas()
        frames.append(table.rename(columns={"n_student_tokens": "tokens"}).assign(split=split))
    return pd.concat(frames, ignore_index=True)


def described_tasks(run: Run) -> DescribedTasks:
    """All tasks of the profile, each counted once: what is counted is an artefact."""
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


# ---- what a notebook shows of its run beside its scores


SHOWN = 1000  # validation documents that views look at, as Figure 4.4 does
PROBED = 300  # training documents that a probe is fitted on


def students_of_runs(run: Run) -> list[Model]:
    """The untrained student, this run's, and those of the comparable recorded runs with as many documents and the same
    seed: those of Figure 4.4 first, in the figure's order."""
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
    """Of the tidy distances of `students_of_runs` those of the models that Figure 4.4 shows, and of this run's."""
    shown = [RunKey.of(run.notebook, THESIS_PROFILE, **loss).label for loss in FIGURE_4_4]
    return distances[distances["model"].isin([UNTRAINED, *shown, run.label])]


def validation_embeddings(corpus: CorpusStage, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D), each computed once."""
    return embed_once(corpus.workspace, model, corpus.split("validation")["text"][:SHOWN])


def neighbours_of_validation(run: Run, *, queries: int = 3, k: int = 3) -> pd.DataFrame:
    """The nearest neighbours of the first validation documents by the cosine of the run's model, see `neighbours`."""
    corpus = run.stages.corpus
    rows = validation_embeddings(corpus, run.model)
    return neighbours(rows, corpus.split("validation")["id"][:], queries=range(queries), k=k)


def probes_of_teachers(run: Run) -> pd.DataFrame:
    """What a linear map reads of each of the run's teachers, off its student and off the student as it started.

    Fitted on at most `PROBED` of the run's training documents, measured on the first `SHOWN` validation documents, all
    of them and apart by whether a document fits into one window of the structural teacher. Columns model, teacher,
    bucket, documents, r2, overlap, see `probe`.
    """
    corpus, teachers, p = run.stages.corpus, run.stages.teachers, run.profile.parameters
    train = min(PROBED, p.documents)
    texts = corpus.split("train")["text"][:train]
    limit = teachers.structural.max_text_tokens
    whole = np.asarray(corpus.split("validation")["n_structural_tokens"][:SHOWN]) <= limit
    buckets = {f"up to {limit} tokens": whole, "longer": ~whole}
    frames = []
    for model in (untrained_model(run.stages.students), run.model):
        fitted_on = embed_once(run.workspace, model, texts)
        judged_on = validation_embeddings(corpus, model)
        for name, teacher in teachers.of_student.items():
            known = np.asarray(teachers.embeddings(teacher, "train", p.documents)[:train])
            truth = _validation_of(run.stages, teacher)
            found = probe((fitted_on, known), (judged_on, truth), buckets)
            frames.append(found.assign(model=model.label, teacher=f"{name} teacher"))
    return pd.concat(frames, ignore_index=True)[["model", "teacher", "bucket", "documents", "r2", "overlap"]]


def centring(run: Run) -> pd.DataFrame:
    """What subtracting the mean training embedding does to a student where cosines decide; a row per model. A student
    that is centred by itself (`student.centre`) has one row.

    Columns: spread, the mean cosine distance of two task texts, and each task of the final evaluation that asks what
    belongs together, see `score_cosines`.
    """
    if run.profile.student.centre:
        both = [run.model._replace(label="student, centred")]
    else:
        own = run.model._replace(label="student")
        both = [own, centred_model(run.stages.corpus, own)]
    return run.stages.scores.of_cosines([untrained_model(run.stages.students), *both])


def _validation_of(stages: Stages, teacher: Teacher) -> np.ndarray:
    """The teacher's embeddings of the same documents, out of the store that training made."""
    rows = len(stages.corpus.split("validation"))
    return np.asarray(stages.teachers.embeddings(teacher, "validation", rows)[:SHOWN])


def projection_layers(run: Run) -> pd.DataFrame:
    """The layers of both projections of this run: side, layer, shape (out × in), weights (biases included)."""
    from torch import nn

    from docemb_lib.losses import Projection

    p = run.profile.parameters
    if p.contextual_teacher is None:
        return pd.DataFrame(columns=["side", "layer", "shape", "weights"])
    widths = widths_of(run)
    sides = {
        "student": Projection(p.student_projection, widths["student"]),
        "contextual": Projection(p.contextual_projection, widths["contextual"]),
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
    lengths = np.sort(run.stages.corpus.split("train")["n_structural_tokens"][: p.documents])
    weighting, roles = weighting_of(p), run.key.roles
    structural, contextual = weighting.weights(torch.from_numpy(lengths))
    if "structural" not in roles:
        structural, contextual = torch.zeros_like(structural), torch.ones_like(contextual)
    elif "contextual" not in roles:  # the plain mean, masked documents counting zero
        structural, contextual = weighting.keep(torch.from_numpy(lengths)).float(), torch.zeros_like(contextual)
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})

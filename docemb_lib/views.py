"""Data for the figures and tables of the notebooks, computed from a run, its stages and recorded
runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.base.errors import InputError
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.evaluation import benchmarks, probes
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.probes import ALL
from docemb_lib.evaluation.retrieval import neighbours
from docemb_lib.evaluation.tasks import SPLITS
from docemb_lib.runs import models as known_models
from docemb_lib.runs.models import (
    Model,
    embed_once,
    recorded_student,
    student_model,
    untrained_model,
)
from docemb_lib.runs.pipeline import Stages
from docemb_lib.runs.run import Run
from docemb_lib.runs.stages import CorpusStage
from docemb_lib.settings.profile import FINAL, local_config
from docemb_lib.thesis.comparison import HERE, LINES, THESIS
from docemb_lib.thesis.values import published

if TYPE_CHECKING:
    from torch import Tensor

    from docemb_lib.losses import SDL

SHOWN = 1000  # validation documents in views, as in Figure 4.4
PROBED = 300  # training documents that a probe is fitted on
STATISTICS, LENGTHS = "statistics.parquet", "lengths.parquet"
FEW = 12  # sentences of the example document
READ = 300  # training documents whose words are counted

# ---- corpus and tasks (notebooks 01 and 02)


def corpus_statistics(run: Run) -> pd.DataFrame:
    """One row per split of the run's corpus: its documents, and their lengths in tokens without
    special tokens.

    Columns: split, documents, tokens, mean, std, median (of student tokens), and percent of
    documents that are longer than the structural teacher (beyond_limit) and the student
    (beyond_student) read, and than 384 and 512 structural tokens (over_384 and over_512, as in
    Tables 4.1 and 5.1).
    """
    limit, read, rows = structural_limit(run), run.profile.student.max_tokens, []
    for split in ("train", "validation", "tasks"):
        table = run.stages.corpus.split(split)
        student, structural = (
            pd.Series(table[f"n_{of}_tokens"][:], dtype=float) for of in ("student", "structural")
        )
        rows.append(
            {
                "split": split,
                "documents": len(student),
                "tokens": int(student.sum()),
                "mean": student.mean(),
                "std": student.std(ddof=0),
                "median": student.median(),
                "beyond_limit": 100 * (structural > limit).mean(),
                "beyond_student": 100 * (student > read).mean(),
                "over_384": 100 * (structural > 384).mean(),  # the limit of SBERT in the thesis
                "over_512": 100 * (structural > 512).mean(),  # the limit of its tokenizer
            }
        )
    return pd.DataFrame(rows)


def structural_limit(run: Run) -> int:
    """The tokens of the longest text that the structural teacher does not truncate."""
    return run.stages.teachers.sbert("truncate").max_text_tokens


def seen_by_models(run: Run) -> str:
    """Sentences: how much of the training documents the structural teacher and the student read."""
    limit, read = structural_limit(run), run.profile.student.max_tokens
    columns = run.stages.corpus.split("train").select_columns(
        ["n_structural_tokens", "n_student_tokens"]
    )
    structural, student = columns.to_pandas().to_numpy().T
    seen, of_student = (
        np.minimum(n, most).sum() / n.sum() for n, most in ((structural, limit), (student, read))
    )
    truncates = run.profile.structural_teacher.long == "truncate"
    rest = "ignores the rest" if truncates else "averages over chunks, so it reads the rest, too"
    return (
        f"{(structural > limit).mean():.0%} of the {len(columns)} training documents are longer than the {limit} "
        f"tokens that the structural teacher reads at once.\nThe first {limit} tokens of each document hold {seen:.0%} "
        f"of all text; the teacher {rest}.\nThe student, with {read} tokens, reads {of_student:.0%}."
    )


def described_tasks(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Statistics of all tasks of the profile, see `task_statistics`, and the lengths of their
    documents.

    Lengths have the columns task, split, n_student_tokens, n_structural_tokens. Each task is
    counted once and kept as an artefact.
    """
    evaluation = run.profile.evaluation
    folders = {
        name: _described(run.stages, name) for name in (*evaluation.tasks, *evaluation.sweep_tasks)
    }

    def read(file: str) -> pd.DataFrame:
        of_tasks = [
            pd.read_parquet(folder / file).assign(task=name) for name, folder in folders.items()
        ]
        return pd.concat(of_tasks, ignore_index=True)

    return read(STATISTICS), read(LENGTHS)


def _described(stages: Stages, name: str) -> Path:
    profile, limit = stages.key.profile, stages.key.profile.evaluation.limit
    student, structural = profile.student.model, profile.structural_teacher.model
    counters = [pretrained.fingerprint(model) for model in (student, structural)]
    inputs = task_inputs(profile, name, lambda: stages.corpus.fingerprint) | {
        "limit": limit,
        "counters": counters,
    }

    def build(folder: Path) -> None:
        from docemb_lib.student import count_tokens

        task, of_student = (
            stages.scores.task(name),
            partial(count_tokens, pretrained.resolve(student)),
        )
        of_teacher = stages.teachers.sbert("truncate").count_tokens
        lengths = benchmarks.task_lengths(
            task, {"n_student_tokens": of_student, "n_structural_tokens": of_teacher}
        )
        lengths.to_parquet(folder / LENGTHS, index=False)
        benchmarks.task_statistics(task, lengths, limit=limit).to_parquet(
            folder / STATISTICS, index=False
        )

    return stages.workspace.artefact("task-statistics", inputs, build).path


def tasks_beside_thesis(
    statistics: pd.DataFrame, protocol: str, columns: Sequence[str]
) -> pd.DataFrame:
    """A table of the present tasks, beside the thesis' numbers of those it has: a row per task,
    split and `of`.

    of: here or thesis. statistics: those of `described_tasks`; protocol: "final" or "validation";
    columns: the statistics of the table.
    """
    of_thesis = published("tasks").query("task in @statistics.task")
    both = pd.concat([statistics.assign(of=HERE), of_thesis.assign(of=THESIS)])
    rows = both.query("protocol == @protocol and statistic in @columns")
    table = rows.pivot(index=["task", "split", "of"], columns="statistic", values="value").reindex(
        columns=[*columns]
    )
    order = {
        name: place for place, name in enumerate([*rows["task"].unique(), *SPLITS, HERE, THESIS])
    }
    table = table.sort_index(key=lambda level: level.map(order))
    return table.rename_axis(columns=None).convert_dtypes()  # counts as integers


# ---- students and teachers of a run (notebooks 02 to 06)


def widths_of(run: Run) -> dict[str, int]:
    """Widths of the `student` and, if there is one, of the `contextual` teacher, by these names."""
    teacher, untrained = run.profile.parameters.contextual_teacher, run.stages.students.untrained
    widths = {"student": int(local_config(str(untrained.path))["hidden_size"])}
    return (
        widths
        if teacher is None
        else {**widths, "contextual": run.profile.contextual_teachers.width(teacher)}
    )


def taught(run: Run) -> str:
    """A sentence: whether training lowered the validation loss, which it need not where the student
    starts near it.
    """
    before, after = run.history()[1]["loss"].iloc[[0, -1]]
    did, teacher = (
        "brought" if after < before else "did not bring",
        "teachers" if len(run.key.roles) > 1 else "teacher",
    )
    nearer = (
        f"by this loss training {did} the student nearer to its {teacher} on validation documents"
    )
    return (
        f"The validation loss is {before:.4f} before training and {after:.4f} after it:\n{nearer}."
    )


def students_of_runs(run: Run) -> list[Model]:
    """The untrained student, that of this run, and recorded comparable ones of equal size and seed,
    by label.
    """
    size = {name: run.key.counting[name] for name in ("documents", "seed")}
    models = [untrained_model(run.stages.students), run.model]
    for record in sorted(run.comparable(), key=lambda record: record.label):
        student = recorded_student(run.workspace, record)
        if student is not None and size.items() <= run.key_of(record).counting.items():
            models.append(student_model(record.label, student))
    return models


def validation_embeddings(corpus: CorpusStage, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D).

    Each is computed once.
    """
    return embed_once(corpus.workspace, model, corpus.split("validation")["text"][:SHOWN])


def neighbours_of_validation(run: Run) -> pd.DataFrame:
    """The nearest neighbours of the first three validation documents by the run's model; see
    `neighbours`.
    """
    embeddings = validation_embeddings(run.stages.corpus, run.model)
    return neighbours(
        embeddings, run.stages.corpus.split("validation")["id"][:], queries=range(3), k=3
    )


def probes_of_teachers(run: Run) -> pd.DataFrame:
    """How well a linear map predicts each teacher's embeddings from the student's, before and after
    distillation.

    The map is fitted on at most `PROBED` training documents and measured on the first `SHOWN`
    validation documents, by whether they fit into the structural teacher's window. Columns: model,
    teacher, and those of `probe`.
    """
    corpus, teachers, p = run.stages.corpus, run.stages.teachers, run.profile.parameters
    train, validation = min(PROBED, p.documents), corpus.split("validation")
    texts = corpus.split("train")["text"][:train]
    limit = teachers.structural.max_text_tokens
    short = np.asarray(validation["n_structural_tokens"][:SHOWN]) <= limit
    buckets = {f"up to {limit} tokens": short, "longer": ~short}
    frames = {}
    for model in (untrained_model(run.stages.students), run.model):
        embeddings = embed_once(run.workspace, model, texts), validation_embeddings(corpus, model)
        for name, teacher in teachers.of_student.items():
            fitted = np.asarray(teachers.embeddings(teacher, "train", p.documents)[:train])
            measured = np.asarray(
                teachers.embeddings(teacher, "validation", len(validation))[:SHOWN]
            )
            found = probes.probe((embeddings[0], fitted), (embeddings[1], measured), buckets)
            frames[model.label, f"{name} teacher"] = found
    return (
        pd.concat(frames, names=["model", "teacher", "row"])
        .reset_index(["model", "teacher"])
        .reset_index(drop=True)
    )


def learnt(probes: pd.DataFrame) -> str:
    """A sentence: R² of each teacher's probe on all documents, before and after. probes: see
    `probes_of_teachers`.
    """
    found = (
        probes[probes["bucket"] == ALL].groupby("teacher", sort=False)["r2"].agg(["first", "last"])
    )
    said = (
        f"{teacher} {r2[0]:.2f} before distillation and {r2[1]:.2f} after"
        for teacher, *r2 in found.itertuples()
    )
    return LINES.fill(f"R² on all validation documents: {'; '.join(said)}.")


def weights_by_length(run: Run) -> pd.DataFrame:
    """The weights of both losses for each training document, by length: length, structural,
    contextual.
    """
    import torch

    from docemb_lib.runs.students import weighting_of

    p = run.profile.parameters
    lengths = np.sort(run.stages.corpus.split("train")["n_structural_tokens"][: p.documents])
    structural, contextual = weighting_of(p).weights(torch.from_numpy(lengths), roles=run.key.roles)
    return pd.DataFrame(
        {"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()}
    )


class ThreeDocuments(NamedTuple):
    """Three documents in the objective of a run.

    The student's embeddings stand for those of a teacher it lacks.
    """

    lengths: Tensor  # (3,), tokens of the structural teacher
    y: Tensor  # (3, D), embeddings by the student
    t: Tensor  # (3, D), by the structural teacher
    f: Tensor  # (3, P), projections of y
    c: Tensor  # (3, P), projections of the embeddings by the contextual teacher
    decorrelations: list[SDL]  # with SoftCCA: of f and of c, with their running statistics
    weights: tuple[Tensor, Tensor]  # of the structural and of the contextual loss, (3,)
    structural: Tensor  # (3,), structural losses
    contextual: Tensor  # (3,), contextual losses
    loss: float


def three_documents(run: Run) -> ThreeDocuments:
    """The shortest, the median and the longest validation document, without further teachers."""
    import torch

    from docemb_lib.losses import SDL

    stage = run.stages.students
    objective, seen = stage.objective(), {}
    own = torch.nn.ModuleList(one for one in objective.teachings if one.name == one.role)
    objective.teachings, objective.group_size = cast(Any, own), None  # the three are one batch
    documents = stage.training_documents(
        objective.student, "validation", len(run.stages.corpus.split("validation"))
    )
    rows = np.argsort(documents.n_structural_tokens, kind="stable")[
        [0, len(documents) // 2, -1]
    ].tolist()
    batch, targets = documents.pack([rows])
    for one in objective.teachings:  # note what each loss takes and gives
        one.loss.register_forward_hook(
            lambda _, taken, given, role=one.role: seen.update({role: (*taken, given)})
        )
    with torch.no_grad():
        output = objective(batch, **targets._asdict())
    y, lengths = output.embeddings, targets.n_structural_tokens
    _, t, *_, structural = seen.get("structural", (y, y, 0 * lengths))
    f, c, contextual = seen.get("contextual", (y, y, 0 * lengths))
    return ThreeDocuments(
        lengths,
        y,
        t,
        f,
        c,
        [module for module in objective.modules() if isinstance(module, SDL)],
        objective.weighting.weights(lengths, roles=seen),
        structural,
        contextual,
        output.loss.item(),
    )


# ---- halves of documents, and the analyses of the SimDE paper (notebook 07)


def example_halves(run: Run) -> pd.DataFrame:
    """The first sentences of the first training document of two or more, each in the column of its
    half (epoch 1).
    """
    rows, language = min(run.profile.parameters.documents, SHOWN), run.profile.simde.language
    for row in run.stages.corpus.split("train").select(range(rows)):
        sentences = split_sentences(row["text"], language=language)
        if len(sentences) >= 2:
            shown, first = (
                [" ".join(sentence.split()) for sentence in sentences],
                _draw(run, row["id"], len(sentences)),
            )
            halves = {
                "first half": np.where(first, shown, ""),
                "second half": np.where(first, "", shown),
            }
            return pd.DataFrame(halves).head(FEW)
    problem = f"none of the first {rows} has two sentences, so none has halves"
    raise InputError(f"documents: {problem}; add documents of several sentences")


def distances_of_halves(run: Run, models: list[Model]) -> pd.DataFrame:
    """Cosine distances from the first halves of validation documents to their second halves and to
    those of others.

    Tidy, see `tidy_distances`, with a column model. Documents of one sentence are left out.
    """
    language, split = run.profile.simde.language, run.stages.corpus.split("validation")
    firsts, seconds = [], []
    for name, text in zip(split["id"][:SHOWN], split["text"][:SHOWN], strict=True):
        sentences = np.array(split_sentences(text, language=language), dtype=object)
        if len(sentences) >= 2:
            first = _draw(run, name, len(sentences))
            firsts.append("".join(sentences[first]))
            seconds.append("".join(sentences[~first]))
    if len(firsts) < 2:
        problem = f"{len(firsts)} documents have two sentences; distances need two such documents"
        mend = "raise it, or add documents of several sentences"
        raise InputError(f"corpus.validation: {problem}; {mend}")
    frames = []
    for model in models:
        halves = np.split(embed_once(run.workspace, model, firsts + seconds), 2)
        found = probes.measure_distances(*halves, distance="cosine", negatives=20)
        frames.append(probes.tidy_distances(found).assign(model=model.label))
    return pd.concat(frames, ignore_index=True)


def _draw(run: Run, document: str, n: int) -> np.ndarray:
    """Which of n sentences training puts into the first half in the first epoch: (n,) bool."""
    from docemb_lib.training.pairs import draw_halves, generator_of

    return draw_halves(n, generator_of(document, seed=run.profile.parameters.seed, epoch=0))


def students_beside(run: Run) -> list[Model]:
    """The students of recorded runs comparable with this one, of notebook 07 and of the final
    evaluation.
    """
    models: dict[str, Model] = {}
    for record in (*run.comparable(FINAL[1]), *run.comparable(FINAL[0])):
        if (
            record.label != run.label
            and (student := recorded_student(run.workspace, record)) is not None
        ):
            models.setdefault(record.label, student_model(record.label, student))
    return list(models.values())


def redundancy_beside_paper(run: Run) -> pd.DataFrame:
    """Table 4 of the paper below this run's first `READ` training documents, if they are English:
    data × words.
    """
    rows = (
        published("simde")
        .query("metric == 'redundancy'")
        .rename(columns={"task": "data", "value": "redundancy"})
    )
    if run.profile.simde.language == "en":  # the language of the part-of-speech tagger
        here = probes.redundancy_by_length(probes.redundancy(_texts_read(run))).reset_index()
        rows = pd.concat([here.assign(data=f"here: {run.profile.corpus.source}"), rows])
    table = rows.pivot_table(index="data", columns="words", values="redundancy", sort=False)
    return table[[*probes.BINS, probes.ALL_LENGTHS]]


def similarity_beside_paper(run: Run) -> pd.DataFrame:
    """Table 5 of the paper (SimCSE's cosines) below the mean cosines of this run's first `READ`
    training documents.

    Sentences are encoded by `simde.sentence_encoder` or, without one, by the structural teacher.
    """
    simde, source, teachers = run.profile.simde, run.profile.corpus.source, run.stages.teachers
    name = simde.sentence_encoder
    encoder = (
        known_models.published_model(name, pooling="cls")
        if name
        else known_models.sbert_models(teachers)[0]
    )
    embed = partial(embed_once, run.workspace, encoder)
    here = probes.sentence_similarity(_texts_read(run), embed, language=simde.language)
    paper = (
        published("simde")
        .query("source == 'table 5'")
        .pivot(index="task", columns="metric", values="value")
    )
    rows = pd.concat(
        [pd.DataFrame(here, index=[f"here: {source}, by {encoder.label}"]), paper[[*here]]]
    )
    return rows.rename_axis(index="data", columns="mean cosine")


def _texts_read(run: Run) -> list[str]:
    return run.stages.corpus.split("train")["text"][: min(READ, run.profile.parameters.documents)]

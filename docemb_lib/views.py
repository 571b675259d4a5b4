"""Data for the figures and tables of the notebooks, computed from a run, its stages and recorded runs."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np
import pandas as pd

from docemb_lib import pretrained
from docemb_lib.corpus.build import corpus_statistics as describe_splits
from docemb_lib.corpus.rows import split_sentences
from docemb_lib.errors import InputError
from docemb_lib.evaluation import benchmarks, probes
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.retrieval import neighbours
from docemb_lib.experiments import models as known_models
from docemb_lib.experiments.models import UNTRAINED, Model, embed_once, student_model, untrained_model
from docemb_lib.experiments.plan import THESIS as THESIS_PROFILE
from docemb_lib.experiments.run import Run, Stages
from docemb_lib.experiments.runkey import STRUCTURAL, RunKey
from docemb_lib.experiments.stages import CorpusStage
from docemb_lib.experiments.students import recorded_student, weighting_of
from docemb_lib.figures import short_name
from docemb_lib.projections import projection_widths
from docemb_lib.settings.profile import FINAL
from docemb_lib.thesis.values import FIGURE_4_4, loss_of, published

if TYPE_CHECKING:
    from torch import Tensor

    from docemb_lib.losses import SDL

SHOWN = 1000  # validation documents in views, as in Figure 4.4
PROBED = 300  # training documents that a probe is fitted on
STATISTICS, LENGTHS = "statistics.parquet", "lengths.parquet"
FEW = range(6, 13)  # sentences of the example document
READ = 300  # training documents whose words are counted
COMPARED = 1000  # sentences, which give half a million pairs
ATTENDED = 20  # validation documents; attentions take stock Longformer a second per document
TAGGED = "en"  # the language of the part-of-speech tagger

# ---- corpus and tasks (notebooks 01 and 02)

tasks_beside_thesis = benchmarks.beside_thesis


class DescribedTasks(NamedTuple):
    statistics: pd.DataFrame  # see `task_statistics`
    lengths: pd.DataFrame  # of documents: task, split, n_student_tokens, n_structural_tokens


def opening_words(run: Run, words: int = 12) -> list[str]:
    """The first words of the first training document, preprocessed as for the run's (first) Paragraph Vector."""
    from docemb_lib.teachers.words import preprocess

    return preprocess(run.stages.corpus.split("train")["text"][0], run.key.paragraph_vectors[0].preprocess)[:words]


def corpus_statistics(run: Run) -> pd.DataFrame:
    """Documents and their lengths, a row per split of the run's corpus; see `docemb_lib.corpus.build`."""
    splits = {name: run.stages.corpus.split(name) for name in ("train", "validation", "tasks")}
    return describe_splits(splits, limit=structural_limit(run), student_limit=run.profile.student.max_tokens)


def structural_limit(run: Run) -> int:
    """The tokens of the longest text that the structural teacher does not truncate."""
    return run.stages.teachers.sbert("truncate").max_text_tokens


def seen_by_models(run: Run) -> str:
    """Sentences: how much of the training documents the structural teacher and the student read."""
    train, read = run.stages.corpus.split("train"), run.profile.student.max_tokens
    structural, student = (np.array(train[f"n_{model}_tokens"][:]) for model in ("structural", "student"))
    limit = structural_limit(run)
    truncates = run.profile.structural_teacher.long == "truncate"
    rest = "ignores the rest" if truncates else "averages over chunks, and so reads the rest, too"
    seen, of_student = np.minimum(structural, limit).sum(), np.minimum(student, read).sum()
    return (
        f"{(structural > limit).mean():.0%} of the {len(train)} training documents are longer than the {limit} tokens "
        f"that the structural teacher reads at once.\nThese hold {seen / structural.sum():.0%} of all text; the "
        f"teacher {rest}. The student, with {read} tokens, reads {of_student / student.sum():.0%}."
    )


def split_lengths(run: Run) -> pd.DataFrame:
    """Lengths of training and validation documents for Figures 4.1 and 5.1: source, tokens (of the student), split."""
    columns = {"source": "source", "n_student_tokens": "tokens"}
    splits = {split: run.stages.corpus.split(split).select_columns(list(columns)) for split in ("train", "validation")}
    frames = [rows.to_pandas().assign(split=split) for split, rows in splits.items()]
    return pd.concat(frames, ignore_index=True).rename(columns=columns)


def described_tasks(run: Run) -> DescribedTasks:
    """Statistics and lengths of all tasks of the profile. Each task is counted once and kept as an artefact."""
    evaluation = run.profile.evaluation
    folders = {name: _described(run.stages, name) for name in (*evaluation.tasks, *evaluation.sweep_tasks)}
    frames = (
        [pd.read_parquet(folder / file).assign(task=name) for name, folder in folders.items()]
        for file in (STATISTICS, LENGTHS)
    )
    return DescribedTasks(*(pd.concat(of_tasks, ignore_index=True) for of_tasks in frames))


def _described(stages: Stages, name: str) -> Path:
    profile, limit = stages.key.profile, stages.key.profile.evaluation.limit
    student, structural = profile.student.model, profile.structural_teacher.model
    counters = [pretrained.fingerprint(model) for model in (student, structural)]
    inputs = task_inputs(profile, name, lambda: stages.corpus.fingerprint) | {"limit": limit, "counters": counters}

    def build(folder: Path) -> None:
        from docemb_lib.student import count_tokens

        task, of_student = stages.scores.tasks[name], partial(count_tokens, pretrained.resolve(student))
        of_teacher = stages.teachers.sbert("truncate").count_tokens
        lengths = benchmarks.task_lengths(task, {"n_student_tokens": of_student, "n_structural_tokens": of_teacher})
        lengths.to_parquet(folder / LENGTHS, index=False)
        benchmarks.task_statistics(task, lengths, limit=limit).to_parquet(folder / STATISTICS, index=False)

    return stages.workspace.artefact("task-statistics", inputs, build).path


# ---- students and teachers of a run (notebooks 02 to 06)


def widths_of(run: Run) -> dict[str, int]:
    """Widths of the `student` and, if there is one, of the `contextual` teacher, by these names."""
    teacher, widths = run.profile.parameters.contextual_teacher, {"student": run.stages.students.width}
    return widths if teacher is None else {**widths, "contextual": run.profile.contextual_teachers.width(teacher)}


def students_of_runs(run: Run) -> list[Model]:
    """The untrained student, this run's and recorded comparable ones of equal size and seed; as in Figure 4.4 first."""
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
    """The rows of `distances` (tidy, with short names of models) that belong to Figure 4.4 or to this run's student."""
    labels = [UNTRAINED, run.label, *(RunKey.of(run.notebook, THESIS_PROFILE, **loss).label for loss in FIGURE_4_4)]
    return distances[distances["model"].isin([short_name(label, run.label) for label in labels])]


def validation_embeddings(corpus: CorpusStage, model: Model) -> np.ndarray:
    """The model's embeddings of the first `SHOWN` validation documents: float32 (N, D). Each is computed once."""
    return embed_once(corpus.workspace, model, corpus.split("validation")["text"][:SHOWN])


def neighbours_of_validation(run: Run) -> pd.DataFrame:
    """The nearest neighbours of the first three validation documents by the run's model; see `neighbours`."""
    embeddings = validation_embeddings(run.stages.corpus, run.model)
    return neighbours(embeddings, run.stages.corpus.split("validation")["id"][:], queries=range(3), k=3)


def probes_of_teachers(run: Run) -> pd.DataFrame:
    """How well a linear map predicts each teacher's embeddings from the student's, before and after distillation.

    The map is fitted on at most `PROBED` training documents and measured on the first `SHOWN` validation documents, by
    whether they fit into the structural teacher's window. Columns: model, teacher, and those of `probe`.
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
            measured = np.asarray(teachers.embeddings(teacher, "validation", len(validation))[:SHOWN])
            found = probes.probe((embeddings[0], fitted), (embeddings[1], measured), buckets)
            frames[model.label, f"{name} teacher"] = found
    return pd.concat(frames, names=["model", "teacher", "row"]).reset_index(["model", "teacher"]).reset_index(drop=True)


def why_no_correlation(run: Run) -> str:
    """Why the training history has no canonical correlation; empty where it has one."""
    from docemb_lib.training.monitor import documents_for_correlation

    if run.profile.parameters.contextual_teacher is None:
        return "This run has no contextual teacher, and no views."
    width = projection_widths(run.profile.parameters.student_projection, widths_of(run)["student"])[-1]
    documents, needed = len(run.stages.corpus.split("validation")), documents_for_correlation(width)
    if documents >= needed:
        return ""
    few = f"Not measured: views {width:,} wide need {needed:,} validation documents, there are {documents:,}."
    return f"{few} Raise corpus.validation, or end both projections in fewer features."


def weights_by_length(run: Run) -> pd.DataFrame:
    """The weights of both losses for each training document, by length: length, structural, contextual."""
    import torch

    p = run.profile.parameters
    lengths = np.sort(run.stages.corpus.split("train")["n_structural_tokens"][: p.documents])
    structural, contextual = weighting_of(p).weights(torch.from_numpy(lengths), roles=run.key.roles)
    return pd.DataFrame({"length": lengths, "structural": structural.numpy(), "contextual": contextual.numpy()})


class ThreeDocuments(NamedTuple):
    """Three documents in the objective of a run. The student's embeddings stand for those of a teacher it lacks."""

    lengths: Tensor  # (3,), tokens of the structural teacher
    y: Tensor  # (3, D), embeddings by the student
    t: Tensor  # (3, D), by the structural teacher
    negatives: Tensor  # (K, D), of further documents by the structural teacher
    f: Tensor  # (3, P), projections of y
    c: Tensor  # (3, P), projections of the embeddings by the contextual teacher
    decorrelations: list[SDL]  # with SoftCCA: of f and of c, with their running statistics
    weights: tuple[Tensor, Tensor]  # of the structural and of the contextual loss, (3,)
    structural: Tensor  # (3,), structural losses
    contextual: Tensor  # (3,), contextual losses
    loss: float


def three_documents(run: Run) -> ThreeDocuments:
    """The shortest, the median and the longest validation document as in validation, without further teachers."""
    import torch

    from docemb_lib.losses import SDL
    from docemb_lib.training.documents import Bank

    p, stage = run.profile.parameters, run.stages.students
    objective, seen = stage.objective(), {}
    own = torch.nn.ModuleList(one for one in objective.teachings if one.name == one.role)
    objective.teachings, objective.group_size = cast(Any, own), None  # the three are one batch
    documents = stage.training_documents(objective.student, "validation", len(run.stages.corpus.split("validation")))
    rows = np.argsort(documents.n_structural_tokens, kind="stable")[[0, len(documents) // 2, -1]].tolist()
    bank = None
    if objective.negatives:
        trained_on = stage.training_documents(objective.student, "train", p.documents)
        bank = Bank(trained_on, objective, batch_size=len(rows), seed=p.seed)
    batch, targets = documents.pack([rows], bank)
    for one in objective.teachings:  # note what each loss takes and gives
        one.loss.register_forward_hook(lambda _, taken, given, role=one.role: seen.update({role: (*taken, given)}))
    with torch.no_grad():
        output = objective(batch, **targets._asdict())
    y, lengths = output.embeddings, targets.n_structural_tokens
    _, t, _, *negatives, structural = seen.get("structural", (y, y, y, 0 * lengths))
    f, c, contextual = seen.get("contextual", (y, y, 0 * lengths))
    return ThreeDocuments(
        lengths, y, t, negatives[0] if negatives else y[:0], f, c,
        [module for module in objective.modules() if isinstance(module, SDL)],
        objective.weighting.weights(lengths, roles=seen), structural, contextual, output.loss.item(),
    )  # fmt: skip


# ---- halves of documents, and the analyses of the SimDE paper (notebook 07)


def example_halves(run: Run) -> pd.DataFrame:
    """The first training document of 6 to 12 sentences, each sentence in the column of its half in the first epoch."""
    rows, language = min(run.profile.parameters.documents, SHOWN), run.profile.simde.language
    split = run.stages.corpus.split("train").select(range(rows))
    documents = [(row["id"], split_sentences(row["text"], language=language)) for row in split]
    candidates = [one for one in documents if len(one[1]) >= 2]
    if not candidates:
        raise InputError(f"documents: none of the first {rows} has two sentences, so none has halves")
    name, sentences = next((one for one in candidates if len(one[1]) in FEW), candidates[0])
    shown, first = [" ".join(sentence.split()) for sentence in sentences], _draw(run, name, len(sentences))
    return pd.DataFrame({"first half": np.where(first, shown, ""), "second half": np.where(first, "", shown)})


def distances_of_halves(run: Run, models: list[Model]) -> pd.DataFrame:
    """Cosine distances from the first halves of validation documents to their second halves and to those of others.

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
    """The students of recorded runs comparable with this one, of notebook 07 and of the final evaluation."""
    models: dict[str, Model] = {}
    for record in (*run.comparable(FINAL[1]), *run.comparable(FINAL[0])):
        if record.label != run.label and (student := recorded_student(run.workspace, record)) is not None:
            models.setdefault(record.label, student_model(record.label, student))
    return list(models.values())


def redundancy_beside_paper(run: Run) -> pd.DataFrame:
    """Table 4 of the paper, this run's first `READ` training documents, if English, first: data, words, redundancy."""
    rows = published("simde").query("metric == 'redundancy'").rename(columns={"task": "data", "value": "redundancy"})
    if run.profile.simde.language == TAGGED:
        here = probes.redundancy_by_length(probes.redundancy(_texts_read(run))).reset_index()
        rows = pd.concat([here.assign(data=f"here: {run.profile.corpus.source}"), rows], ignore_index=True)
    return rows[["data", "words", "redundancy"]]


def similarity_of_sentences(run: Run) -> pd.DataFrame:
    """SBERT cosines of every two sentences of the first training documents; see `sentence_similarity`."""
    embed = partial(embed_once, run.workspace, known_models.sbert_models(run.stages.teachers)[0])
    return probes.sentence_similarity(_texts_read(run), embed, sentences=COMPARED, language=run.profile.simde.language)


def similarity_beside_paper(run: Run, pairs: pd.DataFrame) -> pd.DataFrame:
    """Table 5 of the paper (SimCSE's cosines) below those of `similarity_of_sentences`: data × inside, across."""
    paper = published("simde").query("source == 'table 5'")
    rows = paper.pivot(index="task", columns="metric", values="value")[["inside", "across"]]
    own = pairs.groupby("kind", observed=True)["cosine"].mean().rename(f"here: {run.profile.corpus.source}")
    return pd.concat([own.to_frame().T, rows]).rename_axis(index="data", columns="mean cosine")


def _texts_read(run: Run) -> list[str]:
    return run.stages.corpus.split("train")["text"][: min(READ, run.profile.parameters.documents)]


def attention_of_students(run: Run) -> pd.DataFrame:
    """`attention_by_part` by model, before and after training, in the first `ATTENDED` validation documents.

    Empty if documents are not English or the student gives no attentions.
    """
    from docemb_lib.student import Student

    if run.profile.simde.language != TAGGED:
        return pd.DataFrame()
    students = {UNTRAINED: run.stages.students.untrained, run.label: run.student()}
    loaded = {label: Student.load(student.path) for label, student in students.items()}
    if any(student.config.model_type != "longformer" for student in loaded.values()):
        return pd.DataFrame()
    texts = run.stages.corpus.split("validation")["text"][:ATTENDED]
    frames = [probes.attention_by_part(student, texts).assign(model=label) for label, student in loaded.items()]
    return pd.concat(frames, ignore_index=True)

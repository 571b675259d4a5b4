"""The documents of the corpus and of the tasks: numbers, lengths, and how much models read."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.evaluation import benchmarks
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.evaluation.scoreboard import p_value
from docemb_lib.evaluation.tasks import SPLITS
from docemb_lib.evaluation.uncertainty import ALPHA
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import cached
from docemb_lib.thesis.comparison import HERE, THESIS
from docemb_lib.thesis.values import published

Counter = Callable[[list[str]], list[int]]  # from texts to their tokens
SHOWN = 1000  # validation documents in views, as in Figure 4.4
# Files of the artefact of a task
STATISTICS = "statistics.parquet"
LENGTHS = "lengths.parquet"


def corpus_statistics(run: Run) -> pd.DataFrame:
    """The number and the lengths of the documents of each split of the run's corpus, a row each.

    Lengths are counted without special tokens. Columns: split, documents, tokens, mean, std
    (of student tokens), and percent of documents that are longer than the structural teacher reads
    (beyond_limit), and than 384 and 512 structural tokens (over_384 and over_512, as in Tables 4.1
    and 5.1).
    """
    teacher_limit = structural_limit(run)
    rows = []
    for split in ("train", "validation", "tasks"):
        documents = run.corpus.split(split)
        student = pd.Series(documents["n_student_tokens"][:], dtype=float)
        structural = pd.Series(documents["n_structural_tokens"][:], dtype=float)
        rows.append(
            {
                "split": split,
                "documents": len(student),
                "tokens": int(student.sum()),
                "mean": student.mean(),
                "std": student.std(ddof=0),
                "beyond_limit": 100 * (structural > teacher_limit).mean(),
                "over_384": 100 * (structural > 384).mean(),  # the limit of SBERT in the thesis
                "over_512": 100 * (structural > 512).mean(),  # the limit of its tokenizer
            }
        )
    return pd.DataFrame(rows)


def structural_limit(run: Run) -> int:
    """The tokens of the longest text that the structural teacher does not truncate."""
    return run.teachers.sbert("truncate").max_text_tokens


def seen_by_models(run: Run) -> str:
    """Sentences on how much of the training documents structural teacher and student read."""
    teacher_limit = structural_limit(run)
    student_limit = run.profile.student.max_tokens
    documents = run.corpus.split("train")
    structural = np.asarray(documents["n_structural_tokens"][:])
    student = np.asarray(documents["n_student_tokens"][:])

    longer = (structural > teacher_limit).mean()
    read_by_teacher = np.minimum(structural, teacher_limit).sum() / structural.sum()
    read_by_student = np.minimum(student, student_limit).sum() / student.sum()
    truncates = run.profile.structural_teacher.long == "truncate"
    rest = "ignores the rest" if truncates else "averages over chunks, so it reads the rest, too"
    return (
        f"{longer:.0%} of the {len(documents)} training documents are longer than the "
        f"{teacher_limit} tokens that the structural teacher reads at once.\n"
        f"The first {teacher_limit} tokens of each document hold {read_by_teacher:.0%} of all "
        f"text; the teacher {rest}.\n"
        f"The student, with {student_limit} tokens, reads {read_by_student:.0%}."
    )


def held_out_lengths(run: Run) -> str:
    """A sentence on whether the documents of the tasks are as long as those of training.

    A rank test (Mann-Whitney, two-sided) compares their lengths in tokens of the structural
    teacher.
    """
    from scipy.stats import mannwhitneyu

    corpus = run.corpus
    train = np.asarray(corpus.split("train")["n_structural_tokens"][:])
    held_out = np.asarray(corpus.split("tasks")["n_structural_tokens"][:])
    p = float(mannwhitneyu(held_out, train).pvalue)
    relation = "not shown to be longer or shorter than"
    if p < ALPHA:
        longer = mannwhitneyu(held_out, train, alternative="greater").pvalue < p
        relation = f"{'longer' if longer else 'shorter'} than"
    return (
        f"The {len(held_out)} documents of the tasks are {relation} those of training\n"
        f"(median {np.median(held_out):.0f} tokens against {np.median(train):.0f}, {p_value(p)})."
    )


def described_tasks(run: Run) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Statistics of all tasks of the profile (`task_statistics`) and lengths of their documents.

    Lengths have the columns task, split, n_student_tokens, n_structural_tokens. Each task is
    counted once and kept as an artefact.
    """
    evaluation = run.profile.evaluation
    statistics = []
    lengths = []
    for task in dict.fromkeys((*evaluation.tasks, *evaluation.sweep_tasks)):
        folder = _described_task(run, task)
        statistics.append(pd.read_parquet(folder / STATISTICS).assign(task=task))
        lengths.append(pd.read_parquet(folder / LENGTHS).assign(task=task))
    return pd.concat(statistics, ignore_index=True), pd.concat(lengths, ignore_index=True)


def _described_task(run: Run, name: str) -> Path:
    """The folder of the artefact with the statistics and lengths of a task."""
    profile = run.profile
    student = profile.student.model
    teacher = profile.structural_teacher.model
    inputs = {
        **task_inputs(profile, name, lambda: run.corpus.fingerprint),
        "counters": [pretrained.fingerprint(student), pretrained.fingerprint(teacher)],
    }

    def build(folder: Path) -> None:
        from docemb_lib.student import count_tokens

        task = run.scorer.task(name)
        counters: dict[str, Counter] = {
            "n_student_tokens": partial(count_tokens, pretrained.resolve(student)),
            "n_structural_tokens": run.teachers.sbert("truncate").count_tokens,
        }
        lengths = benchmarks.task_lengths(task, counters)
        statistics = benchmarks.task_statistics(task, lengths)
        lengths.to_parquet(folder / LENGTHS, index=False)
        statistics.to_parquet(folder / STATISTICS, index=False)

    return cached("task-statistics", inputs, build)


def tasks_beside_thesis(statistics: pd.DataFrame, columns: Sequence[str]) -> pd.DataFrame:
    """The statistics of the present tasks, beside those that the thesis prints of the same tasks.

    `statistics` come from `described_tasks`, and `columns` are the statistics of the table. Returns
    a row per task, split and `of` (here or thesis).
    """
    of_thesis = published("tasks").query("task in @statistics.task and protocol == 'final'")
    both = pd.concat([statistics.assign(of=HERE), of_thesis.assign(of=THESIS)])
    rows = both.query("statistic in @columns")
    table = rows.pivot(index=["task", "split", "of"], columns="statistic", values="value")
    names = [*rows["task"].unique(), *SPLITS, HERE, THESIS]
    place = {name: place for place, name in enumerate(names)}
    table = table.reindex(columns=[*columns]).sort_index(key=lambda level: level.map(place))
    return table.rename_axis(columns=None).convert_dtypes()  # counts as integers

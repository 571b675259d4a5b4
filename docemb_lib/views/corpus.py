"""The documents of the tasks: numbers and lengths, and how much the structural teacher reads."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pandas as pd

from docemb_lib.base import pretrained
from docemb_lib.evaluation import benchmarks
from docemb_lib.evaluation.catalogue import task_inputs
from docemb_lib.runs.run import Run
from docemb_lib.runs.store import cached

Counter = Callable[[list[str]], list[int]]  # from texts to their tokens
SHOWN = 1000  # validation documents in views, as in Figure 4.4
# Files of the artefact of a task
STATISTICS = "statistics.parquet"
LENGTHS = "lengths.parquet"


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

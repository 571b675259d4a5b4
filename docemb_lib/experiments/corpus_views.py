"""What 01_corpus shows: corpus and tasks of a profile in the thesis' tables, and the lengths behind its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from docemb_lib import pretrained
from docemb_lib.evaluation.published import published
from docemb_lib.evaluation.task_statistics import HERE, THESIS, task_lengths, task_statistics
from docemb_lib.experiments.profile_tasks import task_inputs

if TYPE_CHECKING:
    from docemb_lib.experiments.stages import Stages

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

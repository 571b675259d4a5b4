"""What a finished plan says: one table of every model on every task, a sentence, and where things lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from docemb_lib.evaluation.scoreboard import last_round, scoreboard, standing
from docemb_lib.experiments import records
from docemb_lib.experiments.models import SBERT_LABELS, UNTRAINED
from docemb_lib.experiments.plan import Planned
from docemb_lib.workspace import Workspace

FINAL = "06_evaluation"


class Report(NamedTuple):
    board: pd.DataFrame | None  # models × tasks; None where the plan has no final evaluation
    standing: str  # the last student in words, "" without a board
    paths: list[tuple[str, str]]


def report(planned: Sequence[Planned], workspace: Workspace) -> Report:
    """Put together the records of the plan's runs."""
    found = [records.find(workspace, run.notebook, run.fingerprint) for run in planned]
    final = [record for record in found if record is not None and record.notebook == FINAL]
    paths = [
        ("executed notebooks", workspace.shown(workspace.outputs / "notebooks")),
        ("figures", workspace.shown(workspace.outputs / "figures")),
        *(("student", record.student) for record in final if record.student),
    ]
    if not final:
        return Report(None, "", paths)
    sentence = standing(
        last_round(records.table_of(workspace, final[-1], "intervals")),
        records.table_of(workspace, final[-1], "comparison"),
        student=final[-1].label,
        before=UNTRAINED,
        teachers=SBERT_LABELS,
    )
    return Report(scoreboard(final_scores(final, workspace)), sentence, paths)


def final_scores(final: Sequence[records.Record], workspace: Workspace) -> pd.DataFrame:
    """The tidy scores of several final evaluations, in their last round, each model once."""
    frames = [last_round(records.scores_of(workspace, record)) for record in final]
    return pd.concat(frames).drop_duplicates(["model", "task", "metric", "seed"]).reset_index(drop=True)

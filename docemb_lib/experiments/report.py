"""The end of `docemb run`: a table of every model on every task, a sentence about the student, and paths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from docemb_lib.evaluation.scoreboard import last_round, scoreboard
from docemb_lib.experiments import records
from docemb_lib.experiments.execution import Planned
from docemb_lib.experiments.scores import standing_of
from docemb_lib.settings.profile import FINAL
from docemb_lib.workspace import Workspace


class Report(NamedTuple):
    board: pd.DataFrame | None  # models × tasks; None if no run of the plan opens the test splits
    standing: str  # the last student beside the other models, in words; "" without a board
    paths: list[tuple[str, str]]


def report(planned: Sequence[Planned], workspace: Workspace) -> Report:
    """The report of a plan's runs: from the final evaluations or, where there are none, from those of SimDE."""
    found = [records.find(workspace, run.notebook, run.fingerprint) for run in planned]
    done = [record for record in found if record and record.status == "done"]
    evaluations, simde = ([record for record in done if record.notebook == name] for name in FINAL)
    final = evaluations or simde
    paths = [
        ("executed notebooks", workspace.shown(workspace.outputs / "notebooks")),
        ("figures", workspace.shown(workspace.outputs / "figures")),
        *(("student", record.student) for record in final if record.student),
    ]
    if not final:
        return Report(None, "", paths)
    last = final[-1]
    intervals, comparison = (records.table_of(workspace, last, name) for name in ("intervals", "comparison"))
    sentence = standing_of(intervals, comparison, student=last.label)
    # Evaluations share models, and lines of a plan may have other profiles: each model once, of one setting.
    frames = [last_round(records.scores_of(workspace, record)) for record in final if record.setting == last.setting]
    scores = pd.concat(frames).drop_duplicates(["model", "task", "metric", "seed"]).reset_index(drop=True)
    return Report(scoreboard(scores), sentence, paths)

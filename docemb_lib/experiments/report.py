"""What a finished plan says: one table of every model on every task, a sentence, and where things lie."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pandas as pd

from docemb_lib.evaluation.scoreboard import last_round, scoreboard
from docemb_lib.experiments import records
from docemb_lib.experiments.plan import Planned
from docemb_lib.experiments.scores import standing_of
from docemb_lib.settings.profile import FINAL
from docemb_lib.workspace import Workspace


class Report(NamedTuple):
    board: pd.DataFrame | None  # models × tasks; None where the runs are of neither notebook that opens the test splits
    standing: str  # the last student in words, "" without a board
    paths: list[tuple[str, str]]


def report(planned: Sequence[Planned], workspace: Workspace) -> Report:
    """Put together the records of the plan's runs: of the final evaluations or, where there are none, of SimDE's."""
    found = [records.find(workspace, run.notebook, run.fingerprint) for run in planned]
    done = [record for record in found if record and record.status == "done"]
    of_notebook = [[record for record in done if record.notebook == name] for name in FINAL]
    final = of_notebook[0] or of_notebook[1]
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
    comparable = [record for record in final if record.setting == last.setting]  # a line may be of another profile
    return Report(scoreboard(final_scores(comparable, workspace)), sentence, paths)


def final_scores(final: Sequence[records.Record], workspace: Workspace) -> pd.DataFrame:
    """The tidy scores of several final evaluations, in their last round, each model once."""
    frames = [last_round(records.scores_of(workspace, record)) for record in final]
    return pd.concat(frames).drop_duplicates(["model", "task", "metric", "seed"]).reset_index(drop=True)

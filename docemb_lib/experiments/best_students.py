"""Figure 4.12: the four best students of chapter 4 (Table 4.10) among the recorded runs."""

from __future__ import annotations

import pandas as pd

from docemb_lib.evaluation.published import BASELINE
from docemb_lib.experiments import records
from docemb_lib.experiments.comparison import STRUCTURAL
from docemb_lib.experiments.records import Record
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.thesis import ThesisValues
from docemb_lib.profile import FIXED

CHAPTER_4 = (STRUCTURAL, "04_projections", "05_weighting")  # whose runs may be among them


def best_of_chapter_4(run: Run) -> pd.DataFrame:
    """The validation scores behind Figure 4.12: the recorded runs of Table 4.10 with the figure's baselines, as
    `plot_runs` takes them; empty where none of the four is recorded.

    Runs of one setting: this run's, or else that of the newest such run. Of a student that several runs have trained
    the one of most documents is shown, then the newest.
    """
    thesis = ThesisValues(run.notebook, run.profile)
    found: list[tuple[Record, float]] = []
    for notebook in CHAPTER_4:
        for record in records.all_records(notebook, workspace=run.workspace):
            value = thesis.of_run({**record.parameters, **FIXED.get(notebook, {})})
            if record.status == "done" and value is not None:
                found.append((record, value))
    if not found:
        return pd.DataFrame()
    found.sort(key=lambda one: (one[0].setting == run.setting, one[0].finished), reverse=True)
    found = [one for one in found if one[0].setting == found[0][0].setting]
    found.sort(key=lambda one: -one[0].parameters["documents"])
    shown = {value: record for record, value in reversed(found)}  # each value of the figure is another student's
    frames = []
    for value, record in shown.items():
        scores = records.scores_of(run.workspace, record)
        label = f"only-structural;{record.label}" if record.notebook == STRUCTURAL else record.label
        own = scores[scores["model"] == record.label]
        frames.append(own.assign(model=label, group="student", thesis=value))
    baselines = pd.concat([records.scores_of(run.workspace, record) for record in shown.values()])
    values = baselines["model"].map(thesis.of_baseline)
    frames.append(baselines[values.notna()].assign(group=BASELINE, thesis=values.dropna().astype(float)))
    rows = pd.concat(frames, ignore_index=True).drop_duplicates(["model", "task", "metric", "seed"])
    return rows.assign(group=pd.Categorical(rows["group"], categories=["student", BASELINE]))

"""The contextual losses of recorded runs, side by side."""

import pandas as pd

from docemb_lib.runs.run import Run
from docemb_lib.settings.labels import LETTERS, structural_label


def contextual_losses(run: Run, scores: pd.DataFrame) -> pd.DataFrame:
    """The scores of students that differ in the contextual loss, and their spread, by `group`.

    The students of a group agree in everything else: the structural loss, the documents, the
    projections. They are this run, if it has a contextual teacher, and recorded runs of its seed in
    the same setting. A group of a single student is left out.

    scores: tidy, of this run. Columns: group (its name), loss, task, metric, value (mean over head
    seeds), spread and spread_before (mean cosine distances, after and before training) and
    collapsed.
    """
    rows = [(run, run.label, scores, run.metrics(scores))]
    for record in run.comparable():
        key = run.of_record(record)
        rows.append((key, record.label, record.table(), record.metrics))

    columns = ["group", "loss", "task", "metric", "value", "spread", "spread_before", "collapsed"]
    frames = []
    for key, label, of_run, metrics in rows:
        counting = key.counting
        if "contextual_loss" not in counting or counting["seed"] != run.counting["seed"]:
            continue
        student = of_run[of_run["model"] == label]
        means = student.groupby(["task", "metric"], sort=False)["value"].mean().reset_index()
        alike = key.same_but("contextual_loss", "delta", "beta")
        frame = means.assign(alike=alike, group=_group(key), loss=_called(key))
        for name in ("spread", "spread_before", "collapsed"):
            frame[name] = metrics[name]
        frames.append(frame)
    if not frames:
        return pd.DataFrame(columns=columns)
    compared = pd.concat(frames)
    several = compared.groupby("alike")["loss"].transform("nunique") > 1
    return compared.loc[several, columns]


def _group(key: Run) -> str:
    """What the students of a group share: `PV alone, 600 documents, S:384, C:-`."""
    p = key.profile.parameters
    company = "alone" if p.structural_loss is None else f"beside {structural_label(p)}"
    projections = f"S:{p.student_projection}, C:{p.contextual_projection}"
    return f"{p.contextual_teacher} {company}, {p.documents} documents, {projections}"


def _called(key: Run) -> str:
    """The contextual loss of a run with the settings that count: `soft-cca;δ=0.03;β=0.95`."""
    counting = key.counting
    parts = [counting["contextual_loss"]]
    for name, letter in LETTERS.items():
        if name in counting:
            parts.append(f"{letter}={counting[name]}")
    return ";".join(parts)

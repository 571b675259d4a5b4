"""Made-up final evaluations, recorded as notebook 06 records its own."""

from __future__ import annotations

import pandas as pd

from docemb_lib.experiments.plan import grid
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.scores import Final
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace

BASELINES = {"student before distillation": 0.5, "SBERT truncated": 0.6, "DM;8d": 0.3, "PV;16d": 0.4, "TF-IDF": 0.35}
TASKS = {"package": "accuracy", "halves": "accuracy", "find": "map"}


def a_run(root, notebook="06_evaluation", profile=None, **parameters):
    return Run(RunKey.of(notebook, profile or Profile.load("small"), **parameters), Workspace(root))


def evaluated(label, level, tasks=TASKS, rounds=("all",)):
    """A final evaluation in which the student has `level` everywhere, and each baseline its own."""
    rows = [
        (name, model, task, metric, 100, value, value - 0.1, value + 0.1)
        for name in rounds
        for model, value in {label: level, **BASELINES}.items()
        for task, own in tasks.items()
        for metric in ((own, "mrr", "ndcg") if own == "map" else (own,))
    ]
    frame = pd.DataFrame(rows, columns=["round", "model", "task", "metric", "examples", "value", "low", "high"])
    means = frame[frame["metric"] != "mrr"].assign(task="mean over tasks", metric="mean").drop_duplicates("model")
    intervals = pd.concat([frame, means]) if len(rounds) > 1 else pd.concat([frame, means]).drop(columns="round")
    models = pd.DataFrame({"model": [label, *BASELINES], "fingerprint": [f"f/{m}" for m in (label, *BASELINES)]})
    return Final(pd.DataFrame(), intervals, pd.DataFrame(), models)


def recorded(root, level=0.7, **parameters):
    run = a_run(root, **parameters)
    final = evaluated(run.label, level)
    run.finish({}, scores=final.scores, tables=final.tables)
    return run


def of_the_thesis():
    """The parameters of the thesis' three final students in the widths of the small profile."""
    return dict(zip(("cosine-masked", "MSE-contextual", "only-MSE"), grid("final", Profile.load("small")), strict=True))

"""Recorded runs of the small profile, and final evaluations with invented scores."""

import pandas as pd
import pytest

from docemb_lib.runs.grids import load_grid
from docemb_lib.runs.kinds import TITLES, Form, Kind
from docemb_lib.runs.run import Run
from docemb_lib.runs.scores import Final

LEVELS = {
    "student before distillation": 0.5,
    "SBERT truncated": 0.6,
    "DM;8d": 0.3,
    "PV;16d": 0.4,
    "TF-IDF": 0.35,
}
KINDS = {
    "student before distillation": Kind.UNTRAINED,
    "SBERT truncated": Kind.SBERT_TRUNCATED,
    "DM;8d": Kind.DM,
    "PV;16d": Kind.PV,
    "TF-IDF": Kind.TFIDF,
}
TASKS = {"package": "accuracy", "halves": "accuracy", "find": "map"}


@pytest.fixture
def make_run(workspace_root, small):
    def make(notebook="06_evaluation", profile=None, **parameters):
        return Run.of(notebook, small if profile is None else profile, **parameters)

    return make


def around(value):
    """A score and its interval."""
    return value, value - 0.1, value + 0.1


@pytest.fixture
def evaluated():
    """A final evaluation: the student has `level` on all tasks, each baseline another level."""

    def evaluate(label, level=0.7, tasks=TASKS, rounds=("all",)):
        rows = [
            (name, model, KINDS.get(model, "student"), "saved", task, metric, 100, *around(value))
            for name in rounds
            for model, value in {label: level, **LEVELS}.items()
            for task, main in tasks.items()
            for metric in ((main, "mrr", "ndcg") if main == "map" else (main,))
        ]
        columns = ["round", "model", "kind", "form"]
        columns += ["task", "metric", "examples", "value", "low", "high"]
        frame = pd.DataFrame(rows, columns=columns)
        means = (
            frame[frame["metric"] != "mrr"]
            .assign(task="mean over tasks", metric="mean")
            .drop_duplicates("model")
        )
        intervals = pd.concat([frame, means])
        intervals = intervals if len(rounds) > 1 else intervals.drop(columns="round")
        models = []
        for model in (label, *LEVELS):
            kind = KINDS.get(model, Kind.STUDENT)
            name = "" if kind in TITLES else model
            models.append((model, kind, Form.SAVED, name, f"f/{model}", "corpus", False))
        columns = ["model", "kind", "form", "name", "fingerprint", "fitted on", "ranks_only"]
        models = pd.DataFrame(models, columns=columns)
        return Final(pd.DataFrame(), intervals, pd.DataFrame(), models, label)

    return evaluate


@pytest.fixture
def recorded(make_run, evaluated):
    def record(level=0.7, **parameters):
        run = make_run(**parameters)
        run.finish({}, tables=evaluated(run.label, level).tables)
        return run

    return record


@pytest.fixture
def students(small):
    """The parameters of the thesis' final students in the widths of the small profile."""
    final = load_grid("final", small)
    return dict(zip(final.names, final.runs, strict=True))


@pytest.fixture
def validated(make_run, evaluated):
    """A run of chapter 4 with an invented level on one task, as notebooks 03 to 05 record it."""

    def record(notebook, level, task="package", *, models=False, **parameters):
        run = make_run(notebook, **parameters)
        final = evaluated(run.label, level, {task: "accuracy"})
        rows = final.intervals.query("task == @task").assign(seed=0)
        columns = ["model", "kind", "form", "task", "metric", "seed", "value"]
        rows = rows[columns]
        run.finish({}, scores=rows, tables=final.tables if models else None)
        return run

    return record

"""Scores at a λ and a mask: recorded, or the command that makes the run."""

import ast
import shlex

import numpy as np
import pandas as pd
import papermill
import pytest
import torch

from docemb_lib.cli.commands import parse_parameters
from docemb_lib.evaluation.scoreboard import score_frame
from docemb_lib.evaluation.tasks import Score
from docemb_lib.experiments import records
from docemb_lib.experiments.models import student_model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.losses import Weighting
from docemb_lib.settings.profile import Profile
from docemb_lib.widgets import weighting, weighting_explorer
from docemb_lib.widgets.weighting import command_for, scores_at
from docemb_lib.workspace import MANIFEST, Artefact, Workspace


@pytest.fixture
def points():
    rows = [(lam, mask, task, "map" if task == "find" else "accuracy", value, value - 0.1, value + 0.1)
        for lam, mask, values in [
        (0.2, np.nan, (0.3, 0.5)), (0.8, np.nan, (0.6, 0.2)), (0.5, 64, (0.9, 0.8)), (np.nan, np.nan, (0.1, 0.1))]
        for task, value in zip(("sort", "find"), values, strict=True)]  # fmt: skip
    return pd.DataFrame(rows, columns=weighting.COLUMNS)


def test_a_recorded_run_has_its_scores_and_intervals_and_others_have_none(points):
    found = scores_at(points, lam=0.8, mask=None)
    assert found["value"].tolist() == [0.6, 0.2]
    assert found["high"].tolist() == pytest.approx([0.7, 0.3])
    pd.testing.assert_frame_equal(scores_at(points, lam=0.05 * 16, mask=None), found)  # a sum of steps
    # between the runs, beyond them, and of another mask
    for lam, mask in ((0.5, None), (0.4, None), (0.1, None), (0.9, None), (0.4, 64), (0.4, 128)):
        assert scores_at(points, lam=lam, mask=mask).empty


def a_run(root, **parameters):
    given = {"structural_loss": "cosine", "contextual_teacher": "PV", "lam": 0.5, "max_structural_len": 64} | parameters
    return Run(RunKey.of("05_weighting", Profile.load("small"), **given), Workspace(root))


def test_the_command_makes_the_run_that_is_missing(workspace_root):
    run = a_run(workspace_root, documents=30)
    command = shlex.split(command_for(run, "small", lam=0.1 + 0.05, mask=None))
    assert command[:2] == ["papermill", "05_weighting.ipynb"]
    given = [f"{name}={value}" for flag, name, value in zip(command[3::3], command[4::3], command[5::3], strict=True)]
    given.remove("profile=small")  # which docemb takes as --profile
    parameters = parse_parameters(given)
    # as papermill runs the notebook: its own cell, then what is given
    own = papermill.inspect_notebook(str(workspace_root / "notebooks" / "05_weighting.ipynb")).items()
    cell = {name: ast.literal_eval(found["default"]) for name, found in own if name != "profile"}
    made = RunKey.of("05_weighting", Profile.load("small"), **cell | parameters)
    assert made.fingerprint == a_run(workspace_root, documents=30, lam=0.15, max_structural_len=None).fingerprint


def test_a_weight_that_falls_with_the_length_alone_falls_from_one():
    scores = score_frame({"run": {"package": Score("accuracy", (0.5,))}})
    scores = weighting._without_intervals(scores)
    ramp = {"lam": None, "lam_by_length": "linear:64:128", "max_structural_len": None}
    for parameters, lam in ((ramp, 1.0), (ramp | {"lam": 0.3}, 0.3), (ramp | {"lam_by_length": None}, np.nan)):
        (row,) = weighting._at(parameters, scores).to_dict("records")
        np.testing.assert_equal((row["lam"], row["max_structural_len"]), (lam, np.nan))
        kept = Weighting(parameters["lam"], None, parameters["lam_by_length"]).weights(torch.tensor([64]))
        assert kept[0].item() == pytest.approx(1.0 if np.isnan(lam) else lam)


def test_points_are_this_run_and_its_siblings_with_intervals_if_the_student_exists(workspace_root, monkeypatch):
    run, workspace = a_run(workspace_root), Workspace(workspace_root)
    answers = np.random.default_rng(0).integers(0, 2, (2, 40)).astype(np.float32)

    def scored(models, *, final):
        score = Score("accuracy", tuple(answers.mean(axis=1)), per_example={"accuracy": answers})
        return {"all": {model.label: {"package": score} for model in models}}

    monkeypatch.setattr(run.stages.scores, "by_round", scored)
    run.model = student_model("run", Artefact("student", "x", workspace_root))
    for lam, kept in ((0.2, True), (0.8, False)):
        other = a_run(workspace_root, lam=lam)
        folder = workspace.outputs / "students" / str(lam)
        if kept:
            folder.mkdir(parents=True)
            (folder / MANIFEST).write_text("{}")
        rows = score_frame({other.label: {"package": Score("accuracy", (0.5, 0.7))},
            "SBERT": {"package": Score("accuracy", (0.9, 0.9))}})  # fmt: skip
        record = records.Record(
            notebook=run.notebook, label=other.label, fingerprint=other.fingerprint, setting=other.key.setting,
            profile="small", parameters=other.parameters, student=f"outputs/students/{lam}")  # fmt: skip
        records.save(workspace, record, rows.to_dict("records"))
    found = weighting.weighting_points(run).set_index("lam")
    assert sorted(found.index) == [0.2, 0.5, 0.8]
    assert found.loc[0.8, "value"] == pytest.approx(0.6)  # the student is gone: what was recorded
    assert np.isnan(found.loc[0.8, "low"])
    for lam in (0.2, 0.5):
        assert found.loc[lam, "value"] == pytest.approx(answers.mean(), abs=1e-6)
        assert found.loc[lam, "low"] < found.loc[lam, "value"] < found.loc[lam, "high"]


def test_the_explorer_distinguishes_recorded_and_missing_runs(workspace_root, numbers, tables, moved):
    profile, workspace = Profile.load("small"), Workspace(workspace_root)
    run = Run(RunKey.of("05_weighting", profile, lam=0.5, max_structural_len=None), workspace)
    points = pd.DataFrame([(0.2, np.nan, "sort", "accuracy", 0.4, 0.3, 0.5), (0.8, np.nan, "sort", "accuracy", 0.7, 0.6, 0.8)],
        columns=weighting.COLUMNS)  # fmt: skip
    explorer = weighting_explorer(run, points, profile="small")
    text = moved(explorer)
    assert numbers(text, "status") == ["recorded"]
    assert tables(text)["scores"].to_numpy().tolist() == [["sort", "accuracy", "0.400", "[.30, .50]"]]
    assert "command" not in text
    text = moved(explorer, λ=0.4)
    assert (numbers(text, "status"), tables(text)) == (["no run"], {})
    assert "-p lam 0.4 " in "".join(numbers(text, "command")) + " "
    assert numbers(moved(explorer, mask=64), "status") == ["no run"]
    assert "no recorded run has a λ yet" in moved(weighting_explorer(run, points.assign(lam=np.nan), profile="small"))
    alone = Run(RunKey.of("05_weighting", profile, contextual_teacher=None), workspace)
    alone = weighting_explorer(alone, points, profile="small")
    assert "a single teacher" in moved(alone)

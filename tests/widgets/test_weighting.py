"""Scores at a λ and a mask: recorded, or the command that makes the run."""

import shlex
from types import SimpleNamespace

import numpy as np
import pandas as pd
import papermill
import pytest

from docemb_lib.cli.commands import parse_parameters
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import score_intervals
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.widgets import weighting, weighting_explorer
from docemb_lib.widgets.weighting import command_for, scores_at


@pytest.fixture
def points():
    rows = [
        (lam, mask, task, "map" if task == "find" else "accuracy", value, value - 0.1, value + 0.1)
        for lam, mask, values in [
            (0.2, np.nan, (0.3, 0.5)),
            (0.8, np.nan, (0.6, 0.2)),
            (0.5, 64, (0.9, 0.8)),
            (np.nan, np.nan, (0.1, 0.1)),
        ]
        for task, value in zip(("sort", "find"), values, strict=True)
    ]
    return pd.DataFrame(rows, columns=weighting.COLUMNS)


def test_a_recorded_run_has_its_scores_and_intervals_and_others_have_none(points):
    scores = scores_at(points, lam=0.8, mask=None)
    assert scores["value"].tolist() == [0.6, 0.2]
    assert scores["high"].tolist() == pytest.approx([0.7, 0.3])
    pd.testing.assert_frame_equal(
        scores_at(points, lam=0.05 * 16, mask=None), scores
    )  # a sum of steps
    # between the runs, beyond them, and of another mask
    for lam, mask in ((0.5, None), (0.4, None), (0.1, None), (0.9, None), (0.4, 64), (0.4, 128)):
        assert scores_at(points, lam=lam, mask=mask).empty


def a_run(workspace, **parameters):
    given = {
        "structural_loss": "cosine",
        "contextual_teacher": "PV",
        "lam": 0.5,
        "max_structural_len": 64,
    } | parameters
    return Run(RunKey.of("05_weighting", Profile.load("small"), **given), workspace)


def answered(share):
    """The score of forty examples, of which this share is answered correctly."""
    answers = (np.arange(40) < round(40 * share)).astype(np.float32)[None]
    return Score("accuracy", (float(answers.mean()),), per_example={"accuracy": answers})


def test_the_command_makes_the_run_that_is_missing(workspace):
    command = shlex.split(
        command_for(a_run(workspace, documents=30), "small", lam=0.1 + 0.05, mask=None)
    )
    assert command[:2] == ["papermill", "05_weighting.ipynb"]
    given = [
        f"{name}={value}"
        for flag, name, value in zip(command[3::3], command[4::3], command[5::3], strict=True)
    ]
    given.remove("profile=small")  # which docemb takes as --profile
    parameters = parse_parameters(given)
    in_notebook = papermill.inspect_notebook(
        str(workspace.root / "notebooks" / "05_weighting.ipynb")
    )
    assert {*in_notebook} == {*parameters, "profile"}  # none is left to the notebook's own cell
    key = RunKey.of("05_weighting", Profile.load("small"), **parameters)
    assert (
        key.fingerprint
        == a_run(workspace, documents=30, lam=0.15, max_structural_len=None).fingerprint
    )


def test_a_weight_that_falls_with_the_length_alone_falls_from_one():
    intervals = score_intervals(
        {"run": {"package": answered(0.5)}, "SBERT": {"package": answered(0.9)}}
    )
    ramp = {"lam": None, "lam_by_length": "linear:64:128", "max_structural_len": None}
    for parameters, lam in (
        (ramp, 1.0),
        (ramp | {"lam": 0.3}, 0.3),
        (ramp | {"lam_by_length": None}, np.nan),
    ):
        (row,) = weighting._at(parameters, intervals, "run").to_dict("records")
        np.testing.assert_equal((row["lam"], row["max_structural_len"]), (lam, np.nan))


def test_points_are_this_run_and_its_recorded_siblings_with_their_intervals(workspace):
    run = a_run(workspace)
    scores = {
        run.label: {"package": answered(0.6), "find": answered(0.3)},
        "SBERT": {"package": answered(0.9)},
    }
    run.validation = SimpleNamespace(intervals=score_intervals(scores))
    varied = {0.2: {}, 0.8: {"max_structural_len": None}, 0.7: {"seed": 1}, 0.9: {}}
    others = [(lam, a_run(workspace, lam=lam, **given)) for lam, given in varied.items()]
    structural = {"cosine": 0.4, "mse": 0.1}  # the run's loss, and another
    others += [
        (score, Run(RunKey.of("03_structural", run.profile, structural_loss=loss), workspace))
        for loss, score in structural.items()
    ]
    for (
        lam,
        other,
    ) in others:  # one of another seed is no sibling; the last of this notebook has no intervals
        rows = score_intervals(
            {other.label: {"package": answered(lam)}, "SBERT": {"package": answered(0.9)}}
        )
        record = records.Record(
            notebook=other.notebook,
            label=other.label,
            fingerprint=other.fingerprint,
            setting=other.key.setting,
            profile="small",
            parameters=other.parameters,
        )
        records.save(
            workspace, record, tables={} if lam == 0.9 else {"intervals": rows.to_dict("records")}
        )
    points_of_run = weighting.weighting_points(run)
    assert points_of_run.columns.tolist() == weighting.COLUMNS
    rows = [(0.2, 64, "package", 0.2), (0.5, 64, "find", 0.3), (0.5, 64, "mean over tasks", 0.45)]
    rows += [
        (0.5, 64, "package", 0.6),
        (0.8, np.nan, "package", 0.8),
        (1.0, np.nan, "package", 0.4),
    ]
    expected = pd.DataFrame(rows, columns=["lam", "max_structural_len", "task", "value"])
    pd.testing.assert_frame_equal(
        points_of_run[expected.columns].sort_values(["lam", "task"], ignore_index=True), expected
    )
    assert (points_of_run["low"] < points_of_run["value"]).all()
    assert (points_of_run["value"] < points_of_run["high"]).all()
    kept = points_of_run[points_of_run["lam"] == 0.2].iloc[0]
    wanted = score_intervals({"run": {"package": answered(0.2)}}).iloc[0]
    assert kept[["value", "low", "high"]].tolist() == pytest.approx(
        wanted[["value", "low", "high"]].tolist()
    )


def test_the_explorer_distinguishes_recorded_and_missing_runs(workspace, numbers, tables, moved):
    profile = Profile.load("small")
    run = Run(RunKey.of("05_weighting", profile, lam=0.5, max_structural_len=None), workspace)
    points = pd.DataFrame(
        [
            (0.2, np.nan, "sort", "accuracy", 0.4, 0.3, 0.5),
            (0.8, np.nan, "sort", "accuracy", 0.7, 0.6, 0.8),
        ],
        columns=weighting.COLUMNS,
    )
    explorer = weighting_explorer(run, points, profile="small")
    text = moved(explorer)
    assert numbers(text, "status") == ["recorded"]
    assert tables(text)["scores"].to_numpy().tolist() == [["sort", "accuracy", ".400 [.30, .50]"]]
    assert "command" not in text
    text = moved(explorer, λ=0.4)
    assert numbers(text, "status") == ["no run"]
    assert tables(text) == {}
    assert "-p lam 0.4 " in "".join(numbers(text, "command")) + " "
    assert numbers(moved(explorer, mask=64), "status") == ["no run"]
    assert numbers(
        moved(weighting_explorer(run, points.assign(lam=np.nan), profile="small")), "status"
    ) == ["no run"]
    alone = Run(RunKey.of("05_weighting", profile, contextual_teacher=None), workspace)
    alone = weighting_explorer(alone, points, profile="small")
    assert "a single teacher" in moved(alone)

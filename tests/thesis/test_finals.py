"""Final evaluations together: comparable ones, each model once, under the thesis' names, beside its numbers."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.tables import recorded_finals

sys.path.insert(0, str(Path(__file__).parent))
from final_runs import BASELINES, TASKS, a_run, evaluated, of_the_thesis, recorded


@pytest.fixture
def students(workspace_root):
    return of_the_thesis()


def test_comparable_evaluations_stand_together_each_model_once(workspace_root, students):
    other = recorded(workspace_root, 0.8, **students["only-MSE"], documents=40)
    elsewhere = Profile.load("small", seed=0).with_tasks(["halves"], source="test")
    stranger = a_run(workspace_root, profile=elsewhere, structural_loss="mse")
    stranger.finish({}, tables=evaluated(stranger.label, 0.9).tables)
    run = a_run(workspace_root, **students["cosine-masked"])
    finals = recorded_finals(run, evaluated(run.label, 0.7))
    rows = finals.scores
    assert list(dict.fromkeys(rows["model"])) == [run.label, *BASELINES, other.label]
    assert not rows.duplicated(["round", "model", "task", "metric"]).any()
    assert set(rows["metric"]) == {"accuracy", "map", "mrr"}
    assert set(rows["task"]) == set(TASKS)
    assert rows["round"].unique().tolist() == ["all"]
    assert rows["thesis"].isna().all()
    assert rows.set_index(["model", "task"]).loc[(other.label, "package"), "value"] == 0.8
    assert finals.labels == {
        "Longformer": "student before distillation", "SBERT": "SBERT truncated", "DM": "DM;8d", "PV": "PV;16d",
        "cosine-masked": run.label, "only-MSE": other.label,
    }  # fmt: skip
    assert finals.fingerprints[other.label] == f"f/{other.label}"
    assert finals.masked["max_structural_len"] == 64


def test_of_several_runs_of_one_student_that_of_most_documents_stands_for_it(workspace_root, students):
    few = recorded(workspace_root, documents=20, **students["only-MSE"])
    many = recorded(workspace_root, documents=60, **students["only-MSE"])
    run = a_run(workspace_root, documents=30, **students["only-MSE"])
    finals = recorded_finals(run, evaluated(run.label, 0.7))
    assert finals.labels["only-MSE"] == many.label
    assert {few.label, run.label} < set(finals.scores["model"])
    same = a_run(workspace_root, documents=60, seed=1, **students["only-MSE"])
    assert recorded_finals(same, evaluated(same.label, 0.7)).labels["only-MSE"] == same.label


def test_a_run_that_is_recorded_is_read_and_none_is_nothing(workspace_root, students):
    run = a_run(workspace_root, **students["only-MSE"])
    nothing = recorded_finals(run)
    assert nothing.scores.empty
    assert nothing.labels == {}
    assert set(nothing.not_drawn) == {"5.3", "5.4", "5.5", "5.6"}
    recorded(workspace_root, **students["only-MSE"])
    pd.testing.assert_frame_equal(recorded_finals(run).scores, recorded_finals(run, evaluated(run.label, 0.7)).scores)
    assert recorded_finals(a_run(workspace_root, structural_loss="mse")).labels["only-MSE"] == run.label


def test_the_thesis_number_stands_beside_scores_on_its_tasks(workspace_root, students):
    run = a_run(workspace_root, **students["MSE-contextual"])
    final = evaluated(run.label, 0.7, {"arxiv": "accuracy", "games": "map"}, rounds=("1k", "all"))
    rows = recorded_finals(run, final).scores.set_index(["round", "model", "task", "metric"])["thesis"]
    assert rows[("1k", run.label, "arxiv", "accuracy")] == 0.645
    assert rows[("all", "DM;8d", "arxiv", "accuracy")] == 0.710
    assert rows[("all", "SBERT truncated", "games", "map")] == 0.191
    assert np.isnan(rows[("all", "TF-IDF", "arxiv", "accuracy")])


def test_the_only_round_is_compared_with_the_thesis_round_of_as_many_examples(workspace_root, students):
    small = Profile.load("small")
    evaluation = small.evaluation.model_copy(update={"rounds": [1000]})
    run = a_run(
        workspace_root, profile=small.model_copy(update={"evaluation": evaluation}), **students["MSE-contextual"]
    )
    rows = recorded_finals(run, evaluated(run.label, 0.7, {"arxiv": "accuracy"})).scores
    assert rows["round"].unique().tolist() == ["1k"]
    assert rows.set_index("model").loc[run.label, "thesis"] == 0.645


@pytest.mark.parametrize(
    ("tasks", "rounds", "left_out"),
    [
        ({"a": "accuracy", "b": "accuracy", "c": "map", "d": "map"}, ("1k", "all"), set()),
        ({"a": "accuracy", "b": "accuracy", "c": "map"}, ("all",), {"5.4", "5.5"}),
        ({"a": "accuracy"}, ("1k", "all"), {"5.3", "5.5", "5.6"}),
        ({"c": "map", "d": "map"}, ("1k", "all"), {"5.3", "5.4"}),
    ],
)
def test_figures_that_would_say_nothing_are_left_out_with_why(workspace_root, tasks, rounds, left_out):
    run = a_run(workspace_root)
    finals = recorded_finals(run, evaluated(run.label, 0.7, tasks, rounds))
    assert set(finals.not_drawn) == left_out
    assert len(finals.left_out.splitlines()) == len(left_out)

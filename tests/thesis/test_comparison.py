"""Runs beside each other: comparable ones only, each under a name of its own, in its group, with its thesis value."""

from __future__ import annotations

import pandas as pd
import pytest

from docemb_lib.evaluation.scoreboard import mean_over_tasks
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import FurtherTeacher
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.comparison import scores_of_runs
from docemb_lib.workspace import Workspace

BASELINE = "SBERT truncated"


def a_run(root, notebook="05_weighting", further=(), **parameters):
    profile = Profile.load("small").model_copy(update={"further_teachers": [FurtherTeacher(**f) for f in further]})
    return Run(RunKey.of(notebook, profile, **parameters), Workspace(root))


def scores_of(label, level):
    """Two tasks, two head seeds; the second task is a ranking, which has one value."""
    rows = [(label, "package", "accuracy", seed, level + seed / 10) for seed in range(2)]
    rows += [(label, "see-also-retrieval", "map", 0, level), (label, "see-also-retrieval", "mrr", 0, 1.0)]
    rows += [(BASELINE, "package", "accuracy", seed, 0.5 + seed / 10) for seed in range(2)]
    rows += [(BASELINE, "see-also-retrieval", "map", 0, 0.5)]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def recorded(root, notebook="05_weighting", level=0.3, further=(), **parameters):
    run = a_run(root, notebook, further, **parameters)
    run.finish({}, scores=scores_of(run.label, level))
    return run


def shown(run):
    """One row a model."""
    frame = scores_of_runs(run, scores_of(run.label, 0.2))
    return frame.drop_duplicates("model").set_index("model")


def test_runs_stand_beside_each_other_with_all_their_scores_and_baselines_once(workspace_root):
    other = recorded(workspace_root, lam=0.8)
    run = a_run(workspace_root, lam=0.5)
    frame = scores_of_runs(run, scores_of(run.label, 0.2))
    means = mean_over_tasks(frame).groupby("model")["value"].apply(lambda v: sorted(round(x, 6) for x in v)).to_dict()
    assert means == {BASELINE: [0.5, 0.55], run.label: [0.2, 0.25], other.label: [0.3, 0.35]}
    assert frame.groupby("model").size().to_dict() == {BASELINE: 3, run.label: 4, other.label: 4}
    by_model = frame.drop_duplicates("model").set_index("model")
    assert by_model["own"].to_dict() == {run.label: True, other.label: True, BASELINE: False}
    assert by_model["lam"].dropna().to_dict() == {run.label: 0.5, other.label: 0.8}
    assert frame["group"].cat.categories.tolist() == ["0.5", "0.8", "baseline"]


def test_a_failed_run_and_this_run_as_it_was_recorded_before_take_no_part(workspace_root):
    recorded(workspace_root, lam=0.5, level=0.9)
    run = a_run(workspace_root, lam=0.5)
    frame = scores_of_runs(run, scores_of(run.label, 0.2))
    assert frame.loc[frame["own"], "value"].max() == 1.0  # MRR
    assert frame.loc[frame["own"] & (frame["metric"] == "map"), "value"].tolist() == [0.2]


@pytest.mark.parametrize("change", [{"documents": 30}, {"seed": 3}, {"contextual_teacher": "DM"}])
def test_runs_that_share_a_label_are_told_apart(workspace_root, change):
    other = recorded(workspace_root, **change)
    run = a_run(workspace_root)
    ((name, value),) = change.items()
    assert set(shown(run).index) == {BASELINE, run.label, f"{other.label} ({name} {value})"}


def test_two_others_that_share_a_label_are_told_apart_too(workspace_root):
    others = [recorded(workspace_root, lam=0.8, contextual_teacher=teacher) for teacher in ("DM", "DBOW")]
    assert others[0].label == others[1].label
    run = a_run(workspace_root, lam=0.5)
    label = others[0].label
    assert set(shown(run).index) == {
        BASELINE, run.label, f"{label} (contextual_teacher DM)", f"{label} (contextual_teacher DBOW)",
    }  # fmt: skip


def test_runs_of_an_edited_profile_are_not_compared(workspace_root):
    recorded(workspace_root, lam=0.8)
    path = workspace_root / "params" / "small.yaml"
    path.write_text(path.read_text().replace("epochs: 3,", "epochs: 4,"))
    run = a_run(workspace_root, lam=0.5)
    assert set(shown(run).index) == {BASELINE, run.label}


def test_siblings_differ_in_lambda_and_mask_alone(workspace_root):
    near = [recorded(workspace_root, lam=0.8), recorded(workspace_root, lam=0.5, max_structural_len=None)]
    far = recorded(workspace_root, lam=0.8, structural_loss="mse")
    run = a_run(workspace_root)
    siblings = shown(run)["sibling"]
    assert set(siblings[siblings].index) == {run.label, *(r.label for r in near)}
    assert not siblings[far.label]


def test_a_run_with_one_teacher_has_no_siblings(workspace_root):
    recorded(workspace_root, contextual_teacher=None, lam=0.8)
    assert not shown(a_run(workspace_root, contextual_teacher=None))["sibling"].any()


def test_further_teachers_make_siblings_and_groups(workspace_root):
    topics = [{"name": "topics", "role": "contextual", "teacher": "LSA", "loss": "mse", "student_projection": "8"}]
    alone = {"contextual_teacher": None, "further": topics}
    other = recorded(workspace_root, lam=0.8, **alone)
    recorded(workspace_root, "03_structural", further=topics, structural_loss="cosine")
    run = a_run(workspace_root, lam=0.5, **alone)
    frame = shown(run)
    assert set(frame.index) == {BASELINE, run.label, other.label}  # that of 03 had a contextual teacher too
    assert frame.loc[other.label, ["group", "sibling"]].tolist() == ["0.8", True]
    far = [{"name": "far", "role": "structural", "model": "all-MiniLM-L6-v2", "loss": "mse"}]
    only = a_run(workspace_root, structural_loss=None, lam=0.2, further=far)
    assert shown(only).loc[only.label, "group"] == "0.2"
    only = a_run(workspace_root, contextual_teacher=None, lam=0.2, further=far)
    assert shown(only).loc[only.label, "group"] == "1.0"


def test_parameters_that_do_not_count_part_no_siblings(workspace_root):
    other = recorded(workspace_root, lam=0.8, gamma=0.3)
    assert shown(a_run(workspace_root)).loc[other.label, "sibling"]


def test_the_structural_student_stands_beside_those_with_a_contextual_teacher(workspace_root):
    recorded(workspace_root, "03_structural", structural_loss="cosine")
    recorded(workspace_root, "03_structural", structural_loss="mse")
    recorded(workspace_root, "03_structural", structural_loss="cosine", documents=30)
    frame = shown(a_run(workspace_root))
    assert set(frame.index) == {BASELINE, a_run(workspace_root).label, "only-structural;cosine"}
    assert frame.loc["only-structural;cosine", "group"] == "1.0"
    assert frame.loc["only-structural;cosine", "own"]
    frame = shown(a_run(workspace_root, "04_projections", structural_loss=None))
    assert "only-structural;cosine" in frame.index  # as in Figure 4.7
    assert frame.loc["only-structural;cosine", "group"] == "–"
    assert "only-structural;cosine" not in shown(a_run(workspace_root, "03_structural", structural_loss="mse")).index


def test_it_is_not_shown_twice_where_it_was_run_here_too(workspace_root):
    recorded(workspace_root, "03_structural", structural_loss="cosine")
    run = a_run(workspace_root, contextual_teacher=None, max_structural_len=None)
    assert run.label == "only-structural;cosine"
    frame = scores_of_runs(run, scores_of(run.label, 0.2))
    assert (frame["model"] == run.label).sum() == 4


@pytest.mark.parametrize(
    ("notebook", "parameters", "groups"),
    [
        ("02_paragraph_vector", [{"dm": True}, {"dm": False}], ["DBOW", "DM"]),
        ("03_structural", [{"structural_loss": "mse"}, {"structural_loss": "max-margin", "gamma": 0.5},
                           {"structural_loss": "max-margin", "distance": "cosine", "negatives": 3},
                           {"structural_loss": "contrastive", "temperature": 0.1}],
         ["MSE", "contrastive", "max-margin MSE", "max-margin cosine"]),
        ("04_projections", [{"contextual_teacher": None}, {"contextual_teacher": "PV"}, {"contextual_teacher": "DM"}],
         ["–", "8", "16"]),
        ("05_weighting", [{"lam": 0.2}, {"lam": None}, {"contextual_teacher": None}], ["–", "0.2", "1.0"]),
    ],
)  # fmt: skip
def test_runs_are_grouped_by_what_the_thesis_colours(workspace_root, notebook, parameters, groups):
    for others in parameters[1:]:
        recorded(workspace_root, notebook, **others)
    run = a_run(workspace_root, notebook, **parameters[0])
    assert scores_of_runs(run, scores_of(run.label, 0.2))["group"].cat.categories.tolist() == [*groups, "baseline"]


def test_compounds_are_a_group_of_their_own(workspace_root):
    run = a_run(workspace_root, "02_paragraph_vector", compound="DM;8;lowercase;2+DBOW;8;None;2")
    assert shown(run).loc[run.label, "group"] == "DM+DBOW"


def test_the_thesis_values_stand_beside_runs_and_baselines(workspace_root):
    other = recorded(workspace_root, "03_structural", structural_loss="max-margin", gamma=0.7)
    run = a_run(workspace_root, "03_structural", structural_loss="mse")
    assert shown(run)["thesis"].dropna().to_dict() == {run.label: 0.7973, BASELINE: 0.9093}
    assert other.label in shown(run).index

"""Runs beside each other: comparable ones only, each with a label of its own, its group and its thesis value."""

from __future__ import annotations

import pandas as pd
import pytest

from docemb_lib.evaluation.scoreboard import mean_over_tasks
from docemb_lib.settings import FurtherTeacher
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.comparison import scores_of_runs

BASELINE = "SBERT truncated"
TOPICS = {"name": "topics", "role": "contextual", "teacher": "LSA", "loss": "mse", "student_projection": "8"}
FAR = {"name": "far", "role": "structural", "model": "all-MiniLM-L6-v2", "loss": "mse"}
ONLY_COSINE = "only-structural;cosine"


def scores_of(label, level):
    """Two tasks, two head seeds; the second task is a ranking, which has one value."""
    rows = [(label, "package", "accuracy", seed, level + seed / 10) for seed in range(2)]
    rows += [(label, "see-also-retrieval", "map", 0, level), (label, "see-also-retrieval", "mrr", 0, 1.0)]
    rows += [(BASELINE, "package", "accuracy", seed, 0.5 + seed / 10) for seed in range(2)]
    rows += [(BASELINE, "see-also-retrieval", "map", 0, 0.5)]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


@pytest.fixture
def a_run(make_run, small):
    def make(notebook="05_weighting", further=(), **parameters):
        profile = small.model_copy(update={"further_teachers": [FurtherTeacher(**f) for f in further]})
        return make_run(notebook, profile, **parameters)

    return make


@pytest.fixture
def recorded(a_run):
    def record(notebook="05_weighting", level=0.3, further=(), **parameters):
        run = a_run(notebook, further, **parameters)
        run.finish({}, scores=scores_of(run.label, level))
        return run

    return record


def frame_of(run):
    return scores_of_runs(run, scores_of(run.label, 0.2))


def shown(run):
    """One row per model."""
    return frame_of(run).drop_duplicates("model").set_index("model")


def test_runs_stand_beside_each_other_with_all_their_scores_and_baselines_once(a_run, recorded):
    other = recorded(lam=0.8)
    run = a_run(lam=0.5)
    frame = frame_of(run)
    means = mean_over_tasks(frame).groupby("model")["value"].apply(lambda v: sorted(round(x, 6) for x in v)).to_dict()
    assert means == {BASELINE: [0.5, 0.55], run.label: [0.2, 0.25], other.label: [0.3, 0.35]}
    assert frame.groupby("model").size().to_dict() == {BASELINE: 3, run.label: 4, other.label: 4}
    by_model = frame.drop_duplicates("model").set_index("model")
    assert by_model["own"].to_dict() == {run.label: True, other.label: True, BASELINE: False}
    assert by_model["lam"].dropna().to_dict() == {run.label: 0.5, other.label: 0.8}
    assert frame["group"].cat.categories.tolist() == ["0.5", "0.8", "baseline"]


def test_the_record_of_an_earlier_execution_of_this_run_takes_no_part(a_run, recorded):
    recorded(lam=0.5, level=0.9)
    frame = frame_of(a_run(lam=0.5)).query("own")
    assert frame["value"].max() == 1.0  # MRR
    assert frame.loc[frame["metric"] == "map", "value"].tolist() == [0.2]


@pytest.mark.parametrize("changes", [
    [{"documents": 30}], [{"seed": 3}], [{"contextual_teacher": "DM"}],
    [{"contextual_teacher": "DM", "lam": 0.8}, {"contextual_teacher": "DBOW", "lam": 0.8}],
])  # fmt: skip
def test_runs_that_share_a_label_are_told_apart(a_run, recorded, changes):
    others = [recorded(**change) for change in changes]
    run = a_run(lam=0.5)
    assert len({other.label for other in others}) == 1
    labels = [f"{others[0].label} ({name} {value})" for (name, value), *_ in (change.items() for change in changes)]
    assert set(shown(run).index) == {BASELINE, run.label, *labels}


def test_runs_of_an_edited_profile_are_not_compared(make_run, recorded, workspace_root):
    recorded(lam=0.8)
    path = workspace_root / "params" / "small.yaml"
    path.write_text(path.read_text().replace("epochs: 3,", "epochs: 4,"))
    run = make_run("05_weighting", Profile.load("small"), lam=0.5)
    assert set(shown(run).index) == {BASELINE, run.label}


@pytest.mark.parametrize(("own", "other", "siblings"), [
    ({}, {"lam": 0.8}, 2), ({}, {"lam": 0.5, "max_structural_len": None}, 2),
    ({}, {"lam": 0.8, "gamma": 0.3}, 2),  # which the loss does not read
    ({}, {"lam": 0.8, "structural_loss": "mse"}, 1),
    ({"contextual_teacher": None}, {"contextual_teacher": None, "lam": 0.8}, 0),  # one teacher
])  # fmt: skip
def test_siblings_have_both_teachers_and_differ_in_lambda_and_mask_alone(a_run, recorded, own, other, siblings):
    label, run = recorded(**other).label, a_run(**own)
    found = shown(run)["sibling"]
    assert set(found[found].index) == {*[run.label, label][:siblings]}
    assert label in found.index


def test_further_teachers_make_siblings_and_groups(a_run, recorded):
    alone = {"contextual_teacher": None, "further": [TOPICS]}
    other = recorded(lam=0.8, **alone)
    recorded("03_structural", further=[TOPICS], structural_loss="cosine")
    run = a_run(lam=0.5, **alone)
    frame = shown(run)
    assert set(frame.index) == {BASELINE, run.label, other.label}  # that of 03 had a contextual teacher too
    assert frame.loc[other.label, ["group", "sibling"]].tolist() == ["0.8", True]
    for without, group in (("structural_loss", "0.2"), ("contextual_teacher", "1.0")):
        only = a_run(**{without: None}, lam=0.2, further=[FAR])
        assert shown(only).loc[only.label, "group"] == group


def test_the_structural_student_stands_beside_those_with_a_contextual_teacher(a_run, recorded):
    for parameters in ({"structural_loss": "cosine"}, {"structural_loss": "mse"}, {"documents": 30}):
        recorded("03_structural", **parameters)
    run = a_run()
    frame = shown(run)
    assert set(frame.index) == {BASELINE, run.label, ONLY_COSINE}
    assert frame.loc[ONLY_COSINE, ["group", "own"]].tolist() == ["1.0", True]
    frame = shown(a_run("04_projections", structural_loss=None))
    assert frame.loc[ONLY_COSINE, "group"] == "–"  # as in Figure 4.7
    assert ONLY_COSINE not in shown(a_run("03_structural", structural_loss="mse")).index
    run = a_run(contextual_teacher=None, max_structural_len=None)
    assert run.label == ONLY_COSINE  # run in this notebook too, and shown once
    assert (frame_of(run)["model"] == run.label).sum() == 4


@pytest.mark.parametrize(("notebook", "parameters", "groups"), [
    ("02_paragraph_vector", [{"dm": True}, {"dm": False}], ["DBOW", "DM"]),
    ("02_paragraph_vector", [{"compound": "DM;8;lowercase;2+DBOW;8;None;2"}], ["DM+DBOW"]),
    ("03_structural", [{"structural_loss": "mse"}, {"structural_loss": "max-margin", "gamma": 0.5},
                       {"structural_loss": "max-margin", "distance": "cosine", "negatives": 3},
                       {"structural_loss": "contrastive", "temperature": 0.1}],
     ["MSE", "contrastive", "max-margin MSE", "max-margin cosine"]),
    ("04_projections", [{"contextual_teacher": None}, {"contextual_teacher": "PV"}, {"contextual_teacher": "DM"}],
     ["–", "8", "16"]),
    ("05_weighting", [{"lam": 0.2}, {"lam": None}, {"contextual_teacher": None}], ["–", "0.2", "1.0"]),
])  # fmt: skip
def test_runs_are_grouped_by_what_the_thesis_colours(a_run, recorded, notebook, parameters, groups):
    for others in parameters[1:]:
        recorded(notebook, **others)
    run = a_run(notebook, **parameters[0])
    assert frame_of(run)["group"].cat.categories.tolist() == [*groups, "baseline"]


def test_the_thesis_values_stand_beside_runs_and_baselines(a_run, recorded):
    other = recorded("03_structural", structural_loss="max-margin", gamma=0.7)
    run = a_run("03_structural", structural_loss="mse")
    assert shown(run)["thesis"].dropna().to_dict() == {run.label: 0.7973, BASELINE: 0.9093}
    assert other.label in shown(run).index

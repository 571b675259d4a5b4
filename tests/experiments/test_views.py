"""What a notebook shows beside its own run: comparable runs only, each under a name of its own, with its spread."""

from __future__ import annotations

import pandas as pd
import pytest

from docemb_lib.experiments.run import Run
from docemb_lib.experiments.views import means_of_runs, own_metrics, weights_by_length
from docemb_lib.profile import Profile
from docemb_lib.workspace import Workspace

BASELINE = "SBERT truncated"


def a_run(root, **parameters):
    return Run("05_weighting", Profile.load("small").for_notebook("05_weighting", **parameters), Workspace(root), {})


def scores_of(label, level):
    """Two tasks, two head seeds; the second task is a ranking, which has one value."""
    rows = [(label, "package", "accuracy", seed, level + seed / 10) for seed in range(2)]
    rows += [(label, "see-also-retrieval", "map", 0, level), (label, "see-also-retrieval", "mrr", 0, 1.0)]
    rows += [(BASELINE, "package", "accuracy", seed, 0.5 + seed / 10) for seed in range(2)]
    rows += [(BASELINE, "see-also-retrieval", "map", 0, 0.5)]
    return pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])


def test_runs_stand_beside_each_other_with_their_spread_and_baselines_once(workspace_root):
    other = a_run(workspace_root, lam=0.8)
    other.finish({}, scores=scores_of(other.label, 0.3))
    run = a_run(workspace_root, lam=0.5)
    means = means_of_runs(run, scores_of(run.label, 0.2))
    values = means.groupby("model")["value"].apply(lambda v: sorted(round(x, 6) for x in v)).to_dict()
    assert values == {BASELINE: [0.5, 0.55], run.label: [0.2, 0.25], other.label: [0.3, 0.35]}
    assert means.set_index("model")["lam"].dropna().to_dict() == {run.label: 0.5, other.label: 0.8}
    assert set(means.loc[means["own"], "mask"]) == {"mask 64"}


@pytest.mark.parametrize("change", [{"documents": 30}, {"seed": 3}, {"contextual_teacher": "DM"}])
def test_runs_that_share_a_label_are_told_apart(workspace_root, change):
    other = a_run(workspace_root, **change)
    other.finish({}, scores=scores_of(other.label, 0.3))
    run = a_run(workspace_root)
    (name, value), *more = change.items()
    assert set(means_of_runs(run, scores_of(run.label, 0.2))["model"]) == {
        BASELINE, run.label, f"{other.label} ({name} {value})",
    }  # fmt: skip
    assert not more


def test_runs_of_an_edited_profile_are_not_compared(workspace_root):
    other = a_run(workspace_root, lam=0.8)
    other.finish({}, scores=scores_of(other.label, 0.3))
    path = workspace_root / "params" / "small.yaml"
    path.write_text(path.read_text().replace("epochs: 3,", "epochs: 4,"))
    run = a_run(workspace_root, lam=0.5)
    assert set(means_of_runs(run, scores_of(run.label, 0.2))["model"]) == {BASELINE, run.label}


def test_a_run_records_its_own_scores_only(workspace_root):
    run = a_run(workspace_root)
    metrics = own_metrics(run, scores_of(run.label, 0.2))
    assert metrics == pytest.approx(
        {"mean": 0.225, "package/accuracy": 0.25, "see-also-retrieval/map": 0.2, "see-also-retrieval/mrr": 1.0}
    )


@pytest.mark.parametrize(
    ("parameters", "kept", "masked"),
    [
        ({"lam": 0.3}, (0.3, 0.7), (0.0, 1.0)),
        ({"lam": None}, (1.0, 1.0), (0.0, 1.0)),
        ({"structural_loss": None}, (0.0, 1.0), (0.0, 1.0)),
        ({"contextual_teacher": None}, (1.0, 0.0), (0.0, 0.0)),
    ],
)
def test_weights_by_length_are_those_of_the_objective(workspace_root, monkeypatch, parameters, kept, masked):
    run = a_run(workspace_root, documents=2, **parameters)
    monkeypatch.setattr(run.stages, "split", lambda name: {"n_structural_tokens": [65, 64, 9]})
    rows = weights_by_length(run).to_numpy().tolist()
    assert [row[0] for row in rows] == [64, 65]
    assert rows[0][1:] == pytest.approx(kept)
    assert rows[1][1:] == pytest.approx(masked)

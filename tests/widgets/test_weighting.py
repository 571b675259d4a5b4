"""Runs by λ and mask, and their differences to the selected one."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scipy.stats import bootstrap

from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import score_intervals
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.widgets import weighting, weighting_explorer


def a_run(**parameters):
    given = {
        "structural_loss": "cosine",
        "contextual_teacher": "PV",
        "lam": 0.5,
        "max_structural_len": 64,
    } | parameters
    return Run.of("05_weighting", Profile.load("small"), **given)


def answered(share):
    """The score of forty examples, of which this share is answered correctly."""
    answers = (np.arange(40) < round(40 * share)).astype(np.float32)[None]
    return Score({"accuracy": answers})


def test_points_are_this_run_and_its_recorded_siblings_with_their_intervals(workspace_root):
    run = a_run()
    scores = {
        run.label: {"package": answered(0.6), "find": answered(0.3)},
        "SBERT": {"package": answered(0.9)},
    }
    models = pd.DataFrame({"model": [run.label], "fingerprint": ["own"]})
    run.evaluation = SimpleNamespace(intervals=score_intervals(scores), models=models)
    varied = {0.2: {}, 0.8: {"max_structural_len": None}, 0.7: {"seed": 1}}
    others = [(lam, a_run(lam=lam, **given)) for lam, given in varied.items()]
    structural = {"cosine": 0.4, "mse": 0.1}  # the run's loss, and another
    others += [
        (score, Run.of("03_structural", run.profile, structural_loss=loss))
        for loss, score in structural.items()
    ]
    # One of another seed is no sibling.
    for lam, other in others:
        rows = score_intervals(
            {other.label: {"package": answered(lam)}, "SBERT": {"package": answered(0.9)}}
        )
        tables = {"intervals": rows, "models": models.assign(model=other.label, fingerprint=lam)}
        other.finish({}, tables=tables)
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
    assert points_of_run["fingerprint"].iloc[0] == "own"
    kept = points_of_run[points_of_run["lam"] == 0.2].iloc[0]
    assert kept["fingerprint"] == 0.2
    wanted = score_intervals({"run": {"package": answered(0.2)}}).iloc[0]
    assert kept[["value", "low", "high"]].tolist() == pytest.approx(
        wanted[["value", "low", "high"]].tolist()
    )


LAMS = {"first": 0.2, "second": 0.8}
ANSWERS = {"first": np.arange(40) % 2, "second": np.arange(40) % 5 > 0}


@pytest.fixture
def of_two_runs(workspace_root):
    """A run and the scores of two, whose answers to single examples are there."""
    run = Run.of("05_weighting", Profile.load("small"), lam=0.2)
    scores = {}
    for name, answers in ANSWERS.items():
        values = answers.astype(np.float32)[None]
        scores[name] = {"sort": Score({"accuracy": values})}
    run.scorer = SimpleNamespace(
        recorded=lambda models: scores,
    )
    rows = score_intervals(scores)
    lams = rows["model"].map(LAMS)
    points = rows.assign(fingerprint=rows["model"], lam=lams, max_structural_len=np.nan)
    return run, points[weighting.COLUMNS]


@pytest.mark.parametrize(("selected", "sign"), [("first", 1), ("second", -1)])
def test_the_other_run_is_shown_by_its_difference_to_the_selected_one(
    of_two_runs, opened, selected, sign
):
    answer = opened(weighting_explorer, *of_two_runs)(selected=selected)
    rows = [[cell.get_text() for cell in row.find_all(["th", "td"])] for row in answer.page("tr")]
    shown = {name: difference for name, _, difference in rows[2:]}
    difference = sign * (ANSWERS["second"].mean() - ANSWERS["first"].mean())
    of_selected = f"λ {LAMS[selected]:g}"
    (other,) = {"λ 0.2", "λ 0.8"} - {of_selected}
    assert shown[of_selected] == "selected"
    assert shown[other].split()[0] == f"{difference:+.3f}"


def test_the_interval_of_a_difference_is_that_of_paired_examples(of_two_runs):
    run, points = of_two_runs
    row = weighting.differences_to(run, points, "first").iloc[0]
    paired = ANSWERS["second"].astype(float) - ANSWERS["first"]
    expected = bootstrap((paired,), np.mean, rng=np.random.default_rng(0), n_resamples=20000)
    interval = expected.confidence_interval
    np.testing.assert_allclose((row["low"], row["high"]), interval, atol=0.02)

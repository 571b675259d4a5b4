"""Runs by λ and mask: differences to the selected one, and the command that makes a missing one."""

import re
import shlex
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from bs4 import BeautifulSoup
from scipy.stats import bootstrap

from docemb_lib.cli.commands import parse_parameters
from docemb_lib.evaluation.tasks import Score
from docemb_lib.evaluation.uncertainty import score_intervals
from docemb_lib.runs import records
from docemb_lib.runs.key import RunKey
from docemb_lib.runs.run import Run
from docemb_lib.settings.profile import Profile
from docemb_lib.widgets import weighting, weighting_explorer
from docemb_lib.widgets.weighting import arguments_for, scores_at


@pytest.fixture
def points():
    rows = [
        (
            lam,
            mask,
            f"{lam}-{mask}",
            task,
            "map" if task == "find" else "accuracy",
            value,
            value - 0.1,
            value + 0.1,
        )
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


WANTED = {"lam": 0.1 + 0.05, "mask": None}


def test_the_command_makes_the_run_that_is_missing(workspace):
    arguments = arguments_for(a_run(workspace, documents=30), "small", **WANTED)
    assert arguments[:2] == ["run", "05_weighting"]
    assert arguments[-2:] == ["--profile", "small"]
    assert {*arguments[2:-2:2]} == {"-p"}
    parameters = parse_parameters(arguments[3:-2:2])
    key = RunKey.of("05_weighting", Profile.load("small"), **parameters)
    wanted = a_run(workspace, documents=30, lam=0.15, max_structural_len=None)
    assert key.fingerprint == wanted.fingerprint


def test_the_command_has_only_parameters_that_differ_from_the_profile(workspace):
    arguments = arguments_for(a_run(workspace, documents=30), "small", **WANTED)
    given = parse_parameters(arguments[3:-2:2])
    assert {"lam", "documents"} <= given.keys()
    for name in given:
        fewer = {other: value for other, value in given.items() if other != name}
        key = RunKey.of("05_weighting", Profile.load("small"), **fewer)
        assert (
            key.fingerprint
            != a_run(workspace, documents=30, lam=0.15, max_structural_len=None).fingerprint
        )


def test_a_weight_that_falls_with_the_length_alone_falls_from_one():
    intervals = score_intervals(
        {"run": {"package": answered(0.5)}, "SBERT": {"package": answered(0.9)}}
    )
    models = pd.DataFrame({"model": ["run"], "fingerprint": ["f"]})
    ramp = {"lam": None, "lam_by_length": "linear:64:128", "max_structural_len": None}
    for parameters, lam in (
        (ramp, 1.0),
        (ramp | {"lam": 0.3}, 0.3),
        (ramp | {"lam_by_length": None}, np.nan),
    ):
        (row,) = weighting._at(parameters, intervals, models, "run").to_dict("records")
        np.testing.assert_equal((row["lam"], row["max_structural_len"]), (lam, np.nan))


def test_points_are_this_run_and_its_recorded_siblings_with_their_intervals(workspace):
    run = a_run(workspace)
    scores = {
        run.label: {"package": answered(0.6), "find": answered(0.3)},
        "SBERT": {"package": answered(0.9)},
    }
    models = pd.DataFrame({"model": [run.label], "fingerprint": ["own"]})
    run.validation = SimpleNamespace(intervals=score_intervals(scores), models=models)
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
        tables = {"intervals": rows, "models": models.assign(model=other.label, fingerprint=lam)}
        records.save(
            workspace,
            record,
            tables={}
            if lam == 0.9
            else {name: table.to_dict("records") for name, table in tables.items()},
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
def of_two_runs(workspace):
    """A run and the scores of two, whose answers to single examples are there."""
    run = Run(RunKey.of("05_weighting", Profile.load("small"), lam=0.2), workspace)
    run.parameters["max_structural_len"] = None
    scores = {}
    for name, answers in ANSWERS.items():
        values = answers.astype(np.float32)[None]
        score = Score("accuracy", (float(values.mean()),), per_example={"accuracy": values})
        scores[name] = {"sort": score}
    run.stages.scores = SimpleNamespace(
        is_scored=lambda model, final: model.label in scores,
        largest_round=lambda final: "all",
        by_round=lambda models, final: {"all": scores},
    )
    rows = score_intervals(scores)
    lams = rows["model"].map(LAMS)
    points = rows.assign(fingerprint=rows["model"], lam=lams, max_structural_len=np.nan)
    return run, points[weighting.COLUMNS]


@pytest.fixture
def explorer(of_two_runs):
    run, points = of_two_runs
    return weighting_explorer(run, points, profile="small")


@pytest.mark.parametrize(("lam", "sign"), [(0.2, 1), (0.8, -1)])
def test_the_other_run_is_shown_by_its_difference_to_the_selected_one(
    explorer, tables, moved, lam, sign
):
    shown = tables(moved(explorer, λ=lam))["differences"]
    difference = sign * (ANSWERS["second"].mean() - ANSWERS["first"].mean())
    others = shown[shown["λ"] != f"{lam:g}"]["difference [95%]"].tolist()
    assert [text.split()[0] for text in others] == [f"{difference:+.3f}"]
    assert shown[shown["λ"] == f"{lam:g}"]["difference [95%]"].tolist() == ["selected"]


def test_the_interval_of_a_difference_is_that_of_paired_examples(of_two_runs):
    run, points = of_two_runs
    row = weighting.differences_to(run, points, "first").iloc[0]
    paired = ANSWERS["second"].astype(float) - ANSWERS["first"]
    expected = bootstrap((paired,), np.mean, rng=np.random.default_rng(0), n_resamples=20000)
    interval = expected.confidence_interval
    np.testing.assert_allclose((row["low"], row["high"]), interval, atol=0.02)


def test_the_interval_of_a_difference_is_drawn_around_a_line_at_zero(of_two_runs, explorer):
    run, points = of_two_runs
    row = weighting.differences_to(run, points, "first").iloc[0]
    page = BeautifulSoup(explorer.answer(λ=0.2).html, "html.parser")
    (drawn,) = page.select(".docemb-differences svg")
    numbers = [re.findall(r"[\d.]+", path["d"]) for path in drawn.find_all("path")]
    (zero, _, _), (left, _, right) = [[*map(float, each)] for each in numbers]
    dot = float(drawn.circle["cx"])
    places = np.array([left, dot, right]) - zero
    expected = row[["low", "value", "high"]].to_numpy(dtype=float)
    np.testing.assert_allclose(places / places[2], expected / expected[2], atol=0.01)
    heading = page.select(".docemb-differences th")[-1].get_text()
    assert heading == f"from {-expected[2]:.3f} to {expected[2]:.3f}"


def test_a_click_on_a_run_selects_it(explorer, moved, pressed, tables):
    moved(explorer, λ=0.4)
    shown = tables(pressed(explorer, "0.8"))["differences"]
    assert explorer.widgets["λ"].value == 0.8
    assert shown[shown["λ"] == "0.8"]["difference [95%]"].tolist() == ["selected"]


def test_a_place_without_a_run_has_the_command_and_differences_to_this_run(
    explorer, numbers, moved
):
    text = moved(explorer, λ=0.4)
    assert numbers(text, "status") == ["no run"]
    (command,) = numbers(text, "command")
    assert "-p lam=0.4 " in command
    assert f'data-copy="{command}"' in text
    assert "Differences to the run of this notebook" in text


class Process:
    """A command that has been begun and ends when the test says so."""

    ended = None

    def __init__(self, command, **options):
        self.command = command

    def poll(self):
        return self.ended


@pytest.fixture
def begun(monkeypatch):
    started = []

    def start(command, **options):
        started.append(Process(command))
        return started[-1]

    monkeypatch.setattr("docemb_lib.widgets.weighting.subprocess.Popen", start)
    return started


def test_a_button_begins_the_missing_run_once(explorer, begun, numbers, moved, pressed):
    command = shlex.split(numbers(moved(explorer, λ=0.4), "command")[0])
    text = pressed(explorer, "make this run")
    assert numbers(text, "status") == ["running"]
    assert numbers(pressed(explorer, "look again"), "status") == ["running"]
    (process,) = begun
    assert process.command[-len(command) + 1 :] == command[1:]


def test_a_run_that_has_been_made_is_shown(
    explorer, of_two_runs, begun, numbers, moved, pressed, monkeypatch
):
    _, points = of_two_runs
    moved(explorer, λ=0.4)
    pressed(explorer, "make this run")
    more = pd.concat([points, points.iloc[:1].assign(lam=0.4, fingerprint="third")])
    monkeypatch.setattr(weighting, "weighting_points", lambda run: more)
    begun[0].ended = 0
    assert numbers(pressed(explorer, "look again"), "status") == ["recorded"]


def test_a_run_that_fails_names_its_messages(explorer, begun, numbers, moved, pressed):
    moved(explorer, λ=0.4)
    pressed(explorer, "make this run")
    begun[0].ended = 1
    text = pressed(explorer, "look again")
    assert numbers(text, "status") == ["failed"]
    assert "outputs/notebooks/05_weighting/begun-" in text


def test_a_run_of_one_teacher_says_that_lam_has_no_effect(workspace, of_two_runs, moved):
    alone = Run(
        RunKey.of("05_weighting", Profile.load("small"), contextual_teacher=None), workspace
    )
    assert "a single teacher" in moved(weighting_explorer(alone, of_two_runs[1], profile="small"))

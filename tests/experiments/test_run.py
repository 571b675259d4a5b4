"""The run of a notebook: its settings and artefacts in the first output, its parameters, its record."""

from dataclasses import replace

import numpy as np
import pytest

from docemb_lib.evaluation.tasks import Score
from docemb_lib.experiments import records
from docemb_lib.experiments.models import Model
from docemb_lib.experiments.plan import grid
from docemb_lib.experiments.run import Run, begin
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.experiments.scores import ScoreStage
from docemb_lib.experiments.stages import CorpusStage
from docemb_lib.settings.profile import Profile


def test_the_settings_tell_where_the_run_differs_from_the_paper(workspace_root):
    run = begin("05_weighting", {"profile": "small", "lam": 0.25, "beta": 0.5, "documents": "profile", "ax": 1})
    table = run.settings()
    assert (table.loc["profile", "value"], *table.loc["lam"]) == ("small", "0.25", "")
    assert tuple(table.loc["documents"]) == ("24", "")
    assert [*table.loc["beta"], *table.loc["delta"]] == ["0.5", "0.95", "0.03", ""]  # of the whole thesis
    assert table.loc["student.max_tokens", "in the paper"] == "4096"  # Table 4.3
    assert table.loc["head.label_smoothing"].tolist() == ["0.1", ""]  # the same
    assert table.loc["contextual_teachers.DBOW"].tolist() == ["DBOW;8;lowercase;2", "DBOW;1024;None;2"]  # Table 4.5


@pytest.mark.parametrize(("notebook", "row", "column", "expected"), [
    ("05_weighting", "grid", "value", "weighting-cosine, run 3 of 9"),
    ("05_weighting", "grid", "in the paper", "cosine-masked, masked-cosine;λ=0.5"), ("07_simde", "grid", "in the paper", ""),
    ("06_evaluation", "training.learning_rate", "in the paper", "3e-05"),  # Table 5.2
    ("07_simde", "head.learning_rate", "in the paper", "0.0003")])  # fmt: skip
def test_the_settings_stand_beside_those_of_the_paper_and_name_the_grid(notebook, row, column, expected):
    profile, given = Profile.load("tiny"), grid("weighting-cosine", "tiny")[2] if notebook == "05_weighting" else {}
    assert Run(RunKey.of(notebook, profile, **given)).settings().loc[row, column] == expected


def test_a_run_takes_its_notebooks_parameters_from_the_namespace(workspace_root):
    run = begin("03_structural", {"profile": "small", "gamma": 0.5, "structural_loss": "max-margin", "lam": 7, "x": 1})
    assert run.parameters["gamma"] == 0.5
    assert run.key.same_but() == RunKey.of("03_structural", run.profile, **run.parameters).same_but()


@pytest.mark.parametrize(("notebook", "given", "said"), [
    ("03_structural", {"gamma": -1}, "gamma: input should be greater than or equal to 0, got -1"),
    ("05_weighting", {"lam": "null"}, "write None"), ("05_weighting", {"student_projection": "16x17"}, "16 → 17"),
    ("05_weighting", {"In": ["", "# Parameters\nlam = 0.5\nlamb = 0.4\n", "lamc = 1"]}, "unknown parameter 'lamb'; did you mean lam"),
    ("08_more", {}, "notebook '08_more' is unknown")])  # fmt: skip
def test_what_does_not_fit_is_refused_before_any_work(workspace_root, refused, notebook, given, said):
    refused(said, begin, notebook, {"profile": "small", **given})
    assert not (workspace_root / "outputs").exists()


def test_an_identical_run_keeps_the_seconds_and_the_end_of_its_first_record(workspace_root):
    key, found = RunKey("01_corpus", Profile.load("small")), []
    for seconds, failed in ((5.0, True), (60.0, False), (2.0, False)):
        run = Run(key)
        run.started -= seconds
        run.finish({"documents": seconds})
        found.append(records.find(run.workspace, run.notebook, run.fingerprint))
        if failed:
            records.save(run.workspace, replace(found[0], status="failed"))
    assert 60 <= found[2].seconds < 62
    assert found[0].finished < found[1].finished == found[2].finished
    assert found[2].metrics == {"documents": 2.0}


def made(metric, right):
    answers = right[None].astype(np.float32)
    return Score(metric, (float(answers.mean()),), per_example={metric: answers})


def test_a_run_is_ranked_among_those_recorded(workspace_root, monkeypatch):
    run = Run(RunKey.of("03_structural", Profile.load("small")))
    labels = [run.label, *(model.label for model in run.references)]
    scores = {label: {"sort": made("accuracy", np.arange(10) < 6)} for label in labels}
    monkeypatch.setattr(ScoreStage, "by_round", lambda stage, models, *, final: {} if final else {"all": scores})
    for others, said in {
        (): "No other run of this notebook is recorded yet.",
        (0.4,): "Of 2 recorded runs of this notebook it has the best mean.",
        (0.4, 0.9, 0.7): "It is number 3 of 4 recorded runs of this notebook; the best is a 0.9 (0.900).",
    }.items():
        made_of = [(records.Record.of(run.key, metrics={"mean": value}), f"a {value}") for value in others]
        monkeypatch.setattr(run, "comparable", lambda found=made_of: [replace(one, label=own) for one, own in found])
        first, *rest = run.standing().split("\n")
        assert first.startswith("In the mean over 1 task, cosine (.600 [")
        assert rest[-1] == said


@pytest.mark.parametrize(("notebook", "forms", "shown"), [
    ("06_evaluation", 1, ["s", "s, centred"]), ("06_evaluation", 3, ["s", "s", "s"]), ("05_weighting", 1, ["s"])])  # fmt: skip
def test_a_final_student_without_halves_is_shown_centred_too(workspace_root, monkeypatch, notebook, forms, shown):
    run = Run(RunKey(notebook, Profile.load("small")))
    run._of_student = [Model("s", "f", lambda: pytest.fail("loaded"))] * forms
    run.references = [Model("SBERT", "g", lambda: pytest.fail("loaded"))]
    monkeypatch.setattr(CorpusStage, "fingerprint", "c")
    assert [model.label for model in run.models()] == [*shown, "SBERT"]

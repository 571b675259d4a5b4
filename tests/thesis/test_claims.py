"""The thesis' claims on recorded final evaluations: not tested on other tasks, but told; with answers where they are."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation.tasks import Classification, Labelled, Score
from docemb_lib.settings import HubDataset
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.claims import FAILS, HOLDS, MASKED, RATIOS, UNSURE, UNTESTED, on_thesis_corpora, recorded_claims
from docemb_lib.thesis.claims import claims_of_run as check_claims
from docemb_lib.thesis.tables import recorded_finals

sys.path.insert(0, str(Path(__file__).parent))
from final_runs import a_run, evaluated, of_the_thesis, recorded

NONE = "no scores on aan, arxiv, imdb, oc, pan, s2orc"
LEVELS = {"only-MSE": 0.9, "MSE-contextual": 0.8, "cosine-masked": 0.7}


@pytest.fixture
def students(workspace_root):
    return of_the_thesis()


@pytest.fixture
def three(workspace_root, students, monkeypatch):
    """All three students of the thesis recorded, whose training documents and tasks are made up."""
    for name in ("only-MSE", "MSE-contextual"):
        recorded(workspace_root, LEVELS[name], **students[name])
    run = a_run(workspace_root, documents=4, **students["cosine-masked"])
    labels = ["x", "y"] * 10
    task = Classification("package", {"train": Labelled(["t"] * 20, labels)})
    bigger = replace(task, splits={"train": Labelled(["t"] * 30, labels + labels[:10])})
    stages = SimpleNamespace(
        corpus=SimpleNamespace(is_built=True, split=lambda name: {"n_structural_tokens": [9, 65, 64, 300, 1, 1]}),
        scores=SimpleNamespace(tasks={"package": task, "halves": bigger}, is_scored=lambda model: False),
    )
    run.stages = stages
    return run


def test_claims_are_not_tested_on_other_tasks_but_told(three):
    table = check_claims(three, recorded_finals(three, evaluated(three.label, 0.7)))
    assert list(table.columns) == ["claim", "in the thesis", "on its tasks", "on other tasks", "because"]
    assert set(table["in the thesis"].drop(["c5"])) == {HOLDS, HOLDS + UNSURE}
    assert set(table["on its tasks"]) == {UNTESTED}
    other = table["on other tasks"]
    assert other[["c1", "c4", "c6"]].tolist() == [UNTESTED] * 3
    assert other["c2"] == FAILS + UNSURE  # SBERT is behind
    assert other["c7-map"] == FAILS + UNSURE  # only-MSE first, SBERT not second
    assert other["c5"] == FAILS  # 4 documents, 2 of them short enough
    assert table.loc["c5", "because"] == f"not counted: {MASKED}; other tasks: {MASKED}: 2.00"
    assert table.loc["c1", "because"] == f"{NONE}; other tasks: no round 1k"


def test_recorded_claims_are_those_of_the_profiles_final_runs_and_nothing_is_built_for_them(workspace_root, students):
    with pytest.raises(InputError, match="small: no final evaluation is recorded; `docemb run` with it makes one"):
        recorded_claims("small")
    other = workspace_root / "params" / "other.yaml"
    other.write_text("base: small.yaml\nplan: [{notebook: 06_evaluation, profile: small}]", encoding="utf-8")
    with pytest.raises(
        InputError, match="other: no final evaluation is recorded; its plan makes some of small; ask for"
    ):
        recorded_claims("other")
    recorded(workspace_root, **students["only-MSE"])
    table = recorded_claims("small")
    assert table.loc["c7-mrr", "on other tasks"] == UNTESTED
    assert table.loc["c7-mrr", "because"].endswith("other tasks: no run of cosine-masked, MSE-contextual")
    recorded(workspace_root, **students["cosine-masked"])
    assert recorded_claims("small").loc["c5", "because"] == f"not counted: {MASKED}"
    assert not (workspace_root / "outputs" / "artefacts").exists()


def test_where_answers_are_known_a_claim_is_tested(three, monkeypatch):
    final = evaluated(three.label, 0.7)
    finals = recorded_finals(three, final)

    def scores(models, *, final):
        assert final
        (model,) = models
        assert model.fingerprint == f"f/{model.label}"
        level = finals.scores[finals.scores["model"] == model.label]["value"].iloc[0]
        answers = (np.arange(1000) < 1000 * level).astype(np.float32)[None]
        score = Score("accuracy", (level,), per_example={"accuracy": answers})
        return {
            "all": {model.label: {"package": score, "halves": score, "find": Score("map", (level,), {"mrr": level})}}
        }

    three.stages.scores.is_scored, three.stages.scores.by_round = lambda model: True, scores
    table = check_claims(three, finals)
    assert table.loc["c2", "on other tasks"] == FAILS
    assert table.loc["c2", "because"].startswith(
        f"{NONE}; other tasks: 12 of 15 differences shown, 3 shown the other way round; least: "
    )
    assert table.loc["c7-map", "on other tasks"] == FAILS + UNSURE  # of rankings nothing is known here


def test_training_examples_are_counted_where_there_are_rounds(three, monkeypatch):
    evaluation = three.profile.evaluation.model_copy(update={"rounds": [10, None], "tasks": ["package", "halves"]})
    three.profile = three.profile.model_copy(update={"evaluation": evaluation})
    final = evaluated(three.label, 0.7, rounds=("10", "all"))
    table = check_claims(three, recorded_finals(three, final))
    assert table.loc["c6", "because"] == f"not counted: {RATIOS[0]}; other tasks: {RATIOS[0]}: 2.00; {RATIOS[1]}: 3.00"
    assert table.loc["c6", ["on its tasks", "on other tasks"]].tolist() == [UNTESTED, FAILS]


def test_the_corpora_of_the_thesis_are_known_by_name(workspace_root):
    profile = Profile.load("small")
    assert not on_thesis_corpora(profile)
    named = [HubDataset(dataset="wikimedia/wikipedia"), HubDataset(dataset="allenai/c4", config="realnewslike")]
    for datasets, expected in ((named, True), (named[:1], False)):
        corpus = profile.corpus.model_copy(update={"source": "hub", "datasets": datasets})
        assert on_thesis_corpora(profile.model_copy(update={"corpus": corpus})) is expected

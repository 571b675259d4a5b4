"""The analysis on a run's own texts: beside the paper's rows, with few examples, and left out where it says nothing."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.evaluation import Classification
from docemb_lib.evaluation.tasks import Labelled
from docemb_lib.experiments.models import Model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings import SimDE
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import published
from docemb_lib.views import simde
from docemb_lib.views.simde import attention_of_students, few_shot, redundancy_beside_paper, similarity_of_sentences
from docemb_lib.workspace import Workspace

TEXTS = ["The cat sees the cat. Another cat sees the dog.", "A house stands there. The house has a door, a red one."]


def a_run(root, language="en", tasks=()):
    profile = Profile.load("small").for_notebook("07_simde", documents=2)
    profile = profile.model_copy(update={"simde": SimDE(language=language, dropout=0.1)})
    run = Run(RunKey("07_simde", profile), Workspace(root))
    corpus, scores = SimpleNamespace(split=lambda _: {"text": TEXTS}), SimpleNamespace(tasks=tasks)
    run.stages = SimpleNamespace(corpus=corpus, scores=scores, teachers=None)
    return run


def test_the_runs_own_texts_stand_before_the_papers(workspace_root):
    rows = redundancy_beside_paper(a_run(workspace_root))
    assert rows["data"].unique().tolist()[0] == "here: installed-docs"
    paper = published("simde").query("source == 'table 4'")
    assert rows["redundancy"].tolist()[-len(paper) :] == paper["value"].tolist()
    (own,) = rows[(rows["data"] == "here: installed-docs") & (rows["words"] == "All")]["redundancy"]
    # cat sees cat cat sees dog: 6 of 3; house stands house has door one: 6 of 5 (one may be no noun: 5 of 4)
    assert own == pytest.approx((6 / 3 + 6 / 5) / 2, abs=0.03)


def test_texts_in_another_language_have_no_nouns_that_we_know(workspace_root):
    run = a_run(workspace_root, language="de")
    assert not redundancy_beside_paper(run)["data"].str.startswith("here").any()
    assert attention_of_students(run).empty


def test_sentences_are_compared_by_sbert(workspace_root, monkeypatch):
    class Subject:
        def embed(self, texts):
            return np.array([["cat" in t or "dog" in t, "house" in t] for t in texts], dtype=np.float32)

    monkeypatch.setattr(simde, "sbert_models", lambda teachers: [Model("subject", "subject", Subject)])
    pairs = similarity_of_sentences(a_run(workspace_root))
    assert pairs.groupby("kind")["cosine"].mean().to_dict() == pytest.approx({"inside": 1, "across": 0})


def test_heads_of_few_examples_are_trained_for_classification_alone(workspace_root):
    texts = {split: [f"{split} {label} {i}" for label in "ab" for i in range(4)] for split in ("train", "test")}
    splits = {split: Labelled(texts[split], ["a"] * 4 + ["b"] * 4) for split in texts}
    tasks = {"package": Classification("package", splits), "see-also-pairs": None, "halves": None}

    class Exact:
        def embed(self, texts):
            return np.array([[1, 0] if " a " in text else [0, 1] for text in texts], dtype=np.float32)

    tasks["see-also-retrieval"] = None
    scores = few_shot(a_run(workspace_root, tasks=tasks), [Model("exact", "exact", Exact)], per_class=(2, 4, 5))
    assert set(scores["per_class"]) == {2, 4}  # a class has four
    assert set(scores["task"]) == {"package"}
    assert len(scores) == 2 * 10 * 2

"""What the SimDE notebook shows: halves as training draws them, rivals, gains, the paper's numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from docemb_lib.corpus.sentences import split_sentences
from docemb_lib.errors import InputError
from docemb_lib.experiments.models import UNTRAINED, Model
from docemb_lib.experiments.run import Run
from docemb_lib.experiments.runkey import RunKey
from docemb_lib.settings.evaluation import SimDEName
from docemb_lib.settings.profile import Profile
from docemb_lib.thesis.values import published
from docemb_lib.training.pairs import draw_halves, generator_of
from docemb_lib.views.simde import beside_paper, distances_of_halves, example_halves, gain_over_start, students_beside
from docemb_lib.workspace import Workspace

NAMES = ("alpha", "beta", "gamma")


def text_of(name: str, n: int) -> str:
    return " ".join(f"Sentence {number} tells of {name}." for number in range(n))


class Split(list):
    """A split as far as the views read it."""

    def select(self, rows):
        return Split(self[row] for row in rows)

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def a_run(root, sizes, seed=0, notebook="07_simde"):
    run = Run(RunKey.of(notebook, Profile.load("small"), seed=seed, documents=3), Workspace(root))
    documents = Split({"id": name, "text": text_of(name, n)} for name, n in zip(NAMES, sizes, strict=True))
    run.stages = SimpleNamespace(corpus=SimpleNamespace(split=lambda _: documents))
    return run


@pytest.mark.parametrize("seed", [0, 1])
def test_the_document_shown_is_one_of_few_sentences_in_the_halves_that_training_draws(workspace_root, seed):
    shown = example_halves(a_run(workspace_root, [20, 8, 7], seed))
    sentences = [sentence.strip() for sentence in split_sentences(text_of("beta", 8))]
    assert (shown["first half"] + shown["second half"]).tolist() == sentences
    drawn = draw_halves(8, generator_of("beta", seed=seed, epoch=0))
    assert (shown["first half"] != "").tolist() == drawn.tolist()


def test_without_a_document_of_few_sentences_the_first_of_two_is_shown(workspace_root):
    assert len(example_halves(a_run(workspace_root, [1, 3, 30]))) == 3


def test_documents_of_one_sentence_only_have_no_halves(workspace_root):
    with pytest.raises(InputError, match="none of the first 3 has two sentences"):
        example_halves(a_run(workspace_root, [1, 1, 1]))


def test_halves_are_near_for_a_model_that_knows_the_subject_and_a_lone_sentence_is_left_out(workspace_root):
    class Subject:
        def embed(self, texts):
            return np.array([[text.count(name) for name in NAMES] for text in texts], dtype=np.float32)

    found = distances_of_halves(a_run(workspace_root, [9, 1, 7]), [Model("subject", "subject", Subject)])
    assert found.groupby("kind")["value"].agg(["size", "mean"]).to_dict("index") == {
        "positive": {"size": 2, "mean": pytest.approx(0, abs=1e-6)},
        "negative": {"size": 2, "mean": pytest.approx(1)},
    }
    assert set(found["auc"]) == {1.0}
    assert set(found["model"]) == {"subject"}


def test_students_beside_are_the_recorded_ones_of_both_notebooks_as_far_as_they_are_there(workspace_root):
    folders = {}
    for name in ("simcse", "distilled", "deleted"):
        folders[name] = workspace_root / "outputs" / "artefacts" / "student" / name
        folders[name].mkdir(parents=True)
        if name != "deleted":
            (folders[name] / "artefact.json").write_text("{}")
    workspace = Workspace(workspace_root)
    given = [("07_simde", "simcse", {"pairs": "dropout"}), ("06_evaluation", "distilled", {}),
             ("06_evaluation", "deleted", {"seed": 1}), ("05_weighting", "distilled", {})]  # fmt: skip
    for notebook, name, parameters in given:
        other = Run(RunKey.of(notebook, Profile.load("small"), **parameters), workspace)
        other.finish({}, student=workspace.shown(folders[name]))
    models = students_beside(a_run(workspace_root, [9, 9, 9]))
    labels = [model.label for model in models]
    assert labels[0] == "SimCSE;24 docs"
    assert labels[1].startswith("student cosine")
    assert [model.fingerprint.split("/")[1] for model in models] == ["simcse", "distilled"]


def test_scores_stand_beside_the_papers_where_it_has_the_task():
    rows = [("ours", "20news", "accuracy", seed, 0.6 + seed / 10) for seed in range(2)]
    rows += [("ours", "20news", "mrr", 0, 0.3), ("ours", "package", "accuracy", 0, 0.9)]
    scores = pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])
    table = beside_paper(scores)
    assert list(table.columns) == [("20news", "accuracy")]
    assert table.loc[("here", "ours")].item() == pytest.approx(0.65)
    assert table.loc[("paper", "SimDE_bert")].item() == pytest.approx(0.7689)
    assert len(table) == 1 + 9
    assert beside_paper(scores[scores["task"] == "package"]).empty


def test_the_gain_has_a_row_per_task_and_the_spread_of_heads():
    rows = [("X", "package", "accuracy", seed, value) for seed, value in enumerate([0.5, 0.7])]
    rows += [("X", "package", "f1_macro", 0, 0.1), ("X", "find", "map", 0, 0.4), ("Y", "package", "accuracy", 0, 0.0)]
    scores = pd.DataFrame(rows, columns=["model", "task", "metric", "seed", "value"])
    columns = ["model", "reference", "task", "metric", "difference", "low", "high", "verdict"]
    given = [
        ("X", UNTRAINED, "package", "accuracy", 0.1, 0.05, 0.15, "better"),
        ("X", UNTRAINED, "mean over tasks", "mean", 0.05, 0.01, 0.1, "better"),
        ("X", "SBERT truncated", "package", "accuracy", -0.1, -0.2, 0, "worse"),
        ("Y", UNTRAINED, "package", "accuracy", -0.1, -0.2, 0, "worse"),
    ]
    gain = gain_over_start(scores[scores["model"] == "X"], pd.DataFrame(given, columns=columns), student="X")
    assert gain.index.tolist() == ["package", "mean over tasks"]
    assert gain["verdict"].tolist() == ["better", "better"]
    deviation = np.std([0.5, 0.7], ddof=1)
    assert gain["head_seeds"].tolist() == pytest.approx([deviation, deviation / 2])


@pytest.mark.parametrize(
    ("few_shot", "model", "over", "percent"),
    [("all", "SimDE_bert", "SimCSE", 3.9), ("all", "SimDE_long", "Longformer", 9.4),
     ("few-shot", "SimDE_bert", "SimCSE", 12.0), ("few-shot", "SimDE_long", "Longformer", 24.3)],
)  # fmt: skip
def test_the_published_scores_give_the_improvements_that_the_paper_claims(few_shot, model, over, percent):
    rows = published("simde").query("metric == 'f1_macro' and round == @few_shot")
    scores = rows.pivot(index="task", columns="model", values="value")
    assert set(scores.index) == {*get_args(SimDEName)}  # as our own scores call them
    assert 100 * (scores[model] / scores[over] - 1).mean() == pytest.approx(percent, abs=0.05)

"""Data that notebook 07 shows: halves as training draws them, other students, gains, the paper's numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import get_args

import numpy as np
import pandas as pd
import pytest

from docemb_lib.corpus.rows import split_sentences
from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification
from docemb_lib.evaluation.tasks import Labelled
from docemb_lib.experiments.models import UNTRAINED, Model
from docemb_lib.settings import SimDE, SimDEName
from docemb_lib.thesis.values import published
from docemb_lib.training.pairs import draw_halves, generator_of
from docemb_lib.views import simde
from docemb_lib.views.simde import (
    attention_of_students,
    beside_paper,
    distances_of_halves,
    example_halves,
    few_shot,
    gain_over_start,
    redundancy_beside_paper,
    similarity_of_sentences,
    students_beside,
)

NAMES = ("alpha", "beta", "gamma")
TEXTS = ["The cat sees the cat. Another cat sees the dog.", "A house stands there. The house has a door, a red one."]


def text_of(name, n):
    return " ".join(f"Sentence {number} tells of {name}." for number in range(n))


class Split(list):
    """A split as far as the views read it."""

    def select(self, rows):
        return Split(self[row] for row in rows)

    def __getitem__(self, key):
        return [row[key] for row in self] if isinstance(key, str) else super().__getitem__(key)


def embedder(name, embed):
    """A model that embeds a text as the numbers that `embed` returns."""
    rows = SimpleNamespace(embed=lambda texts: np.array([embed(text) for text in texts], dtype=np.float32))
    return Model(name, name, lambda: rows)


@pytest.fixture
def of_sizes(make_run):
    """A run over three documents with these numbers of sentences."""

    def make(*sizes, seed=0):
        run = make_run("07_simde", seed=seed, documents=3)
        documents = Split({"id": name, "text": text_of(name, n)} for name, n in zip(NAMES, sizes, strict=True))
        run.stages = SimpleNamespace(corpus=SimpleNamespace(split=lambda _: documents))
        return run

    return make


@pytest.fixture
def of_texts(make_run):
    """A run over TEXTS."""

    def make(language="en", tasks=()):
        run = make_run("07_simde", changes={"simde": SimDE(language=language, dropout=0.1)}, documents=2)
        corpus, scores = SimpleNamespace(split=lambda _: {"text": TEXTS}), SimpleNamespace(tasks=tasks)
        run.stages = SimpleNamespace(corpus=corpus, scores=scores, teachers=None)
        return run

    return make


@pytest.mark.parametrize("seed", [0, 1])
def test_the_document_shown_is_one_of_few_sentences_in_the_halves_that_training_draws(of_sizes, seed):
    shown = example_halves(of_sizes(20, 8, 7, seed=seed))
    sentences = [sentence.strip() for sentence in split_sentences(text_of("beta", 8))]
    assert (shown["first half"] + shown["second half"]).tolist() == sentences
    drawn = draw_halves(8, generator_of("beta", seed=seed, epoch=0))
    assert (shown["first half"] != "").tolist() == drawn.tolist()


def test_without_a_document_of_few_sentences_the_first_of_two_is_shown(of_sizes):
    assert len(example_halves(of_sizes(1, 3, 30))) == 3


def test_documents_of_one_sentence_only_have_no_halves(of_sizes):
    with pytest.raises(InputError, match="none of the first 3 has two sentences"):
        example_halves(of_sizes(1, 1, 1))


def test_halves_are_near_for_a_model_that_finds_the_subject_and_a_lone_sentence_is_left_out(of_sizes):
    subject = embedder("subject", lambda text: [text.count(name) for name in NAMES])
    found = distances_of_halves(of_sizes(9, 1, 7), [subject])
    assert found.groupby("kind")["value"].agg(["size", "mean"]).to_dict("index") == {
        "positive": {"size": 2, "mean": pytest.approx(0, abs=1e-6)},
        "negative": {"size": 2, "mean": pytest.approx(1)},
    }
    assert set(found["auc"]) == {1.0}
    assert set(found["model"]) == {"subject"}


def test_students_beside_are_the_recorded_ones_of_both_notebooks_unless_deleted(make_run, of_sizes, workspace_root):
    folders = {name: workspace_root / "outputs/artefacts/student" / name for name in ("simcse", "distilled", "deleted")}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        if name != "deleted":
            (folder / "artefact.json").write_text("{}")
    given = [("07_simde", "simcse", {"pairs": "dropout"}), ("06_evaluation", "distilled", {}),
             ("06_evaluation", "deleted", {"seed": 1}), ("05_weighting", "distilled", {})]  # fmt: skip
    for notebook, name, parameters in given:
        run = make_run(notebook, **parameters)
        run.finish({}, student=run.workspace.shown(folders[name]))
    first, second = students_beside(of_sizes(9, 9, 9))
    assert first.label == "SimCSE;24 docs"
    assert second.label.startswith("student cosine")
    assert [model.fingerprint.split("/")[1] for model in (first, second)] == ["simcse", "distilled"]


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


def test_the_runs_own_texts_stand_before_the_papers(of_texts):
    rows = redundancy_beside_paper(of_texts())
    assert rows["data"].unique().tolist()[0] == "here: installed-docs"
    paper = published("simde").query("source == 'table 4'")
    assert rows["redundancy"].tolist()[-len(paper) :] == paper["value"].tolist()
    (own,) = rows[(rows["data"] == "here: installed-docs") & (rows["words"] == "All")]["redundancy"]
    # cat sees cat cat sees dog: 6 of 3; house stands house has door one: 6 of 5 (one may be no noun: 5 of 4)
    assert own == pytest.approx((6 / 3 + 6 / 5) / 2, abs=0.03)


def test_texts_in_another_language_have_no_nouns_that_we_know(of_texts):
    run = of_texts(language="de")
    assert not redundancy_beside_paper(run)["data"].str.startswith("here").any()
    assert attention_of_students(run).empty


def test_sentences_are_compared_by_sbert(of_texts, monkeypatch):
    subject = embedder("subject", lambda text: ["cat" in text or "dog" in text, "house" in text])
    monkeypatch.setattr(simde, "sbert_models", lambda teachers: [subject])
    pairs = similarity_of_sentences(of_texts())
    assert pairs.groupby("kind")["cosine"].mean().to_dict() == pytest.approx({"inside": 1, "across": 0})


def test_heads_of_few_examples_are_trained_for_classification_alone(of_texts):
    texts = {split: [f"{split} {label} {i}" for label in "ab" for i in range(4)] for split in ("train", "test")}
    splits = {split: Labelled(texts[split], ["a"] * 4 + ["b"] * 4) for split in texts}
    tasks = {
        "package": Classification("package", splits),
        **dict.fromkeys(["see-also-pairs", "halves", "see-also-retrieval"]),
    }

    exact = embedder("exact", lambda text: [1, 0] if " a " in text else [0, 1])
    scores = few_shot(of_texts(tasks=tasks), [exact], per_class=(2, 4, 5))
    assert set(scores["per_class"]) == {2, 4}  # a class has four
    assert set(scores["task"]) == {"package"}
    assert len(scores) == 2 * 10 * 2

"""Scores of models on tasks: each (model, task) once, by the right protocol, and what cosines alone score."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval
from docemb_lib.evaluation.catalogue import ProfileTasks
from docemb_lib.evaluation.protocols import (
    final_scores,
    for_validation,
    score_cosines,
    spread,
    validation_score,
    validation_texts,
)
from docemb_lib.experiments.scores import Model, cosine_scores, is_scored, score_models, scores_by_round
from docemb_lib.settings import Evaluation
from docemb_lib.settings.profile import Profile
from docemb_lib.workspace import Workspace

TEXTS = [f"text {i}" for i in range(8)]
TINY_HEAD = {"epochs": 2, "learning_rate": 1e-2, "hidden": 4}


class Hashed:
    """Every text has an embedding of its own, whoever asks, and what was asked for is noted."""

    def __init__(self):
        self.asked = []

    def embed(self, texts):
        self.asked.append(list(texts))
        return embedding_of(texts)


def embedding_of(texts):
    return np.stack([np.random.default_rng(list(text.encode())).normal(size=6) for text in texts]).astype(np.float32)


def labelled(split, n, classes=2):
    return Labelled([f"{split} {i}" for i in range(n)], [f"c{i % classes}" for i in range(n)])


def a_world(root, tasks, **evaluation):
    """Stages of nothing but tasks."""
    names = {"tasks": list(tasks), "sweep_tasks": list(tasks)}
    settings = Evaluation(**{"head": TINY_HEAD, "seeds": 2, **evaluation}).model_copy(update=names)
    profile, corpus = SimpleNamespace(evaluation=settings), SimpleNamespace(fingerprint="corpus")
    return SimpleNamespace(workspace=Workspace(root), profile=profile, tasks=dict(tasks), corpus=corpus)


TASKS = {
    "sort": Classification("sort", {s: labelled(s, n) for s, n in {"train": 40, "validation": 12, "test": 14}.items()}),
    "folded": Classification("folded", {"train": labelled("folded", 30), "test": labelled("unseen", 8)}),
    "find": Retrieval("find", {s: Ranking([f"{s} page {i}" for i in range(6)], [0, 1], [[2], [3, 4]])
                               for s in ("validation", "test")}),
}  # fmt: skip


def test_the_final_evaluation_scores_test_splits_in_every_round_on_texts_embedded_together(tmp_path):
    stages = a_world(tmp_path, TASKS, rounds=[10, None])
    model = Hashed()
    rounds = scores_by_round(stages, [Model("m", "1", lambda: model)], final=True)
    assert list(rounds) == ["10", "all"]
    head = stages.profile.evaluation.head
    for name in ("sort", "folded"):
        vectors = embedding_of(TASKS[name].texts("test"))
        expected = final_scores(TASKS[name], vectors, rounds={"10": 10, "all": None}, head=head, seeds=2)
        for size, score in expected.items():
            assert rounds[size]["m"][name] == score
            np.testing.assert_array_equal(
                rounds[size]["m"][name].per_example["accuracy"], score.per_example["accuracy"]
            )
    expected = TASKS["find"].score(embedding_of(TASKS["find"].texts("test")), "test")
    assert rounds["10"]["m"]["find"] == rounds["all"]["m"]["find"] == expected
    np.testing.assert_array_equal(rounds["all"]["m"]["find"].per_example["mrr"], expected.per_example["mrr"])
    (asked,) = model.asked
    assert sorted(asked) == sorted({text for task in TASKS.values() for text in task.texts("test")})


def test_runs_are_scored_on_cut_validation_splits_or_by_cross_validation(tmp_path):
    stages = a_world(tmp_path, TASKS, limit=20, folds=3)
    model = Hashed()
    rounds = scores_by_round(stages, [Model("m", "1", lambda: model)], final=False)
    assert list(rounds) == ["all"]
    head = stages.profile.evaluation.head
    for name in ("sort", "folded"):
        cut = for_validation(TASKS[name], 20)
        vectors = embedding_of(validation_texts(cut))
        assert rounds["all"]["m"][name] == validation_score(cut, vectors, head=head, seeds=2, folds=3)
    find = TASKS["find"].score(embedding_of(TASKS["find"].texts("validation")), "validation")
    assert rounds["all"]["m"]["find"] == find
    asked = {text for texts in model.asked for text in texts}
    assert not [text for text in asked if text.startswith(("test", "unseen"))]  # no test split is looked at
    assert len([text for text in asked if text.startswith("folded")]) == 20


def test_what_is_scored_is_not_scored_again_and_a_further_task_costs_its_own_texts_alone(tmp_path):
    models = [Hashed(), Hashed()]
    first = a_world(tmp_path, {"sort": TASKS["sort"]})
    model = Model("m", "1", lambda: models[0])
    once = score_models(first, [model], final=True)
    both = a_world(tmp_path, {"sort": TASKS["sort"], "find": TASKS["find"]})
    assert is_scored(first, model)
    assert not is_scored(both, model)
    again = score_models(both, [Model("m", "1", lambda: models[1])], final=True)
    assert again[again["task"] == "sort"].to_dict("records") == once.to_dict("records")
    assert models[1].asked == [TASKS["find"].texts("test")]
    for changed in ({"seeds": 3}, {"rounds": [10]}):
        assert not is_scored(a_world(tmp_path, {"sort": TASKS["sort"]}, **changed), model)
    assert is_scored(a_world(tmp_path, {"sort": TASKS["sort"]}, limit=5, folds=2), model)  # of runs


def test_tidy_scores_tell_the_main_metrics_and_rounds_where_there_are_some(tmp_path):
    model = Model("m", "1", Hashed)
    frame = score_models(a_world(tmp_path, TASKS), [model], final=True)
    assert list(frame.columns) == ["model", "task", "metric", "seed", "value"]
    assert frame.groupby("task")["metric"].unique().map(list).to_dict() == {
        "find": ["map", "mrr"], "folded": ["accuracy", "f1_macro"], "sort": ["accuracy", "f1_macro"],
    }  # fmt: skip
    rounds = score_models(a_world(tmp_path, TASKS, rounds=[10, None]), [model], final=True)
    of_all = rounds[rounds["round"] == "all"].drop(columns="round").reset_index(drop=True)
    assert of_all.to_dict("records") == frame.to_dict("records")
    assert rounds.groupby("round").size().to_dict() == {"10": len(frame), "all": len(frame)}


def test_a_ranking_without_a_validation_split_is_refused_in_runs(tmp_path):
    find = Retrieval("find", {"test": TASKS["find"].splits["test"]})
    with pytest.raises(InputError, match="task 'find' has no split 'validation', only test"):
        score_models(a_world(tmp_path, {"find": find}), [Model("m", "1", Hashed)], final=False)


def test_a_profiles_tasks_are_made_once_and_what_is_odd_is_told_once(workspace_root, caplog):
    file = workspace_root / "mine.csv"
    rows = [f"{'a' if i % 2 else 'b'},word {i % 18},{'train' if i < 18 else 'test'}" for i in range(24)]
    file.write_text("\n".join(["label,text,split", *rows]), encoding="utf-8")
    (workspace_root / "params" / "odd.yaml").write_text(
        "corpus: {source: local, path: texts, tasks: 20}\nplan: []\n"
        "evaluation: {tasks: [mine], sweep_tasks: [mine], "
        f"own_tasks: [{{name: mine, kind: classification, path: {file}}}]}}\n",
        encoding="utf-8",
    )
    tasks = ProfileTasks(Profile.load("odd"), lambda: pytest.fail("no embedded task is asked for"))
    with caplog.at_level(logging.WARNING):
        assert tasks["mine"] is tasks["mine"]
    assert caplog.messages == ["task mine, split test: 6 of 6 also in train (leakage), the first is 0"]


def test_cosines_are_scored_on_what_belongs_together_and_texts_are_embedded_once(workspace_root):
    pairs = LabelledPairs(TEXTS[:4], TEXTS[4:], [1, 0, 0, 1])
    both = Labelled(TEXTS, [0, 1] * 4)
    tasks = {
        "sort": Classification("sort", {"train": both, "test": both}),
        "pair": Pairs("pair", {"train": pairs, "test": pairs}),
        "find": Retrieval("find", {"test": Ranking(TEXTS[:5], [0, 1], [[2], [3, 4]])}),
    }
    asked = []

    class Random:
        def __init__(self, seed):
            self.rows = np.random.default_rng(seed).standard_normal((8, 3)).astype(np.float32)

        def embed(self, texts):
            asked.extend(texts)
            return self.rows[[TEXTS.index(text) for text in texts]]

    models = [Model(f"model {seed}", str(seed), lambda seed=seed: Random(seed)) for seed in (1, 2)]
    table = cosine_scores(a_world(workspace_root, tasks), models)
    assert list(table.columns) == ["spread", "pair", "find"]
    assert table.index.tolist() == ["model 1", "model 2"]
    rows = Random(2).rows
    assert table.loc["model 2", "pair"] == score_cosines(tasks["pair"], rows)
    assert table.loc["model 2", "find"] == score_cosines(tasks["find"], rows[:5])
    assert table.loc["model 2", "spread"] == pytest.approx(spread(rows))
    assert sorted(asked) == sorted(TEXTS * 2)

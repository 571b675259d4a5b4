"""What cosines alone score: of the retrieval and pair tasks only, on texts embedded once."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from docemb_lib.evaluation.cosines import score_cosines, spread
from docemb_lib.evaluation.tasks import Classification, Labelled, LabelledPairs, Pairs, Ranking, Retrieval
from docemb_lib.experiments import scoring
from docemb_lib.experiments.embedding_cache import Model
from docemb_lib.workspace import Workspace

TEXTS = [f"text {i}" for i in range(8)]


def test_cosines_are_scored_on_what_belongs_together_and_texts_are_embedded_once(workspace_root, monkeypatch):
    pairs = LabelledPairs(TEXTS[:4], TEXTS[4:], [1, 0, 0, 1])
    labelled = Labelled(TEXTS, [0, 1] * 4)
    tasks = {
        "sort": Classification("sort", {"train": labelled, "test": labelled}),
        "pair": Pairs("pair", {"train": pairs, "test": pairs}),
        "find": Retrieval("find", {"test": Ranking(TEXTS[:5], [0, 1], [[2], [3, 4]])}),
    }
    monkeypatch.setattr(scoring, "_Tasks", lambda stages: tasks)
    asked = []

    class Random:
        def __init__(self, seed):
            self.rows = np.random.default_rng(seed).standard_normal((8, 3)).astype(np.float32)

        def embed(self, texts):
            asked.extend(texts)
            return self.rows[[TEXTS.index(text) for text in texts]]

    stages = SimpleNamespace(
        workspace=Workspace(workspace_root), profile=SimpleNamespace(evaluation=SimpleNamespace(tasks=list(tasks)))
    )
    models = [Model(f"model {seed}", str(seed), lambda seed=seed: Random(seed)) for seed in (1, 2)]
    table = scoring.cosine_scores(stages, models)
    assert list(table.columns) == ["spread", "pair", "find"]
    assert table.index.tolist() == ["model 1", "model 2"]
    rows = Random(2).rows
    assert table.loc["model 2", "pair"] == score_cosines(tasks["pair"], rows)
    assert table.loc["model 2", "find"] == score_cosines(tasks["find"], rows[:5])
    assert table.loc["model 2", "spread"] == pytest.approx(spread(rows))
    assert sorted(asked) == sorted(TEXTS * 2)

"""Distances of several students, each measured as if alone, and the explorer of them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from docemb_lib import widgets
from docemb_lib.evaluation.probes import measure_distances, mistaken, separation, tidy_distances
from docemb_lib.experiments.models import Model
from docemb_lib.widgets.distances import StudentDistances, distances_to_teacher
from docemb_lib.workspace import Workspace


def test_students_are_measured_on_the_same_documents_and_negatives(workspace_root, split_of):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((7, 4))
    tables = {name: rng.standard_normal((7, 4)).astype(np.float32) for name in "ab"}
    texts = [f"text {row}" for row in range(7)]
    stages = SimpleNamespace(
        corpus=SimpleNamespace(workspace=Workspace(workspace_root), split=lambda name: split_of(texts)),
        teachers=SimpleNamespace(structural=None, embeddings=lambda teacher_, split_, rows: teacher[:rows]),
    )
    run = SimpleNamespace(stages=stages, label="b")

    def model(name):
        embed = SimpleNamespace(embed=lambda asked: tables[name][[texts.index(text) for text in asked]])
        return Model(name, name, lambda: embed)

    found = distances_to_teacher(run, [model("a"), model("b")], negatives=3)
    assert (found.own, list(found.measured["cosine"])) == ("b", ["a", "b"])
    assert found.documents["length"].tolist() == list(range(7))
    for distance in ("cosine", "mse"):
        expected = pd.concat(
            tidy_distances(measure_distances(tables[name], teacher, distance=distance, negatives=3)).assign(model=name)
            for name in "ab"
        )
        actual = found.tidy().query("distance == @distance").drop(columns="distance")
        pd.testing.assert_frame_equal(actual.reset_index(drop=True), expected.reset_index(drop=True))


@pytest.fixture
def distances(hostile):
    rng = np.random.default_rng(0)
    teacher = rng.standard_normal((9, 4))
    measured = {
        distance: {
            model: measure_distances(
                teacher + noise * rng.standard_normal((9, 4)), teacher, distance=distance, negatives=6
            )
            for model, noise in (("before", 3.0), ("cosine", 1.0))
        }
        for distance in ("cosine", "mse")
    }
    documents = pd.DataFrame(
        {"id": [f"d{n}" for n in range(9)], "text": [hostile] * 9, "source": "s", "length": range(10, 19)}
    )
    return StudentDistances(documents, measured, "cosine")


def test_the_distance_explorer_shows_separation_and_the_most_mistaken_pair(distances, numbers, moved):
    explorer = widgets.distance_explorer(distances)
    text = moved(explorer)
    expected = [separation(found) for found in distances.measured["cosine"].values()]
    assert numbers(text, "auc") == [f"{found.auc:.3f}" for found in expected]

    text = moved(explorer, loss="before", distance="mse", γ=0.3, negatives=4, tokens=(12, 17))
    part = distances.measured["mse"]["before"].part(np.arange(10, 19) // 6 == 2, 4)  # 12 to 17 tokens
    expected = separation(part, gamma=0.3)
    assert numbers(text, "auc") == [f"{expected.auc:.3f}"]
    assert numbers(text, "overlap") == [f"{expected.overlap:.3f}"]
    assert numbers(text, "loss") == [f"{expected.loss:.4g}"]
    assert numbers(text, "documents") == ["6"]
    pairs = mistaken(part, k=10)
    assert [pair for _, pair in explorer.widgets["pair"].options] == list(
        zip(pairs["document"], pairs["other"], strict=True)
    )
    picked = explorer.widgets["pair"].options[2][1]
    text = moved(explorer, pair=picked)
    assert [f"d{row}, {10 + row} tokens" in text for row in picked] == [True, True]
    assert "<script" not in text
    assert "<img" not in text
    assert text.count("&lt;script&gt;") == 2


def test_the_figure_is_drawn_again_for_other_distances_only(distances):
    explorer = widgets.distance_explorer(distances)
    first = explorer.answer()
    assert explorer.answer(γ=0.2).figure is first.figure
    assert explorer.answer(pair=(1, 2)).figure is first.figure
    for changed in ({"loss": "before"}, {"distance": "mse"}, {"negatives": 2}, {"tokens": (11, 18)}):
        assert explorer.answer(**changed).figure is not explorer.answer().figure


def test_a_range_without_documents_gives_a_line_and_can_be_left_again(distances, numbers, moved):
    distances = distances._replace(documents=distances.documents.assign(length=[10] * 4 + [90] * 5))
    explorer = widgets.distance_explorer(distances)
    assert "no document has 20 to 30 tokens" in moved(explorer, tokens=(20, 30))
    assert numbers(moved(explorer, tokens=(10, 90)), "documents") == ["9"]

"""The loop ends in the weights of our heads, and rows are judged by the usual loop."""

import numpy as np
import pytest

from docemb_lib.bench import heads
from docemb_lib.bench.heads import bench_heads, random_examples, speed, train_loop
from docemb_lib.settings import HeadSettings


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(heads, "HEADS", 3)
    monkeypatch.setattr(heads, "EXAMPLES", 70)
    monkeypatch.setattr(heads, "WIDTHS", (8, 12))


def test_the_loop_ends_in_the_weights_of_our_heads_and_another_training_does_not(monkeypatch):
    features, labels = random_examples(8)
    settings = HeadSettings(epochs=2, learning_rate=1e-2)
    assert heads.difference(features, labels, settings).verdict == "ok"
    without = settings.model_copy(update={"weight_decay": 0.0, "dropout": 0.0})
    monkeypatch.setattr(heads, "train_loop", lambda X, y, _, seeds: train_loop(X, y, without, seeds))
    other = heads.difference(features, labels, settings)
    assert (other.verdict, other.ours > 1e-4) == ("below", True)


def test_embeddings_have_about_length_1_and_all_classes():
    features, labels = random_examples(400)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=0.2)
    assert set(labels) == {0, 1, 2}


def test_each_side_trains_as_many_heads_and_only_the_usual_loop_has_a_budget(monkeypatch):
    seen = []
    monkeypatch.setattr(heads, "train_loop", lambda X, y, settings, seeds, **kw: seen.append((list(seeds), kw)))
    usual, tuned = speed(*random_examples(8), HeadSettings(epochs=1), 1)
    assert seen[1:] == [([0, 1, 2], {}), ([0, 1, 2], {"fused": True})]
    assert (usual.name, usual.budget, tuned.budget) == ("3 heads, 8 dimensions, against the loop", "≥ 10", "")


def test_all_widths_are_measured():
    report = bench_heads(quick=True, repeats=2)
    assert [row.verdict for row in report.rows if row.name.startswith("weights")] == ["ok", "ok"]
    assert [row.unit for row in report.rows] == ["heads/s", "heads/s", ""] * 2
    assert all(row.ours > 0 for row in report.rows if row.unit)
    assert (report.settings["epochs"], report.settings["repeats"]) == (1, 2)
    assert report.notes[-1].startswith("quick")

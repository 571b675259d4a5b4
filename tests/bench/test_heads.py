"""The loop ends where our heads do, and rows are judged by the usual loop."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from docemb_lib.bench import bench_heads, heads
from docemb_lib.bench.heads import measure, random_examples, speed_rows, train_loop
from docemb_lib.errors import InputError
from docemb_lib.evaluation.heads import train_heads
from docemb_lib.settings import HeadSettings


@pytest.fixture(autouse=True)
def small(monkeypatch):
    monkeypatch.setattr(heads, "HEADS", 3)
    monkeypatch.setattr(heads, "EXAMPLES", 70)
    monkeypatch.setattr(heads, "WIDTHS", (8, 12))


def test_the_loop_ends_in_the_weights_of_our_heads_and_notices_another_training():
    features, labels = random_examples(8)
    settings = HeadSettings(epochs=2, dropout=0.0, learning_rate=1e-2)
    ours = train_heads(features, labels, classes=3, settings=settings, seeds=[4])
    (net,) = train_loop(features, labels, settings, [4])
    torch.testing.assert_close(net[0].weight.detach(), ours.W1[0].T, atol=1e-5, rtol=0)
    assert heads.difference_row(features, labels, settings).verdict == "ok"
    (other,) = train_loop(features, labels, settings.model_copy(update={"weight_decay": 0.0}), [4])
    assert (other[0].weight.detach() - ours.W1[0].T).abs().max() > 1e-4


def test_embeddings_are_about_of_length_1_and_their_classes_of_all_kinds():
    features, labels = random_examples(400)
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), 1, atol=0.2)
    assert set(labels) == {0, 1, 2}


def test_ratios_are_of_the_medians_and_only_the_usual_loop_has_a_budget():
    points = [
        {"width": 8, "side": "ours", "heads_per_s": 30.0, "repeats": [0.1, 0.1, 0.2]},
        {"width": 8, "side": "loop", "heads_per_s": 3.0, "repeats": [1.0, 1.0, 1.0]},
        {"width": 8, "side": "tuned loop", "heads_per_s": 6.0, "repeats": [0.5, 0.5, 0.5]},
    ]
    found = [(row.ratio, row.spread, row.must_reach, row.verdict) for row in speed_rows(points)]
    assert found == [(10.0, (5.0, 10.0), "≥ 10", "ok"), (5.0, (2.5, 5.0), "", "")]


def test_all_sides_are_measured_on_all_widths():
    report = bench_heads(quick=True, repeats=2)
    assert [(p["width"], p["side"], len(p["repeats"])) for p in report.points["speed"]] == [
        (width, side, 2) for width in (8, 12) for side in ("ours", "loop", "tuned loop")
    ]
    assert all(p["heads_per_s"] == pytest.approx(3 / np.median(p["repeats"])) for p in report.points["speed"])
    assert [row.verdict for row in report.rows if row.name.startswith("weights")] == ["ok", "ok"]
    assert report.settings["epochs"] == 1
    assert report.notes[-1].startswith("quick")


def test_no_repeat_is_refused():
    with pytest.raises(InputError, match=r"^repeats: got 0, give at least 1$"):
        bench_heads(repeats=0)


def test_measure_trains_as_many_heads_as_it_says(monkeypatch):
    seen = []
    monkeypatch.setattr(
        heads, "train_loop", lambda features, labels, settings, seeds, **kw: seen.append((list(seeds), kw))
    )
    measure(*random_examples(8), HeadSettings(epochs=1), 1)
    assert seen[1:] == [([0, 1, 2], {}), ([0, 1, 2], {"fused": True})]

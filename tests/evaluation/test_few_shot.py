"""Few-shot heads against a plain loop that trains them one by one."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, HeadSettings, Labelled, train_heads
from docemb_lib.evaluation.protocols import draw_per_class, few_shot_scores

QUICK = HeadSettings(learning_rate=1e-2, batch_size=8, epochs=3)


@pytest.fixture(scope="module")
def task() -> Classification:
    rng = np.random.default_rng(0)
    labels = {"train": rng.choice(list("abc"), 90, p=[0.6, 0.3, 0.1]), "test": rng.choice(list("abc"), 50)}
    return Classification(
        "few", {s: Labelled([f"{s} {n}" for n in range(len(y))], y.tolist()) for s, y in labels.items()}
    )


@pytest.fixture(scope="module")
def embeddings(task: Classification) -> np.ndarray:
    """A noisy direction per class."""
    rng = np.random.default_rng(1)
    labels = [*task.splits["train"].labels, *task.splits["test"].labels]
    return (np.eye(3, 12)[["abc".index(str(one)) for one in labels]] + 0.6 * rng.normal(size=(len(labels), 12))).astype(
        np.float32
    )


def test_scores_are_those_of_heads_trained_one_by_one(task, embeddings):
    scores = few_shot_scores(task, embeddings, per_class=(2, 5), draws=3, head=QUICK)
    assert len(scores) == 2 * 3 * 2
    X, X_test = embeddings[:90], embeddings[90:]
    y, y_test = (np.array(["abc".index(str(one)) for one in task.splits[s].labels]) for s in ("train", "test"))
    for number in (2, 5):
        for draw in range(3):
            rows = draw_per_class(y, number, draw=draw)
            (answers,) = train_heads(X[rows], y[rows], classes=3, settings=QUICK, seeds=[draw]).predict(X_test)
            own = scores[(scores["per_class"] == number) & (scores["draw"] == draw)].set_index("metric")["value"]
            assert own["accuracy"] == pytest.approx(accuracy_score(y_test, answers))
            assert own["f1_macro"] == pytest.approx(f1_score(y_test, answers, average="macro"))
    assert scores["value"].nunique() > 4  # draws differ


def test_more_examples_tell_more(task, embeddings):
    head = HeadSettings(learning_rate=1e-2, batch_size=8, epochs=30)
    means = (
        few_shot_scores(task, embeddings, per_class=(1, 7), head=head).groupby(["per_class", "metric"])["value"].mean()
    )
    assert means[7, "accuracy"] > means[1, "accuracy"] + 0.05
    assert means[7, "accuracy"] > 0.6


def test_a_draw_has_so_many_of_each_class_and_keeps_those_of_a_smaller_one():
    labels = np.array([0, 1, 2] * 10 + [0] * 50)
    drawn = {number: draw_per_class(labels, number, draw=4) for number in (1, 4, 10)}
    for number, rows in drawn.items():
        assert np.bincount(labels[rows]).tolist() == [number] * 3
        assert len(set(rows.tolist())) == len(rows)
    assert set(drawn[1]) < set(drawn[4]) < set(drawn[10])
    assert not np.array_equal(drawn[4], draw_per_class(labels, 4, draw=5))


def test_every_example_is_drawn_equally_often():
    labels = np.array([0] * 5 + [1] * 10)
    counts = np.zeros(15)
    for draw in range(2000):
        counts[draw_per_class(labels, 2, draw=draw)] += 1
    np.testing.assert_allclose(counts[:5], 2000 * 2 / 5, rtol=0.1)
    np.testing.assert_allclose(counts[5:], 2000 * 2 / 10, rtol=0.15)


@pytest.mark.parametrize("number", [0, 4])
def test_more_than_the_smallest_class_has_is_refused(number):
    with pytest.raises(InputError, match=f"few-shot: {number} examples of each class, expected 1 to 3"):
        draw_per_class(np.array([0, 0, 0, 1, 1, 1, 1]), number, draw=0)

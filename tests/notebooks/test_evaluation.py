"""What 06_evaluation defines in its cells, beside torch, scikit-learn and every swap of signs."""

from itertools import pairwise, product

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.metrics import average_precision_score

from docemb_lib.evaluation.uncertainty import bootstrap_over_tasks
from docemb_lib.settings.sections import HEADS

NOTEBOOK = "06_evaluation.py"
HEAD = HEADS["thesis"].model_copy(update={"hidden": 4, "epochs": 3, "batch_size": 8})


@pytest.fixture
def data():
    rng = np.random.default_rng(0)
    y = np.arange(30) % 3
    X = rng.normal(size=(30, 5)) + 3 * np.eye(3, 5)[y]
    return torch.tensor(X, dtype=torch.float32), torch.tensor(y)


def test_the_first_loss_of_a_head_is_the_smoothed_cross_entropy(defined, data):
    X, y = data
    head = HEAD.model_copy(update={"dropout": 0.0, "batch_size": 30, "epochs": 1})
    log_p = defined.new_head(5, 3, head, seed=3)(X).log_softmax(dim=1)
    losses = list(defined.train_head(defined.new_head(5, 3, head, seed=3), X, y, head))
    target = torch.full((30, 3), 0.1 / 3)
    target[torch.arange(30), y] += 0.9
    assert losses == [pytest.approx(-(target * log_p).sum(dim=1).mean().item(), rel=1e-5)]


def test_a_head_drops_half_of_its_hidden_layer_only_while_it_learns(defined, data):
    X, _ = data
    net = defined.new_head(5, 3, HEAD.model_copy(update={"dropout": 0.5}), seed=0)
    assert not torch.equal(net(X), net(X))
    assert torch.equal(net.eval()(X), net(X))


def test_a_head_with_a_larger_rate_learns_its_examples(defined, data):
    X, y = data
    head = HEAD.model_copy(update={"hidden": 50, "epochs": 40, "learning_rate": 1e-2})
    net = defined.new_head(5, 3, head, seed=0)
    losses = list(defined.train_head(net, X, y, head))
    assert len(losses) == 40 * 4
    assert (net.eval()(X).argmax(dim=1) == y).all()


def test_the_average_precision_is_that_of_scikit_learn(defined):
    X = np.random.default_rng(1).normal(size=(40, 6))
    X /= np.linalg.norm(X, axis=1, keepdims=True)
    relevant = [3, 17, 20, 31]
    value, _, hits = defined.average_precision(X, np.arange(40), 5, relevant)
    others = [row for row in range(40) if row != 5]
    expected = average_precision_score(np.isin(others, relevant), (X @ X[5])[others])
    assert value == pytest.approx(expected)
    assert hits.sum() == len(relevant)


def test_the_p_value_of_few_examples_is_the_share_of_all_swaps(defined):
    differences = np.array([0.5, 0.25, 0.0, 1.0, -0.25, 0.75, 0.5, 0.1])
    sums = np.array([np.dot(signs, differences) for signs in product([-1, 1], repeat=8)])
    exact = np.mean(np.abs(sums) >= differences.sum() - 1e-9)
    p, swapped = defined.paired_test(differences)
    assert p == pytest.approx(exact, abs=0.01)
    assert swapped.mean() == pytest.approx(0, abs=0.02)


def test_equal_models_have_a_p_value_of_one(defined):
    assert defined.paired_test(np.zeros(12))[0] == 1


@pytest.mark.parametrize(
    ("lengths", "buckets"),
    [
        (
            [*[100] * 9, 256, *[257] * 7, *[400] * 4, *[9000] * 12],
            {"1-256": range(10), "257-512": range(10, 21), "> 512": range(21, 33)},
        ),
        ([*[100] * 30, *[300] * 9], {"> 0": range(39)}),  # too few on the longer side of each edge
        ([*[300] * 9, *[500] * 1, *[3000] * 10], {"1-512": range(10), "> 512": range(10, 20)}),
    ],
)
def test_every_example_is_in_a_bucket_of_ten_or_more_that_ends_with_its_edge(
    defined, lengths, buckets
):
    called = {"pd": pd, "pairwise": pairwise, "bootstrap_over_tasks": bootstrap_over_tasks}
    defined.by_length.__globals__.update(called)
    results = np.random.default_rng(0).random(len(lengths))
    frame = defined.by_length(results, np.array(lengths)).set_index("bucket")
    assert frame["examples"].to_dict() == {name: len(rows) for name, rows in buckets.items()}
    means = {name: results[list(rows)].mean() for name, rows in buckets.items()}
    assert frame["value"].to_dict() == pytest.approx(means)

"""What 10_chapter_5 defines in its cells, beside torch, scikit-learn and numpy."""

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from docemb_lib.evaluation.heads import one_thread, train_stack
from docemb_lib.evaluation.tasks import HeadInputs
from docemb_lib.settings.sections import HEADS

NOTEBOOK = "10_chapter_5.py"
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


@pytest.fixture
def inputs(data):
    """Examples to learn from, and as many others, of which a third has other labels."""
    X, y = (each.numpy() for each in data)
    others = np.where(np.arange(30) < 10, (y + 1) % 3, y)
    return HeadInputs(X, y), HeadInputs(X + 0.01, others)


def test_standardised_features_have_the_mean_and_deviation_of_training_examples(defined, inputs):
    train, test = inputs
    shifted = [each._replace(features=5 + 100 * each.features) for each in inputs]
    first, second = defined.standardised(*shifted)
    assert first.features.mean(axis=0) == pytest.approx(0, abs=1e-5)
    assert first.features.std(axis=0) == pytest.approx(1, abs=1e-5)
    expected = (test.features - train.features.mean(axis=0)) / train.features.std(axis=0)
    assert second.features == pytest.approx(expected, abs=1e-4)
    assert second.labels is test.labels


def test_both_accuracies_of_heads_are_those_of_what_they_have_seen_and_of_others(defined, inputs):
    called = {"one_thread": one_thread, "train_stack": train_stack}
    defined.accuracies.__globals__.update(called)
    head = HEAD.model_copy(update={"hidden": 50, "epochs": 40, "learning_rate": 1e-2})
    seen, unseen = defined.accuracies(*inputs, np.arange(30), head, seeds=2)
    assert seen == 1
    assert unseen == pytest.approx(20 / 30)
    first_class = np.arange(0, 30, 3)
    assert defined.accuracies(*inputs, first_class, head, seeds=2)[0] == 1


def test_both_accuracies_of_a_regression_are_those_of_the_same_examples(defined, inputs):
    defined.regression.__globals__["LogisticRegression"] = LogisticRegression
    assert defined.regression(*inputs, np.arange(30)) == [1, pytest.approx(20 / 30)]

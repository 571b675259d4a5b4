"""What 10_chapter_5 defines in its cells and the library lacks, beside numbers counted by hand."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from docemb_lib.evaluation.heads import one_thread, train_stack
from docemb_lib.evaluation.tasks import HeadInputs
from docemb_lib.settings.sections import HEADS

NOTEBOOK = "10_chapter_5.py"
HEAD = HEADS["thesis"].model_copy(update={"epochs": 40, "batch_size": 8, "learning_rate": 1e-2})


@pytest.fixture
def inputs():
    """Examples to learn from, and as many others, of which a third has other labels."""
    y = np.arange(30) % 3
    X = np.random.default_rng(0).normal(size=(30, 5)) + 3 * np.eye(3, 5)[y]
    X = X.astype(np.float32)
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
    seen, unseen = defined.accuracies(*inputs, np.arange(30), HEAD, seeds=2)
    assert seen == 1
    assert unseen == pytest.approx(20 / 30)
    first_class = np.arange(0, 30, 3)
    assert defined.accuracies(*inputs, first_class, HEAD, seeds=2)[0] == 1


def test_both_accuracies_of_a_regression_are_those_of_the_same_examples(defined, inputs):
    defined.regression.__globals__["LogisticRegression"] = LogisticRegression
    assert defined.regression(*inputs, np.arange(30)) == [1, pytest.approx(20 / 30)]

"""Protocols against heads that are trained one by one, scikit-learn and slow loops."""

import numpy as np
import pytest
from sklearn.metrics import f1_score
from sklearn.model_selection import StratifiedKFold

from docemb_lib.evaluation import Classification, Labelled, protocols
from docemb_lib.evaluation.heads import train_and_predict
from docemb_lib.evaluation.tasks import downsample
from docemb_lib.settings.sections import HeadSettings

QUICK = HeadSettings(learning_rate=1e-2, epochs=3)


def slowly(labels: list[str], limit: int) -> list[int]:
    """The rows of `downsample` in the most obvious way."""
    if len(labels) <= limit:
        return list(range(len(labels)))
    classes = sorted(set(labels))
    wanted = [labels.count(c) * limit // len(labels) for c in classes]
    while sum(wanted) < limit:
        open_ = [i for i, c in enumerate(classes) if wanted[i] < labels.count(c)]
        wanted[min(open_, key=lambda i: (wanted[i], i))] += 1
    while 0 in wanted and limit >= len(classes):
        wanted[wanted.index(max(wanted))] -= 1
        wanted[wanted.index(0)] = 1
    rows = []
    for c, n in zip(classes, wanted, strict=True):
        rows += [row for row, label in enumerate(labels) if label == c][:n]
    return rows


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_that_of_a_slow_loop(seed):
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(rng.integers(2, 9), 0.6))
    labels = [f"class {c}" for c in rng.choice(len(shares), size=rng.integers(2, 300), p=shares)]
    limit = int(rng.integers(1, len(labels) + 5))
    rows = downsample(labels, limit).tolist()
    assert rows == slowly(labels, limit)
    assert len(rows) == len(set(rows)) == min(limit, len(labels))


def clouds(**sizes: int) -> tuple[Classification, np.ndarray]:
    """Three classes of overlapping clouds, and the embeddings of all texts, split by split."""
    rng = np.random.default_rng(0)
    splits = {}
    embeddings = []
    for split, n in sizes.items():
        labels = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        splits[split] = Labelled([f"{split} {i}" for i in range(n)], labels.tolist())
        embeddings.append(2 * np.eye(3)[labels] + rng.normal(size=(n, 3)))
    return Classification("clouds", splits), np.concatenate(embeddings)


def rows_of(task: Classification, texts: list[str]) -> list[int]:
    """The rows of texts among those of all splits."""
    every = [text for data in task.splits.values() for text in data.texts]
    return [every.index(text) for text in texts]


def test_a_validation_split_is_scored_like_any_split_after_the_cut():
    task, embeddings = clouds(train=90, validation=50, test=40)
    cut = protocols.for_validation(task, 60)
    assert set(cut.splits) == {"train", "validation"}
    train = task.splits["train"]
    assert cut.splits["train"] == train.take(downsample(train.labels, 60))
    texts = cut.texts(cut.validation_split)
    assert texts == [*cut.splits["train"].texts, *task.splits["validation"].texts]
    vectors = embeddings[rows_of(task, texts)]
    score = cut.score(vectors, cut.validation_split, head=QUICK, seeds=2, folds=5)
    assert score.by_seed == cut.score(vectors, "validation", head=QUICK, seeds=2).by_seed


def test_without_a_validation_split_heads_score_examples_that_they_have_not_seen():
    task, embeddings = clouds(train=83, test=10)
    cut = protocols.for_validation(task, 78)
    vectors = embeddings[rows_of(task, cut.texts(cut.validation_split))]
    score = cut.score(vectors, cut.validation_split, head=QUICK, seeds=2, folds=4)
    labels = np.array(cut.splits["train"].labels)
    answers = np.empty((2, 78))
    for seen, unseen in StratifiedKFold(4).split(vectors, labels):
        jobs = [(seen, seed) for seed in range(2)]
        answers[:, unseen] = train_and_predict(vectors, labels, vectors[unseen], jobs, QUICK)
    np.testing.assert_array_equal(score.per_example["accuracy"], answers == labels)
    f1 = [f1_score(labels, row, average="macro") for row in answers]
    assert score.extra["f1_macro"] == pytest.approx(f1)
    assert 0.4 < score.mean < 1


def test_a_round_is_a_task_with_less_to_learn_from_and_the_same_test_split():
    task, embeddings = clouds(train=150, test=70)
    train = task.splits["train"]
    for examples in (20, 90, None, 10**6):
        taken = train.take(downsample(train.labels, examples or 150))
        cut = Classification("clouds", {"train": taken, "test": task.splits["test"]})
        expected = cut.score(embeddings[rows_of(task, cut.texts())], head=QUICK, seeds=2)
        score = task.score(embeddings, head=QUICK, seeds=2, examples=examples)
        assert score.by_seed == expected.by_seed
        assert score.per_example["accuracy"].shape == (2, 70)

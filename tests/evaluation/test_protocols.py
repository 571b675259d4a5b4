"""Downsampling by hand and against a slow loop, folds against heads trained one by one, rounds on one test split."""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from docemb_lib.errors import InputError
from docemb_lib.evaluation import Classification, HeadSettings, Labelled, LabelledPairs, Pairs, train_heads
from docemb_lib.evaluation.protocols import (
    ROUNDS,
    downsample,
    final_scores,
    for_validation,
    round_name,
    validation_score,
    validation_texts,
)

QUICK = HeadSettings(learning_rate=1e-2, epochs=3)


def slowly(labels: list[str], limit: int) -> list[int]:
    """The same in the most obvious way, one example at a time."""
    if len(labels) <= limit:
        return list(range(len(labels)))
    classes = sorted(set(labels))
    wanted = [math.floor(Fraction(labels.count(c), len(labels)) * limit) for c in classes]
    while sum(wanted) < limit:
        open_ = [i for i, c in enumerate(classes) if wanted[i] < labels.count(c)]
        wanted[min(open_, key=lambda i: (wanted[i], i))] += 1
    return [i for c, n in zip(classes, wanted, strict=True) for i in [j for j, x in enumerate(labels) if x == c][:n]]


def test_a_cut_keeps_the_shares_and_the_first_of_each_class() -> None:
    labels = list("aabababbbc")  # 4 a, 5 b, 1 c; to 7: 2.8 -> 2, 3.5 -> 3, 0.7 -> 0, then c, and c has no more: a
    assert downsample(labels, 7).tolist() == [0, 1, 3, 2, 4, 6, 9]
    assert downsample(labels, 10).tolist() == downsample(labels, 11).tolist() == list(range(10))
    assert downsample([1, 1, 0, 0], 2).tolist() == [2, 0]


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_that_of_a_slow_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(rng.integers(2, 9), 0.6))
    labels = [f"class {c}" for c in rng.choice(len(shares), size=rng.integers(2, 300), p=shares)]
    limit = int(rng.integers(1, len(labels) + 5))
    rows = downsample(labels, limit).tolist()
    assert rows == slowly(labels, limit)
    assert len(rows) == len(set(rows)) == min(limit, len(labels))


def test_a_cut_to_nothing_is_refused() -> None:
    with pytest.raises(InputError, match="limit must be at least 1, got 0"):
        downsample([0, 1], 0)


def task_and_embeddings(sizes: dict[str, int], seed: int = 0) -> tuple[Classification, dict[str, np.ndarray]]:
    """Three classes of overlapping clouds; the embedding of every text."""
    rng = np.random.default_rng(seed)
    splits, embedding = {}, {}
    for split, n in sizes.items():
        labels = rng.choice(3, size=n, p=[0.5, 0.3, 0.2])
        texts = [f"{split} {i}" for i in range(n)]
        splits[split] = Labelled(texts, labels.tolist())
        embedding |= dict(zip(texts, 2 * np.eye(3)[labels] + rng.normal(size=(n, 3)), strict=True))
    return Classification("clouds", splits), embedding


def embedded(texts: list[str], embedding: dict[str, np.ndarray]) -> np.ndarray:
    return np.array([embedding[text] for text in texts])


def test_validation_cuts_train_and_validation_and_drops_test() -> None:
    task, embedding = task_and_embeddings({"train": 90, "validation": 50, "test": 40})
    cut = for_validation(task, 60)
    assert {split: len(data.texts) for split, data in cut.splits.items()} == {"train": 60, "validation": 50}
    assert list(cut.splits["train"].texts) == [
        task.splits["train"].texts[i] for i in downsample(task.splits["train"].labels, 60)
    ]
    assert validation_texts(cut) == [*cut.splits["train"].texts, *cut.splits["validation"].texts]
    vectors = embedded(validation_texts(cut), embedding)
    assert validation_score(cut, vectors, head=QUICK, seeds=2) == cut.score(vectors, "validation", head=QUICK, seeds=2)


def test_pairs_are_cut_as_pairs() -> None:
    data = LabelledPairs(list("abcdef"), list("uvwxyz"), [0, 1, 0, 1, 0, 1])
    cut = for_validation(Pairs("p", {"train": data}), 4)
    assert cut.splits["train"] == LabelledPairs(["a", "c", "b", "d"], ["u", "w", "v", "x"], [0, 0, 1, 1])


def test_without_a_validation_split_every_example_is_scored_by_heads_that_have_not_seen_it() -> None:
    task, embedding = task_and_embeddings({"train": 83, "test": 10})
    cut = for_validation(task, 80)
    vectors = embedded(validation_texts(cut), embedding)
    score = validation_score(cut, vectors, head=QUICK, seeds=2, folds=4)
    labels = np.array(cut.splits["train"].labels)
    right, means = np.empty((2, 80)), []
    for seen, unseen in StratifiedKFold(4).split(vectors, labels):
        heads = train_heads(vectors[seen], labels[seen], classes=3, settings=QUICK, seeds=range(2))
        right[:, unseen] = heads.predict(vectors[unseen]) == labels[unseen]
        means.append(right[:, unseen].mean(axis=1))
    np.testing.assert_array_equal(score.per_example["accuracy"], right)
    np.testing.assert_allclose(score.values, np.mean(means, axis=0))
    assert 0.4 < score.mean < 1
    assert 0 < score.extra["f1_macro"] < 1


def test_folds_that_a_class_cannot_fill_are_refused() -> None:
    task = Classification("t", {"train": Labelled(list("abcdefg"), [0, 0, 0, 0, 0, 1, 1])})
    with pytest.raises(InputError, match="task 't': 5 folds, expected 2 to 2, the examples of the smallest class"):
        validation_score(task, np.eye(7), seeds=1)


def test_a_round_is_a_task_with_less_to_learn_from_and_the_same_test_split() -> None:
    task, embedding = task_and_embeddings({"train": 150, "test": 70})
    vectors = embedded(task.texts("test"), embedding)
    scores = final_scores(
        task, vectors, rounds={"few": 20, "more": 90, "all": None, "too many": 10**6}, head=QUICK, seeds=2
    )
    assert list(scores) == ["few", "more", "all", "too many"]
    for name, limit in (("few", 20), ("more", 90), ("all", 150)):
        train = task.splits["train"].take(downsample(task.splits["train"].labels, limit))
        cut = Classification("clouds", {"train": train, "test": task.splits["test"]})
        alone = cut.score(embedded(cut.texts("test"), embedding), head=QUICK, seeds=2)
        assert scores[name] == alone
        assert scores[name].per_example["accuracy"].shape == (2, 70)
    assert scores["too many"] == scores["all"]
    assert scores["few"] != scores["all"]


def test_the_rounds_of_the_thesis() -> None:
    assert ROUNDS == {"1k": 1000, "10k": 10_000, "all": None}
    assert {round_name(limit): limit for limit in ROUNDS.values()} == ROUNDS
    assert round_name(1500) == "1500"

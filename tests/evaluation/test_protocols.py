"""Protocols against heads trained one by one and slow loops; cosines against scipy and plain
counting.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score
from sklearn.model_selection import StratifiedKFold

from docemb_lib.evaluation import Classification, Labelled, protocols
from docemb_lib.evaluation.heads import HeadJob, train_jobs
from docemb_lib.settings.sections import HeadSettings

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
    while 0 in wanted and limit >= len(classes):
        wanted[wanted.index(0)], wanted[wanted.index(max(wanted))] = 1, max(wanted) - 1
    return [
        i
        for c, n in zip(classes, wanted, strict=True)
        for i in [j for j, x in enumerate(labels) if x == c][:n]
    ]


@pytest.mark.parametrize("seed", range(20))
def test_a_cut_is_that_of_a_slow_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet(np.full(rng.integers(2, 9), 0.6))
    labels = [f"class {c}" for c in rng.choice(len(shares), size=rng.integers(2, 300), p=shares)]
    limit = int(rng.integers(1, len(labels) + 5))
    rows = protocols.downsample(labels, limit).tolist()
    assert rows == slowly(labels, limit)
    assert len(rows) == len(set(rows)) == min(limit, len(labels))


def task_and_embeddings(
    sizes: dict[str, int], seed: int = 0
) -> tuple[Classification, dict[str, np.ndarray]]:
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
    task, _ = task_and_embeddings({"train": 90, "validation": 50, "test": 40})
    cut = protocols.for_validation(task, 60)
    sizes = {split: len(data.texts) for split, data in cut.splits.items()}
    assert sizes == {"train": 60, "validation": 50}
    train = task.splits["train"]
    assert cut.splits["train"] == train.take(protocols.downsample(train.labels, 60))


def test_a_validation_split_is_scored_like_any_split() -> None:
    task, embedding = task_and_embeddings({"train": 90, "validation": 50, "test": 40})
    cut = protocols.for_validation(task, 60)
    texts = list(protocols.validation_documents(cut).values())
    assert texts == [*cut.splits["train"].texts, *cut.splits["validation"].texts]
    vectors = embedded(texts, embedding)
    score = protocols.validation_score(cut, vectors, head=QUICK, seeds=2, folds=5)
    assert score == cut.score(vectors, "validation", head=QUICK, seeds=2)


def test_without_a_validation_split_heads_score_examples_that_they_have_not_seen() -> None:
    task, embedding = task_and_embeddings({"train": 83, "test": 10})
    cut = protocols.for_validation(task, 78)
    vectors = embedded(list(protocols.validation_documents(cut).values()), embedding)
    score = protocols.validation_score(cut, vectors, head=QUICK, seeds=2, folds=4)
    labels = np.array(cut.splits["train"].labels)
    answers = np.empty((2, 78))
    for seen, unseen in StratifiedKFold(4).split(vectors, labels):
        heads = train_jobs(
            vectors, labels, [HeadJob(seen, seed) for seed in range(2)], QUICK, classes=3
        )
        answers[:, unseen] = heads.predict(vectors[unseen])
    np.testing.assert_array_equal(score.per_example["accuracy"], answers == labels)
    assert score.values == pytest.approx(
        [accuracy_score(labels, own) for own in answers], abs=1e-12
    )
    assert score.extra["f1_macro"] == pytest.approx(
        np.mean([f1_score(labels, o, average="macro") for o in answers])
    )
    assert 0.4 < score.mean < 1


def test_a_round_is_a_task_with_less_to_learn_from_and_the_same_test_split():
    task, embedding = task_and_embeddings({"train": 150, "test": 70})
    rounds = {"few": 20, "more": 90, "all": None, "too many": 10**6}
    scores = protocols.final_scores(
        task, embedded(task.texts("test"), embedding), rounds=rounds, head=QUICK, seeds=2
    )
    assert list(scores) == ["few", "more", "all", "too many"]
    for name, limit in (("few", 20), ("more", 90), ("all", 150)):
        train = task.splits["train"].take(protocols.downsample(task.splits["train"].labels, limit))
        cut = Classification("clouds", {"train": train, "test": task.splits["test"]})
        alone = cut.score(embedded(cut.texts("test"), embedding), head=QUICK, seeds=2)
        assert (scores[name], scores[name].per_example["accuracy"].shape) == (alone, (2, 70))
    assert scores["too many"] == scores["all"]
    assert scores["few"] != scores["all"]


def test_few_shot_scores_are_those_of_single_heads_and_rise_with_the_examples():
    task, embedding = task_and_embeddings({"train": 90, "test": 50})
    embeddings, head = (
        embedded(task.texts("test"), embedding),
        HeadSettings(learning_rate=1e-2, batch_size=8, epochs=9),
    )
    scores = protocols.few_shot_scores(task, embeddings, per_class=(1, 7), draws=3, head=head)
    assert len(scores) == 2 * 3 * 2
    X, X_test = embeddings[:90], embeddings[90:]
    y, y_test = (np.array(task.splits[s].labels) for s in ("train", "test"))
    for (number, draw), own in scores.groupby(["per_class", "draw"]):
        rows = protocols.draw_per_class(y, number, draw=draw)
        (answers,) = train_jobs(X, y, [HeadJob(rows, draw)], head, classes=3).predict(X_test)
        expected = {
            "accuracy": accuracy_score(y_test, answers),
            "f1_macro": f1_score(y_test, answers, average="macro"),
        }
        assert own.set_index("metric")["value"].to_dict() == pytest.approx(expected)
    assert scores["value"].nunique() > 4  # draws differ
    means = scores.groupby(["per_class", "metric"])["value"].mean()
    assert means[7, "accuracy"] > max(0.6, means[1, "accuracy"] + 0.05)


def test_draws_have_equal_classes_and_keep_smaller_draws():
    labels = np.array([0, 1, 2] * 10 + [0] * 50)
    drawn = {number: protocols.draw_per_class(labels, number, draw=4) for number in (1, 4, 10)}
    for number, rows in drawn.items():
        assert np.bincount(labels[rows]).tolist() == [number] * 3
        assert len(set(rows.tolist())) == len(rows)
    assert set(drawn[1]) < set(drawn[4]) < set(drawn[10])
    assert not np.array_equal(drawn[4], protocols.draw_per_class(labels, 4, draw=5))

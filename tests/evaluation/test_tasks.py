"""Tasks: the splits they refuse, the texts they need embedded, and how they score."""

import doctest
from collections.abc import Callable

import numpy as np
import pytest

from docemb_lib.evaluation import (
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    protocols,
    tasks,
)
from docemb_lib.evaluation.protocols import evaluate
from docemb_lib.evaluation.tasks import (
    Score,
    example_lengths,
    f1_macro,
    rows_by_id,
)
from docemb_lib.settings.sections import HeadSettings

TEXTS = [f"text {n}" for n in range(16)]
QUICK = HeadSettings(learning_rate=1e-2, epochs=20)
LETTERS = ["a", "b", "c"]
TWO = Labelled(["a", "b"], [0, 1])
AB = LabelledPairs(["a", "b"], ["b", "c"], [0, 1])


@pytest.mark.parametrize(
    ("kind", "splits", "message"),
    [
        (
            Classification,
            {"train": Labelled(["a"], [0, 1])},
            r"task 't', split 'train': it has 1 texts and 2 labels and 1 ids; give",
        ),
        (
            Classification,
            {"train": Labelled(["a", "b"], [1, 1])},
            r"task 't', split 'train': all labels are 1",
        ),
        (
            Classification,
            {"train": TWO, "test": Labelled(LETTERS, [0, 7, 7])},
            r"task 't', split 'test': the labels \[7\] are none of the 2 classes",
        ),
        (Classification, {"test": TWO}, "no split 'train' to train heads on, only test"),
        *[
            (
                Retrieval,
                {"test": Ranking(LETTERS, [0], [rows])},
                r"task 't', split 'test': query 0 .*rows \[",
            )
            for rows in ([], [0], [1, 1], [3], [-1])
        ],
        (Retrieval, {"test": Ranking(["a", "b"], [0], [[1], [0]])}, "1 queries and 2 lists"),
    ],
)
def test_unsound_splits_are_refused_with_task_split_and_numbers(kind, splits, message, refused):
    refused(message, lambda: kind("t", splits).texts("test"))


def test_equal_texts_of_documents_with_ids_are_documents_of_their_own():
    splits = {"train": Labelled(["same", "same", "other"], [0, 1, 1], ["a", "b", "c"])}
    task = Classification("t", splits)
    assert task.documents("train") == {"a": "same", "b": "same", "c": "other"}
    assert task.texts("train") == ["same", "same", "other"]


def test_equal_texts_without_ids_are_one_document():
    pairs = Pairs("p", {"train": AB, "test": LabelledPairs(["c"], ["d"], [1])})
    assert pairs.texts("test") == ["a", "b", "c", "d"]
    assert pairs.texts("train") == ["a", "b", "c"]


def test_a_ranking_finds_the_relevant_one_of_two_equal_texts():
    ranking = Ranking(["q", "same", "same"], [0], [[2]], ["q", "a", "b"])
    embeddings = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.1]])
    assert Retrieval("t", {"test": ranking}).score(embeddings).mean == 1.0


def test_two_texts_of_one_id_are_refused(refused):
    splits = {"train": TWO, "test": Labelled(["x"], [0], [TWO.ids[0]])}
    refused(r"task 't': two texts have the id '[0-9a-f]+'; give each", Classification, "t", splits)


def test_examples_that_are_taken_keep_their_ids():
    pairs = LabelledPairs(list("abc"), list("def"), [0, 1, 0], list("uvw"), list("xyz"))
    taken = pairs.take([2, 0])
    assert taken == LabelledPairs(["c", "a"], ["f", "d"], [0, 0], ["w", "u"], ["z", "x"])


def test_rows_are_found_by_id_and_all_documents_without_a_copy():
    embeddings = np.arange(32.0).reshape(16, 2)
    lookup = rows_by_id("t", embeddings, TEXTS)
    np.testing.assert_array_equal(lookup(["text 3", "text 0", "text 3"]), [[6, 7], [0, 1], [6, 7]])
    assert np.shares_memory(lookup(tuple(TEXTS)), embeddings)


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.zeros((15, 3)), r"task 't': the embeddings have the shape \(15, 3\), for 16 texts"),
        (np.full((16, 3), np.nan), "embeddings are not finite; check whether the model"),
        (np.tile([-np.inf, np.inf], (16, 1)), "embeddings are not finite"),
    ],
)
def test_embeddings_of_a_wrong_shape_or_not_finite_are_refused(embeddings, message, refused):
    refused(message, rows_by_id, "t", embeddings, TEXTS)


class ByText:
    """A model that looks its embeddings up; it remembers what it was asked."""

    def __init__(self, embedding: Callable[[str], np.ndarray]) -> None:
        self.embedding = embedding
        self.asked: list[str] = []

    def embed(self, texts: list[str]) -> np.ndarray:
        self.asked = texts
        return np.array([self.embedding(text) for text in texts], dtype=np.float32)


def of_kind(kind: int, n: int, start: int = 0) -> list[str]:
    return [f"{kind} text {i}" for i in range(start, start + n)]


def kinds_task(n: int = 30) -> Classification:
    splits = {}
    for start, split in enumerate(["train", "validation", "test"]):
        texts = [text for kind in range(4) for text in of_kind(kind, n, start * n)]
        splits[split] = Labelled(texts, [f"kind {text[0]}" for text in texts])
    return Classification("kinds", splits)


def one_hot(text: str) -> np.ndarray:
    return np.eye(4)[int(text[0])]


def noise(text: str) -> np.ndarray:
    return np.random.default_rng(list(text.encode())).normal(size=8)


def test_only_train_and_the_scored_split_are_embedded():
    task = kinds_task(3)
    model = ByText(one_hot)
    evaluate(model, task, split="validation", head=QUICK, seeds=1)
    assert model.asked == [*task.splits["train"].texts, *task.splits["validation"].texts]


def test_perfect_embeddings_classify_all():
    score = evaluate(ByText(one_hot), kinds_task(), head=QUICK, seeds=3)
    assert score == Score("accuracy", (1.0, 1.0, 1.0), extra={"f1_macro": 1.0})


@pytest.mark.parametrize(("split", "expected"), [("validation", 1.0), ("test", 0.0)])
def test_the_split_that_was_asked_for_is_scored(split, expected):
    splits = {
        "train": Labelled(of_kind(0, 20) + of_kind(1, 20), [0] * 20 + [1] * 20),
        "validation": Labelled(of_kind(0, 5, 50), [0] * 5),
        "test": Labelled(of_kind(0, 5, 60), [1] * 5),
    }
    score = evaluate(ByText(one_hot), Classification("t", splits), split=split, head=QUICK, seeds=2)
    assert score.values == (expected, expected)


def test_the_examples_of_the_docstrings_run():
    assert (doctest.testmod(tasks), doctest.testmod(protocols)) == ((0, 7), (0, 6))


def test_a_score_holds_the_result_of_each_example():
    score = evaluate(ByText(noise), kinds_task(20), seeds=3)
    right = score.per_example["accuracy"]
    assert (right.shape, right.dtype) == ((3, 80), np.float32)
    np.testing.assert_allclose(right.mean(axis=1), score.values)
    texts = [text for kind in range(4) for text in of_kind(kind, 5)]
    pool = Ranking(texts, [0, 7], [[1, 2, 3, 4], [5, 6, 8, 9]])
    score = evaluate(ByText(noise), Retrieval("r", {"test": pool}))
    means = {metric: values.mean() for metric, values in score.per_example.items()}
    assert means == pytest.approx({"map": score.mean, **score.extra})
    assert all(values.shape == (1, 2) for values in score.per_example.values())


@pytest.mark.parametrize(
    ("task", "lengths", "expected"),
    [
        (kinds_task(2), np.arange(16), list(range(8, 16))),
        # of a pair that of the longer document
        (
            Pairs("p", {"train": AB, "test": LabelledPairs(["c", "a"], ["d", "b"], [1, 0])}),
            [10, 40, 20, 5],
            [20, 40],
        ),
        (Retrieval("r", {"test": Ranking(LETTERS, [2, 0], [[0], [1]])}), [7, 8, 9], [9, 7]),
    ],
)
def test_examples_are_as_long_as_their_document_or_query(task, lengths, expected):
    assert example_lengths(task, lengths).tolist() == expected


def test_macro_f1_is_the_mean_over_the_classes_that_are_somewhere():
    rng = np.random.default_rng(0)
    predictions = 2 * rng.integers(2, size=(4, 50))  # class 1 is nowhere
    labels = 2 * rng.integers(2, size=50)
    for row, f1 in zip(predictions, f1_macro(predictions, labels), strict=True):
        of_classes = []
        for c in (0, 2):
            both = np.sum((row == c) & (labels == c))
            of_classes.append(2 * both / (np.sum(row == c) + np.sum(labels == c)))
        assert f1 == pytest.approx(np.mean(of_classes))


def test_logistic_regressions_read_scaled_embeddings_and_mlps_read_them_as_they_are():
    train = Labelled(["a", "b"], [0, 1])
    task = Classification("t", {"train": train, "test": Labelled(["c", "d"], [0, 1])})
    embeddings = np.random.default_rng(0).normal(size=(4, 5)).astype(np.float32)
    for given in (1e-3 * embeddings, (50 * embeddings).astype(np.int8)):
        raw = task.head_inputs(given, "test", HeadSettings(hidden=50))
        scaled = task.head_inputs(given, "test", HeadSettings(hidden=0))
        factor = 2**0.5 / np.linalg.norm(given[:2])
        for before, after, rows in zip(raw, scaled, (given[:2], given[2:]), strict=True):
            np.testing.assert_array_equal(before.features, rows)
            np.testing.assert_allclose(after.features, factor * rows, rtol=1e-5)

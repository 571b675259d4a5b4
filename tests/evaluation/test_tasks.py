"""Tasks: the splits they refuse, the texts they need embedded, and how they score."""

import numpy as np
import pytest
from conftest import NotingEmbedder

from docemb_lib.evaluation import (
    Classification,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
)
from docemb_lib.evaluation.protocols import evaluate
from docemb_lib.evaluation.tasks import Score
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


@pytest.mark.parametrize(
    ("embeddings", "message"),
    [
        (np.zeros((15, 3)), r"task 't': the embeddings have the shape \(15, 3\), for 16 texts"),
        (np.full((16, 3), np.nan), "embeddings are not finite; check whether the model"),
        (np.tile([-np.inf, np.inf], (16, 1)), "embeddings are not finite"),
    ],
)
def test_embeddings_of_a_wrong_shape_or_not_finite_are_refused(embeddings, message, refused):
    splits = {"train": Labelled(TEXTS, [0, 1] * 8)}
    refused(message, Classification("t", splits).score, embeddings, "train")


def of_kind(kind: int, n: int, start: int = 0) -> list[str]:
    return [f"{kind} text {i}" for i in range(start, start + n)]


class OneHot(NotingEmbedder):
    """Embeds a text by the number that it begins with."""

    def embed(self, texts: list[str]) -> np.ndarray:
        super().embed(texts)
        return np.eye(4, dtype=np.float32)[[int(text[0]) for text in texts]]


@pytest.mark.parametrize(("split", "expected"), [("validation", 1.0), ("test", 0.0)])
def test_the_split_that_was_asked_for_is_scored_and_embedded_with_train_alone(split, expected):
    splits = {
        "train": Labelled(of_kind(0, 20) + of_kind(1, 20), [0] * 20 + [1] * 20),
        "validation": Labelled(of_kind(0, 5, 50), [0] * 5),
        "test": Labelled(of_kind(0, 5, 60), [1] * 5),
    }
    model = OneHot()
    score = evaluate(model, Classification("t", splits), split=split, head=QUICK, seeds=2)
    assert score.by_seed["accuracy"] == [expected, expected]
    assert model.asked == [splits["train"].texts + splits[split].texts]


def test_another_metric_decides_where_examples_have_it():
    score = Score({"map": np.array([[0.1, 0.3]]), "mrr": np.array([[0.5, 1.0]])}, {"other": [0.9]})
    decided = score.decided_by("mrr")
    assert decided.by_seed == {"mrr": [0.75], "map": [0.2], "other": [0.9]}
    assert (decided.metric, next(iter(decided.by_seed)), decided.mean) == ("mrr", "mrr", 0.75)
    assert score.decided_by("other") is score

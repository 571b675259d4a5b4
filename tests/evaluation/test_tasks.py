"""Tasks: what they ask to be embedded, how they score it, and what they refuse."""

from collections.abc import Callable

import numpy as np
import pytest

from docemb_lib.evaluation import (
    Classification,
    HeadSettings,
    Labelled,
    LabelledPairs,
    Pairs,
    Ranking,
    Retrieval,
    Score,
    evaluate,
)

QUICK = HeadSettings(learning_rate=1e-2, epochs=20)


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


def test_perfect_embeddings_classify_all_and_noise_none() -> None:
    score = evaluate(ByText(one_hot), kinds_task(), head=QUICK, seeds=3)
    assert score == Score("accuracy", (1.0, 1.0, 1.0), extra={"f1_macro": 1.0})
    assert (score.mean, score.std) == (1.0, 0.0)
    assert evaluate(ByText(noise), kinds_task(250), seeds=3).mean == pytest.approx(1 / 4, abs=0.04)


def test_only_train_and_the_scored_split_are_embedded_and_each_text_once() -> None:
    task = kinds_task(3)
    model = ByText(one_hot)
    evaluate(model, task, split="validation", head=QUICK, seeds=1)
    assert model.asked == [*task.splits["train"].texts, *task.splits["validation"].texts]
    pairs = Pairs(
        "p", {"train": LabelledPairs(["a", "b"], ["b", "c"], [0, 1]), "test": LabelledPairs(["c"], ["d"], [1])}
    )
    assert pairs.texts("test") == ["a", "b", "c", "d"]
    assert pairs.texts("train") == ["a", "b", "c"]


def test_scores_are_of_the_split_that_was_asked_for() -> None:
    train = Labelled(of_kind(0, 20) + of_kind(1, 20), [0] * 20 + [1] * 20)
    right, wrong = Labelled(of_kind(0, 5, 50), [0] * 5), Labelled(of_kind(0, 5, 60), [1] * 5)
    task = Classification("t", {"train": train, "validation": right, "test": wrong})
    assert evaluate(ByText(one_hot), task, split="validation", head=QUICK, seeds=2).values == (1.0, 1.0)
    assert evaluate(ByText(one_hot), task, split="test", head=QUICK, seeds=2).values == (0.0, 0.0)


def test_the_first_seeds_are_the_same_however_many_follow() -> None:
    few, many = (evaluate(ByText(noise), kinds_task(20), seeds=seeds).values for seeds in (2, 4))
    assert many[:2] == few
    assert len(set(many)) > 1


def test_the_spread_is_the_sample_deviation_over_seeds() -> None:
    assert Score("accuracy", (0.5, 0.7, 0.9)).std == pytest.approx(0.2)
    assert Score("map", (0.4,)).std == 0.0


def same_or_not(n: int, start: int) -> LabelledPairs:
    first = [f"{i % 4} first {i + start}" for i in range(n)]
    second = [f"{(i + i // 4 % 2) % 4} second {i + start}" for i in range(n)]
    return LabelledPairs(first, second, [int(a[0] == b[0]) for a, b in zip(first, second, strict=True)])


def test_pairs_are_told_apart_by_the_comparison_of_their_embeddings() -> None:
    task = Pairs("same", {"train": same_or_not(80, 0), "test": same_or_not(80, 1000)})
    head = HeadSettings(learning_rate=1e-2, epochs=20, pair_features="interaction")
    assert evaluate(ByText(one_hot), task, head=head, seeds=3).values == (1.0, 1.0, 1.0)


def test_the_two_documents_of_a_pair_are_not_mixed_up() -> None:
    """In training the second document tells the class and the first nothing; then both say the opposite."""
    kinds, other = [i % 2 for i in range(60)], [1 - i % 2 for i in range(60)]
    unrelated = [f"{i // 2 % 2} first {i}" for i in range(60)]
    train = LabelledPairs(unrelated, [f"{kind} second {i}" for i, kind in enumerate(kinds)], kinds)
    of_other, of_kinds = ([f"{kind} new {i}" for i, kind in enumerate(side)] for side in (other, kinds))
    straight, turned = LabelledPairs(of_other, of_kinds, kinds), LabelledPairs(of_kinds, of_other, kinds)
    task = Pairs("second", {"train": train, "validation": straight, "test": turned})
    assert evaluate(ByText(one_hot), task, split="validation", head=QUICK, seeds=2).values == (1.0, 1.0)
    assert evaluate(ByText(one_hot), task, split="test", head=QUICK, seeds=2).values == (0.0, 0.0)


def ranking() -> Ranking:
    texts = [text for kind in range(4) for text in of_kind(kind, 5)]
    return Ranking(texts, [0, 7], [[1, 2, 3, 4], [5, 6, 8, 9]])


def test_retrieval_is_perfect_where_relevant_documents_coincide_and_trains_nothing() -> None:
    score = evaluate(ByText(one_hot), Retrieval("r", {"test": ranking()}))
    assert score.metric == "map"
    assert score.values == (1.0,)
    percentile = score.extra.pop("mean_percentile_rank")  # the mean place of the four nearest of 19
    assert percentile == pytest.approx(np.mean([0, 1, 2, 3]) / 18)
    assert score.extra == {"mrr": 1.0, "ndcg": 1.0, "hit_rate_10": 1.0, "hit_rate_100": 1.0}


def test_retrieval_by_noise_is_at_chance() -> None:
    texts = [f"document {i}" for i in range(300)]
    task = Retrieval("r", {"test": Ranking(texts, list(range(300)), [[(i + 1) % 300] for i in range(300)])})
    harmonic = sum(1 / rank for rank in range(1, 300)) / 299  # one relevant document at a random rank
    score = evaluate(ByText(noise), task)
    assert score.mean == pytest.approx(harmonic, abs=0.02)
    assert score.extra["mrr"] == pytest.approx(score.mean)  # with one relevant document both are 1 / rank


def test_the_cut_of_a_retrieval_task_reaches_the_score() -> None:
    texts = ["0 query", "0 near", "1 far", "1 farther"]
    data = {"test": Ranking(texts, [0], [[1, 3]])}
    assert evaluate(ByText(one_hot), Retrieval("r", data)).mean == pytest.approx((1 + 2 / 3) / 2)
    assert evaluate(ByText(one_hot), Retrieval("r", data, top_k=2)).mean == 1.0


def test_a_score_knows_what_each_example_got() -> None:
    score = evaluate(ByText(noise), kinds_task(20), seeds=3)
    right = score.per_example["accuracy"]
    assert (right.shape, right.dtype) == ((3, 80), np.float32)
    np.testing.assert_allclose(right.mean(axis=1), score.values)
    task = Retrieval("r", {"test": ranking()})
    found = evaluate(ByText(noise), task)
    assert {name: values.shape for name, values in found.per_example.items()} == {"map": (1, 2), "mrr": (1, 2)}
    assert found.per_example["map"].mean() == pytest.approx(found.mean)
    assert found.per_example["mrr"].mean() == pytest.approx(found.extra["mrr"])


def test_examples_are_as_long_as_their_document_their_longer_document_or_their_query() -> None:
    task = kinds_task(2)
    lengths = np.arange(16)
    assert task.example_lengths(lengths).tolist() == list(range(8, 16))
    train = LabelledPairs(["a", "b"], ["b", "c"], [0, 1])
    pairs = Pairs("p", {"train": train, "test": LabelledPairs(["c", "a"], ["d", "b"], [1, 0])})
    assert pairs.texts() == ["a", "b", "c", "d"]
    assert pairs.example_lengths([10, 40, 20, 5]).tolist() == [20, 40]
    retrieval = Retrieval("r", {"test": Ranking(["a", "b", "c"], [2, 0], [[0], [1]])})
    assert retrieval.example_lengths([7, 8, 9]).tolist() == [9, 7]
    with pytest.raises(ValueError, match="shorter"):
        retrieval.example_lengths([7, 8])

"""How much of a document a model reads, against plain loops and models that read a known part."""

import numpy as np
import pytest

from docemb_lib.evaluation.probes import (
    Versions,
    by_position,
    cut,
    ending,
    exchange_passages,
)

NAMES = ["ant", "bee", "cat", "dog", "elk"]
# Six words each, which no other document has.
TEXTS = [" ".join(f"{name}{number}" for number in range(6)) for name in NAMES]
RNG = np.random.default_rng(0)


def by_words(reads: slice):
    """A model that counts the words of a part of each text."""
    words = [word for text in TEXTS for word in text.split()]

    def embed(texts: list[str]) -> np.ndarray:
        rows = []
        for text in texts:
            part = text.split()[reads]
            rows.append([part.count(word) for word in words])
        return np.array(rows, dtype=np.float32)

    return embed


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("one two three four", ["one two", " three four"]),
        ("  a bbbbbbbbbbbbbbbbbb ", ["a", " bbbbbbbbbbbbbbbbbb"]),
        ("one\n\n two", ["one\n", "\n two"]),
        ("single", ["single"]),
        ("标题\n我们去公园，好吗？", ["标题\n我们去公园，", "好吗？"]),
        ("「图书馆」。", ["「图书馆」。"]),
        ("  ", []),
    ],
)
def test_a_text_is_cut_at_the_gap_nearest_to_its_middle(text, pieces):
    assert cut(text, 2) == pieces


@pytest.mark.parametrize("count", range(1, 8))
def test_pieces_side_by_side_are_the_text(count):
    text = "It was a dark\n and stormy night; the rain fell in torrents."
    pieces = cut(text, count)
    assert "".join(pieces) == text
    assert len(pieces) == count
    assert max(map(len, pieces)) - min(map(len, pieces)) <= 2 * len("torrents.")


def test_a_passage_is_exchanged_for_that_of_the_next_longer_document():
    versions = Versions.of(["xx yy zz", "a b c", "1 2 3 "], 3)
    assert versions.documents == ["a b c", "1 2 3", "xx yy zz"]
    assert versions.exchanged == [
        ["1 b c", "a 2 c", "a b 3"],
        ["xx 2 3", "1 yy 3", "1 2 zz"],
        ["1 yy zz", "xx 2 zz", "xx yy 3"],
    ]


def test_texts_of_too_few_words_are_left_out():
    versions = Versions.of(["a b c", "a  b", "1 2 3", "word"], 3)
    assert versions.documents == ["a b c", "1 2 3"]
    assert Versions.of(["a b c", "a b"], 3) == ([], [])


@pytest.mark.parametrize(
    ("reads", "moved"), [(slice(4), [0.5, 0.5, 0]), (slice(None), [1 / 3, 1 / 3, 1 / 3])]
)
def test_a_model_is_moved_by_the_passages_that_it_reads(reads, moved):
    found = exchange_passages(by_words(reads), Versions.of(TEXTS, 3))
    np.testing.assert_allclose(found, 5 * [moved], atol=1e-7)


def test_positions_have_means_over_documents_with_intervals_around_them():
    values = RNG.random((40, 4))
    frame = by_position(values)
    assert list(frame["position"]) == [0.125, 0.375, 0.625, 0.875]
    np.testing.assert_allclose(frame["value"], values.mean(axis=0))
    error = values.std(axis=0, ddof=1) / np.sqrt(40)
    np.testing.assert_allclose((frame["high"] - frame["low"]) / 2, 1.96 * error, rtol=0.1)


def test_the_ending_is_a_ratio_of_means_whose_interval_resamples_documents():
    moved = RNG.random((50, 3)) + 0.5
    value, low, high = ending(moved)
    drawn = []
    for _ in range(4000):
        rows = RNG.integers(50, size=50)
        drawn.append(moved[rows, 2].mean() / moved[rows, 0].mean())
    assert value == pytest.approx(moved[:, 2].mean() / moved[:, 0].mean())
    np.testing.assert_allclose([low, high], np.quantile(drawn, [0.025, 0.975]), atol=0.02)


def test_there_is_no_ending_where_the_first_passage_moves_nothing():
    assert np.isnan(ending(np.zeros((4, 3)))).all()

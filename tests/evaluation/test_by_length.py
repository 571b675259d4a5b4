"""Buckets by hand."""

import numpy as np
import pytest

from docemb_lib.errors import InputError
from docemb_lib.evaluation.uncertainty import bootstrap, by_length


def test_examples_fall_into_buckets_up_to_and_with_their_edge() -> None:
    right = np.array([[1, 1, 0, 0, 1, 0], [1, 0, 0, 1, 1, 0]], dtype=np.float32)
    frame = by_length(right, [100, 256, 257, 300, 9000, 384], edges=(256, 384, 512))
    assert frame["bucket"].tolist() == ["≤ 256", "257-384", "385-512", "> 512"]
    assert frame["examples"].tolist() == [2, 3, 0, 1]
    np.testing.assert_allclose(frame["value"], [0.75, 1 / 6, np.nan, 1.0])
    assert frame["low"].isna().tolist() == frame["high"].isna().tolist() == [False, False, True, True]


def test_intervals_are_those_of_the_bucket_alone() -> None:
    rng = np.random.default_rng(0)
    precision, lengths = rng.random((1, 90)), rng.integers(1, 1000, size=90)
    frame = by_length(precision, lengths, edges=(500,))
    for row, chosen in zip(frame.itertuples(), (lengths <= 500, lengths > 500), strict=True):
        alone = bootstrap(precision[:, chosen])
        assert (row.examples, row.low, row.high) == (chosen.sum(), alone.low[0], alone.high[0])
        assert row.value == pytest.approx(precision[0, chosen].mean())


def test_lengths_must_be_as_many_as_examples_and_edges_ascend() -> None:
    with pytest.raises(InputError, match="3 lengths for 2 examples"):
        by_length(np.ones((1, 2)), [1, 2, 3])
    with pytest.raises(InputError, match=r"edges must be ascending and at least one, got \[5, 5\]"):
        by_length(np.ones((1, 2)), [1, 2], edges=(5, 5))

"""Masking: which tokens are hidden, how, and from whom chance comes."""

from __future__ import annotations

import numpy as np
import pytest

from docemb_lib.losses.pairs import NO_LABEL
from docemb_lib.training.pairs import mask_tokens

MASK, VOCABULARY, N = 4, 1000, 400_000


def test_fifteen_of_a_hundred_are_guessed_of_which_eighty_are_masked_and_ten_replaced():
    ids = np.random.default_rng(0).integers(5, VOCABULARY, N)
    masked, labels = mask_tokens(ids, np.random.default_rng(1), mask_id=MASK, vocabulary=VOCABULARY)
    guessed = labels != NO_LABEL
    assert guessed.mean() == pytest.approx(0.15, abs=0.003)
    np.testing.assert_array_equal(labels[guessed], ids[guessed])
    np.testing.assert_array_equal(masked[~guessed], ids[~guessed])
    shown, true = masked[guessed], ids[guessed]
    assert (shown == MASK).mean() == pytest.approx(0.8, abs=0.01)
    assert (shown == true).mean() == pytest.approx(0.1, abs=0.01)
    replaced = shown[(shown != MASK) & (shown != true)]
    assert len(replaced) / len(shown) == pytest.approx(0.1, abs=0.01)
    assert np.histogram(replaced, bins=10, range=(0, VOCABULARY))[0].min() > 0.08 * len(replaced)  # any word


def test_chance_is_the_callers_and_the_text_stays_as_it_is():
    ids = np.arange(5, 205)
    once, again, other = (
        mask_tokens(ids, np.random.default_rng(seed), mask_id=MASK, vocabulary=VOCABULARY) for seed in (3, 3, 4)
    )
    np.testing.assert_array_equal(once, again)
    assert (once.labels != other.labels).any()
    np.testing.assert_array_equal(ids, np.arange(5, 205))


def test_a_text_without_tokens_has_none_to_guess():
    masked, labels = mask_tokens(np.array([], dtype=np.int64), np.random.default_rng(0), mask_id=MASK, vocabulary=10)
    assert len(masked) == len(labels) == 0

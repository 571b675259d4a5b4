"""Near-copies against the resemblance of all runs of words, counted in plain loops."""

import numpy as np
import pytest

from docemb_lib.evaluation import Classification, Labelled, LabelledPairs, Pairs
from docemb_lib.evaluation.copies import LEAST, RUN, near_copies
from docemb_lib.evaluation.tasks import warn_of_problems


def written(rng: np.random.Generator, words: int) -> list[str]:
    return [f"word{n}" for n in rng.integers(5000, size=words)]


def changed(rng: np.random.Generator, words: list[str], share: float) -> list[str]:
    """The words with a share of them replaced, at random places."""
    places = set(rng.permutation(len(words))[: round(share * len(words))].tolist())
    return [f"new{n}" if n in places else word for n, word in enumerate(words)]


def resemblance(first: str, second: str) -> float:
    runs = []
    for text in (first, second):
        words = text.lower().split()
        runs.append({tuple(words[n : n + RUN]) for n in range(len(words) - RUN + 1)})
    return len(runs[0] & runs[1]) / len(runs[0] | runs[1])


def test_words_that_differ_in_a_vowel_sign_are_different_words() -> None:
    words = "किताब मीनार गाड़ी लड़का रोटी पानी चाबी दीवार"
    assert len({*near_copies([words, words.translate({0x93F: 0x940, 0x940: 0x93F})])}) == 2


@pytest.mark.parametrize("words", [150, 3000])
def test_groups_are_those_of_texts_whose_resemblance_is_large(words: int) -> None:
    rng = np.random.default_rng(words)
    texts = []
    for share in (0.0, 0.01, 0.04, 0.08, 0.5):
        original = written(rng, words)
        texts += [" ".join(original), " ".join(changed(rng, original, share))]
    groups = near_copies(texts)
    for first in range(0, len(texts), 2):
        expected = resemblance(texts[first], texts[first + 1])
        assert abs(expected - LEAST) > 0.06  # so that an estimate decides as the resemblance does
        assert (groups[first] == groups[first + 1]) == (expected >= LEAST)
    assert len(set(groups)) == len(texts) - 2


def test_copies_with_other_case_signs_and_white_space_are_found() -> None:
    texts = ["The wind, and the rain; it blows.", "the  wind and THE rain\nit blows", "the sun"]
    first, second, other = near_copies(texts)
    assert first == second != other


@pytest.mark.parametrize("texts", [[], ["", " ", "?"], ["one two", "two one", "one"]])
def test_texts_without_common_runs_are_alone(texts: list[str]) -> None:
    assert len(set(near_copies(texts))) == len(texts)


def test_near_copies_across_splits_are_counted_beside_copies(caplog) -> None:
    rng = np.random.default_rng(0)
    pages = [" ".join(written(rng, 200)) for _ in range(5)]
    train = Labelled(pages[:4], [0, 1, 0, 1])
    test = Labelled([pages[4], f"Header {pages[1]}", pages[2], f"{pages[1]} Footer"], [0, 1, 0, 1])
    warn_of_problems(Classification("t", {"train": train, "test": test}))
    pairs = LabelledPairs(pages[:2], pages[2:4], [0, 1])
    others = LabelledPairs([f"A {pages[2]}", pages[0]], [pages[0], f"B {pages[3]}"], [0, 1])
    warn_of_problems(Pairs("p", {"train": pairs, "test": others}))
    assert caplog.messages == [
        "task t, split test: 1 of 4 examples are also in train (leakage), the first of which is 2",
        "task t, split test: 2 of 4 examples are near-copies of one in train (leakage), the first "
        "of which is 1",
        "task p, split test: 1 of 2 examples are near-copies of one in train (leakage), the first "
        "of which is 0",
    ]

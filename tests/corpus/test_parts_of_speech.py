"""Parts of speech of text written and tagged for this test."""

from __future__ import annotations

from itertools import pairwise

import pytest

from docemb_lib.corpus.sentences import tag_words

# A word and its part: n, v, a or o; tricky ones included, so that the tagger is not always right.
TAGGED = (
    "The/o old/a ships/n left/v the/o harbour/n early/o and/o sank/v slowly/o near/o the/o rocky/a coast/n .",
    "She/o runs/v a/o small/a company/n , and/o her/o runs/n on/o Sunday/n mornings/n keep/v her/o fit/a .",
    "We/o train/v neural/a networks/n on/o long/a documents/n because/o longer/a texts/n need/v better/a embeddings/n .",
    "The/o training/n of/o a/o model/n does/v not/o always/o improve/v its/o results/n , but/o it/o rarely/o hurts/v them/o .",
    "Prices/n rose/v sharply/o after/o the/o government/n announced/v new/a taxes/n on/o foreign/a steel/n .",
    "I/o think/v you/o should/o call/v him/o about/o the/o broken/a printer/n before/o he/o leaves/v the/o office/n .",
    "Dr./n Smith/n was/v born/v in/o Vienna/n and/o studied/v physics/n until/o the/o war/n ended/v her/o plans/n .",
    "Most/a students/n who/o have/v read/v the/o book/n say/v that/o the/o last/a chapter/n is/v difficult/a .",
)  # fmt: skip
PARTS = {"n": "noun", "v": "verb", "a": "adjective", "o": "other"}


def test_nine_of_ten_words_have_the_part_that_a_person_gives_them():
    right = content = words = 0
    for line in TAGGED:
        pairs = [token.split("/") for token in line.split() if "/" in token]
        found = tag_words(" ".join(token.split("/")[0] for token in line.split()))
        assert [word.text.rstrip(".") for word in found] == [text.rstrip(".") for text, _ in pairs]
        for word, (_, part) in zip(found, pairs, strict=True):
            words += 1
            right += word.part == PARTS[part]
            content += (word.part in {"noun", "verb"}) == (part in "nv")
    assert words > 100
    assert right / words > 0.9
    assert content / words > 0.96  # nouns and verbs together


def test_words_stand_in_the_text_where_it_is_said():
    text = "It doesn't matter: the U.S. and state-of-the-art 3.14 …\n\n  «Größe» isn’t 🙂 they’re here."
    found = tag_words(text)
    assert [text[word.start : word.end] for word in found] == [word.text for word in found]
    assert [word.text for word in found] == [
        "It", "does", "n't", "matter", "the", "U.S.", "and", "state-of-the-art", "Größe", "is", "n’t", "they", "’re",
        "here",
    ]  # fmt: skip
    assert all(one.end <= other.start for one, other in pairwise(found))


@pytest.mark.parametrize("text", ["", " \n", "1 2 3", "*** --- 🙂", "..."])
def test_a_text_without_letters_has_no_words(text):
    assert tag_words(text) == []


def test_right_to_left_text_and_a_document_without_a_sentence_end_have_words():
    assert len(tag_words("مرحبا بالعالم")) == 2
    assert len(tag_words("word " * 30_000)) == 30_000

"""Sentences: what ends one, nothing of a text is lost, linear time; and parts of speech of text tagged for this test."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from docemb_lib.corpus import sentences
from docemb_lib.corpus.sentences import split_sentences, tag_words


def stripped(text, **options):
    return [sentence.strip() for sentence in split_sentences(text, **options)]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "Dr. Smith paid 3.5 dollars. Was it far? No!", ["Dr. Smith paid 3.5 dollars.", "Was it far?", "No!"]),
        ("de", "Das ist z. B. ein Satz. Am 3. Mai kam sie.", ["Das ist z. B. ein Satz.", "Am 3. Mai kam sie."]),
        ("ja", "これは文です。あれも文です。", ["これは文です。", "あれも文です。"]),
        ("en", "これは文です。あれも文です。", ["これは文です。", "あれも文です。"]),
        ("ar", "مرحبا بالعالم. كيف حالك؟ هذا نص.", ["مرحبا بالعالم.", "كيف حالك؟", "هذا نص."]),
        ("he", "שלום עולם. מה שלומך?", ["שלום עולם.", "מה שלומך?"]),
        ("en", "Well done 🎉! Go on 😀.", ["Well done 🎉!", "Go on 😀."]),
        ("en", "one line\nand the next. A second", ["one line\nand the next.", "A second"]),
        ("en", "A heading\n\nA text. Its end.", ["A heading", "A text.", "Its end."]),
        ("en", "\n\n  One sentence.\n\n", ["One sentence."]),
        ("en", "no end at all", ["no end at all"]),
        ("en", " \n\n\t", [""]),
        ("en", "", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(language, text, expected):
    assert stripped(text, language=language) == expected


PIECES = [
    "A sentence. ", "Dr. ", "e.g. ", "« Oui ? » ", '"He said. ', '"', "(see a. b) ", "\n\n", "\n", "\t ", "...", "?! ", "[1]",
    "1. item\n", "* item ", "这是。", "שלום. ", "مرحبا؟ ", "😀", "👩‍👩‍👧", "e\u0301", "\u2028", "\r\n", "\x00", "word ", "U.S.A. ",
]  # fmt: skip


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_whatever_the_text_and_wherever_its_windows_end(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(sentences, "WINDOW", rng.choice([1, 7, 50, 10_000]))
    text = "".join(rng.choices(PIECES, k=rng.randrange(200)))
    found = split_sentences(text)
    assert "".join(found) == text
    assert all(sentence.strip() for sentence in found) or len(found) == 1


def test_windows_end_no_sentences(monkeypatch):
    text = "Dr. Smith went to York in 1990. He left! Was it far? Nobody knows, e.g. I do not. " * 30
    whole = split_sentences(text)
    monkeypatch.setattr(sentences, "WINDOW", 20)
    assert split_sentences(text) == whole
    assert len(whole) == 120


@pytest.mark.parametrize("unit", ["这是一个句子。", "1. An item of a list\n", "It ends. ", "and so on "])
def test_time_is_linear_in_the_length_of_a_text(unit, monkeypatch):
    """Counted in characters that the splitter is given, not in seconds."""
    given = []
    segment = sentences.segment
    monkeypatch.setattr(sentences, "segment", lambda language, text: given.append(len(text)) or segment(language, text))
    text = unit * 20_000
    split_sentences(text)
    assert max(given) <= sentences.WINDOW or unit == "and so on "
    assert sum(given) <= 2.5 * len(text) + sentences.WINDOW


def test_a_hundred_thousand_sentences():
    assert len(split_sentences("It rains here. " * 100_000)) == 100_000


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


def test_the_place_of_a_word_is_that_in_the_text():
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

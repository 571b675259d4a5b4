"""Sentences: what ends one, and that nothing of a text is lost or takes for ever."""

from __future__ import annotations

import random

import pytest

from docemb_lib.corpus import sentences
from docemb_lib.corpus.sentences import split_sentences


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

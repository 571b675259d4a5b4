"""Texts are split into sentences, and nothing of them is lost."""

import random

import pytest

from docemb_lib.corpus import sentences as module
from docemb_lib.corpus.sentences import split_sentences

PIECES = [
    "A sentence. ",
    "Dr. ",
    "e.g. ",
    "« Oui ? » ",
    '"He said. ',
    '"',
    "(see a. b) ",
    "\n\n",
    "\n",
    "\t ",
    "...",
    "?! ",
    "[1]",
    "1. item\n",
    "* item ",
    "这是。",
    "שלום. ",
    "مرحبا؟ ",
    "😀",
    "👩‍👩‍👧",
    "e\u0301",
    "\u2028",
    "\r\n",
    "\x00",
    "word ",
    "U.S.A. ",
]


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        (
            "en",
            "Dr. Smith paid 3.5 dollars. Was it far? No!",
            ["Dr. Smith paid 3.5 dollars.", "Was it far?", "No!"],
        ),
        (
            "de",
            "Das ist z. B. ein Satz. Am 3. Mai kam sie.",
            ["Das ist z. B. ein Satz.", "Am 3. Mai kam sie."],
        ),
        ("en", "これは文です。あれも文です。", ["これは文です。", "あれも文です。"]),
        ("he", "שלום עולם. מה שלומך?", ["שלום עולם.", "מה שלומך?"]),
        ("en", "one line\nand the next. A second", ["one line\nand the next.", "A second"]),
        ("en", "A heading\n\nA text. Its end.", ["A heading", "A text.", "Its end."]),
        ("en", "no end at all", ["no end at all"]),
        ("en", " \n\n\t", [""]),
        ("en", "", []),
    ],
)
def test_sentences_end_where_a_reader_ends_them(language, text, expected):
    assert [sentence.strip() for sentence in split_sentences(text, language=language)] == expected


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_whatever_the_text_and_wherever_its_windows_end(seed, monkeypatch):
    rng = random.Random(seed)
    monkeypatch.setattr(module, "WINDOW", rng.choice([1, 7, 50, 10_000]))
    text = "".join(rng.choices(PIECES, k=rng.randrange(200)))
    sentences = split_sentences(text)
    assert "".join(sentences) == text
    assert all(sentence.strip() for sentence in sentences) or len(sentences) == 1


def test_windows_end_no_sentences(monkeypatch):
    text = "Dr. Smith went to York in 1990. He left! Was it far? Nobody knows, e.g. I do not. " * 30
    whole = split_sentences(text)
    monkeypatch.setattr(module, "WINDOW", 20)
    assert (split_sentences(text), len(whole)) == (whole, 120)

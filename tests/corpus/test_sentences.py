"""Texts are split into sentences and words, and nothing of them is lost."""

import random

import numpy as np
import pytest

from docemb_lib.corpus import sentences as module
from docemb_lib.corpus.sentences import split_sentences, tag_words

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


# A word and its part: n, v, a or o; tricky ones included, so that the tagger is not always right.
TAGGED = """
The/o old/a ships/n left/v the/o harbour/n early/o and/o sank/v slowly/o near/o the/o rocky/a
coast/n .

She/o runs/v a/o small/a company/n , and/o her/o runs/n on/o Sunday/n mornings/n keep/v her/o
fit/a .

We/o train/v neural/a networks/n on/o long/a documents/n because/o longer/a texts/n need/v
better/a embeddings/n .

The/o training/n of/o a/o model/n does/v not/o always/o improve/v its/o results/n , but/o it/o
rarely/o hurts/v them/o .

Prices/n rose/v sharply/o after/o the/o government/n announced/v new/a taxes/n on/o foreign/a
steel/n .

I/o think/v you/o should/o call/v him/o about/o the/o broken/a printer/n before/o he/o leaves/v
the/o office/n .

Dr./n Smith/n was/v born/v in/o Vienna/n and/o studied/v physics/n until/o the/o war/n ended/v
her/o plans/n .

Most/a students/n who/o have/v read/v the/o book/n say/v that/o the/o last/a chapter/n is/v
difficult/a .
"""
# Adjectives are often taken for nouns or verbs.
PARTS = {"n": "noun", "v": "verb", "a": "adjective", "o": "other"}


def test_nine_of_ten_words_have_the_part_that_a_person_gives_them():
    pairs = [token.split("/") for token in TAGGED.split() if "/" in token]
    tagged = []
    for line in TAGGED.strip().split("\n\n"):
        tagged += tag_words(" ".join(token.split("/")[0] for token in line.split()))
    assert len(pairs) > 100
    assert [word.rstrip(".") for word, _ in tagged] == [text.rstrip(".") for text, _ in pairs]
    both = [(part, expected) for (_, part), (_, expected) in zip(tagged, pairs, strict=True)]
    assert np.mean([part == PARTS[expected] for part, expected in both]) > 0.9
    # Nouns and verbs together.
    counted = [(part in ("noun", "verb"), expected in "nv") for part, expected in both]
    assert np.mean([part == expected for part, expected in counted]) > 0.96


def test_words_are_cut_as_in_the_lexicon():
    text = (
        "It doesn't matter: the U.S. and state-of-the-art 3.14 …\n\n"
        "  «Größe» isn’t 🙂 they’re here."
    )
    words = "It does n't matter the U.S. and state-of-the-art Größe is n’t they ’re here"
    assert [word for word, _ in tag_words(text)] == words.split()
    assert len(tag_words("مرحبا بالعالم")) == 2

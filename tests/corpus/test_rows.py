"""Rows are equal in every format, and broken ones are named; sentences and words of texts."""

import random

import numpy as np
import pytest
from conftest import write_rows

from docemb_lib.corpus import rows as module
from docemb_lib.corpus.rows import Findings, read_rows, split_sentences, tag_words, text_of

RECORDS = [
    {"id": "a", "text": 'She said: "no,\nnever".'},
    {"id": "b", "text": "größer, Ελλάδα\u2028\x01 𝕏"},
    {"id": "c", "text": "long " * 60_000},
]
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


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.gz", "a.csv", "a.csv.gz", "a.parquet"])
def test_every_format_gives_the_same_rows(tmp_path, name):
    rows = list(read_rows(write_rows(tmp_path / name, RECORDS)))
    assert ([row.fields for row in rows], [row.number for row in rows]) == (RECORDS, [1, 2, 3])
    assert all(str(tmp_path / name) in row.where for row in rows)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b'id,text\n1,"a" b\n', r"row 1: there is broken quoting up to line 2"),
        ("a.csv", b"id,text\n1,a\n2\n", r"row 2: the row must have 2 values \(id, text\)"),
        ("a.csv", b"id,text,text\n1,a,b\n", "two columns have the same name"),
        ("a.csv", "id,text\n1,\u00e4\n".encode("latin-1"), "the file is not in UTF-8; save it"),
        ("a.jsonl", b'{"text": "a"}\n{"text"}\n', r"line 2: this is not JSON \(.*\); write an"),
        ("a.json", b'[\n{"text": "a"},\n]', r"item 1: this is not JSON"),
        ("a.json", b'[{"text": "a"}, 1]', r"item 1: there is a value without fields"),
        ("a.parquet", b"PAR1 but not really", "this is not a whole Parquet file"),
        ("a.csv.gz", b"id,text\n", r"the file cannot be read \(Not a gzipped file"),
        ("a.xlsx", b"", r"this is not a data file; give \.jsonl, .*\.csv, \.tsv"),
    ],
)
def test_what_is_broken_is_named_with_its_place(tmp_path, name, content, message, refused):
    (tmp_path / name).write_bytes(content)
    refused(rf"{name}[:,] .*{message}", lambda: list(read_rows(tmp_path / name)))


@pytest.mark.parametrize("name", ["a.jsonl.gz", "a.csv.gz", "a.parquet"])
def test_a_truncated_file_is_refused_by_name(tmp_path, name, refused):
    file = write_rows(tmp_path / name, RECORDS)
    file.write_bytes(file.read_bytes()[:-20])
    refused(rf"{name}[:,] .*; (save|write) .* again", lambda: list(read_rows(file)))


@pytest.mark.parametrize("bad", ['2,"a "b" c"', '2,"open', "2"])
def test_reading_goes_on_after_a_broken_row(tmp_path, bad):
    rows = ['1,"a"', bad, '3,"c"', '4,"d"']
    (tmp_path / "a.csv").write_text("id,text\n" + "".join(f"{row}\n" for row in rows))
    findings = Findings(skip_bad=True)
    ids = [row.fields["id"] for row in read_rows(tmp_path / "a.csv", findings)]
    assert ids == (["1", "4"] if "open" in bad else ["1", "3", "4"])
    assert findings.count == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [("a\ud83db", "a\ufffdb"), ("\ud83d\ude00", "😀")],
)
def test_unpaired_surrogates_are_replaced_and_pairs_joined(text, expected):
    assert text_of({"text": text}, ["text"], where="here") == expected


# Sentences and words
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

"""Sentences of a document in some 300 languages (`sentencex`), and parts of speech of English words (`textblob`).

Both packages carry their rules and models; nothing is downloaded.
"""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from sentencex import segment

WINDOW = 10_000  # characters split at a time: in scripts without spaces, sentencex' time grows with their square

Part = Literal["noun", "verb", "adjective", "other"]
PARTS: tuple[Part, ...] = ("noun", "verb", "adjective", "other")
# Penn Treebank tags begin with these. Verbs include be, have and do; can, will and the like (MD) are "other".
TAGS: dict[str, Part] = {"NN": "noun", "VB": "verb", "JJ": "adjective"}
# Tokens as in the lexicon: do n't, they 're, cat 's, state-of-the-art, U.S.; and every sign by itself.
TOKENS = re.compile(
    r"(?:[^\W\d_]\.){2,}|\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|\w+(?:[-.]\w+)*|[^\w\s]", re.IGNORECASE
)


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """The sentences of `text` in their order; joined, they are the text again, with all its whitespace.

    language: an ISO 639 code; it decides which abbreviations end no sentence. Full stops of all scripts count in every
    language. A blank line ends a sentence, a line break does not. Time is linear in the length of the text.
    """
    sentences: list[str] = []
    start, size = 0, WINDOW
    while start < len(text):
        end = start + size
        found = _segment(text[start:end], language)
        if end < len(text):
            if len(found) == 1:
                size *= 2
                continue
            found.pop()  # may go on in the next window
        sentences += found
        start += sum(map(len, found))
        size = WINDOW
    return sentences


def _segment(text: str, language: str) -> list[str]:
    """Sentences with the whitespace around them, so that a blank line is no sentence."""
    sentences: list[str] = []
    for piece in segment(language, text):
        if sentences and (piece.isspace() or sentences[-1].isspace()):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return sentences


class Word(NamedTuple):
    """A word and its place in the text, `text[start:end]`."""

    text: str
    start: int
    end: int
    part: Part


def tag_words(text: str) -> list[Word]:
    """Every word of an English text in its order; a token without a letter is no word."""
    from textblob.en import parser  # with nltk, whose import takes a second

    words: list[Word] = []
    offset = 0
    for sentence in split_sentences(text):
        found = list(TOKENS.finditer(sentence))
        tagged = parser.find_tags([match[0].replace("’", "'") for match in found])
        words += [
            Word(match[0], offset + match.start(), offset + match.end(), TAGS.get(tag[:2], "other"))
            for match, (_, tag) in zip(found, tagged, strict=True)
            if any(map(str.isalpha, match[0]))
        ]
        offset += len(sentence)
    return words

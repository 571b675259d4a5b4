"""Sentences of a document, in any of some 300 languages, by `sentencex` (Wikimedia's rules; nothing is downloaded)."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from sentencex import segment

# ---- sentences of a document


WINDOW = 10_000  # characters split at a time: in scripts without spaces, sentencex' time grows with their square


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """The sentences of `text` in their order; joined, they are the text again, with all its whitespace.

    language: an ISO 639 code; it decides which abbreviations end no sentence, while full stops of all scripts are known
    in any. A blank line ends a sentence, a line break does not. Time is linear in the length of the text, whatever its
    sentences are like; a text without a sentence end is one sentence.
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
            found.pop()  # goes on in the next window, or ends where only that can tell
        sentences += found
        start += sum(map(len, found))
        size = WINDOW
    return sentences


def _segment(text: str, language: str) -> list[str]:
    """Sentences with the whitespace that surrounds them: blank lines are no sentences of their own."""
    sentences: list[str] = []
    for piece in segment(language, text):
        if sentences and (piece.isspace() or sentences[-1].isspace()):
            sentences[-1] += piece
        else:
            sentences.append(piece)
    return sentences


# ---- nouns


Part = Literal["noun", "verb", "adjective", "other"]
PARTS: tuple[Part, ...] = ("noun", "verb", "adjective", "other")
# Penn Treebank tags begin with these. Verbs include be, have and do; can, will and the like (MD) are "other".
TAGS: dict[str, Part] = {"NN": "noun", "VB": "verb", "JJ": "adjective"}
# As the lexicon has them: do n't, they 're, cat 's, state-of-the-art, U.S.; and every sign by itself.
TOKENS = re.compile(
    r"(?:[^\W\d_]\.){2,}|\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|\w+(?:[-.]\w+)*|[^\w\s]", re.IGNORECASE
)


class Word(NamedTuple):
    """A word, by its place in the text, `text[start:end]`."""

    text: str
    start: int
    end: int
    part: Part


def tag_words(text: str) -> list[Word]:
    """Every word of an English text in its order; a token without a letter (a number, a sign) is no word."""
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

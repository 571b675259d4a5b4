"""Sentences of a document, in any of some 300 languages, by `sentencex` (Wikimedia's rules; nothing is downloaded)."""

from __future__ import annotations

from sentencex import segment

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

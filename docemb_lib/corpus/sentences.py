"""Splits texts into sentences and words.

Sentences are found in some 300 languages (`sentencex`), parts of speech in English (`textblob`),
without a download.
"""

import re

from sentencex import segment

# Characters split into sentences at a time. In scripts without spaces, the time that sentencex
# takes grows with the square of the number of characters.
WINDOW = 10_000

# The beginnings of Penn Treebank tags. Verbs include be, have and do; can, will and the like (MD)
# are "other".
TAGS = {"NN": "noun", "VB": "verb", "JJ": "adjective"}
PARTS = (*TAGS.values(), "other")
# Tokens are cut as in the lexicon: do n't, they 're, cat 's, state-of-the-art, U.S. Every sign is a
# token by itself.
TOKENS = re.compile(
    r"(?:[^\W\d_]\.){2,}|\w+?(?=n['’]t\b)|n['’]t\b|['’](?:s|re|ve|ll|d|m)\b|"
    r"\w+(?:[-.]\w+)*|[^\w\s]",
    re.IGNORECASE,
)


def split_sentences(text: str, *, language: str = "en") -> list[str]:
    """Return the sentences of a text; joined, they are the text with all its whitespace.

    A blank line ends a sentence, a line break does not. Time is linear in the length of the text.

    Args:
        language: an ISO 639 code, which decides what abbreviations end no sentence.
    """
    sentences = []
    start = 0
    size = WINDOW
    while start < len(text):
        end = start + size
        window: list[str] = []  # the sentences of text[start:end]
        for piece in segment(language, text[start:end]):
            if window and (piece.isspace() or window[-1].isspace()):  # a blank line is no sentence
                window[-1] += piece
            else:
                window.append(piece)
        if end < len(text):
            if len(window) == 1:  # the sentence may be longer than the window
                size *= 2
                continue
            window.pop()  # the last sentence may go on in the next window
        sentences += window
        start += sum(map(len, window))
        size = WINDOW
    return sentences


def tag_words(text: str) -> list[tuple[str, str]]:
    """Return every word of an English text in its order, and its part of speech, one of `PARTS`.

    Signs and numbers are not words.
    """
    from textblob.en import parser  # imports nltk, which takes a second

    words = []
    for sentence in split_sentences(text):
        tokens = TOKENS.findall(sentence)
        tagged = parser.find_tags([token.replace("’", "'") for token in tokens])
        for token, (_, tag) in zip(tokens, tagged, strict=True):
            if any(map(str.isalpha, token)):
                words.append((token, TAGS.get(tag[:2], "other")))
    return words

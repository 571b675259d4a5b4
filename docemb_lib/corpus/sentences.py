"""Splits texts into sentences, in some 300 languages and without a download."""

from sentencex import segment

# Characters split into sentences at a time. In scripts without spaces, the time that sentencex
# takes grows with the square of the number of characters.
WINDOW = 10_000


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

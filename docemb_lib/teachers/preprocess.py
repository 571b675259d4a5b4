"""Words of a text as Paragraph Vector sees them (thesis, Table 4.5: text_pre_process)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Literal, get_args

from docemb_lib.errors import InputError

Preprocessing = Literal["none", "lowercase", "stem"]


def preprocess(text: str, how: Preprocessing) -> list[str]:
    """Split at white space; `lowercase` lower-cases first; `stem` also takes each word to its Porter stem.

    Punctuation stays attached to its word.
    """
    if how not in get_args(Preprocessing):
        raise InputError(f"preprocess: got {how!r}, use one of {', '.join(get_args(Preprocessing))}")
    if how == "none":
        return text.split()
    words = text.lower().split()
    return words if how == "lowercase" else [_stem(word) for word in words]


@lru_cache(maxsize=1_000_000)  # a corpus repeats its words: each type is stemmed once
def _stem(word: str) -> str:
    return _porter()(word)


@lru_cache
def _porter() -> Callable[[str], str]:
    from nltk.stem.porter import PorterStemmer  # here, because importing nltk takes a second

    stem: Callable[[str], str] = PorterStemmer().stem
    return stem

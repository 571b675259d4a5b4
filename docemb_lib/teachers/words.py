"""The words of texts in every script, and those of a corpus as Paragraph Vector reads them.

Table 4.5 of the thesis describes the latter.
"""

import hashlib
import json
import unicodedata
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np
import regex

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import progress
from docemb_lib.base.tokenizing import batched

Preprocessing = Literal["none", "lowercase", "stem"]
# gensim silently drops the words of a document beyond this, in training and in inference
MAX_WORDS = 10_000
LINES = "words.txt"
COUNTS = "counts.npy"
SUMMARY = "words.json"
# Two or more letters, digits and the marks that belong to them, such as the vowel signs of Hindi,
# which are no word characters in Python's `re`. A half of words has the same words: its module
# (student/words_module.py) imports nothing of docemb, and a test compares the two.
WORD = regex.compile(r"\w\w+")
# A run of the characters of scripts that are written without spaces.
UNSPACED = regex.compile(
    r"(?V1)[\w&&[\p{scx=Han}\p{scx=Hiragana}\p{scx=Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]]+"
)
CHARACTER = regex.compile(r"\X")  # with its marks
# Characters that most texts leave out: soft hyphens, joiners, the lengthening of Arabic words, and
# the points of Arabic and Hebrew. U+200B, of the same class, ends words in Thai.
POINTS = r"\u0640\u064B-\u065F\u0670\u0591-\u05BD\u05BF-\u05C2\u05C4\u05C5\u05C7"
IGNORED = regex.compile(rf"(?V1)[[\p{{DI}}{POINTS}]--\u200B]")
# Options of scikit-learn's counters of words, which are given `spaced` texts.
COUNTED = {"preprocessor": str.casefold, "tokenizer": WORD.findall, "token_pattern": None}


def spaced(text: str) -> str:
    """The text in one normal form, with blanks between words of scripts without spaces.

    The form is NFKC, in which ligatures and full width are plain letters, without `IGNORED`. Each
    two neighbouring characters of an UNSPACED run are a word, as in Lucene's CJKAnalyzer. A
    character that is a run by itself is a word, too.
    """
    if text.isascii():
        return text
    normal = IGNORED.sub("", unicodedata.normalize("NFKC", text))
    return UNSPACED.sub(lambda run: f" {_pairs(run[0])} ", normal)


def words_of(text: str) -> list[str]:
    """The words of a text, folded to one case and in their order, as COUNTED counts them."""
    return WORD.findall(spaced(text).casefold())


def _pairs(run: str) -> str:
    return " ".join(map("".join, pairwise(CHARACTER.findall(run)))) or run


def preprocess(text: str, how: Preprocessing) -> list[str]:
    """Split at white space, and scripts without spaces into pairs of characters, see `spaced`.

    `lowercase` lower-cases first; `stem` also reduces each word to its Porter stem. Raises
    InputError for another `how`.
    """
    choices = get_args(Preprocessing)
    if how not in choices:
        raise InputError(f"preprocess: got {how!r}; give one of {', '.join(choices)}")
    text = spaced(text)
    if how == "none":
        return text.split()
    words = text.lower().split()
    return words if how == "lowercase" else list(map(_stem, words))


@lru_cache(maxsize=1_000_000)  # a corpus repeats its words: each different word is stemmed once
def _stem(word: str) -> str:
    from nltk.stem.porter import PorterStemmer  # importing nltk takes a second

    return str(PorterStemmer().stem(word))


def pieces(words: list[str]) -> list[list[str]]:
    """Runs of at most `MAX_WORDS` words; an empty document is one empty piece."""
    return list(batched(words, MAX_WORDS)) or [[]]


@dataclass(frozen=True)
class Words:
    """The words of a corpus, in a folder written by `write_words`.

    Each line of `file` is one training document: words separated by blanks. A text of more than
    `MAX_WORDS` words takes several lines, a text without words none.
    """

    folder: Path
    preprocess: Preprocessing
    documents: int
    words: int
    texts: str  # fingerprint of the raw texts in their order, independent of the preprocessing

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        content = json.loads(Path(folder, SUMMARY).read_text(encoding="utf-8"))
        return cls(folder=Path(folder), **content)

    @property
    def file(self) -> Path:
        return self.folder / LINES

    def occurrences(self, min_count: int | str) -> int:
        """`min_count` as a number.

        "10%", the thesis' name for it, is 1% of the documents, at least 2.
        """
        return max(2, round(0.01 * self.documents)) if min_count == "10%" else int(min_count)

    def kept_words(self, min_count: int | str) -> int:
        """The number of words that occur at least `min_count` times.

        Raises InputError if it is zero.
        """
        least = self.occurrences(min_count)
        counts = np.load(self.folder / COUNTS, mmap_mode="r")  # ascending
        kept = len(counts) - int(np.searchsorted(counts, least))
        if not kept:
            raise InputError(
                f"min_count: none of the {self.words} words in {self.documents} training documents "
                f"occurs {least} times, and the most frequent one occurs {counts[-1]} times; "
                "give a smaller number"
            )
        return kept


def write_words(folder: Path | str, texts: Iterable[str], how: Preprocessing) -> Words:
    """Write the words of `texts`, read once, into `folder`.

    All different words are in memory meanwhile. Raises InputError for texts without a word.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()
    documents = 0
    # gensim reads strict UTF-8, so half a surrogate pair becomes a question mark. Words contain no
    # white space, so gensim splits a line into the same words again.
    with (folder / LINES).open("w", encoding="utf-8", errors="replace", newline="\n") as file:
        for text in progress(texts, desc=f"Words ({how})", unit="documents"):
            raw = text.encode(errors="surrogatepass")
            digest.update(len(raw).to_bytes(8) + raw)
            words = preprocess(text, how)
            counts.update(words)
            file.writelines(" ".join(part) + "\n" for part in batched(words, MAX_WORDS))
            documents += 1
    if not counts:
        raise InputError(
            f"corpus: the {documents} documents hold no word to train on; add documents with words"
        )
    np.save(folder / COUNTS, np.sort(np.array(list(counts.values()), dtype=np.int64)))
    content = {
        "preprocess": how,
        "documents": documents,
        "words": counts.total(),
        "texts": digest.hexdigest()[:16],
    }
    (folder / SUMMARY).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return Words.open(folder)

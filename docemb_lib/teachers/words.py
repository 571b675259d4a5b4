"""Words of a corpus as Paragraph Vector reads them (thesis, Table 4.5), and the memory that
training on them takes.
"""

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Literal, Self, get_args

import numpy as np

from docemb_lib.base.errors import InputError
from docemb_lib.base.progress import progress

Preprocessing = Literal["none", "lowercase", "stem"]
# gensim silently drops the words of a document beyond this, in training and in inference
MAX_WORDS = 10_000
LINES, COUNTS, SUMMARY = "words.txt", "counts.npy", "words.json"
# A run of the characters of Chinese and Japanese, which are written without spaces. A lexical half
# keeps it, and cuts runs as `spaced` does (student/lexical_module.py, which imports nothing of
# docemb).
UNSPACED = (
    r"[\u3005-\u3007\u3041-\u3096\u309d\u309e\u30a1-\u30fa\u30fc-\u30fe"
    r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f]+"
)


def spaced(text: str) -> str:
    """The text with blanks between words of Chinese and Japanese: each two neighbouring characters
    of an UNSPACED run.

    A character that is a run by itself is a word. As in Lucene's CJKAnalyzer.
    """
    return re.sub(
        UNSPACED, lambda run: f" {' '.join(map(''.join, pairwise(run[0]))) or run[0]} ", text
    )


def preprocess(text: str, how: Preprocessing) -> list[str]:
    """Split at white space, and Chinese and Japanese into pairs of characters, see `spaced`.

    `lowercase` lower-cases first; `stem` also reduces each word to its Porter stem.
    """
    if how not in get_args(Preprocessing):
        mend = f"give one of {', '.join(get_args(Preprocessing))}"
        raise InputError(f"preprocess: got {how!r}; {mend}")
    if how == "none":
        return spaced(text).split()
    words = spaced(text).lower().split()
    return words if how == "lowercase" else [_stem(word) for word in words]


@lru_cache(maxsize=1_000_000)  # a corpus repeats its words: each different word is stemmed once
def _stem(word: str) -> str:
    from nltk.stem.porter import PorterStemmer  # importing nltk takes a second

    return str(PorterStemmer().stem(word))


def pieces(words: list[str]) -> list[list[str]]:
    """Runs of at most `MAX_WORDS` words; an empty document is one empty piece."""
    return [words[start : start + MAX_WORDS] for start in range(0, max(len(words), 1), MAX_WORDS)]


@dataclass(frozen=True)
class Words:
    """The words of a corpus, in a folder written by `write_words`.

    Each line of `file` is one training document: words separated by blanks. A text of more than
    `MAX_WORDS` words takes several lines, a text without words none.
    """

    folder: Path
    preprocess: Preprocessing
    documents: int
    lines: int
    words: int
    types: int  # different words
    long_documents: int  # texts of more than `MAX_WORDS` words
    texts: str  # fingerprint of the raw texts in their order, independent of the preprocessing

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        return cls(
            folder=Path(folder), **json.loads((Path(folder) / SUMMARY).read_text(encoding="utf-8"))
        )

    @property
    def file(self) -> Path:
        return self.folder / LINES

    def occurrences(self, min_count: int | str) -> int:
        """`min_count` as a number: "10%", the thesis' name for it, is 1% of the documents, at least
        2.
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
            problem = f"none of the {self.words} words in {self.documents} training documents occurs {least} times"
            most = f"the most frequent one occurs {counts[-1]} times"
            raise InputError(f"min_count: {problem}, and {most}; give a smaller number")
        return kept


def write_words(folder: Path | str, texts: Iterable[str], how: Preprocessing) -> Words:
    """Write the words of `texts`, read once, into `folder`; all different words are in memory
    meanwhile.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    counts, digest = Counter[str](), hashlib.sha256()
    documents = lines = long_documents = 0
    # gensim reads strict UTF-8, so half a surrogate pair becomes a question mark. Words contain no
    # white space, so gensim splits a line into the same words again.
    with (folder / LINES).open("w", encoding="utf-8", errors="replace", newline="\n") as file:
        for text in progress(texts, desc=f"Words ({how})", unit="documents"):
            raw = text.encode(errors="surrogatepass")
            digest.update(len(raw).to_bytes(8) + raw)
            words = preprocess(text, how)
            counts.update(words)
            parts = pieces(words) if words else []
            file.writelines(" ".join(part) + "\n" for part in parts)
            documents, lines, long_documents = (
                documents + 1,
                lines + len(parts),
                long_documents + (len(parts) > 1),
            )
    if not counts:
        mend = "add documents with words"
        raise InputError(f"corpus: the {documents} documents hold no word to train on; {mend}")
    np.save(
        folder / COUNTS, np.sort(np.fromiter(counts.values(), dtype=np.int64, count=len(counts)))
    )
    fingerprint = digest.hexdigest()[:16]
    summary = Words(
        folder, how, documents, lines, counts.total(), len(counts), long_documents, fingerprint
    )
    content = {name: value for name, value in asdict(summary).items() if name != "folder"}
    (folder / SUMMARY).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return summary

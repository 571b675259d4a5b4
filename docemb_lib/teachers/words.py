"""Words of a text as Paragraph Vector sees them (thesis, Table 4.5: text_pre_process)."""

from __future__ import annotations

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np

from docemb_lib.errors import InputError
from docemb_lib.progress import progress

# ---- words of a text as Paragraph Vector sees them


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


# ---- the words of a corpus on disk


logger = logging.getLogger(__name__)

MAX_WORDS = 10_000  # gensim drops a document's words beyond this, in training and in inference, and does not say so
LINES, COUNTS, SUMMARY = "words.txt", "counts.npy", "words.json"


@dataclass(frozen=True)
class Words:
    """The words of a corpus, in a folder written by `write_words`.

    A line of the file is what training takes for a document: words between blanks. A text of more than 10,000 words is
    several lines, and each of them gets a document vector of its own. Which lines belong together does not matter:
    document vectors are thrown away after training, and inference averages over the same pieces.
    A text without words is no line.
    """

    folder: Path
    preprocess: Preprocessing
    documents: int
    lines: int
    words: int
    types: int  # different words
    long_documents: int  # texts of more than 10,000 words
    texts: str  # fingerprint of the raw texts in their order: the same whatever the preprocessing

    @classmethod
    def open(cls, folder: Path | str) -> Words:
        """The words in `folder`."""
        folder = Path(folder)
        if not (folder / SUMMARY).is_file():
            raise InputError(f"{folder / SUMMARY}: no such file; name a folder written by write_words")
        return cls(folder=folder, **json.loads((folder / SUMMARY).read_text(encoding="utf-8")))

    @property
    def file(self) -> Path:
        """The corpus file."""
        return self.folder / LINES

    def occurrences(self, min_count: int | str) -> int:
        """`min_count` as a number: "10%", the thesis' name for it, is 1% of the documents, at least 2."""
        return max(2, round(0.01 * self.documents)) if min_count == "10%" else int(min_count)

    def vocabulary(self, min_count: int | str) -> int:
        """How many words occur so often. Raises InputError if none does: there would be nothing to learn from."""
        least = self.occurrences(min_count)
        counts = np.load(self.folder / COUNTS, mmap_mode="r")  # rising
        kept = len(counts) - int(np.searchsorted(counts, least))
        if not kept:
            asked = f"{least} times" + (f' ("{min_count}")' if isinstance(min_count, str) else "")
            raise InputError(
                f"min_count: none of the {self.words} words in {self.documents} training documents occurs {asked}, "
                f"the most frequent one {counts[-1]}; use a smaller min_count or more documents"
            )
        return kept


def write_words(folder: Path | str, texts: Iterable[str], how: Preprocessing) -> Words:
    """Write the words of `texts`, read once, into `folder`. Raises InputError if there are none.

    Holds one dictionary of all different words, about 100 bytes each.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    counts: Counter[str] = Counter()
    digest = hashlib.sha256()
    documents = lines = long_documents = 0
    # gensim reads strict UTF-8: half a surrogate pair becomes a question mark. Words hold no white space, so gensim
    # finds the same ones again.
    with (folder / LINES).open("w", encoding="utf-8", errors="replace", newline="\n") as file:
        for text in progress(texts, desc=f"Words ({how})", unit="documents"):
            raw = text.encode(errors="surrogatepass")
            digest.update(len(raw).to_bytes(8))
            digest.update(raw)
            words = preprocess(text, how)
            counts.update(words)
            parts = pieces(words) if words else []
            file.writelines(" ".join(part) + "\n" for part in parts)
            documents, lines, long_documents = documents + 1, lines + len(parts), long_documents + (len(parts) > 1)
    if not counts:
        raise InputError(f"corpus: {documents} documents without any word; there is nothing to train on")
    if long_documents:
        logger.info("%d of %d documents of more than 10,000 words are cut into pieces", long_documents, documents)
    occurrences = np.sort(np.fromiter(counts.values(), dtype=np.int64, count=len(counts)))
    np.save(folder / COUNTS, occurrences)
    summary = Words(
        folder=folder,
        preprocess=how,
        documents=documents,
        lines=lines,
        words=int(occurrences.sum()),
        types=len(counts),
        long_documents=long_documents,
        texts=digest.hexdigest()[:16],
    )
    content: dict[str, Any] = {name: value for name, value in asdict(summary).items() if name != "folder"}
    (folder / SUMMARY).write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    return summary


def pieces(words: list[str]) -> list[list[str]]:
    """Consecutive runs of at most `MAX_WORDS` words; an empty document is one empty piece."""
    return [words[start : start + MAX_WORDS] for start in range(0, max(len(words), 1), MAX_WORDS)]

"""Near-duplicates: those that the exact Jaccard index finds, no others, and the first of each group stays."""

from __future__ import annotations

import logging
import sys
from itertools import combinations

import numpy as np
import pytest

from docemb_lib.corpus import Document
from docemb_lib.corpus.origin import drop_near_duplicates, word_runs
from docemb_lib.errors import InputError

WORDS = [f"{a}{b}" for a in "bdfgklmnprst" for b in ("ando", "eli", "irus", "opal", "um")]


def copies(groups: int = 30, words: int = 400) -> list[Document]:
    """A text of each group, then another version of it in which one word in 400 (or, in odd groups, in 8) is new."""
    rng = np.random.default_rng(0)
    originals = [rng.choice(WORDS, words) for _ in range(groups)]
    changed = [text.copy() for text in originals]
    for number, text in enumerate(changed):
        text[:: 8 if number % 2 else 400] = "new"
    return [
        Document(f"{number}{kind}", " ".join(text), "x")
        for kind, texts in (("a", originals), ("b", changed))
        for number, text in enumerate(texts)
    ]


def jaccard(one: Document, other: Document) -> float:
    first, second = (
        {tuple(words[i : i + 5]) for i in range(len(words) - 4)} for words in (one.text.split(), other.text.split())
    )
    return len(first & second) / len(first | second)


def test_documents_of_a_high_exact_jaccard_index_are_left_out_and_no_others(caplog: pytest.LogCaptureFixture) -> None:
    documents = copies()
    exact = {(a.id, b.id): jaccard(a, b) for a, b in combinations(documents, 2)}
    close = {later for (_, later), index in exact.items() if index > 0.9}
    assert len(close) == 15
    assert not any(0.5 < index < 0.9 for index in exact.values())  # so that the estimate's error decides nothing
    with caplog.at_level(logging.WARNING, logger="docemb_lib.corpus.origin"):
        kept = list(drop_near_duplicates(documents, similarity=0.7))
    assert kept == [document for document in documents if document.id not in close]
    assert "15 documents are nearly copies" in caplog.text


def test_case_does_not_count_and_short_texts_are_kept() -> None:
    text = " ".join(WORDS[:50])
    documents = [Document(str(n), t, "x") for n, t in enumerate([text, text.upper(), "short text", "short text", ""])]
    assert [document.id for document in drop_near_duplicates(documents, similarity=0.8)] == ["0", "2", "3", "4"]
    assert word_runs("a B c D e F") == {"a b c d e", "b c d e f"}


def test_without_datasketch_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasketch", None)
    with pytest.raises(InputError, match=r"corpus\.near_duplicates needs datasketch; install it: .*docemb\[dedup\]"):
        list(drop_near_duplicates(copies(1), similarity=0.8))

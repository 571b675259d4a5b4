"""Leave out documents that are nearly another one's copy, by MinHash signatures of word runs (datasketch).

MinHash: Broder 1997; banding: Leskovec, Rajaraman and Ullman, Mining of Massive Datasets, chapter 3.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any

from docemb_lib.corpus.sources import Document
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

logger = logging.getLogger(__name__)

RUN = 5  # words of a shingle: long enough that unrelated texts share hardly any
PERMUTATIONS = 128  # length of a signature; the estimated similarity errs by about 1 / sqrt(PERMUTATIONS)


def drop_near_duplicates(documents: Iterable[Document], *, similarity: float) -> Iterator[Document]:
    """The documents, in order, without those that share `similarity` or more with an earlier one that is kept.

    similarity: Jaccard index of the sets of five consecutive words, case aside, as estimated by 128 permutations. Texts
    of fewer than five words are kept. Memory: the signatures and their index, a few kB a document. Logs how many were
    left out.
    Raises InputError where datasketch is not installed.
    """
    try:
        from datasketch import MinHash, MinHashLSH
    except ImportError:
        raise InputError('corpus.near_duplicates needs datasketch; install it: pip install "docemb[dedup]"') from None

    index = MinHashLSH(threshold=similarity, num_perm=PERMUTATIONS)
    kept: dict[int, Any] = {}  # signatures by position
    dropped = 0
    for position, document in enumerate(progress(documents, desc="near-duplicates", unit="documents")):
        runs = word_runs(document.text)
        if not runs:
            yield document
            continue
        signature = MinHash(num_perm=PERMUTATIONS)
        signature.update_batch([run.encode() for run in runs])
        if any(signature.jaccard(kept[other]) >= similarity for other in index.query(signature)):
            dropped += 1
            continue
        index.insert(position, signature)
        kept[position] = signature
        yield document
    if dropped:
        logger.warning("%d documents are nearly copies of earlier ones and are left out", dropped)


def word_runs(text: str) -> set[str]:
    """Every five consecutive words of a text, in lower case."""
    words = text.lower().split()
    return {" ".join(words[start : start + RUN]) for start in range(len(words) - RUN + 1)}

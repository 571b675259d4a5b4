"""Near-copies: texts that share most of their runs of words (resemblance, Broder 1997).

The resemblance of two texts is the share of common ones among all their different runs of RUN
words. It is estimated from the SKETCH smallest hashes of each text, and exact for texts with no
more runs than that.
"""

import zlib
from collections.abc import Sequence

import numpy as np
import regex

from docemb_lib.teachers.words import spaced

RUN = 5  # words
LEAST = 0.8  # resemblance of near-copies
SKETCH = 256  # hashes of a text
BLOCK = 256  # texts that are compared with all others at a time
# A word holds its combining marks, such as the vowel signs of Hindi.
WORD = regex.compile(r"\w+")


def near_copies(texts: Sequence[str]) -> np.ndarray:
    """The group of each text, (N,): texts are in the same group if near-copies lead from one to
    the other. A text without words is alone.
    """
    from scipy.sparse import coo_array, csr_array
    from scipy.sparse.csgraph import connected_components

    N = len(texts)
    hash_of: dict[str, int] = {}
    sketches = [_sketch(text, hash_of) for text in texts]
    sizes = np.array([len(sketch) for sketch in sketches])
    if not sizes.sum():
        return np.arange(N)
    values, columns = np.unique(np.concatenate(sketches), return_inverse=True)
    shared = csr_array(
        (np.ones(sizes.sum(), dtype=np.int32), columns, np.append(0, np.cumsum(sizes))),
        shape=(N, len(values)),
    )
    links = []
    for start in range(0, N, BLOCK):
        common = coo_array(shared[start : start + BLOCK] @ shared.T)
        first = common.row + start
        second = common.col
        # The resemblance is at most the share of common hashes among those of the larger sketch,
        # so that few pairs are compared exactly.
        larger = np.maximum(sizes[first], sizes[second])
        likely = (first < second) & (common.data >= LEAST * larger)
        for i, j in zip(first[likely], second[likely], strict=True):
            if _resemblance(sketches[i], sketches[j]) >= LEAST:
                links.append((i, j))
    ends = np.array(links, dtype=int).reshape(-1, 2).T
    graph = csr_array((np.ones(len(links), dtype=bool), tuple(ends)), shape=(N, N))
    return connected_components(graph, directed=False)[1]


def _sketch(text: str, hash_of: dict[str, int]) -> np.ndarray:
    """The SKETCH smallest hashes of the runs of a text, ascending; of a short text one of all.

    hash_of: the hashes of words, to which those of this text are added.
    """
    words = WORD.findall(spaced(text.lower()))
    for word in set(words).difference(hash_of):  # reads no key of another text
        hash_of[word] = zlib.crc32(word.encode("utf-8", "surrogatepass"))
    hashes = np.array([hash_of[word] for word in words], dtype=np.uint64)
    run = min(RUN, len(hashes))
    if not run:
        return np.empty(0, dtype=np.uint64)
    mixed = np.zeros(len(hashes) - run + 1, dtype=np.uint64)
    for place in range(run):  # arithmetic modulo 2^64
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + hashes[place : place + len(mixed)]
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0xD6E8FEB86659FD93)
    mixed ^= mixed >> np.uint64(32)
    return np.unique(mixed)[:SKETCH]


def _resemblance(first: np.ndarray, second: np.ndarray) -> float:
    """The share of common hashes among the SKETCH smallest of both sketches, ascending."""
    union = np.union1d(first, second)[:SKETCH]
    common = np.intersect1d(first, second, assume_unique=True)
    return float(np.isin(union, common, assume_unique=True).mean())

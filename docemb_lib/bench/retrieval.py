"""Exact ranks among a million documents against faiss' exact index: time, memory and equality, in one process."""

from __future__ import annotations

import re
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from docemb_lib.bench.report import Report, Row, machine, versions
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

DOCUMENTS, QUERIES, WIDTH, RELEVANT = 1_000_000, 1000, 384, 10
TOP = 1000  # hits that the author's code takes from the index
SORTED = 8  # queries whose cosines with all documents are sorted, to compare ranks with
BLOCK = 10_000  # documents drawn, normalised or compared together
GROWTH, DIFFERENCE = 1.2, 1e-3  # budgets: memory at ten times the documents; average precision, faiss adds in float32
INTERVAL = 0.01  # seconds between two looks at the memory
STATUS = Path("/proc/self/status")


class Case(NamedTuple):
    embeddings: np.ndarray  # (N, D), memory-mapped
    queries: list[int]  # Q rows
    relevant: list[list[int]]  # R rows for each of them


class Measured(NamedTuple):
    seconds: float
    peak: int | None  # bytes above the level before; None: this system does not tell
    result: Any


def bench_retrieval(*, quick: bool = False, documents: int | None = None) -> Report:
    """Queries a second, memory at its peak, and whether the ranks are those of sorting and of faiss.

    documents: None: a million. quick: to see that all runs; the numbers mean little. Raises InputError without faiss
    and for fewer documents than the queries need.
    """
    from docemb_lib.evaluation.retrieval import relevant_ranks

    size = documents or (20_000 if quick else DOCUMENTS)
    queries = QUERIES // 20 if quick else QUERIES
    if size < (least := 10 * queries * (RELEVANT + 1)):
        raise InputError(f"documents: got {size}, give at least {least}")
    search = faiss_search()
    bar: Any = progress(desc="bench", total=4, unit="parts")
    with bar, tempfile.TemporaryDirectory() as folder:
        case = random_case(Path(folder) / "embeddings.npy", size, queries)
        bar.update()
        few = case._replace(embeddings=case.embeddings[: size // 10])
        relevant_ranks(few.embeddings, few.queries[:1], few.relevant[:1])  # libraries take their own memory once
        search(few.embeddings, few.queries[:1], 1)
        tenth = measure(partial(relevant_ranks, *few))
        ours = measure(partial(relevant_ranks, *case))
        bar.update()
        peer = measure(partial(search, case.embeddings, case.queries, TOP))
        bar.update()
        wrong = differing_ranks(case, ours.result)
        largest = precision_difference(case, ours.result, peer.result)
        bar.update()
    rows = [
        Row(
            "all ranks; faiss: the first 1,000 hits",
            queries / ours.seconds,
            "queries/s",
            peer=queries / peer.seconds,
            note="faiss computes in float32, ours in float64, which tells apart what float32 cannot",
        ),
        memory_row("memory at the peak", ours.peak, peer.peak),
        memory_row("memory at the peak, peer: a tenth of the documents", ours.peak, tenth.peak, at_most=GROWTH),
        Row(f"ranks that differ from sorting all cosines, {SORTED} queries", wrong, "", at_most=0),
        Row("average precision over 1,000 hits, largest difference from faiss", largest, "", at_most=DIFFERENCE),
    ]
    notes = ["memory: what the process holds for itself, without the pages of the mapped file, which can be taken back"]
    if quick:
        notes.append("quick: few documents and queries; the numbers mean little")
    about = {"documents": size, "queries": queries, "width": WIDTH, "relevant": RELEVANT, "top": TOP}
    return Report("retrieval", "faiss", machine(torch.device("cpu")), versions(), about, rows, notes=notes)


def random_case(file: Path, documents: int, queries: int) -> Case:
    """Random embeddings in a file; each query's relevant documents lean towards it, some a little, some much."""
    rng = np.random.default_rng(0)
    X = np.lib.format.open_memmap(file, mode="w+", dtype=np.float32, shape=(documents, WIDTH))
    for start in range(0, documents, BLOCK):
        X[start : start + BLOCK] = rng.standard_normal(X[start : start + BLOCK].shape, dtype=np.float32)
    # all of them in the first tenth, so that a tenth of the documents can be searched for the same
    drawn = rng.choice(documents // 10, size=queries * (RELEVANT + 1), replace=False).reshape(queries, RELEVANT + 1)
    for query, *relevant in drawn:
        X[relevant] += rng.uniform(0.02, 0.5, size=(RELEVANT, 1)).astype(np.float32) * X[query]
    X.flush()
    return Case(np.load(file, mmap_mode="r"), drawn[:, 0].tolist(), drawn[:, 1:].tolist())


def faiss_search() -> Callable[[np.ndarray, list[int], int], np.ndarray]:
    """The peer: exact search by inner product over normalised embeddings; a query itself is dropped from its hits."""
    from docemb_lib.evaluation.retrieval import unit

    try:
        import faiss
    except ImportError:
        raise InputError('faiss is not installed; run pip install -e ".[bench]"') from None

    def search(embeddings: np.ndarray, queries: list[int], top: int) -> np.ndarray:
        """The rows of the `top` nearest other documents of each query: (Q, top)."""
        index = faiss.IndexFlatIP(embeddings.shape[1])
        for start in range(0, len(embeddings), BLOCK):
            index.add(unit(embeddings[start : start + BLOCK]).astype(np.float32))
        _, hits = index.search(unit(embeddings[queries]).astype(np.float32), top + 1)
        others = [row[row != query][:top] for row, query in zip(hits, queries, strict=True)]
        return np.stack(others)

    return search


def measure(run: Callable[[], Any]) -> Measured:
    """Seconds of a run, and the most memory of its own that the process held meanwhile, looked at now and then."""
    before, done, seen = own_memory(), threading.Event(), [0]

    def watch() -> None:
        while not done.wait(INTERVAL):
            seen.append(own_memory() or 0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    try:
        result = run()
    finally:
        done.set()
        watcher.join()
    seconds = time.perf_counter() - start
    return Measured(seconds, None if before is None else max(1, max(seen) - before), result)


def own_memory() -> int | None:
    """Bytes in memory that belong to no file; None where the system does not tell."""
    try:
        found = re.search(r"^RssAnon:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) * 1024 if found else None


def memory_row(name: str, ours: int | None, peer: int | None, *, at_most: float | None = None) -> Row:
    if ours is None or peer is None:
        return Row(name, None, "bytes", note="this system does not tell")
    return Row(name, ours, "bytes", peer=peer, at_most=at_most)


def differing_ranks(case: Case, ranks: list[np.ndarray]) -> int:
    """How many ranks of the first queries are not the places in a sort of their cosines with all documents."""
    from docemb_lib.evaluation.retrieval import DECIMALS, unit

    X, queries = case.embeddings, case.queries[:SORTED]
    blocks = range(0, len(X), BLOCK)
    cosines = np.concatenate([unit(X[start : start + BLOCK]) @ unit(X[queries]).T for start in blocks])  # (N, SORTED)
    wrong = 0
    for q, query in enumerate(queries):
        order = np.argsort(-np.round(cosines[:, q], DECIMALS), kind="stable")
        order = order[order != query]
        wrong += int(np.count_nonzero(np.flatnonzero(np.isin(order, case.relevant[q])) + 1 != ranks[q]))
    return wrong


def precision_difference(case: Case, ranks: list[np.ndarray], hits: np.ndarray) -> float:
    """The largest difference of a query's average precision among the first hits, ours from the peer's.

    ranks: ours; hits: (Q, TOP) rows of the peer.
    """
    from docemb_lib.evaluation.retrieval import average_precision

    differences = []
    for row, relevant, own in zip(hits, case.relevant, ranks, strict=True):
        found = np.flatnonzero(np.isin(row, relevant)) + 1
        ours, theirs = (average_precision(some, relevant=len(some)) for some in (own[own <= len(row)], found))
        differences.append(abs(ours - theirs))
    return max(differences)

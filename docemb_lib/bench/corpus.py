"""Building a corpus against the same work done with `datasets`: documents a second, cores busy, peak memory by size.

Both sides read one file of generated documents, count words and the tokens of two models, drop copies, shuffle, split
and save. The peer is what a user of `datasets` writes: `map` in as many processes as there are cores, then `filter`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import statistics
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import redirect_stderr
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

from docemb_lib.bench.report import Report, Row, machine, versions
from docemb_lib.bench.workload import thesis_lengths
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

BUSY, GROWTH = 0.9, 1.2  # budgets: share of the cores; peak memory of the largest corpus over that of the smallest
MODEL = "all-MiniLM-L6-v2"  # whose tokeniser counts
COPIES = 100  # every so manieth document repeats the one before
EVERY = 0.02  # seconds between two looks at the memory
WARM_UP = 64  # documents


@dataclass(frozen=True)
class CorpusWorkload:
    """How much is built. The defaults take about ten minutes on two cores."""

    documents: int = 4000  # of the thesis' lengths, for the speed
    repeats: int = 3
    sizes: tuple[int, ...] = (100_000, 1_000_000)  # documents of `short` words, for the memory
    short: int = 12  # words
    held_out: int = 200  # documents of the validation split, and of the tasks
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """One side building one corpus, in a process of its own."""

    side: str
    documents: int
    seconds: float
    busy: float  # share of all cores, of this process and its children
    peak: int | None  # bytes of anonymous memory, of them together; None: this system does not tell


def bench_corpus(*, quick: bool = False, largest: int | None = None, repeats: int | None = None) -> Report:
    """Documents a second and cores busy at the thesis' lengths; peak memory of corpora of growing size.

    largest: documents of the last of those corpora, say 10,000,000; None: a million. repeats: of the speed; None: 3.
    quick: to see that all runs; the numbers mean little. Raises InputError for values that cannot be had.
    """
    workload = CorpusWorkload(documents=300, repeats=1, sizes=(2000, 4000), held_out=40) if quick else CorpusWorkload()
    if repeats is not None and repeats < 1:
        raise InputError(f"repeats: got {repeats}, give at least 1")
    if largest is not None:
        if largest <= workload.sizes[0]:
            raise InputError(f"documents: got {largest}, give more than {workload.sizes[0]}, the smallest corpus")
        workload = replace(workload, sizes=(*(size for size in workload.sizes if size < largest), largest))
    workload = replace(workload, repeats=repeats or workload.repeats)
    runs: list[tuple[int, int | None]] = [(workload.documents, None)] * workload.repeats
    runs += [(size, workload.short) for size in workload.sizes]
    found: list[list[Measured]] = []
    bar: Any = progress(desc="bench", total=2 * len(runs), unit="builds")
    with bar:
        for documents, words in runs:
            with TemporaryDirectory(prefix="docemb-bench-") as folder:
                file = Path(folder) / "documents.jsonl"
                write_documents(file, documents, words, seed=workload.seed)
                sides = []
                for side in BUILD:
                    sides.append(measure(side, file, documents, workload))
                    bar.update()
                found.append(sides)
    speed, memory = found[: workload.repeats], found[workload.repeats :]
    notes = [
        f"both count tokens twice with the tokeniser of {MODEL}; one document in {COPIES} is a copy",
        "memory: of all processes of a side, their code included, without what files stand behind; of short documents",
    ]
    if quick:
        notes.append("quick: few documents; the numbers mean little")
    rows = [*speed_rows(speed), *memory_rows(memory)]
    points = {
        name: [asdict(one) for pair in part for one in pair] for name, part in (("speed", speed), ("memory", memory))
    }
    where = machine(torch.device("cpu"))
    return Report("corpus", "datasets", where, versions(), asdict(workload), rows, points, notes)


def write_documents(file: Path, documents: int, words: int | None, *, seed: int) -> None:
    """Generated documents as JSON lines: `words` words each, or as long as the thesis'; one in COPIES repeats another.

    Words are those of the tokeniser, as frequent as Zipf's law has it.
    """
    rng = np.random.default_rng(seed)
    names = np.array(sorted(word for word in _tokenizer().get_vocab() if word.isascii() and word.isalpha()))
    frequency = 1 / np.arange(1, len(names) + 1)
    chances = np.cumsum(frequency / frequency.sum())
    lengths = thesis_lengths(documents, seed=seed) if words is None else [words] * documents
    text = ""
    with file.open("w", encoding="utf-8") as out:
        for number, length in enumerate(lengths):
            if number % COPIES != COPIES - 1:
                text = " ".join(names[np.searchsorted(chances, rng.random(length))])
            out.write(json.dumps({"id": f"document-{number:09}", "text": text}) + "\n")


def measure(side: str, file: Path, documents: int, workload: CorpusWorkload) -> Measured:
    """One build of the documents in `file`, in a new process; what it saves is removed again."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(_measure_here, side, file, documents, workload).result()


def speed_rows(pairs: list[list[Measured]]) -> list[Row]:
    """Documents a second of both, and how busy the cores are."""
    peer, ours = zip(*pairs, strict=True)
    ratios = [theirs.seconds / own.seconds for theirs, own in pairs]
    rates = [statistics.median(one.documents / one.seconds for one in side) for side in (peer, ours)]
    busy = [statistics.median(one.busy for one in side) for side in (peer, ours)]
    about = f"documents of the thesis' lengths, {ours[0].documents:,}"
    note = f"datasets: {100 * busy[0]:.0f} %; nothing else may run beside"
    return [
        Row(about, rates[1], "documents/s", peer=rates[0], spread=(min(ratios), max(ratios))),
        Row("cores busy, ours", busy[1], "%", at_least=BUSY, note=note),
    ]


def memory_rows(pairs: list[list[Measured]]) -> list[Row]:
    """Peaks by size, and how they grow from the smallest to the largest corpus."""
    rows = []
    for peer, ours in pairs:
        name = f"peak memory, {ours.documents:,} documents"
        if ours.peak is None or peer.peak is None:
            rows.append(Row(name, None, "bytes", note="this system does not tell a process its memory"))
        else:
            rows.append(Row(name, ours.peak, "bytes", peer=peer.peak))
    peaks = [ours.peak for _, ours in pairs]
    if peaks[0] and peaks[-1]:
        sizes = f"{pairs[0][1].documents:,} to {pairs[-1][1].documents:,}"
        rows.append(Row(f"growth of our peak, {sizes} documents", peaks[-1] / peaks[0], "×", at_most=GROWTH))
    return rows


def build_ours(file: Path, folder: Path, workload: CorpusWorkload) -> None:
    """As the corpus stage does it."""
    from docemb_lib.corpus import build_corpus
    from docemb_lib.corpus.sources import read_documents
    from docemb_lib.settings import Corpus

    settings = Corpus(source="local", path=file)
    corpus = build_corpus(
        read_documents(settings),
        counters={"n_student_tokens": count_tokens, "n_structural_tokens": count_tokens},
        validation=workload.held_out,
        tasks=workload.held_out,
        seed=workload.seed,
        folder=folder / "parts",
    )
    corpus.save_to_disk(str(folder / "corpus"))


def build_with_datasets(file: Path, folder: Path, workload: CorpusWorkload) -> None:
    """The same corpus, but for which copy stays and who is held out."""
    from datasets import DatasetDict, load_dataset

    rows = load_dataset("json", data_files=str(file), split="train", cache_dir=str(folder / "cache"))
    rows = rows.map(_lengths, batched=True, num_proc=_cores())
    seen: set[bytes] = set()

    def is_new(digest: bytes) -> bool:
        return digest not in seen and not seen.add(digest)  # type: ignore[func-returns-value]

    rows = rows.filter(is_new, input_columns="digest").remove_columns("digest").shuffle(seed=workload.seed)
    n = workload.held_out
    parts = {"validation": range(n), "tasks": range(n, 2 * n), "train": range(2 * n, len(rows))}
    DatasetDict({name: rows.select(part) for name, part in parts.items()}).save_to_disk(str(folder / "corpus"))


BUILD: dict[str, Callable[[Path, Path, CorpusWorkload], None]] = {
    "datasets": build_with_datasets,
    "ours": build_ours,
}


def count_tokens(texts: list[str]) -> list[int]:
    """Tokens of each text, by the bench's tokeniser."""
    from docemb_lib import pretrained
    from docemb_lib.student import count_tokens as count

    return count(pretrained.resolve(MODEL), texts)


def _lengths(batch: dict[str, list[Any]]) -> dict[str, list[Any]]:
    from docemb_lib.corpus.build import digest

    texts = batch["text"]
    return {
        "source": ["documents"] * len(texts),
        "n_words": [len(text.split()) for text in texts],
        "n_student_tokens": count_tokens(texts),
        "n_structural_tokens": count_tokens(texts),
        "digest": [digest(text, None) for text in texts],
    }


def _measure_here(side: str, file: Path, documents: int, workload: CorpusWorkload) -> Measured:
    """In a fresh process: a warm-up on a few documents, which loads all code, then the build itself."""
    with TemporaryDirectory(dir=file.parent) as name, Path(os.devnull).open("w") as nowhere, redirect_stderr(nowhere):
        folder = Path(name)  # the bars of both sides go nowhere
        few = folder / "few.jsonl"
        write_documents(few, WARM_UP, 10, seed=0)
        BUILD[side](few, folder / "few", replace(workload, held_out=20))
        with _Watch() as watch:
            before, begun = os.times(), time.perf_counter()
            BUILD[side](file, folder, workload)
            seconds, after = time.perf_counter() - begun, os.times()
    spent = sum(after[:4]) - sum(before[:4])  # user and system, of this process and of children that have ended
    return Measured(side, documents, seconds, spent / (seconds * _cores()), watch.peak)


class _Watch:
    """While its context lasts, the peak of the anonymous memory of this process and its children; None: not told."""

    def __init__(self) -> None:
        self.peak = anonymous_memory()
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> _Watch:
        if self.peak is not None:
            self.thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stopped.set()
        if self.peak is not None:
            self.thread.join()

    def _look(self) -> None:
        while not self.stopped.wait(EVERY):
            self.peak = max(self.peak or 0, anonymous_memory() or 0)


def anonymous_memory() -> int | None:
    """Bytes that no file stands behind, of this process and its children; None where the system does not tell."""
    import psutil

    total = 0
    process = psutil.Process()
    for one in [process, *process.children(recursive=True)]:
        try:
            lines = Path(f"/proc/{one.pid}/status").read_text().splitlines()
        except OSError:  # another system, or a child that has just ended
            continue
        total += sum(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon:"))
    return total or None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@lru_cache(maxsize=1)
def _tokenizer() -> Any:
    from docemb_lib import pretrained
    from docemb_lib.student.loading import load_tokenizer

    return load_tokenizer(pretrained.resolve(MODEL), max_tokens=2**30)

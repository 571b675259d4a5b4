"""Paragraph Vector against a plain gensim loop: training by threads, inference by processes, on generated text.

gensim's side is what its users write: a Doc2Vec over a list of documents in memory, then `infer_vector` one by one.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from docemb_lib.bench.measure import interleaved
from docemb_lib.bench.report import Report, Row, machine, versions
from docemb_lib.bench.workload import thesis_lengths
from docemb_lib.errors import InputError
from docemb_lib.progress import progress

if TYPE_CHECKING:
    from docemb_lib.teachers import ParagraphVector, Words

TRAINING, INFERENCE = 1.7, 1.8  # budgets: with two workers or processes against one
KINDS = {"DM": True, "DBOW": False}
WARM_UP = 4.0  # seconds, after which all processes have started
CPU = "cpu"


@dataclass(frozen=True)
class TextWorkload:
    """How much is measured. The defaults take about six minutes on two cores."""

    documents: int = 1200
    words_per_document: float = 0.3  # of the thesis' tokens: about 400 in the mean
    types: int = 30_000  # different words, as frequent as Zipf's law has it
    vector_size: int = 100
    epochs: int = 10
    repeats: int = 3
    seed: int = 0

    def texts(self) -> list[str]:
        """Words drawn independently: word k with a probability of 1/k."""
        generator = np.random.default_rng(self.seed)
        frequency = 1 / np.arange(1, self.types + 1)
        lengths = thesis_lengths(self.documents, seed=self.seed, scale=self.words_per_document)
        drawn = generator.choice(self.types, size=sum(lengths), p=frequency / frequency.sum())
        names = np.array([f"word{k}" for k in range(self.types)])[drawn]
        return [" ".join(words) for words in np.split(names, np.cumsum(lengths)[:-1])]


def bench_paragraph_vector(
    *, quick: bool = False, documents: int | None = None, repeats: int | None = None, cores: int | None = None
) -> Report:
    """Words per second of training and documents per second of inference, for 1, 2, 4, … workers up to all cores.

    documents, repeats: None: what takes some minutes. quick: to see that all runs; the numbers mean little.
    cores: None: those at hand. Raises InputError for values that cannot be had.
    """
    for name, value in (("documents", documents), ("repeats", repeats)):
        if value is not None and value < 1:
            raise InputError(f"{name}: got {value}, give at least 1")
    workload = replace(TextWorkload(), documents=40, epochs=2, repeats=1) if quick else TextWorkload()
    workload = replace(workload, documents=documents or workload.documents, repeats=repeats or workload.repeats)
    where = machine(torch.device(CPU))
    numbers = workers_up_to(cores or int(where["cores"]))
    notes = ["training with more than one worker is not repeatable, in gensim's loop and in ours; inference always is"]
    if len(numbers) == 1:
        notes.append("one core: nothing to scale with")
    if quick:
        notes.append("quick: few documents; the numbers mean little")
    rows, points = _measure(workload, numbers)
    settings = {**asdict(workload), "workers": numbers, "gensim": version("gensim")}
    return Report("paragraph-vector", "gensim", where, versions(), settings, rows, points, notes)


def workers_up_to(cores: int) -> list[int]:
    """1, 2, 4, … and `cores`."""
    return sorted({2**k for k in range(cores.bit_length()) if 2**k <= cores} | {cores})


def _measure(workload: TextWorkload, numbers: list[int]) -> tuple[list[Row], dict[str, list[dict[str, Any]]]]:
    from docemb_lib.teachers import ParagraphVector, write_words

    texts = workload.texts()
    rows: list[Row] = []
    points: dict[str, list[dict[str, Any]]] = {"training": [], "inference": []}
    bar: Any = progress(desc="bench", total=2 * len(KINDS), unit="parts")
    with bar, tempfile.TemporaryDirectory(prefix="docemb-bench-") as folder:
        words = write_words(Path(folder) / "words", texts, "lowercase")
        for name, dm in KINDS.items():
            models = {
                n: ParagraphVector(dm=dm, vector_size=workload.vector_size, epochs=workload.epochs, workers=n)
                for n in numbers
            }
            done = words.words * workload.epochs
            runs = _training_runs(texts, words, models, Path(folder) / name)
            measured = _rates(runs, done, workload.repeats)
            points["training"] += [{"kind": name, **point} for point in measured]
            rows += scaling_rows(f"training {name}", measured, "workers", "words/s", TRAINING)
            bar.update()
            models[1].fit_words(words, Path(folder) / name)
            measured, more = _inference(texts, Path(folder) / name, numbers, workload.repeats)
            points["inference"] += [{"kind": name, **point} for point in measured]
            rows += scaling_rows(f"inference {name}", measured, "processes", "documents/s", INFERENCE)
            rows += [replace(row, name=f"inference {name}, {row.name}") for row in more]
            bar.update()
    return rows, points


def _training_runs(
    texts: Sequence[str], words: Words, models: dict[int, ParagraphVector], folder: Path
) -> dict[tuple[str, int], Callable[[], object]]:
    """Vocabulary, epochs and what is written in between, in this process; gensim's side writes nothing."""
    from gensim.models.doc2vec import Doc2Vec, TaggedDocument

    from docemb_lib.teachers import paragraph_vector as gensim_training

    documents = [TaggedDocument(text.lower().split(), [tag]) for tag, text in enumerate(texts)]

    def ours(model: ParagraphVector) -> None:
        target = folder.with_name(f"{folder.name}-{model.workers}-workers")
        target.mkdir(exist_ok=True)
        gensim_training.train(words.file, target, "bench", model.gensim_options(words))
        gensim_training.remove_states(target)

    runs: dict[tuple[str, int], Callable[[], object]] = {}
    for number, model in models.items():
        runs["gensim", number] = partial(Doc2Vec, documents, **model.gensim_options(words))
        runs["ours", number] = partial(ours, model)
    return runs


def _inference(
    texts: Sequence[str], folder: Path, numbers: list[int], repeats: int
) -> tuple[list[dict[str, Any]], list[Row]]:
    """Rates of the model in `folder`, and rows on start-up and equality."""
    from gensim.models.doc2vec import Doc2Vec

    from docemb_lib.teachers import ParagraphVector
    from docemb_lib.teachers import paragraph_vector as gensim_training

    plain = Doc2Vec.load(str(folder / gensim_training.MODEL_FILE))
    models = {number: ParagraphVector.load(folder) for number in numbers}  # each with processes of its own
    runs: dict[tuple[str, int], Callable[[], object]] = {
        ("gensim", 1): lambda: [plain.infer_vector(text.lower().split()) for text in texts]
    }
    found, start = [], 0.0
    for number, model in models.items():
        runs["ours", number] = partial(model.embed, texts, jobs=number)
        begun = time.perf_counter()
        model.embed(texts[:number], jobs=number)
        start = time.perf_counter() - begun
        found.append(model.embed(texts, jobs=number))
        while time.perf_counter() - begun < WARM_UP:
            model.embed(texts, jobs=number)
    measured = _rates(runs, len(texts), repeats)
    for model in models.values():
        model.stop()
    difference = max(float(np.abs(vectors - found[0]).max()) for vectors in found)
    return measured, [
        Row(f"start of {numbers[-1]} processes", start, "s"),
        Row("largest difference between numbers of processes", difference, "", at_most=0.0),
    ]


def _rates(runs: dict[tuple[str, int], Callable[[], object]], amount: int, repeats: int) -> list[dict[str, Any]]:
    """A point per side and number of workers: `amount` per second, the median of interleaved repeats."""
    return [
        {"side": side, "workers": workers, "per_s": amount / median(seconds), "repeats": seconds}
        for (side, workers), seconds in interleaved(runs, repeats, CPU).items()
    ]


def scaling_rows(name: str, points: Sequence[dict[str, Any]], what: str, unit: str, budget: float) -> list[Row]:
    """Ours against gensim with as many workers (or one, where it has no more), then ours against ours with one.

    what: workers or processes; budget: of two against one.
    """
    by_side = {(point["side"], point["workers"]): point for point in points}
    one = by_side["ours", 1]
    rows, scaling = [], []
    for (side, workers), point in by_side.items():
        if side != "ours":
            continue
        peer = by_side.get(("gensim", workers), by_side["gensim", 1])
        rows.append(
            Row(f"{name}, {workers} {what}", point["per_s"], unit, peer=peer["per_s"], spread=_spread(peer, point))
        )
        if workers > 1:
            bound = budget if workers == 2 else None
            ratio, spread = point["per_s"] / one["per_s"], _spread(one, point)
            scaling.append(Row(f"{name}, {workers} {what} over 1", ratio, "×", at_least=bound, spread=spread))
    return rows + scaling


def _spread(slow: dict[str, Any], fast: dict[str, Any]) -> tuple[float, float]:
    ratios = [before / after for before, after in zip(slow["repeats"], fast["repeats"], strict=True)]
    return min(ratios), max(ratios)

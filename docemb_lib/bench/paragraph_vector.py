"""Paragraph Vector against a plain gensim loop: training by threads, inference by processes, on generated text.

gensim's side is the usual script: a Doc2Vec over a list of documents in memory, then `infer_vector` one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from docemb_lib.bench.harness import Report, Row, interleaved, machine, ratio_row, thesis_lengths
from docemb_lib.progress import progress
from docemb_lib.teachers import ParagraphVector, paragraph_vector, write_words

if TYPE_CHECKING:
    from docemb_lib.teachers import Words

TRAINING, INFERENCE = 1.7, 1.8  # budgets: with two workers or processes against one
WARM_UP = 4.0  # seconds, after which all processes have started

Runs = dict[tuple[str, int], Callable[[], object]]  # (side, workers) → what is timed


@dataclass(frozen=True)
class TextWorkload:
    """How much is measured. The defaults take about six minutes on two cores."""

    documents: int = 1200
    words_per_document: float = 0.3  # of the thesis' tokens: about 400 in the mean
    types: int = 30_000  # different words, with frequencies after Zipf's law
    vector_size: int = 100
    epochs: int = 10
    repeats: int = 3
    seed: int = 0

    def texts(self) -> list[str]:
        """Words drawn independently: word k with a probability proportional to 1/k."""
        generator = np.random.default_rng(self.seed)
        frequency = 1 / np.arange(1, self.types + 1)
        lengths = thesis_lengths(self.documents, seed=self.seed, scale=self.words_per_document)
        drawn = generator.choice(self.types, size=sum(lengths), p=frequency / frequency.sum())
        names = np.array([f"word{k}" for k in range(self.types)])[drawn]
        return [" ".join(words) for words in np.split(names, np.cumsum(lengths)[:-1])]


def bench_paragraph_vector(*, quick: bool = False, documents: int | None = None, repeats: int | None = None) -> Report:
    """Words a second of training and documents a second of inference, for 1, 2, 4, … workers up to all cores.

    documents, repeats: None: numbers that take some minutes. quick: few documents, to see that all parts run.
    """
    workload = replace(TextWorkload(), documents=40, epochs=2, repeats=1) if quick else TextWorkload()
    workload = replace(workload, documents=documents or workload.documents, repeats=repeats or workload.repeats)
    numbers = worker_numbers(most := int(machine()["cores"]))
    notes = ["training with more than one worker is not repeatable, in gensim's loop and in ours; inference always is"]
    notes += ["one core: nothing to scale with"] if most == 1 else []
    notes += ["quick: few documents; the numbers mean little"] if quick else []
    rows: list[Row] = []
    with TemporaryDirectory(prefix="docemb-") as temporary:
        texts = workload.texts()
        words = write_words(Path(temporary) / "words", texts, "lowercase")
        for name in progress(("DM", "DBOW"), desc="bench", unit="parts"):
            folder = Path(temporary) / name
            model = partial(ParagraphVector, vector_size=workload.vector_size, epochs=workload.epochs)
            models = {number: model(dm=name == "DM", workers=number) for number in numbers}
            training = interleaved(training_runs(texts, words, models, folder), workload.repeats)
            amount = words.words * workload.epochs
            rows += scaling_rows(f"training {name}", training, amount, "workers", "words/s", TRAINING)
            models[1].fit_words(words, folder)
            rows += inference(f"inference {name}", texts, folder, numbers, workload.repeats)
    settings = {**asdict(workload), "workers": numbers, "gensim": version("gensim")}
    return Report("paragraph-vector", "gensim", settings, rows, notes)


def worker_numbers(most: int) -> list[int]:
    """1, 2, 4, … and `most`."""
    return sorted({2**k for k in range(most.bit_length())} | {most})


def training_runs(texts: Sequence[str], words: Words, models: dict[int, ParagraphVector], folder: Path) -> Runs:
    """Vocabulary, epochs and what is written between them, in this process; gensim's side writes nothing."""
    from gensim.models.doc2vec import Doc2Vec, TaggedDocument

    documents = [TaggedDocument(text.lower().split(), [tag]) for tag, text in enumerate(texts)]

    def train(model: ParagraphVector) -> None:
        target = folder.with_name(f"{folder.name}-{model.workers}-workers")
        target.mkdir(exist_ok=True)
        paragraph_vector.train(words.file, target, "bench", model.gensim_options(words.occurrences(model.min_count)))
        paragraph_vector.remove_states(target)

    runs: Runs = {}
    for number, model in models.items():
        runs["gensim", number] = partial(Doc2Vec, documents, **model.gensim_options(words.occurrences(model.min_count)))
        runs["ours", number] = partial(train, model)
    return runs


def inference(name: str, texts: Sequence[str], folder: Path, numbers: Sequence[int], repeats: int) -> list[Row]:
    """Rates of the model in `folder`, the start of its processes, and their largest difference."""
    model = ParagraphVector.load(folder)
    plain = paragraph_vector.load_model(folder, "", tuple(model.gensim_options(model.fitted.min_count).items()))
    runs: Runs = {("gensim", 1): lambda: [plain.infer_vector(text.lower().split()) for text in texts]}
    found, start = [], 0.0
    for number in numbers:
        runs["ours", number] = partial(model.embed, texts, jobs=number)
        begun = time.perf_counter()
        model.embed(texts[:number], jobs=number)
        start = time.perf_counter() - begun
        found.append(model.embed(texts, jobs=number))
        while time.perf_counter() - begun < WARM_UP:
            model.embed(texts, jobs=number)
    rows = scaling_rows(name, interleaved(runs, repeats), len(texts), "processes", "documents/s", INFERENCE)
    paragraph_vector.PROCESSES.stop()
    rows.append(Row(f"{name}, start of {numbers[-1]} processes", start, "s"))
    difference = float(np.ptp(found, axis=0).max())
    return [*rows, Row(f"{name}, largest difference between numbers of processes", difference, "", at_most=0.0)]


def scaling_rows(
    name: str, seconds: dict[tuple[str, int], list[float]], amount: int, what: str, unit: str, budget: float
) -> list[Row]:
    """Ours against gensim with as many workers (or one, where gensim has no more), then ours against ours with one."""
    ours = {workers: own for (side, workers), own in seconds.items() if side == "ours"}
    rows, scaling = [], []
    for workers, own in ours.items():
        peer = seconds.get(("gensim", workers), seconds["gensim", 1])
        rows.append(ratio_row(f"{name}, {workers} {what}", amount, unit, own, peer))
        if workers > 1:
            row = ratio_row(f"{name}, {workers} {what} over 1", 1, "×", own, ours[1])
            bound = budget if workers == 2 else None
            scaling.append(Row(row.name, row.ratio, "×", at_least=bound, spread=row.spread))
    return rows + scaling
